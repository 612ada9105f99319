// SPDX-License-Identifier: BSL-1.0
// One client's stream of bytes, in whatever pieces it arrives.
//
// Both parsers want a whole command at a stretch, and nearly always a received buffer begins and ends with one: then it is parsed where it
// lies. Only what was cut in two is put together in a small buffer that exists for just so long. Values are never gathered: they go from
// where they were received straight into their item.
//
// Every copy of received bytes has a bound of its own that stays in release builds. Bytes beyond it would be a mistake in a parser; they
// end the connection and are counted as `protocol_overrun`.
//
// Knows nothing of the network; session.hpp joins the two. Memory for each conversation is bounded: one command's head, the reply
// (reply.hpp), and the item that is being received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "apps/memcached/binary_protocol.hpp"
#include "apps/memcached/protocol.hpp"
#include "apps/memcached/text_protocol.hpp"

namespace neap::memcached {

/// The front of a command whose rest has not arrived.
class Carry {
 public:
  static constexpr std::size_t bytes_max = TextProtocol::input_bytes_max;
  static_assert(BinaryProtocol::input_bytes_max <= bytes_max);
  [[nodiscard]] std::string_view text() const noexcept { return {bytes_, used_}; }
  /// False: there is no room for them, and nothing was written.
  [[nodiscard]] bool add(std::string_view more) noexcept;
  /// False: there are not so many, and nothing was dropped.
  [[nodiscard]] bool drop_front(std::size_t bytes) noexcept;

 private:
  std::size_t used_ = 0;
  char bytes_[bytes_max];
};

class Conversation {
 public:
  Conversation(Service& service, CoreState& core) noexcept : service_(service), core_(core) {}

  /// Works on `input` and returns how many of its bytes are used up: all of them, unless `reply` is full or the store lets no command begin
  /// (`waits`). Then it is called again, with the rest (which may be empty), once there is room, or in a later event.
  [[nodiscard]] std::size_t consume(std::string_view input, Reply& reply) noexcept;

  /// The last call stopped because the store's memory is short (`Store::must_wait`).
  [[nodiscard]] bool waits() const noexcept { return waits_; }
  /// Nothing more will be read; what is in the reply is to be sent, then the connection ends.
  [[nodiscard]] bool closing() const noexcept { return closing_; }
  /// How much of the reply may leave now.
  [[nodiscard]] std::size_t sendable_bytes(const Reply& reply) const noexcept {
    return closing_ || protocol_ != Protocol::text ? reply.bytes() : text_.sendable_bytes(reply);
  }

 private:
  enum class Protocol : std::uint8_t { unknown, text, binary };

  [[nodiscard]] std::size_t step(std::string_view input, Context& context) noexcept {
    return protocol_ == Protocol::text ? text_.step(input, context) : binary_.step(input, context);
  }
  [[nodiscard]] std::size_t step_carried(std::string_view more, Context& context) noexcept;
  [[nodiscard]] std::size_t receive_value(std::string_view input, Context& context) noexcept;
  void carry(std::string_view rest, Context& context) noexcept;
  /// A parser asked for more than there is room for: the connection ends.
  static void overrun(Context& context) noexcept;
  [[nodiscard]] bool may_allocate(std::string_view rest) const noexcept;

  Service& service_;
  CoreState& core_;
  Protocol protocol_ = Protocol::unknown;
  bool closing_ = false;
  bool waits_ = false;
  TextProtocol text_;
  BinaryProtocol binary_;
  Transfer transfer_;
  std::unique_ptr<Carry> carry_;  ///< null most of the time
};

}  // namespace neap::memcached
