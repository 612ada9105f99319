// SPDX-License-Identifier: BSL-1.0
// One measurement by NetPIPE's protocol, as version 3.7.2 of its TCP module speaks it. It does not depend on a network: the caller passes
// received bytes to `consume`, asks for output, and gives a clock.
//
// The wire carries:
// - "SyncMe" from each side before each timed part;
// - the number of repeats (u32) from the transmitter;
// - messages, whose size both sides compute (sweep.hpp);
// - when streaming, the time that the receiver took (u32, in 10 ns);
// - "QUIT" with its terminating zero from each side at the end.
// Numbers are in network order. One run:
//
//   SyncMe, 100 round trips of the smallest message, SyncMe [*]
//   for each size: SyncMe, repeats, and three times (once for an integrity check): SyncMe, the messages [*]; streaming: the receiver's time
//   QUIT
//
// At [*], if each trial has a connection of its own: QUIT, and the run continues in a new connection that the transmitter opens.
//
// This receiver sends "SyncMe" only as an answer, while NPtcp's sends it unasked. So this receiver notices a transmitter that ends the run.
// A session's memory is bounded for any input: sizes come from its own options, and numbers are checked.
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

namespace neap::netpipe {

class Session {
 public:
  /// Nanoseconds; never goes back.
  using Clock = std::uint64_t (*)() noexcept;
  using Report = std::function<void(Session&, const Measurement&)>;

  enum class State : std::uint8_t {
    running,
    between,   ///< the owner closes this connection once its output is sent; the next one continues (`begin`)
    finished,  ///< the owner closes the connection once its output is sent
    failed,    ///< the owner aborts the connection; see `reason`
  };

  Session(Role role, const Options& options, Clock clock, Report report);

  /// A connection is open: the first, or the next one after `between`.
  void begin();
  /// Consumes received bytes and returns how many. Fewer than all while output waits (the caller MUST call again when it is sent), or when
  /// the session is not running any more.
  std::size_t consume(std::span<const std::byte> bytes);

  /// Output that is due: `text` first, then `bulk_bytes` of message.
  [[nodiscard]] std::span<const std::byte> text() const noexcept { return std::span(text_).first(text_bytes_); }
  [[nodiscard]] std::uint64_t bulk_bytes() const noexcept { return bulk_bytes_; }
  [[nodiscard]] bool has_output() const noexcept { return text_bytes_ > 0 || bulk_bytes_ > 0; }
  /// All of `text` was sent.
  void text_sent();
  /// `bytes` of the message were sent; at most `bulk_bytes`.
  void bulk_sent(std::uint64_t bytes);
  /// Fills `out` with the next bytes of a message whose contents are checked.
  void fill_bulk(std::span<std::byte> out) const noexcept;

  /// The peer or the network ended the connection. A session that was just beginning in a further connection waits for another (`between`).
  void connection_lost(const char* why);
  /// Ends the session with an error.
  void fail(std::string reason);
  /// A transmitter ends the run in order before its next length.
  void stop() noexcept { stop_wanted_ = true; }

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] Role role() const noexcept { return role_; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// Messages of trials that were sent and, unless streaming, returned; the log counts them as requests. A stream's count at its end.
  [[nodiscard]] std::uint64_t messages() const noexcept { return messages_; }
  /// The first SyncMe has arrived: the peer speaks the protocol.
  [[nodiscard]] bool introduced() const noexcept { return introduced_; }
  /// Bytes were received since the last `begin`.
  [[nodiscard]] bool touched() const noexcept { return !untouched_; }

  unsigned run = 0;  ///< for the owner: the number of the run

 private:
  static constexpr std::uint32_t probe_round_trips = 100;

  /// The steps of both sides, in the order of the comment above.
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
  void time_trial();
  void word_begins();
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
  bool introduced_ = false;
  bool stop_wanted_ = false;
  bool untouched_ = true;  // no byte was received in this connection

  Sweep sweep_;
  Sweep::Point point_;
  std::uint64_t bytes_before_;
  double seconds_before_ = 0;
  std::uint32_t repeats_ = 0;
  std::uint32_t trial_ = 0;
  double best_seconds_ = 0;
  bool time_runs_on_ = false;              // a receiver's trial ends when the peer's next word begins
  std::optional<Measurement> unreported_;  // the size's result, if that trial is its last

  // the exchange of messages in progress
  Exchange exchange_ = Exchange::send_only;
  std::uint64_t message_bytes_ = 0;
  std::uint32_t messages_left_ = 0;  // after the current one
  std::uint64_t messages_ = 0;
  std::uint64_t began_ns_ = 0;
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
