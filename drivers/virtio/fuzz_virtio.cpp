// SPDX-License-Identifier: BSL-1.0
// A hostile device: random entries in the used rings and random headers of frames, while the driver receives and sends.
//
// The driver may stop at any entry, but it must not touch memory outside of its buffers, and each buffer and token must come back once.
#include <cstdlib>

#include "drivers/virtio/receive_queue.hpp"
#include "drivers/virtio/test_stack.hpp"
#include "drivers/virtio/transmit_queue.hpp"
#include "tests/host/fuzzing.hpp"

namespace neap::virtio::test {
namespace {

class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return size_ == 0; }
  unsigned byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  unsigned word() { return byte() << 8 | byte(); }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "fuzz_virtio: %s\n", what);
  std::abort();
}

/// Mostly a number below `end`, sometimes any.
unsigned mostly_below(Choices& choices, unsigned end) {
  const unsigned value = choices.word();
  return (value & 0x1F) == 0 ? value * 0x10001U : (value >> 5) % end;
}

void run(Choices& choices) {
  constexpr std::uint32_t descriptors = 32;
  constexpr std::uint64_t kinds[] = {feature::merged_buffers, feature::guest_checksum, feature::event_index,
                                     feature::indirect,       feature::checksum,       feature::host_tso4};
  std::uint64_t features = 0;
  const unsigned chosen = choices.byte();
  for (unsigned i = 0; i < std::size(kinds); ++i) features |= (chosen >> i & 1) != 0 ? kinds[i] : 0;
  const bool events = (features & feature::event_index) != 0;
  log::Traffic traffic;
  ReceiveQueue receive{traffic};
  TransmitQueue transmit{traffic};
  if (!receive.prepare(descriptors, features) || !transmit.prepare(descriptors, features, 1514)) return;
  std::uint16_t doorbell = 0;
  receive.ring().connect(&doorbell, 0, events);
  transmit.ring().connect(&doorbell, 1, events);
  DeviceRing rx(receive.ring(), events), tx(transmit.ring(), events);
  TestReceiver stack;
  auto memory = DmaMemory::allocate(4096);
  if (!memory) return;
  std::uintptr_t queued = 0;
  receive.refill();
  for (unsigned step = 0; step < 200 && !choices.empty(); ++step) {
    switch (choices.byte() % 8) {
      case 0:  // a well-formed frame, perhaps with a wrong header
        if (rx.receive(frame_of(step, choices.word() % 9000), {.flags = static_cast<std::uint8_t>(choices.byte())},
                       (features & feature::merged_buffers) != 0))
          static_cast<void>(rx.publish());
        break;
      case 1: {  // the next buffer, with any length and any header
        if (rx.waiting() == 0) break;
        const std::uint32_t id = rx.take();
        const auto pieces = rx.chain(id);
        const FrameHeader header{.flags = static_cast<std::uint8_t>(choices.byte()),
                                 .buffers = static_cast<std::uint16_t>(choices.byte() % 5)};
        std::memcpy(machine::direct_map(pieces.at(0).address), &header, sizeof header);
        rx.put(id, mostly_below(choices, 2049));
        static_cast<void>(rx.publish());
        break;
      }
      case 2:
        rx.put(mostly_below(choices, descriptors), mostly_below(choices, 2049));
        static_cast<void>(rx.publish());
        break;
      case 3:
        tx.put(mostly_below(choices, descriptors), 0);
        static_cast<void>(tx.publish());
        break;
      case 4: {
        std::deque<SentFrame> sent;
        tx.transmit(sent, choices.byte() % 2 == 0);
        static_cast<void>(tx.publish());
        break;
      }
      case 5: {
        TransmitPiece pieces[3];
        const unsigned count = 1 + choices.byte() % 3;
        for (unsigned i = 0; i < count; ++i) pieces[i] = {.data = memory->start(), .bytes = choices.word() % 1600};
        const TransmitOffload offload{.l3_bytes = static_cast<std::uint8_t>(20 * (choices.byte() % 3)),
                                      .l4_bytes = static_cast<std::uint8_t>(choices.byte() % 40),
                                      .checksums = static_cast<Checksums>(choices.byte() % 6),
                                      .segment_bytes = static_cast<std::uint16_t>(choices.byte() % 2 * 1000)};
        transmit.begin_run();
        if (transmit.transmit_alike({pieces, count}, offload, token_of(queued + 1)) ||
            transmit.transmit({pieces, count}, offload, token_of(queued + 1)))
          ++queued;
        transmit.flush();
        break;
      }
      case 6:
        stack.keep = !stack.keep;
        if (!stack.keep) stack.release_all();
        break;
      default:
        static_cast<void>(receive.receive(stack, 1 + choices.byte() % 64));
        transmit.reap(stack);
        receive.refill();
        rx.want_notification(choices.byte() % 2 == 0);
        break;
    }
    stack.frames.clear();
  }
  transmit.flush();
  receive.empty();
  transmit.empty();
  transmit.deliver(stack);
  stack.release_all();
  check(stack.tokens.size() == queued, "a token was lost or came twice");
  for (std::uintptr_t i = 0; i < queued; ++i) check(stack.tokens[i] == token_of(i + 1), "the tokens came in a wrong order");
  check(receive.pool().available() == receive.pool().size(), "a buffer was lost");
}

}  // namespace
}  // namespace neap::virtio::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  neap::host::prepare_pages();
  neap::virtio::test::Choices choices(data, size);
  neap::virtio::test::run(choices);
  return 0;
}

#ifndef NEAP_LIBFUZZER
int main(int count, char** words) { return neap::fuzzing::run<neap::fuzzing::AnyBytes<20, 300, 3000>>("fuzz_virtio", count, words); }
#endif
