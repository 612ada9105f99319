// SPDX-License-Identifier: BSL-1.0
// Frames and a stack for the driver's unit tests.
#pragma once

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "drivers/test_frames.hpp"
#include "drivers/virtio/test_device.hpp"
#include "kernel/net_device.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::virtio::test {

using neap::test::frame_of;

/// The folded sum of the 16-bit words of `bytes` in network order, from `at` on.
inline std::uint32_t sum_of(const Bytes& bytes, std::size_t at, std::size_t count) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::uint32_t{bytes[at + i]} << (i % 2 == 0 ? 8 : 0);
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum;
}

/// Returns a frame with an IPv4 header, whose length and checksum are right.
inline Bytes ipv4_frame(std::size_t bytes) {
  Bytes frame = frame_of(9, bytes);
  const Bytes header{8,
                     0,
                     0x45,
                     0,
                     static_cast<std::uint8_t>((bytes - 14) >> 8),
                     static_cast<std::uint8_t>(bytes - 14),
                     0x12,
                     0x34,
                     0x40,
                     0,
                     64,
                     6,
                     0,
                     0,
                     10,
                     0,
                     0,
                     1,
                     10,
                     0,
                     0,
                     2};
  std::ranges::copy(header, frame.begin() + 12);
  const std::uint32_t checksum = ~sum_of(frame, 14, 20);
  frame[24] = static_cast<std::uint8_t>(checksum >> 8);
  frame[25] = static_cast<std::uint8_t>(checksum);
  return frame;
}

inline void* token_of(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

/// A stack that records all calls.
class TestReceiver : public FrameReceiver {
 public:
  ~TestReceiver() override { release_all(); }
  void receive(std::span<const ReceivedFrame> received) noexcept override {
    for (const ReceivedFrame& one : received) {
      Bytes bytes;
      pieces = 0;
      for (const ReceiveBuffer* piece = one.frame; piece != nullptr; piece = piece->next, ++pieces) {
        const auto* start = reinterpret_cast<const std::uint8_t*>(piece->data);
        bytes.insert(bytes.end(), start, start + piece->bytes);
      }
      frames.push_back(std::move(bytes));
      last_info = one.info;
      held.push_back(one.frame);
    }
    if (!keep) release_all();
  }
  void transmitted(std::span<void* const> sent) noexcept override { tokens.insert(tokens.end(), sent.begin(), sent.end()); }
  void transmit_room() noexcept override { ++room_again; }
  void link_changed(bool up) noexcept override { link.push_back(up); }
  void release_all() {
    for (; !held.empty(); held.pop_front()) {
      for (ReceiveBuffer* piece = held.front(); piece != nullptr;) std::exchange(piece, piece->next)->release();
    }
  }

  bool keep = false;
  unsigned pieces = 0, room_again = 0;
  ReceiveInfo last_info;
  std::deque<Bytes> frames;
  std::deque<ReceiveBuffer*> held;
  std::vector<void*> tokens;
  std::vector<bool> link;
};

}  // namespace neap::virtio::test
