// SPDX-License-Identifier: BSL-1.0
// One measurement by NetPIPE's protocol, as version 3.7.2 of its TCP module speaks it. Apart from any network: bytes come in by `consume`,
// what is to be sent is asked for, and time is what the clock given says.
//
// On the wire stand only: "SyncMe" from each side before whatever is timed, the number of repeats (u32) from the transmitter, messages
// whose size both sides work out (sweep.hpp), when streaming the time that the receiver took (u32, in 10 ns), and "QUIT" with its zero from
// each side at the end. Numbers are in network order. One run:
//
//   SyncMe, 100 round trips of the smallest message, SyncMe [*]
//   for each size: SyncMe, repeats, and three times (once for an integrity check): SyncMe, the messages [*]; streaming: the receiver's time
//   QUIT
//
// At [*], when each trial has a connection of its own: QUIT, and all goes on in a new connection that the transmitter opens.
//
// A receiver here answers "SyncMe" where NPtcp says it on its own, so that it sees a transmitter that has had enough. Whatever a peer
// sends, a session holds no more than it has room for below: sizes come from our own options, numbers are checked.
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
    between,   ///< this connection is to be closed once its output is sent; the next one continues (`begin`)
    finished,  ///< to be closed once its output is sent
    failed,    ///< `reason` says why; to be cut
  };

  Session(Role role, const Options& options, Clock clock, Report report);

  /// There is a connection; the first, or the next one after `between`.
  void begin();
  /// Takes received bytes and returns how many; fewer than all while output waits (call again when it is sent) or when the session is not
  /// running any more.
  std::size_t consume(std::span<const std::byte> bytes);

  /// What is to be sent now: `text` first, then `bulk_bytes` of message.
  [[nodiscard]] std::span<const std::byte> text() const noexcept { return std::span(text_).first(text_bytes_); }
  [[nodiscard]] std::uint64_t bulk_bytes() const noexcept { return bulk_bytes_; }
  [[nodiscard]] bool has_output() const noexcept { return text_bytes_ > 0 || bulk_bytes_ > 0; }
  /// All of `text` was sent.
  void text_sent();
  /// So much of the message was; at most `bulk_bytes`.
  void bulk_sent(std::uint64_t bytes);
  /// What the next bytes of the message are, when contents matter.
  void fill_bulk(std::span<std::byte> out) const noexcept;

  /// The connection is gone, and not by our doing. A session that was just beginning in a further connection waits for another (`between`).
  void connection_lost(const char* why);
  /// Gives up.
  void fail(std::string reason);
  /// A transmitter ends in order before its next length.
  void stop() noexcept { stop_wanted_ = true; }

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] Role role() const noexcept { return role_; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// Messages of trials that have gone and, unless streaming, come back: what counts as requests here. A stream's count when all have.
  [[nodiscard]] std::uint64_t messages() const noexcept { return messages_; }
  /// Past the first SyncMe: the peer does speak the protocol.
  [[nodiscard]] bool introduced() const noexcept { return introduced_; }
  /// Something was received since the last `begin`.
  [[nodiscard]] bool touched() const noexcept { return !untouched_; }

  unsigned run = 0;  ///< its owner's: the run that it adds to

 private:
  static constexpr std::uint32_t probe_round_trips = 100;

  /// What both sides do next; the order of the comment above.
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
  bool untouched_ = true;  // nothing was received in this connection

  Sweep sweep_;
  Sweep::Point point_;
  std::uint64_t bytes_before_;
  double seconds_before_ = 0;
  std::uint32_t repeats_ = 0;
  std::uint32_t trial_ = 0;
  double best_seconds_ = 0;
  bool time_runs_on_ = false;              // a receiver's trial is done but for the peer's next word
  std::optional<Measurement> unreported_;  // and with it the size

  // the exchange of messages that goes on
  Exchange exchange_ = Exchange::send_only;
  std::uint64_t message_bytes_ = 0;
  std::uint32_t messages_left_ = 0;  // after the present one
  std::uint64_t messages_ = 0;
  std::uint64_t began_ns_ = 0;
  std::uint64_t sent_at_ = 0, received_at_ = 0;  // bytes since the exchange began

  // input and output of the present step
  std::size_t text_wanted_ = 0;
  std::size_t text_heard_ = 0;
  std::array<std::byte, 8> heard_{};
  std::uint64_t bulk_wanted_ = 0;
  std::array<std::byte, 16> text_{};
  std::size_t text_bytes_ = 0;
  std::uint64_t bulk_bytes_ = 0;
};

}  // namespace neap::netpipe
