// SPDX-License-Identifier: BSL-1.0
// One measurement by NetPIPE's protocol, as version 3.7.2 of its TCP module speaks it. The class does not depend on a network. Its owner
// passes received bytes to `consume`, sends the output (`text` and `bulk_bytes`), and provides a clock.
//
// The wire carries:
// - "SyncMe" from each side before each timed part;
// - the number of repeats (u32) from the transmitter;
// - messages;
// - with `stream`, the time that the receiver took (u32, in units of 10 ns);
// - "QUIT" with its terminating zero from each side at the end.
// Numbers are in network order. One run:
//
//   SyncMe, the probe: 100 round trips of the smallest message, SyncMe [*]
//   for each size:
//     SyncMe, the number of repeats
//     three trials (with `integrity` one), each: SyncMe, the messages [*]
//     with `stream`: the receiver's time
//   QUIT
//
// At [*], if each trial has its own connection, both sides send QUIT. The run continues in a new connection that the transmitter opens.
//
// No number on the wire states a size; both sides compute the sizes from their options (sweep.hpp). But NPtcp fills the first message of
// the probe, and of each size, with 'a' and ends it with 'b'. It sends nothing more before that message was sent back. So this receiver
// finds the size of such a message by its end mark, and the transmitter alone chooses the sizes. Exceptions: with `integrity`, and with
// NPtcp's option -I, the mark is missing after the probe, so the options decide (`from` is the size of the probe's messages, if they have
// marks). A size above the receiver's `to` is refused: before its first message with QUIT if it was expected, or else by a failed session.
//
// This receiver sends "SyncMe" only as an answer, so that it detects a transmitter that sends "QUIT" instead. NPtcp's receiver sends it
// unasked. A session's memory is bounded for any input, because messages are counted, not kept, and received numbers are checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "apps/netpipe/measurement.hpp"
#include "apps/netpipe/options.hpp"
#include "apps/netpipe/sweep.hpp"
#include "kernel/panic.hpp"

namespace neap::netpipe {

class Session {
 public:
  /// Returns nanoseconds, and never goes back.
  using Clock = std::uint64_t (*)() noexcept;
  using Report = std::function<void(Session&, const Measurement&)>;

  enum class State : std::uint8_t {
    running,
    between,   ///< the owner closes the connection once its output is sent; then it calls `begin` in the next connection
    finished,  ///< the owner closes the connection once its output is sent
    failed,    ///< the owner aborts the connection; see `reason`
  };

  Session(Role role, const Options& options, Clock clock, Report report);

  /// MUST be called as soon as the first connection is open, and as soon as the next connection after `between` is open.
  void begin();
  /// Consumes received bytes and returns their number. It does not consume all bytes if output has to be sent first, or if the session is
  /// no longer `running`. The caller MUST call again when the output is sent.
  std::size_t consume(std::span<const std::byte> bytes);

  /// Returns the number of the next received bytes whose values do not matter. The caller MAY pass over some or all of them by `skip`
  /// instead of passing them to `consume`.
  [[nodiscard]] std::uint64_t skippable_bytes() const noexcept {
    const bool matter = text_wanted_ > 0 || learning_ || state_ != State::running || (options_.integrity && step_ == Step::trial);
    return matter ? 0 : bulk_wanted_;
  }
  void skip(std::uint64_t bytes) {
    require(bytes <= bulk_wanted_, "netpipe: no more bytes are skipped than a message has", bytes);
    bulk_received(bytes);
    if (bulk_wanted_ == 0 && !has_output()) advance();
  }

  /// True if the next `bytes` received are a whole message that is not checked, the answer is a message of filling without a mark, and
  /// another message follows it. Then the caller MAY send the answer and call `echoed`, instead of `skip` and `bulk_sent`.
  [[nodiscard]] bool echoes(std::uint64_t bytes) const noexcept {
    return bytes == bulk_wanted_ && bytes == message_bytes_ && exchange_ == Exchange::receive_then_send && messages_left_ > 0 &&
           !learning_ && !options_.integrity && state_ == State::running;
  }
  void echoed() noexcept {
    received_at_ += message_bytes_;
    sent_at_ += message_bytes_;
    --messages_left_;
    if (step_ == Step::trial) ++messages_;
  }

  /// The output to send: first `text`, then `bulk_bytes` of a message.
  [[nodiscard]] std::span<const std::byte> text() const noexcept { return std::span(text_).first(text_bytes_); }
  [[nodiscard]] std::uint64_t bulk_bytes() const noexcept { return bulk_bytes_; }
  [[nodiscard]] bool has_output() const noexcept { return text_bytes_ > 0 || bulk_bytes_ > 0; }
  /// MUST be called after all of `text` was sent.
  void text_sent();
  /// MUST be called after `bytes` of the message (at most `bulk_bytes`) were sent.
  void bulk_sent(std::uint64_t bytes);
  /// Returns the number of bytes up to and including the next end mark, or 0 if no mark is due. All other bytes of messages that are not
  /// checked are `filling`. A piece that is sent MUST NOT extend beyond a mark.
  [[nodiscard]] std::uint64_t mark_bytes() const noexcept { return mark_bytes_; }
  static constexpr std::byte filling{'a'}, mark{'b'};
  /// Fills `out` with the next bytes of a message whose contents are checked.
  void fill_bulk(std::span<std::byte> out) const noexcept;

  /// MUST be called once the peer or the network has ended the connection. The session fails, or waits for another connection (`between`)
  /// if a second or later connection ended before its first byte.
  void connection_lost(const char* why);
  void fail(std::string reason);
  /// True if the session waits for the rest of a message whose size only an end mark, or silence, can show.
  [[nodiscard]] bool awaits_mark() const noexcept { return learning_ && step_ == Step::probe && received_at_ > 0; }
  /// MUST be called if nothing arrived for a second while `awaits_mark`. The peer sends no marks, so the message is complete.
  void take_silence_as_mark();
  /// Fails the session because neither side has sent anything for `seconds`.
  void fail_idle(unsigned seconds);
  /// Makes a transmitter end the run in order, before its next message length.
  void stop() noexcept { stop_wanted_ = true; }
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] Role role() const noexcept { return role_; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  /// Returns why the session failed, or why it `finished` before the last size; else an empty string.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// True if the session finished with all its sizes, or was stopped.
  [[nodiscard]] bool completed() const noexcept { return state_ == State::finished && reason_.empty(); }
  /// Returns the number of completed messages of trials, which the log counts as requests. A message is completed when it was sent and sent
  /// back. With `stream`, all messages of a trial are completed at the trial's end.
  [[nodiscard]] std::uint64_t messages() const noexcept { return messages_; }
  /// True if the first SyncMe has arrived, so the peer speaks the protocol.
  [[nodiscard]] bool introduced() const noexcept { return introduced_; }
  /// True if bytes were received since the last `begin`.
  [[nodiscard]] bool touched() const noexcept { return !untouched_; }

  unsigned run = 0;  ///< the number of the run; used only by the owner

 private:
  static constexpr std::uint32_t probe_round_trips = 100;

  /// The steps of both sides, in the order of the comment at the top of the file.
  enum class Step : std::uint8_t {
    probe_sync,
    probe,
    probe_end_sync,
    probe_reset,
    size_sync,
    repeats,
    trial_sync,
    trial,
    trial_reset,
    time,
    quit
  };
  enum class Exchange : std::uint8_t { send_then_receive, receive_then_send, send_only, receive_only };

  void enter(Step step);
  void advance();
  void step_done();
  void text_complete();
  void begin_exchange(Exchange exchange, std::uint64_t bytes, std::uint32_t messages);
  void next_message();
  void exchange_done();
  [[nodiscard]] std::size_t learn(std::span<const std::byte> bytes);
  void size_known(std::uint64_t bytes);
  void rest_of_message();
  [[nodiscard]] std::string refusal(std::uint64_t bytes) const;
  [[nodiscard]] std::string where() const;
  void time_trial();
  void word_begins();
  void bulk_received(std::uint64_t bytes) noexcept {
    received_at_ += bytes;
    bulk_wanted_ -= bytes;
    if (bulk_wanted_ == 0 && exchange_ == Exchange::receive_then_send) bulk_bytes_ = message_bytes_;
  }
  [[nodiscard]] Measurement measured(double seconds) const noexcept;
  void size_done(double seconds);
  void begin_size();
  void end_connection();
  void say(std::string_view words);
  void say_number(std::uint32_t number);
  void expect_text(std::size_t bytes) noexcept;
  [[nodiscard]] std::string_view heard() const noexcept;
  [[nodiscard]] std::uint32_t heard_number() const noexcept;
  [[nodiscard]] bool check(std::span<const std::byte> bytes) noexcept;
  [[nodiscard]] bool transmits() const noexcept { return role_ == Role::transmitter; }

  const Role role_;
  const Options options_;
  const Clock clock_;
  const Report report_;

  State state_ = State::between;
  Step step_ = Step::probe_sync;
  std::string reason_;
  bool introduced_ = false, stop_wanted_ = false;
  bool untouched_ = true;  // no byte was received in this connection

  Sweep sweep_;
  Sweep sweep_before_;  // before `point_` was taken from it
  Sweep::Point point_;
  bool sweep_over_ = false;  // there is no size within `to`; only a receiver still waits for the peer's QUIT
  bool peer_marks_ = false;  // the peer ends first messages with a mark (only in a receiver)
  std::uint64_t bytes_before_;
  double seconds_before_ = 0;
  std::uint32_t repeats_ = 0, trial_ = 0;
  double best_seconds_ = 0;
  bool time_runs_on_ = false;              // a trial's time is measured until the peer's next word begins (only in a receiver)
  std::optional<Measurement> unreported_;  // a size's result, while its last trial is still being timed

  // the exchange of messages in progress
  Exchange exchange_ = Exchange::send_only;
  std::uint64_t message_bytes_ = 0;
  std::uint32_t messages_left_ = 0;  // messages after the current one
  bool learning_ = false;            // the size of the current message is not known before its end mark; `message_bytes_` is expected
  std::uint64_t mark_bytes_ = 0;
  std::uint64_t messages_ = 0, began_ns_ = 0;
  std::uint64_t sent_at_ = 0, received_at_ = 0;  // bytes since the exchange began

  // input and output of the current step
  std::size_t text_wanted_ = 0;
  std::size_t text_heard_ = 0;
  std::array<std::byte, 8> heard_{};
  std::uint64_t bulk_wanted_ = 0;
  std::array<std::byte, 16> text_{};
  std::size_t text_bytes_ = 0;
  std::uint64_t bulk_bytes_ = 0;
};

}  // namespace neap::netpipe
