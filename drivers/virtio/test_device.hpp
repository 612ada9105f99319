// SPDX-License-Identifier: BSL-1.0
// A virtio-net device for unit tests, the fuzzer and the benchmark. The test calls each step of the device.
//
// `DeviceRing` is the device's side of one queue, and checks what the driver writes there (2.7). `TestDevice` has the registers as well. It
// has no thread: a driver's notification is a store to `doorbells`, and nothing happens until the test calls the next step.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "drivers/virtio/specification.hpp"
#include "drivers/virtio_bus/ring.hpp"
#include "drivers/virtio_bus/transport.hpp"
#include "kernel/machine.hpp"

namespace neap::virtio::test {

using Bytes = std::vector<std::uint8_t>;

struct SentFrame {
  FrameHeader header;
  Bytes bytes;
  unsigned descriptors = 0;
  bool indirect = false;
};

class DeviceRing {
 public:
  DeviceRing() = default;
  DeviceRing(std::uint64_t descriptors, std::uint64_t available, std::uint64_t used, std::uint32_t size, bool event_index)
      : descriptors_(at<Descriptor>(descriptors)),
        available_(at<std::uint16_t>(available)),
        used_(at<std::byte>(used)),
        size_(size),
        event_index_(event_index) {}
  DeviceRing(const Ring& ring, bool event_index)
      : DeviceRing(ring.descriptors_address(), ring.available_address(), ring.used_address(), ring.size(), event_index) {}

  /// Chains that the driver has made available and the device has not taken.
  [[nodiscard]] std::uint32_t waiting() const {
    return static_cast<std::uint16_t>(std::atomic_ref(available_[1]).load(std::memory_order_acquire) - taken_);
  }
  /// Takes the next chain; returns the number of its first descriptor.
  std::uint32_t take() { return available_[2 + taken_++ % size_]; }
  /// The descriptors of a chain, also of an indirect one. `good` becomes false if the driver broke a rule.
  [[nodiscard]] std::vector<Descriptor> chain(std::uint32_t first, bool* indirect = nullptr) {
    std::vector<Descriptor> pieces;
    if (first >= size_) return complain(pieces);
    const Descriptor* table = descriptors_;
    std::uint32_t count = size_, next = first;
    if ((table[first].flags & descriptor_flag::indirect) != 0) {
      if (table[first].flags != descriptor_flag::indirect || table[first].bytes % sizeof(Descriptor) != 0) return complain(pieces);
      if (indirect != nullptr) *indirect = true;
      count = table[first].bytes / sizeof(Descriptor);
      table = at<Descriptor>(table[first].address);
      next = 0;
    }
    for (;;) {
      if (next >= count || pieces.size() > size_) return complain(pieces);
      pieces.push_back(table[next]);
      if (table[next].bytes == 0 || table[next].address == 0) return complain(pieces);
      if ((table[next].flags & descriptor_flag::next) == 0) return pieces;
      next = table[next].next;
    }
  }
  /// Writes a used entry without making it visible.
  void put(std::uint32_t id, std::uint32_t bytes) {
    const UsedEntry entry{.id = id, .bytes = bytes};
    std::memcpy(used_ + 4 + 8 * (used_end_++ % size_), &entry, sizeof entry);
  }
  /// Makes the entries visible. Returns true if the driver wants an interrupt.
  bool publish() {
    auto& index = *reinterpret_cast<std::uint16_t*>(used_ + 2);
    const std::uint16_t before = index;
    std::atomic_ref(index).exchange(used_end_, std::memory_order_seq_cst);
    if (!event_index_) return available_[0] == 0;
    const std::uint16_t event = available_[2 + size_];
    return static_cast<std::uint16_t>(used_end_ - event - 1) < static_cast<std::uint16_t>(used_end_ - before);
  }
  /// From now on the driver notifies of the chain behind the last taken one.
  void want_notification(bool on) {
    if (event_index_) {
      *reinterpret_cast<std::uint16_t*>(used_ + 4 + 8 * size_) = static_cast<std::uint16_t>(on ? taken_ : taken_ - 1);
    } else {
      *reinterpret_cast<std::uint16_t*>(used_) = on ? 0 : 1;
    }
  }

  /// Receives a frame, in several buffers if `merges`. Returns false if there is no room.
  bool receive(std::span<const std::uint8_t> frame, FrameHeader header = {}, bool merges = true) {
    std::size_t offset = 0;
    std::vector<UsedEntry> entries;
    std::byte* first = nullptr;
    while (offset < frame.size() || entries.empty()) {
      if (waiting() == 0) return false;
      const std::uint32_t id = take();
      const auto pieces = chain(id);
      if (pieces.size() != 1 || (pieces[0].flags & descriptor_flag::device_writes) == 0) {
        good = false;
        return false;
      }
      auto* const to = at<std::byte>(pieces[0].address);
      const std::uint32_t begin = entries.empty() ? frame_header_bytes : 0;
      if (first == nullptr) first = to;
      const std::size_t bytes = std::min<std::size_t>(pieces[0].bytes - begin, frame.size() - offset);
      std::memcpy(to + begin, frame.data() + offset, bytes);
      offset += bytes;
      entries.push_back({.id = id, .bytes = static_cast<std::uint32_t>(begin + bytes)});
      if (!merges) break;
    }
    header.buffers = static_cast<std::uint16_t>(entries.size());
    std::memcpy(first, &header, sizeof header);
    for (const UsedEntry& entry : entries) put(entry.id, entry.bytes);
    return true;
  }
  /// Reads all frames that the driver has queued. Their chains are used in the order of `sent`, or in the opposite order.
  void transmit(std::deque<SentFrame>& sent, bool backwards = false) {
    std::vector<std::uint32_t> ids;
    while (waiting() != 0) {
      const std::uint32_t id = take();
      SentFrame frame;
      Bytes all;
      for (const Descriptor& piece : chain(id, &frame.indirect)) {
        if ((piece.flags & descriptor_flag::device_writes) != 0) good = false;
        const auto* const from = at<std::uint8_t>(piece.address);
        all.insert(all.end(), from, from + piece.bytes);
        ++frame.descriptors;
      }
      if (all.size() <= frame_header_bytes) {
        good = false;
      } else {
        std::memcpy(&frame.header, all.data(), sizeof frame.header);
        frame.bytes.assign(all.begin() + frame_header_bytes, all.end());
      }
      sent.push_back(std::move(frame));
      ids.push_back(id);
    }
    if (backwards) std::ranges::reverse(ids);
    for (const std::uint32_t id : ids) put(id, 0);
  }

  bool good = true;

 private:
  template <class T>
  static T* at(std::uint64_t address) {
    return static_cast<T*>(machine::direct_map(address));
  }
  std::vector<Descriptor> complain(const std::vector<Descriptor>& pieces) {
    good = false;
    return pieces;
  }

  Descriptor* descriptors_ = nullptr;
  std::uint16_t* available_ = nullptr;
  std::byte* used_ = nullptr;
  std::uint32_t size_ = 1;
  std::uint16_t taken_ = 0, used_end_ = 0;
  bool event_index_ = false;
};

struct TestDeviceOptions {
  std::uint64_t features = ~std::uint64_t{0};
  std::uint32_t queue_size = 256, queue_pairs_max = 4, vectors = 8, mtu = 1500, rss_table_max = 128;
  MacAddress mac{0x52, 0x54, 0, 1, 2, 3};
  bool refuses_features = false, never_resets = false;
};

class TestDevice final : public Transport, public CardBus {
 public:
  explicit TestDevice(TestDeviceOptions wanted = {}) : options(wanted) { doorbells.fill(0xFFFF); }
  TestDevice& operator=(TestDevice&&) = delete;
  ~TestDevice() override {
    if (on_end) on_end();
  }

  [[nodiscard]] std::uint32_t read(Register place) const noexcept override {
    const std::lock_guard guard(lock_);
    const auto queue = queues.find(selected_);
    const bool exists = selected_ <= 2 * pairs();
    if (place.region == Region::device) return read_configuration(place);
    switch (place.offset) {
      case reg::device_feature.offset:
        return static_cast<std::uint32_t>(options.features >> 32 * feature_half_);
      case reg::device_status.offset:
        return status;
      case reg::config_generation.offset:
        return generation;
      case reg::config_vector.offset:
        return config_vector < options.vectors ? config_vector : no_vector;
      case reg::queue_size.offset:
        return !exists ? 0 : queue != queues.end() && queue->second.size != 0 ? queue->second.size : options.queue_size;
      case reg::queue_vector.offset:
        return queue != queues.end() && queue->second.vector < options.vectors ? queue->second.vector : no_vector;
      case reg::queue_enable.offset:
        return queue != queues.end() && queue->second.enabled ? 1 : 0;
      case reg::queue_notify_offset.offset:
        return selected_;
      default:
        return 0;
    }
  }
  void write(Register place, std::uint64_t value) const noexcept override {
    const std::lock_guard guard(lock_);
    const auto word = static_cast<std::uint32_t>(value);
    switch (place.offset) {
      case reg::device_feature_select.offset:
      case reg::driver_feature_select.offset:
        feature_half_ = word;
        break;
      case reg::driver_feature.offset:
        agreed = (agreed & ~(std::uint64_t{0xFFFF'FFFF} << 32 * feature_half_)) | std::uint64_t{word} << 32 * feature_half_;
        break;
      case reg::device_status.offset:
        if (word == 0 && !options.never_resets) {
          queues.clear();
          status = 0;
        } else {
          status = word & ~(options.refuses_features || (agreed & ~options.features) != 0 ? status::features_ok : 0U);
        }
        break;
      case reg::config_vector.offset:
        config_vector = word;
        break;
      case reg::queue_select.offset:
        selected_ = word;
        break;
      case reg::queue_size.offset:
        queues[selected_].size = word;
        break;
      case reg::queue_vector.offset:
        queues[selected_].vector = word;
        break;
      case reg::queue_descriptors.offset:
        queues[selected_].addresses[0] = value;
        break;
      case reg::queue_available.offset:
        queues[selected_].addresses[1] = value;
        break;
      case reg::queue_used.offset:
        queues[selected_].addresses[2] = value;
        break;
      case reg::queue_enable.offset: {
        Queue& queue = queues[selected_];
        queue.enabled = true;
        queue.ring =
            DeviceRing(queue.addresses[0], queue.addresses[1], queue.addresses[2], queue.size, (agreed & feature::event_index) != 0);
        break;
      }
      default:
        break;
    }
  }
  [[nodiscard]] volatile std::uint16_t* notify_address(std::uint32_t offset) const noexcept override {
    return offset < doorbells.size() ? &doorbells[offset] : nullptr;
  }
  [[nodiscard]] const CardBus& bus() const noexcept override { return *this; }
  [[nodiscard]] unsigned msix_vectors() const noexcept override { return options.vectors; }
  [[nodiscard]] Result<void> route_msix(unsigned entry, unsigned core, std::uint8_t vector) const override {
    const std::lock_guard guard(lock_);
    routes[entry] = {core, vector};
    return {};
  }
  void enable(bool on) const noexcept override { enabled = on; }
  [[nodiscard]] NetDeviceIdentity identity(std::string_view name) const noexcept override {
    return {.name = name, .vendor_id = 0x1AF4, .device_id = 0x1041, .revision = 1};
  }

  /// Executes the commands that wait in the control queue.
  void serve_control() {
    const std::lock_guard guard(lock_);
    const auto found = queues.find(2 * pairs());
    if (found == queues.end() || !found->second.enabled || ignores_commands) return;
    DeviceRing& ring = found->second.ring;
    while (ring.waiting() != 0) {
      const std::uint32_t id = ring.take();
      const auto pieces = ring.chain(id);
      Bytes data;
      for (const Descriptor& piece : pieces) {
        auto* const bytes = static_cast<std::uint8_t*>(machine::direct_map(piece.address));
        if ((piece.flags & descriptor_flag::device_writes) == 0) {
          data.insert(data.end(), bytes, bytes + piece.bytes);
        } else {
          *bytes = refuses_commands ? 1 : 0;
        }
      }
      commands.push_back(std::move(data));
      ring.put(id, 1);
      static_cast<void>(ring.publish());
    }
  }

  struct Queue {
    std::uint32_t size = 0, vector = no_vector;
    std::array<std::uint64_t, 3> addresses{};
    bool enabled = false;
    DeviceRing ring;
  };
  TestDeviceOptions options;
  std::function<void()> on_end;
  std::vector<Bytes> commands;
  bool refuses_commands = false;
  std::atomic<bool> ignores_commands = false;
  std::atomic<std::uint32_t> link{link_up_bit};
  mutable std::atomic<bool> enabled = false;
  mutable std::uint32_t config_vector = no_vector, generation = 0;
  mutable std::atomic<std::uint32_t> status = 0;
  mutable std::uint64_t agreed = 0;
  mutable std::map<unsigned, Queue> queues;
  mutable std::map<unsigned, std::pair<unsigned, std::uint8_t>> routes;
  mutable std::array<std::uint16_t, 129> doorbells;

 private:
  /// 5.1.2: without MQ and RSS, there is one pair, and the control queue follows it.
  [[nodiscard]] std::uint32_t pairs() const noexcept {
    return (agreed & (feature::multiqueue | feature::rss)) != 0 ? options.queue_pairs_max : 1;
  }
  [[nodiscard]] std::uint32_t read_configuration(Register place) const noexcept {
    if (place.offset < options.mac.size()) return options.mac[place.offset];
    switch (place.offset) {
      case reg::status.offset:
        return link;
      case reg::queue_pairs_max.offset:
        return options.queue_pairs_max;
      case reg::mtu.offset:
        return options.mtu;
      case reg::speed.offset:
        return 10'000;
      case reg::rss_key_max.offset:
        return 40;
      default:
        return place.offset == reg::rss_table_max.offset ? options.rss_table_max : 0;
    }
  }
  mutable std::mutex lock_;
  mutable std::uint32_t feature_half_ = 0, selected_ = 0;
};

}  // namespace neap::virtio::test
