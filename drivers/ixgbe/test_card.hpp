// SPDX-License-Identifier: BSL-1.0
// A card for unit tests. Its registers are plain memory. It models the part of the 82599 that walks rings; the test calls each step.
//
// The test card models only what the datasheet states about rings. The card takes receive descriptors up to the tail, and writes frames and
// write-backs. It reads transmit descriptors up to the tail, assembles frames with their context, and writes DD where RS requests it. A
// descriptor that a card could not handle fails the test: a zero address, a data descriptor without a buffer, a frame of over 38
// descriptors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "drivers/intel_descriptor_ring.hpp"
#include "drivers/ixgbe/register_access.hpp"
#include "drivers/test_frames.hpp"
#include "kernel/machine.hpp"
#include "kernel/net_device.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::ixgbe::test {

using Bytes = std::vector<std::uint8_t>;

using neap::test::frame_of;

struct SentFrame {
  Bytes bytes;
  descriptor::TransmitData first;       ///< its first data descriptor
  descriptor::TransmitContext context;  ///< the context that this descriptor names, if it asks for an offload
  unsigned data_descriptors = 0;
};

class TestCard {
 public:
  TestCard() : memory_(new(std::align_val_t{4096}) std::byte[Registers::bytes]()) { host::prepare_pages(); }
  ~TestCard() { ::operator delete[](memory_, std::align_val_t{4096}); }
  TestCard& operator=(TestCard&&) = delete;

  [[nodiscard]] Registers registers() const { return Registers(std::span<volatile std::byte>(memory_, Registers::bytes)); }
  void all_registers_read(std::uint8_t byte) { std::memset(memory_, byte, Registers::bytes); }

  /// Returns the number of buffers that queue 0 has posted and the card has not used.
  [[nodiscard]] std::uint32_t receive_room() const { return (registers().read(reg::RDT(0)).tail - receive_head_) % receive_size(); }

  /// Receives `frame` into queue 0, in as many descriptors as needed; `last` gives status and error bits of the last descriptor. Returns
  /// false if there is no room and the frame is dropped.
  bool receive(const Bytes& frame, descriptor::ReceiveWriteBack last = {}) {
    const std::uint32_t piece_bytes_max = registers().read(reg::SRRCTL(0)).packet_buffer_kib * 1024;
    const auto pieces = static_cast<std::uint32_t>((frame.size() + piece_bytes_max - 1) / piece_bytes_max);
    if (pieces > receive_room()) return false;
    for (std::size_t offset = 0; offset < frame.size(); offset += piece_bytes_max) {
      const std::size_t bytes = std::min<std::size_t>(piece_bytes_max, frame.size() - offset);
      const bool end = offset + bytes == frame.size();
      Descriptor& place = descriptors(receive_base())[receive_head_];
      const std::uint64_t address = std::atomic_ref(place.words[0]).load();
      EXPECT_NE(address, 0U);
      EXPECT_EQ(std::atomic_ref(place.words[1]).load(), 0U) << "a posted descriptor with DD set";
      std::memcpy(machine::direct_map(address), frame.data() + offset, bytes);
      descriptor::ReceiveWriteBack written = end ? last : descriptor::ReceiveWriteBack{};
      written.descriptor_done = true;
      written.end_of_packet = end;
      written.length = static_cast<std::uint32_t>(bytes);
      write_back(place, written.raw());
      receive_head_ = (receive_head_ + 1) % receive_size();
    }
    return true;
  }
  /// Writes one descriptor back, with the content of `written`.
  template <class Written = descriptor::ReceiveWriteBack>
  void receive_raw(const Written& written) {
    ASSERT_NE(receive_room(), 0U);
    write_back(descriptors(receive_base())[receive_head_], written.raw());
    receive_head_ = (receive_head_ + 1) % receive_size();
  }

  [[nodiscard]] std::uint32_t transmit_waiting() const { return (registers().read(reg::TDT(0)).tail - transmit_head_) % transmit_size(); }

  /// Sends up to `descriptors_max` descriptors of queue 0 and appends complete frames to `sent`.
  void transmit(std::uint32_t descriptors_max = ~0U) {
    for (; descriptors_max != 0 && transmit_waiting() != 0; --descriptors_max) {
      Descriptor& place = descriptors(transmit_base())[transmit_head_];
      const std::uint64_t word0 = std::atomic_ref(place.words[0]).load();
      const std::uint64_t word1 = std::atomic_ref(place.words[1]).load();
      const auto data = descriptor::TransmitData::from_raw(word0, word1);
      EXPECT_TRUE(data.extension);
      if (data.type == 2) {
        const auto context = descriptor::TransmitContext::from_raw(word0, word1);
        EXPECT_LT(context.index, 2U);
        EXPECT_EQ(gathered_.data_descriptors, 0U) << "a context inside a frame";
        contexts_[context.index & 1] = context;
        ++contexts_seen;
      } else {
        gather(data);
      }
      if (data.report_status) {
        ++reports;
        write_back(place, descriptor::TransmitWriteBack{.descriptor_done = true}.raw());
      }
      transmit_head_ = (transmit_head_ + 1) % transmit_size();
    }
  }

  std::deque<SentFrame> sent;
  unsigned contexts_seen = 0, reports = 0;

 private:
  void gather(const descriptor::TransmitData& data) {
    EXPECT_EQ(data.type, 3U);
    EXPECT_NE(data.data_length, 0U);
    if (gathered_.data_descriptors == 0) {
      gathered_.first = data;
      gathered_.context = contexts_[data.index & 1];
    }
    ++gathered_.data_descriptors;
    const auto* bytes = static_cast<const std::uint8_t*>(machine::direct_map(data.buffer_address));
    gathered_.bytes.insert(gathered_.bytes.end(), bytes, bytes + data.data_length);
    if (!data.end_of_packet) return;
    EXPECT_LE(gathered_.data_descriptors, 38U);
    sent.push_back(std::move(gathered_));
    gathered_ = {};
  }

  static void write_back(Descriptor& place, const std::array<std::uint64_t, 2>& words) {
    std::atomic_ref(place.words[0]).store(words[0], std::memory_order_relaxed);
    std::atomic_ref(place.words[1]).store(words[1], std::memory_order_release);
  }
  static Descriptor* descriptors(std::uint64_t base) { return static_cast<Descriptor*>(machine::direct_map(base)); }
  [[nodiscard]] std::uint64_t receive_base() const {
    return std::uint64_t{registers().read(reg::RDBAH(0)).address_high} << 32 | registers().read(reg::RDBAL(0)).raw();
  }
  [[nodiscard]] std::uint64_t transmit_base() const {
    return std::uint64_t{registers().read(reg::TDBAH(0)).address_high} << 32 | registers().read(reg::TDBAL(0)).raw();
  }
  [[nodiscard]] std::uint32_t receive_size() const { return registers().read(reg::RDLEN(0)).raw() / sizeof(Descriptor); }
  [[nodiscard]] std::uint32_t transmit_size() const { return registers().read(reg::TDLEN(0)).raw() / sizeof(Descriptor); }

  std::byte* memory_;
  std::uint32_t receive_head_ = 0, transmit_head_ = 0;
  std::array<descriptor::TransmitContext, 2> contexts_{};
  SentFrame gathered_;
};

/// The arguments of `FrameSender::transmit` for one frame.
struct TestFrame {
  std::span<const TransmitPiece> pieces;
  TransmitOffload offload;
  void* token = nullptr;
};

inline void* token_of(std::uintptr_t number) { return reinterpret_cast<void*>(number); }
inline TestFrame with_checksums(TestFrame frame, std::uint8_t l4_bytes = 20) {
  frame.offload = {.l3_bytes = 20, .l4_bytes = l4_bytes, .checksums = Checksums::tcp_ipv4};
  return frame;
}
inline TestFrame with_tso(TestFrame frame, std::uint16_t segment_bytes) {
  frame = with_checksums(frame);
  frame.offload.segment_bytes = segment_bytes;
  return frame;
}

/// A stack that records all calls.
class TestReceiver : public FrameReceiver {
 public:
  ~TestReceiver() override { release_all(); }
  void receive(std::span<const ReceivedFrame> received) noexcept override {
    ++calls;
    for (const ReceivedFrame& one : received) take_in(one.frame, one.info);
  }
  void take_in(ReceiveBuffer* frame, ReceiveInfo info) noexcept {
    Bytes bytes;
    pieces = 0;
    for (const ReceiveBuffer* piece = frame; piece != nullptr; piece = piece->next, ++pieces) {
      const auto* start = reinterpret_cast<const std::uint8_t*>(piece->data);
      bytes.insert(bytes.end(), start, start + piece->bytes);
    }
    frames.push_back(std::move(bytes));
    last_info = info;
    held.push_back(frame);
    if (!keep) release_all();
  }
  void transmitted(std::span<void* const> sent) noexcept override {
    for (void* const token : sent) {
      if (token != nullptr) tokens.push_back(token);
    }
  }
  void transmit_room() noexcept override { ++room_again; }
  void link_changed(bool up) noexcept override { link.push_back(up); }

  void release_one() {
    ReceiveBuffer* piece = held.front();
    held.pop_front();
    while (piece != nullptr) {
      ReceiveBuffer* const next = piece->next;
      piece->release();
      piece = next;
    }
  }
  void release_all() {
    while (!held.empty()) release_one();
  }

  bool keep = false;
  unsigned pieces = 0, calls = 0, room_again = 0;
  ReceiveInfo last_info;
  std::deque<Bytes> frames;
  std::deque<ReceiveBuffer*> held;
  std::vector<void*> tokens;
  std::vector<bool> link;
};

/// Runs a phase of the start-up on core 0 and returns its error; `message` is empty if it succeeded.
template <class Phase>
Error error_of(host::HostMachine& machine, Phase phase) {
  Error error{.code = ErrorCode::invalid, .message = "", .detail = 0};
  machine.run(0, [&]() -> task<void> {
    auto done = co_await phase();
    if (!done) error = done.error();
  });
  return error;
}

}  // namespace neap::ixgbe::test
