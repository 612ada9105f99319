// SPDX-License-Identifier: BSL-1.0
// The cost of a frame in the driver: instructions of an event with exactly 1, 8 or 32 frames. tools/bench/driver.py counts them.
//
// The soft 82599 receives the frames that it sends (`--net loopback`). With `card=virtio`, a simulated virtio-net in this image does the
// same between the counted regions, and says of each frame that its checksum is right. In both cases interrupts are masked. Before each
// event the image waits, without counting, until the card has written back as many descriptors as the batch has frames. So each batch has
// its exact size at any speed of the card. A count covers the event of the queue pair, from its first instruction to the tail writes at its
// end:
//   receive    frames with good checksums and an RSS hash go to a stack that reads both and returns the buffer at once
//   transmit   frames whose checksums the card computes; the reclaiming after their completion is counted separately
//   forward    received frames are sent again from the same buffer, and the frames of the previous round are reclaimed
#include <array>
#include <cstring>
#include <span>

#include "bench/marks.hpp"
#include "drivers/ixgbe/card.hpp"
#include "drivers/virtio/card.hpp"
#include "drivers/virtio/test_device.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/log.hpp"

namespace {

using namespace neap;
using namespace std::chrono_literals;

// tools/bench/driver.py uses these numbers: a region's number is kind + kinds * (batch's index + 3 * (log on: 1, off: 0)).
enum Kind : unsigned { receive, transmit, take_back, forward, kinds };
constexpr std::array<unsigned, 3> batches{1, 8, 32};
constexpr unsigned rounds_warm = 20;
constexpr unsigned rounds_counted = 200;  // the counts are exact, so more rounds would not change the result
constexpr auto patience = 60s;
constexpr std::size_t frame_bytes = 60;

/// A minimal stack: it reads only the fields that every stack needs. `complete`: the card checks both checksums, and reports an RSS hash.
/// The sender's type is known, so that its short path is inlined, as the driver's own cost.
template <class QueuePair, bool complete>
struct Stack final : FrameReceiver {
  void receive(std::span<const ReceivedFrame> frames) noexcept override {
    received += frames.size();
    if (forwards) return send_on(frames);
    for (const auto& [frame, info] : frames) {
      look_at(info);
      frame->release();
    }
  }
  [[gnu::noinline]] void send_on(std::span<const ReceivedFrame> frames) {
    for (const auto& [frame, info] : frames) {
      look_at(info);
      const TransmitPiece piece{.data = frame->data, .bytes = frame->bytes};
      if (!sender->transmit({&piece, 1}, {}, frame)) frame->release();
    }
  }
  void look_at(ReceiveInfo info) {
    if (!info.l4_checksum_good() || (complete && (!info.ip_checksum_good() || info.rss_type() == 0))) [[unlikely]]
      ++bad;
  }
  void transmitted(std::span<void* const> tokens) noexcept override {
    for (void* const token : tokens) {
      if (token != this) static_cast<ReceiveBuffer*>(token)->release();
    }
  }
  void link_changed(bool) noexcept override {}

  QueuePair* sender = nullptr;
  bool forwards = false;
  std::uint64_t received = 0, bad = 0;
};

/// Ends this event. The task continues in the next event.
task<void> next_event() {
  Completion<void> begun;
  spawn([&begun] { begun.fulfil(); });
  co_await begun;
}

void put(std::byte* place, std::uint32_t value) {
  place[0] = static_cast<std::byte>(value >> 8);
  place[1] = static_cast<std::byte>(value);
}

/// `step()` lets the device work, while the image waits for it.
template <class Card, class Stack, class Step>
class Bench {
 public:
  Bench(Card& card, Stack& stack, Step step) : pair_(card.pair(0)), stack_(stack), step_(step) {
    // A UDP datagram to ourselves, with the checksums that `TransmitOffload` requires.
    const MacAddress mac = card.mac();
    std::memcpy(frame_.data(), mac.data(), mac.size());
    std::memcpy(frame_.data() + mac.size(), mac.data(), mac.size());
    put(&frame_[12], 0x0800);
    std::byte* const ip = &frame_[14];
    put(ip, 0x4500);
    put(ip + 2, frame_bytes - 14);
    put(ip + 8, 64 << 8 | 17);
    put(ip + 12, 10 << 8);
    put(ip + 14, 1);
    put(ip + 16, 10 << 8);
    put(ip + 18, 2);
    put(ip + 20, 1000);
    put(ip + 22, 7);
    put(ip + 24, frame_bytes - 34);
    put(ip + 26, (10 << 8) + 1 + (10 << 8) + 2 + 17 + frame_bytes - 34);
  }

  template <unsigned log_on>
  task<bool> all() {
    co_return co_await batch<0 + 3 * log_on>() && co_await batch<1 + 3 * log_on>() && co_await batch<2 + 3 * log_on>();
  }

 private:
  static constexpr unsigned frames_of(unsigned group) { return batches[group % batches.size()]; }

  template <unsigned group>
  task<bool> batch() {
    constexpr unsigned frames = frames_of(group);
    for (unsigned round = 0; round < rounds_warm + rounds_counted; ++round) {
      const bool counted = round >= rounds_warm;
      if (!co_await send_and_take_back<kinds * group>(frames, counted)) co_return false;
      if (!co_await receive_them<kinds * group + receive>(frames, counted)) co_return false;
    }
    // Sends the first frames. Later the same frames are forwarded again and again.
    if (!co_await send_and_take_back<kinds * group>(frames, false)) co_return false;
    stack_.forwards = true;
    for (unsigned round = 0; round < rounds_warm + rounds_counted; ++round) {
      if (round != 0 && !wait([this] { return pair_.transmit_queue().ready(); }, "a sent batch")) co_return false;
      if (!co_await receive_them<kinds * group + forward>(frames, round >= rounds_warm)) co_return false;
    }
    stack_.forwards = false;
    if (!wait([this] { return pair_.transmit_queue().ready(); }, "the last batch")) co_return false;
    co_return co_await receive_them<kinds * group + receive>(frames, false);
  }

  template <unsigned first_region>
  task<bool> send_and_take_back(unsigned frames, bool counted) {
    co_await event<first_region + transmit>(counted, [] { return true; }, [this, frames] { send(frames); });
    if (!sent_ || !wait([this] { return pair_.transmit_queue().ready(); }, "sent frames")) co_return false;
    if (counted) bench::begin_counting<first_region + take_back>();
    pair_.transmit_queue().reclaim();
    pair_.transmit_queue().deliver(stack_);
    if (counted) bench::end_counting<first_region + take_back>();
    co_return true;
  }

  void send(unsigned frames) {
    auto& sender = *stack_.sender;
    void* const token = &stack_;
    constexpr TransmitOffload checksums{.l3_bytes = 20, .checksums = Checksums::udp_ipv4};
    for (unsigned i = 0; i < frames; ++i) {
      const TransmitPiece piece{.data = frame_.data(), .bytes = frame_bytes};
      if (!sender.transmit({&piece, 1}, checksums, token)) sent_ = false;
    }
  }

  template <unsigned region>
  task<bool> receive_them(unsigned frames, bool counted) {
    const std::uint64_t before = stack_.received;
    const auto came = [this, frames] { return wait([&] { return pair_.receive_queue().ready(frames); }, "a batch of frames"); };
    if (!co_await event<region>(counted, came, [this] { pair_.interrupt(); })) co_return false;
    if (stack_.received == before + frames && stack_.bad == 0) co_return true;
    print("bench_driver: an event took ", stack_.received - before, " frames instead of ", frames, "; ", stack_.bad, " were bad");
    co_return false;
  }

  /// If `prepare()` returns true, `work()` runs in the same event, and the driver's event-end hook runs after it. The instructions of both
  /// are counted together.
  template <unsigned region, class Prepare, class Work>
  task<bool> event(bool counted, Prepare prepare, Work work) {
    bool prepared = false;
    EventEndHook end([] { bench::end_counting<region>(); }, EventEndHook::Place::last);
    spawn([&] {
      prepared = prepare();
      if (!prepared) return;
      if (!counted) return work();
      bench::begin_counting<region>();
      work();
      end.request();
    });
    co_await next_event();
    co_return prepared;
  }

  /// Waits inside the event, so that no other event accesses the rings.
  template <class Ready>
  [[nodiscard]] bool wait(Ready ready, const char* what) {
    for (const auto deadline = BootClock::now() + patience; !ready();) {
      step_();
      if (BootClock::now() > deadline) {
        print("bench_driver: time-out while waiting for ", what);
        return false;
      }
      machine::pause();
    }
    return true;
  }

  std::remove_reference_t<decltype(std::declval<Card&>().pair(0))>& pair_;
  Stack& stack_;
  Step step_;
  alignas(64) std::array<std::byte, frame_bytes> frame_{};
  bool sent_ = true;
};

/// Measures with `card`, whose frames come back when `step()` was called.
template <bool complete_results, class Card, class Step>
task<int> measure(Card& card, Step step) {
  Stack<std::remove_reference_t<decltype(card.pair(0))>, complete_results> stack;
  static_cast<void>(card.attach(stack));
  stack.sender = &card.pair(0);
  card.set_interrupt(0, false);
  for (const auto deadline = BootClock::now() + patience; !card.link_up() && BootClock::now() < deadline;) co_await sleep_for(1ms);
  co_await sleep_for(10ms);  // in this time the queue pair's first poll ends

  Bench bench(card, stack, step);
  bool complete = co_await bench.template all<0>();
  complete = complete && co_await log::prepare({.entries_per_core = 256 * 1024, .sample_period_us = 0}) && co_await log::start({});
  complete = complete && co_await bench.template all<1>() && co_await log::stop();
  const std::uint64_t unwritten = log::extent(0).unwritten;
  print("bench_driver: ", stack.received, " frames, ", unwritten, " records unwritten");
  co_await card.close();
  co_return complete&& unwritten == 0 ? 0 : 1;
}

int fail(const Error& error) {
  print("bench_driver: ", error.message);
  return 1;
}

task<int> measure_virtio() {
  namespace feature = virtio::feature;
  constexpr std::uint64_t features = feature::version_1 | feature::mac | feature::checksum | feature::guest_checksum |
                                     feature::merged_buffers | feature::indirect | feature::event_index;
  auto transport = std::make_unique<virtio::test::TestDevice>(virtio::test::TestDeviceOptions{.features = features});
  virtio::test::TestDevice& device = *transport;
  auto opened = co_await virtio::start(std::move(transport));
  if (!opened) co_return fail(opened.error());
  virtio::test::DeviceRing &receive_ring = device.queues.at(0).ring, &transmit_ring = device.queues.at(1).ring;
  co_return co_await measure<false>(**opened, [&] {
    std::deque<virtio::test::SentFrame> sent;
    transmit_ring.transmit(sent);
    for (const auto& frame : sent) static_cast<void>(receive_ring.receive(frame.bytes, {.flags = virtio::header_flag::data_valid}));
    receive_ring.want_notification(true);
    transmit_ring.want_notification(true);
    static_cast<void>(receive_ring.publish());
    static_cast<void>(transmit_ring.publish());
  });
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const bool on_virtio = arguments.choice("card", {"82599", "virtio"}, 0, "the driver to measure") == 1;
  arguments.finish();
  if (on_virtio) co_return co_await measure_virtio();
  auto opened = co_await ixgbe::open();
  if (!opened) co_return fail(opened.error());
  co_return co_await measure<true>(**opened, [] {});
}
