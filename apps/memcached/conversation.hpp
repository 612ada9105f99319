// SPDX-License-Identifier: BSL-1.0
// One client's stream of bytes, in whatever pieces it arrives.
//
// Both parsers want a whole command at a stretch, and nearly always a received buffer begins and ends with one: then it is parsed where it
// lies. Only what was cut in two is put together in a small buffer that exists for just so long. Values are never gathered: they go from
// where they were received straight into their item.
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

class Conversation {
 public:
  Conversation(Service& service, CoreState& core) noexcept : service_(service), core_(core) {}

  /// Works on `input` and returns how many of its bytes are used up: all of them, unless `reply` is full. Then it is called again, with the
  /// rest (which may be empty), once there is room.
  [[nodiscard]] std::size_t consume(std::string_view input, Reply& reply) noexcept;

  /// Nothing more will be read; what is in the reply is to be sent, then the connection ends.
  [[nodiscard]] bool closing() const noexcept { return closing_; }
  /// How much of the reply may leave now.
  [[nodiscard]] std::size_t sendable_bytes(const Reply& reply) const noexcept {
    return closing_ || protocol_ != Protocol::text ? reply.bytes() : text_.sendable_bytes(reply);
  }

 private:
  enum class Protocol : std::uint8_t { unknown, text, binary };

  static constexpr std::size_t carry_bytes_max = TextProtocol::input_bytes_max;
  static_assert(BinaryProtocol::input_bytes_max <= carry_bytes_max);
  struct Carry {
    std::size_t used = 0;
    char bytes[carry_bytes_max];
    [[nodiscard]] std::string_view text() const noexcept { return {bytes, used}; }
  };

  [[nodiscard]] std::size_t step(std::string_view input, Context& context) noexcept {
    return protocol_ == Protocol::text ? text_.step(input, context) : binary_.step(input, context);
  }
  [[nodiscard]] std::size_t step_carried(std::string_view more, Context& context) noexcept;
  [[nodiscard]] std::size_t receive_value(std::string_view input, Context& context) noexcept;
  void carry(std::string_view rest) noexcept;

  Service& service_;
  CoreState& core_;
  Protocol protocol_ = Protocol::unknown;
  bool closing_ = false;
  TextProtocol text_;
  BinaryProtocol binary_;
  Transfer transfer_;
  std::unique_ptr<Carry> carry_;  ///< the front of a command whose rest has not arrived; null most of the time
};

}  // namespace neap::memcached
