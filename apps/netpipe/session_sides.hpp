// SPDX-License-Identifier: BSL-1.0
// The sides of a conversation for tests of sessions. They have no network, and the clock is the test's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "apps/netpipe/session.hpp"

namespace neap::netpipe {

inline std::uint64_t clock_ns = 0;
inline std::uint64_t read_clock() noexcept { return clock_ns; }
inline std::span<const std::byte> bytes_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

/// A session with its reported results and its output.
struct Side {
  Side(Role role, const Options& options)
      : session(role, options, &read_clock, [this](Session&, const Measurement& point) { points.push_back(point); }) {}

  /// Takes up to `limit` bytes of the output.
  std::vector<std::byte> take(std::size_t limit) {
    std::vector<std::byte> out;
    if (const auto text = session.text(); !text.empty()) {
      out.assign(text.begin(), text.end());
      session.text_sent();
    } else if (session.bulk_bytes() > 0) {
      std::uint64_t most = std::min<std::uint64_t>(limit, session.bulk_bytes());
      if (const std::uint64_t marked = session.mark_bytes(); marked > 0) most = std::min(most, marked);
      out.resize(static_cast<std::size_t>(most), Session::filling);
      if (session.mark_bytes() > 0 && marks) {
        if (most == session.mark_bytes()) out.back() = Session::mark;
      } else if (session.options().integrity) {
        session.fill_bulk(out);
      }
      session.bulk_sent(out.size());
    }
    sent += out.size();
    return out;
  }
  /// Takes all output, including messages, until the session waits.
  std::string said() {
    std::string text;
    while (session.has_output()) {
      for (const std::byte byte : take(1 << 20)) text += static_cast<char>(byte);
    }
    return text;
  }
  std::size_t hear(std::string_view text) { return session.consume(bytes_of(text)); }
  void must_hear(std::string_view text) { EXPECT_EQ(hear(text), text.size()) << text << ": " << session.reason(); }

  void must_answer(std::string_view text, std::string_view answer) {
    must_hear(text);
    EXPECT_EQ(said(), answer);
  }
  void expect_finished() { EXPECT_EQ(session.state(), Session::State::finished) << session.reason(); }

  std::vector<Measurement> points;
  Session session;
  std::size_t sent = 0;
  bool marks = true;  ///< false: a transmitter that is not NPtcp, and sends no end marks
};

/// Passes bytes between two sides until both have ended. Every byte takes 10 ns, and pieces have random sizes. Returns the number of
/// connections.
inline int exchange(Side& one, Side& other, unsigned seed) {
  std::mt19937 random(seed);
  int connections = 1;
  std::vector<std::byte> to_other, to_one;
  const auto pass = [&](Side& from, Side& to, std::vector<std::byte>& waiting) {
    const auto more = from.take(1 + random() % 5000);
    waiting.insert(waiting.end(), more.begin(), more.end());
    clock_ns += more.size() * 10;
    const std::size_t offered = waiting.empty() ? 0 : 1 + random() % waiting.size();
    // A link may skip bytes that it does not show to the session.
    std::size_t used = random() % 2 == 0 ? 0 : static_cast<std::size_t>(std::min<std::uint64_t>(offered, to.session.skippable_bytes()));
    if (used != 0) {
      to.session.skip(used);
    } else {
      used = to.session.consume(std::span(waiting).first(offered));
    }
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(used));
    return !more.empty() || used > 0;
  };
  const auto running = [](const Side& side) { return side.session.state() == Session::State::running; };
  for (int idle = 0; idle < 100;) {
    const bool moved = pass(one, other, to_other) | pass(other, one, to_one);
    idle = moved ? 0 : idle + 1;
    if (!running(one) && !running(other)) {
      if (one.session.state() != Session::State::between) break;
      if (one.session.has_output() || other.session.has_output()) continue;
      EXPECT_EQ(other.session.state(), Session::State::between);
      EXPECT_TRUE(to_other.empty() && to_one.empty());
      one.session.begin();
      other.session.begin();
      ++connections;
    }
  }
  return connections;
}

inline int converse(Side& one, Side& other, unsigned seed) {
  one.session.begin();
  other.session.begin();
  return exchange(one, other, seed);
}

/// Takes a receiver through the probe (the first 100 messages), so that it waits for the first size.
inline void introduce(Side& receiver) {
  receiver.session.begin();
  receiver.must_answer("SyncMe", "SyncMe");
  for (int i = 0; i < 100; ++i) receiver.must_answer("b", "a");
  receiver.must_answer("SyncMe", "SyncMe");
}

inline std::vector<std::uint64_t> sizes_of(const Side& side) {
  std::vector<std::uint64_t> sizes;
  for (const Measurement& point : side.points) sizes.push_back(point.bytes);
  return sizes;
}

}  // namespace neap::netpipe
