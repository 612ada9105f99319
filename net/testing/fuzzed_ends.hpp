// SPDX-License-Identifier: BSL-1.0
// Both ends of the connections in fuzz_stack.cpp and fuzz_tcp_connection.cpp: applications of the machine that behave well or badly, and
// peers without a TCP stack.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "lwip/memp.h"
#include "net/network.hpp"
#include "net/outgoing_segment.hpp"
#include "net/payload_reference.hpp"
#include "net/tcp/flow.hpp"
#include "net/testing/raw_peer.hpp"
#include "tests/host/allocated_bytes.hpp"

namespace neap::net::testing {

/// An application's behaviour. The application serves port `first_port` plus this value.
enum class Habit : std::uint8_t { read, keep, keep_half, echo, answer_more, close, abort, answer_much, never_close, no_memory };
constexpr std::uint16_t first_port = 100;
constexpr unsigned habits = 10;
constexpr std::size_t sent_block_bytes = 16384;
class Application;
using Applications = std::vector<Application*>;

class Application final : public ConnectionHandler {
 public:
  Application(Applications& all, Habit habit, bool& sent) : all_(all), habit_(habit), sent_(sent) { all_.push_back(this); }
  ~Application() override { std::erase(all_, this); }

  void received(Buffer data) override {
    switch (habit_) {
      case Habit::read:
        return;
      case Habit::keep:
      case Habit::never_close:
        return kept_.append(std::move(data));
      case Habit::keep_half:
        kept_.append(std::move(data));
        return kept_.drop_front(kept_.bytes() / 2);
      case Habit::echo:
        kept_.append(std::move(data));
        sent_ = true;  // an echo adds held memory: the headers of sent pieces and segments
        if (kept_.bytes() <= connection().send_space_bytes()) static_cast<void>(connection().send(std::exchange(kept_, Buffer{})));
        return;
      case Habit::answer_more:
        return send(20'000);
      case Habit::answer_much:
        kept_.append(std::move(data));
        return send(1'500'000);
      case Habit::close:
        return connection().close();
      case Habit::abort:
        return connection().abort();
      case Habit::no_memory:
        throw std::bad_alloc();
    }
  }
  void peer_closed() override {
    if (habit_ != Habit::never_close) connection().close();
  }
  void act(unsigned what, std::size_t bytes) {
    if (what == 0) return kept_.clear();
    if (what == 1) return kept_.drop_front(std::min(kept_.bytes(), bytes));
    if (what == 2) return send(bytes);
    if (what == 3) return connection().end_sending();
    return what == 4 ? connection().close() : connection().abort();
  }

 private:
  void send(std::size_t bytes) {
    sent_ = true;
    static const std::array<std::byte, sent_block_bytes> block{};
    Buffer data;
    for (std::size_t left = std::min(bytes, connection().send_space_bytes()); left > 0;) {
      const std::size_t now = std::min(left, block.size());
      data.append(Buffer::copy(std::span(block).first(now)));
      left -= now;
    }
    static_cast<void>(connection().send(std::move(data)));
  }
  Applications& all_;
  Habit habit_;
  bool& sent_;
  Buffer kept_;
};

class Echo final : public ConnectionHandler {
 public:
  void received(Buffer data) override {
    if (!connection().send(std::move(data)).has_value()) connection().abort();
  }
};

/// Returns the allocated bytes without the spare objects of the core's pools. MUST be called on the core.
inline std::size_t allocated_without_spares() {
  memp_per_core_trim();
  trim_payload_references();
  Buffer::trim_free_list();
  tcp::Flow::trim();
  OutgoingSegment::trim();
  return host::allocated_bytes();
}

/// The remote end of a connection: its sequence numbers and the bytes received in order.
struct Peer {
  Endpoint from, to;
  std::uint32_t sequence = 0, acknowledged = 0;
  std::uint32_t taken = 0;  ///< the machine's last acknowledgement number
  std::uint16_t window = 0xFFFF;
  bool answered = false, reset = false;
  Bytes received{};

  void process(const SegmentView& segment) {
    if ((segment.flags & rst_flag) != 0) reset = true;
    if ((segment.flags & ack_flag) != 0) taken = segment.acknowledged;
    if ((segment.flags & syn_flag) != 0 && !answered) {
      answered = true;
      acknowledged = segment.sequence + 1;
    } else if (segment.sequence == acknowledged) {
      received.insert(received.end(), segment.payload.begin(), segment.payload.end());
      acknowledged += static_cast<std::uint32_t>(segment.payload.size()) + ((segment.flags & fin_flag) != 0 ? 1 : 0);
    }
  }
};

}  // namespace neap::net::testing
