// SPDX-License-Identifier: BSL-1.0
// One client's stream of bytes, in pieces of any size.
//
// Both parsers need a whole command in contiguous memory. Nearly always a received buffer begins and ends at the boundary of a command, so
// the command is parsed in place. Only the parts of a split command are joined, in a small buffer (`Carry`) that is freed afterwards.
// Values are not joined. They are copied from the received buffer straight into their item.
//
// Each copy of received bytes checks its own bound, in release builds too. Only a mistake of a parser can exceed a bound. Such a mistake
// ends the connection and is counted as `protocol_overrun`.
//
// This file does not depend on the network; session.hpp joins conversation and network. Memory for each conversation is bounded: the first
// part of one command, the reply (reply.hpp), and the item that is being received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "apps/memcached/binary_protocol.hpp"
#include "apps/memcached/protocol.hpp"
#include "apps/memcached/text_protocol.hpp"

namespace neap::memcached {

/// The first part of a command that has not arrived completely.
class Carry {
 public:
  static constexpr std::size_t bytes_max = TextProtocol::input_bytes_max;
  static_assert(BinaryProtocol::input_bytes_max <= bytes_max);
  [[nodiscard]] std::string_view text() const noexcept { return {bytes_, used_}; }
  /// Returns false and writes no byte if there is no room for `more`.
  [[nodiscard]] bool add(std::string_view more) noexcept;
  /// Returns false and drops no byte if fewer than `bytes` are stored.
  [[nodiscard]] bool drop_front(std::size_t bytes) noexcept;

 private:
  std::size_t used_ = 0;
  char bytes_[bytes_max];
};

class Conversation {
 public:
  enum class Protocol : std::uint8_t { unknown, text, binary };

  /// `short_ones`: commands whose answers take many events are refused.
  enum class Answers : std::uint8_t { all, short_ones };

  Conversation(Service& service, CoreState& core, Answers answers = Answers::all) noexcept
      : service_(service), core_(core), answers_(answers) {}

  /// True if the next byte begins a command. Only the protocol then distinguishes this conversation from a new one.
  [[nodiscard]] bool idle() const noexcept {
    return carry_ == nullptr && transfer_.bytes_left == 0 && text_.between_commands() && !waits_ && !closing_ && answer_ == nullptr;
  }
  /// Continues a conversation that was idle. This conversation MUST be idle too. `sleeper`: the connection, woken for long answers.
  void resume(Protocol protocol, std::uint32_t connection_id, Sleeper* sleeper) noexcept {
    protocol_ = protocol;
    connection_id_ = connection_id;
    sleeper_ = sleeper;
  }
  [[nodiscard]] Protocol protocol() const noexcept { return protocol_; }
  /// Reads no more input. Frees the value and the command that have not arrived completely, and a watcher, because a client that has closed
  /// its side may keep the connection for a minute (net/connection.cpp).
  void end() noexcept {
    closing_ = true;
    transfer_ = {};
    carry_.reset();
    answer_.reset();
  }

  /// Executes the commands in `input` and returns the number of consumed bytes. If `reply` is full afterwards, the caller MUST call again
  /// when the reply has room. If `waits()` is true, the caller MUST call again in a later event. Both calls get the remaining bytes, even
  /// if there are none.
  [[nodiscard]] std::size_t consume(std::string_view input, Reply& reply) noexcept;

  /// True if `consume` stopped because the store's memory is short (`Store::must_wait`), because commands of this core have copied
  /// `copied_bytes_max` bytes from old items, because this call has handled `requests_per_event` requests, or because a long answer goes
  /// on. Events of the core's other clients then run first.
  [[nodiscard]] bool waits() const noexcept { return waits_; }
  /// True if `consume` stopped because a long answer has nothing to write now. `Sleeper::wake` follows.
  [[nodiscard]] bool sleeps() const noexcept { return sleeps_; }
  [[nodiscard]] bool answering() const noexcept { return answer_ != nullptr; }  ///< a long answer is in progress
  /// True if the answer in progress ends only with the connection.
  [[nodiscard]] bool is_endless() const noexcept { return answer_ != nullptr && answer_->is_endless(); }
  /// The memory of the item whose value has not arrived completely; 0: there is none.
  [[nodiscard]] std::size_t upload_bytes() const noexcept { return transfer_.item ? Store::footprint(*transfer_.item.get()) : 0; }
  [[nodiscard]] bool quit() const noexcept { return quit_; }  ///< the client asked for the end
  /// The state of the connection as `stats conns` names it.
  [[nodiscard]] std::string_view state() const noexcept;
  /// True if no more input is read. The caller MUST send the reply and then close the connection.
  [[nodiscard]] bool closing() const noexcept { return closing_; }
  [[nodiscard]] std::size_t sendable_bytes(const Reply& reply) const noexcept {
    return closing_ || protocol_ != Protocol::text ? reply.bytes() : text_.sendable_bytes(reply);
  }

 private:
  static constexpr std::size_t copied_bytes_max = std::size_t{128} << 10;  // copying them takes some tens of microseconds

  [[nodiscard]] std::size_t step(std::string_view input, Context& context) noexcept {
    return protocol_ == Protocol::text ? text_.step(input, context) : binary_.step(input, context);
  }
  [[nodiscard]] Protocol choose_protocol(char first) const noexcept;
  [[nodiscard]] bool go_on_answering(Reply& reply, Seconds now) noexcept;
  [[nodiscard]] std::size_t step_carried(std::string_view more, Context& context) noexcept;
  [[nodiscard]] std::size_t receive_value(std::string_view input, Context& context) noexcept;
  void carry(std::string_view rest, Context& context) noexcept;
  /// Ends the connection after a parser asked for more bytes than there is room for.
  static void overrun(Context& context) noexcept;
  [[nodiscard]] std::size_t item_bytes_needed(std::string_view rest) const noexcept;

  Service& service_;
  CoreState& core_;
  Protocol protocol_ = Protocol::unknown;
  bool closing_ = false, quit_ = false, waits_ = false, sleeps_ = false;
  const Answers answers_;
  std::uint32_t connection_id_ = 0;
  Sleeper* sleeper_ = nullptr;
  std::unique_ptr<LongAnswer> answer_;  // in progress; null: none
  TextProtocol text_;
  BinaryProtocol binary_;
  Transfer transfer_;
  std::unique_ptr<Carry> carry_;  ///< null unless a command is split
};

}  // namespace neap::memcached
