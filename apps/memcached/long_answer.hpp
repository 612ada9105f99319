// SPDX-License-Identifier: BSL-1.0
// A command whose answer takes many events: a dump of all keys, a list of all connections, a watcher's lines.
//
// An event must be short, and a reply has a bounded size. So such a command writes a part of its answer at a time, when the reply has room
// and other clients' events have run. Its connection parses no further command until the answer is complete.
#pragma once

#include <cstdint>

#include "apps/memcached/clock.hpp"
#include "apps/memcached/reply.hpp"

namespace neap::memcached {

/// The connection that a long answer belongs to. Used on its core only.
class Sleeper {
 public:
  /// Ends the sleep of the connection's long answer: its `write` is called in this event, if the reply has room.
  virtual void wake() = 0;

 protected:
  ~Sleeper() = default;
};

class LongAnswer {
 public:
  enum class Step : std::uint8_t {
    more,    ///< `write` is called again in a later event
    sleeps,  ///< `write` is called again after `wake`
    done,
  };

  virtual ~LongAnswer() = default;
  /// Writes a part of the answer, by bounded work. The reply is not full.
  [[nodiscard]] virtual Step write(Reply& reply, Seconds now) = 0;
  /// True for an answer without an end. Input that arrives meanwhile is dropped, and the answer ends when the peer closes its side.
  [[nodiscard]] virtual bool is_endless() const noexcept { return false; }
  /// Null in tests of a conversation without a connection.
  void belong_to(Sleeper* sleeper) noexcept { sleeper_ = sleeper; }

 protected:
  void wake() {
    if (sleeper_ != nullptr) sleeper_->wake();
  }

 private:
  Sleeper* sleeper_ = nullptr;
};

}  // namespace neap::memcached
