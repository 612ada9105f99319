// SPDX-License-Identifier: BSL-1.0
#include "apps/netpipe/session.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernel/panic.hpp"

namespace neap::netpipe {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view sync = "SyncMe";
constexpr std::string_view quit = "QUIT\0"sv;
constexpr double ticks_per_second = 1e8;  // unit of the time that the receiver sends
constexpr std::size_t word_bytes = sizeof(std::uint32_t);

/// Returns byte `at` of a message whose contents are checked. The message is little-endian words; each word's value is its index. Bytes
/// after the last whole word are not checked.
constexpr std::byte checked_byte(std::uint64_t at) noexcept { return static_cast<std::byte>(at / word_bytes >> (at % word_bytes * 8)); }

}  // namespace

Session::Session(Role role, const Options& options, Clock clock, Report report)
    : role_(role),
      options_(options),
      clock_(clock),
      report_(std::move(report)),
      sweep_(options.from, options.to, options.perturbation),
      sweep_before_(sweep_),
      bytes_before_(options.from) {}

void Session::begin() {
  require(state_ == State::between, "netpipe: a session begins between connections", static_cast<std::uint64_t>(state_));
  state_ = State::running;
  untouched_ = true;
  enter(step_);
  advance();
}

// --- Steps -------------------------------------------------------------------------------------------------------------------------------
void Session::enter(Step step) {
  step_ = step;
  switch (step) {
    case Step::probe_sync:
    case Step::probe_end_sync:
    case Step::trial_sync:
      if (transmits()) say(sync);
      expect_text(sync.size());
      break;
    case Step::size_sync:
      // A peer that ends the run sends QUIT here. QUIT is shorter than SyncMe, so the session first waits for QUIT's length.
      if (transmits()) say(sync);
      expect_text(quit.size());
      break;
    case Step::probe:
      begin_exchange(transmits() ? Exchange::send_then_receive : Exchange::receive_then_send, options_.from, probe_round_trips);
      break;
    case Step::probe_reset:
    case Step::trial_reset:
    case Step::quit:
      if (transmits()) say(quit);
      expect_text(quit.size());
      break;
    case Step::repeats:
      if (transmits()) {
        say_number(repeats_);
      } else {
        expect_text(word_bytes);
      }
      break;
    case Step::trial:
      if (options_.stream) {
        begin_exchange(transmits() ? Exchange::send_only : Exchange::receive_only, point_.bytes, repeats_);
      } else {
        begin_exchange(transmits() || options_.bidirectional ? Exchange::send_then_receive : Exchange::receive_then_send, point_.bytes,
                       repeats_);
      }
      break;
    case Step::time:
      if (transmits()) {
        expect_text(word_bytes);
      } else {
        say_number(static_cast<std::uint32_t>(std::min(best_seconds_ * ticks_per_second, 4294967295.0)));
      }
      break;
  }
}

/// Enters further steps until one needs input or has output.
void Session::advance() {
  while (state_ == State::running && !has_output() && text_wanted_ == 0 && bulk_wanted_ == 0) {
    if ((step_ == Step::probe || step_ == Step::trial) && messages_left_ > 0) {
      next_message();
    } else {
      step_done();
    }
  }
}

void Session::step_done() {
  switch (step_) {
    case Step::probe_sync:
      return enter(Step::probe);
    case Step::probe:
    case Step::trial:
      return exchange_done();
    case Step::probe_end_sync:
      return options_.resets() ? enter(Step::probe_reset) : begin_size();
    case Step::probe_reset:
    case Step::trial_reset:
      return end_connection();
    case Step::size_sync:
      return enter(Step::repeats);
    case Step::repeats:
      trial_ = 0;
      best_seconds_ = 0;
      return enter(Step::trial_sync);
    case Step::trial_sync:
      return enter(Step::trial);
    case Step::time:
      return size_done(best_seconds_);
    case Step::quit:
      state_ = State::finished;
      return;
  }
}

/// Ends the connection of this step; the next step begins in the next connection.
void Session::end_connection() {
  state_ = State::between;
  const bool more_trials = step_ == Step::trial_reset && trial_ < (options_.integrity ? 1 : Sweep::trials);
  if (more_trials) {
    step_ = Step::trial_sync;
  } else if (step_ == Step::trial_reset && options_.stream) {
    step_ = Step::time;
  } else if (step_ == Step::trial_reset) {
    // Reports the size's result and chooses the next step, which begins with the next connection.
    size_done(best_seconds_);
  } else {
    begin_size();
  }
}

void Session::begin_size() {
  sweep_before_ = sweep_;
  const auto point = sweep_.next();
  const bool enough = transmits() && point && point->new_length && (stop_wanted_ || seconds_before_ >= Sweep::seconds_a_message_max);
  Step next = transmits() ? Step::quit : Step::size_sync;  // only a transmitter ends the run
  sweep_over_ = !point;
  if (point && !enough) {
    point_ = *point;
    // A receiver gets the number of repeats from its peer. Until then it keeps the old number, because a trial is still being timed.
    if (transmits()) repeats_ = options_.repeats != 0 ? options_.repeats : Sweep::repeats(bytes_before_, point_.step, seconds_before_);
    next = Step::size_sync;
  }
  if (state_ == State::running) {
    enter(next);
  } else {
    step_ = next;
  }
}

void Session::size_done(double seconds) {
  const Measurement measurement = measured(seconds);
  bytes_before_ = point_.bytes;
  seconds_before_ = measurement.seconds;
  report_(*this, measurement);
  begin_size();
}

Measurement Session::measured(double seconds) const noexcept {
  return {.index = point_.index,
          .bytes = point_.bytes,
          .repeats = repeats_,
          .seconds = seconds > 0 ? seconds : 1e-6,  // as in NetPIPE: the measured time of a stream of small messages may be 0
          .bidirectional = options_.bidirectional,
          .checked = options_.integrity};
}

// --- Messages ----------------------------------------------------------------------------------------------------------------------------
void Session::begin_exchange(Exchange exchange, std::uint64_t bytes, std::uint32_t messages) {
  exchange_ = exchange;
  message_bytes_ = bytes;
  sent_at_ = received_at_ = 0;
  began_ns_ = clock_();
  const bool first = step_ == Step::probe || (trial_ == 0 && !options_.integrity);
  learning_ = !transmits() && first && (step_ == Step::probe || peer_marks_);
  mark_bytes_ = transmits() && first ? bytes : 0;
  if (exchange == Exchange::send_only) {
    bulk_bytes_ = bytes * messages;
    messages_left_ = 0;
  } else if (exchange == Exchange::receive_only) {
    bulk_wanted_ = bytes * messages;
    messages_left_ = 0;
  } else {
    messages_left_ = messages;
    next_message();
  }
}

void Session::next_message() {
  require(messages_left_ > 0, "netpipe: a further message of an exchange");
  if (step_ == Step::trial && sent_at_ > 0) ++messages_;
  --messages_left_;
  bulk_wanted_ = message_bytes_;
  // With `bidirectional`, a receiver does not send the first message of a size before it knows the size.
  if (exchange_ == Exchange::send_then_receive && !learning_) bulk_bytes_ = message_bytes_;
}

void Session::exchange_done() {
  if (step_ == Step::probe) {
    seconds_before_ = static_cast<double>(clock_() - began_ns_) * 1e-9 / (2.0 * probe_round_trips);
    enter(Step::probe_end_sync);
    return;
  }
  messages_ += options_.stream ? repeats_ : 1;
  ++trial_;
  // At this point a receiver has only begun to send its last message, and sending a large message takes long. So a receiver's trial ends
  // when the peer's next word arrives, because the peer sends that word after it has received the whole message.
  time_runs_on_ = !transmits() && !options_.stream;
  if (!time_runs_on_) time_trial();
  if (options_.resets()) {
    enter(Step::trial_reset);
  } else if (trial_ < (options_.integrity ? 1 : Sweep::trials)) {
    enter(Step::trial_sync);
  } else if (time_runs_on_) {
    unreported_ = measured(0);
    begin_size();
  } else {
    size_done(best_seconds_);
  }
}

void Session::time_trial() {
  require(repeats_ != 0, "netpipe: a trial has messages");
  double one_way = static_cast<double>(clock_() - began_ns_) * 1e-9 / repeats_;
  if (!options_.stream && !options_.bidirectional) one_way /= 2;
  best_seconds_ = trial_ == 1 ? one_way : std::min(best_seconds_, one_way);
}

/// Called when the first byte of the peer's next word has arrived.
void Session::word_begins() {
  if (!std::exchange(time_runs_on_, false)) return;
  time_trial();
  if (!unreported_) return;
  if (best_seconds_ > 0) unreported_->seconds = best_seconds_;
  report_(*this, *std::exchange(unreported_, std::nullopt));
}

void Session::fill_bulk(std::span<std::byte> out) const noexcept {
  require(message_bytes_ != 0, "netpipe: a message has a byte or more");
  std::uint64_t at = sent_at_ % message_bytes_;
  for (std::byte& byte : out) {
    byte = checked_byte(at);
    if (++at == message_bytes_) at = 0;
  }
}

bool Session::check(std::span<const std::byte> bytes) noexcept {
  std::uint64_t at = received_at_ % message_bytes_;
  const std::uint64_t whole_words = message_bytes_ / word_bytes * word_bytes;
  for (const std::byte byte : bytes) {
    if (at < whole_words && byte != checked_byte(at)) {
      fail("integrity check failed: a message of " + std::to_string(message_bytes_) + " bytes has " +
           std::to_string(std::to_integer<unsigned>(byte)) + " where " + std::to_string(std::to_integer<unsigned>(checked_byte(at))) +
           " was expected, at byte " + std::to_string(at));
      return false;
    }
    if (++at == message_bytes_) at = 0;
  }
  return true;
}

// --- Input -------------------------------------------------------------------------------------------------------------------------------
std::size_t Session::consume(std::span<const std::byte> bytes) {
  std::size_t used = 0;
  while (state_ == State::running && used < bytes.size()) {
    const std::size_t left = bytes.size() - used;
    if (text_wanted_ > 0) {
      untouched_ = false;
      if (text_heard_ == 0) word_begins();
      const std::size_t taken = std::min(left, text_wanted_);
      require(text_heard_ + taken <= heard_.size(), "netpipe: a word of the peer exceeds its room", text_heard_ + taken);
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(used), taken, heard_.begin() + static_cast<std::ptrdiff_t>(text_heard_));
      text_heard_ += taken;
      text_wanted_ -= taken;
      used += taken;
      if (text_wanted_ == 0) text_complete();
    } else if (learning_) {
      untouched_ = false;
      used += learn(bytes.subspan(used));
    } else if (bulk_wanted_ > 0) {
      const std::size_t taken = static_cast<std::size_t>(std::min<std::uint64_t>(left, bulk_wanted_));
      if (options_.integrity && step_ == Step::trial && !check(bytes.subspan(used, taken))) break;
      used += taken;
      bulk_received(taken);
    } else {
      break;  // output has to be sent first
    }
    advance();
  }
  return used;
}

void Session::text_complete() {
  switch (step_) {
    case Step::probe_sync:
    case Step::probe_end_sync:
    case Step::trial_sync:
      if (heard() != sync) return fail("the peer said something else than SyncMe");
      introduced_ = true;
      if (!transmits()) say(sync);
      return;
    case Step::size_sync:
      if (heard() == quit) {
        if (transmits()) reason_ = "the peer ended the run before " + std::to_string(point_.bytes) + " bytes; its largest size is smaller";
        if (!transmits()) say(quit);
        step_ = Step::quit;  // the peer ends the run
        return;
      }
      if (text_heard_ < sync.size() && heard() == sync.substr(0, text_heard_)) {
        text_wanted_ = sync.size() - text_heard_;
        return;
      }
      if (heard() != sync) return fail("the peer said neither SyncMe nor QUIT");
      if (sweep_over_) {  // the peer begins another size
        reason_ = sweep_.length() > options_.to ? refusal(sweep_.length()) : "more sizes than NetPIPE has";
        say(quit);
        step_ = Step::quit;
        return;
      }
      if (!transmits()) say(sync);
      return;
    case Step::probe_reset:
    case Step::trial_reset:
      if (heard() != quit) return fail("the peer said something else than QUIT at a trial's end");
      if (!transmits()) say(quit);
      return;
    case Step::quit:
      // The receiver answers with the last QUIT, so that the transmitter ends the run too.
      if (!transmits()) say(quit);
      return;
    case Step::repeats:
      repeats_ = heard_number();
      if (repeats_ == 0 || repeats_ > Options::repeats_max) fail("the peer asks for " + std::to_string(repeats_) + " repeats");
      return;
    case Step::time:
      best_seconds_ = heard_number() / ticks_per_second;
      return;
    case Step::probe:
    case Step::trial:
      break;
  }
  require(false, "netpipe: a word of the peer within an exchange", static_cast<std::uint64_t>(step_));
}

std::string_view Session::heard() const noexcept { return {reinterpret_cast<const char*>(heard_.data()), text_heard_}; }

std::uint32_t Session::heard_number() const noexcept {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < word_bytes; ++i) number = number << 8 | std::to_integer<std::uint32_t>(heard_[i]);
  return number;
}

void Session::expect_text(std::size_t bytes) noexcept {
  text_wanted_ = bytes;
  text_heard_ = 0;
}

// --- Output ------------------------------------------------------------------------------------------------------------------------------
void Session::say(std::string_view words) {
  require(text_bytes_ + words.size() <= text_.size(), "netpipe: two words wait to be sent at most", text_bytes_);
  std::memcpy(text_.data() + text_bytes_, words.data(), words.size());
  text_bytes_ += words.size();
}

void Session::say_number(std::uint32_t number) {
  char bytes[word_bytes];
  for (std::size_t i = 0; i < word_bytes; ++i) bytes[i] = static_cast<char>(number >> (24 - 8 * i));
  say({bytes, word_bytes});
}

void Session::text_sent() {
  text_bytes_ = 0;
  advance();
}

void Session::bulk_sent(std::uint64_t bytes) {
  require(bytes <= bulk_bytes_, "netpipe: more bytes of a message were sent than were due", bytes);
  require(mark_bytes_ == 0 || bytes <= mark_bytes_, "netpipe: a piece of a message extends beyond its mark", bytes);
  bulk_bytes_ -= bytes;
  if (mark_bytes_ != 0) [[unlikely]]
    mark_bytes_ -= bytes;
  sent_at_ += bytes;
  advance();
}

// --- Ends --------------------------------------------------------------------------------------------------------------------------------
void Session::fail(std::string reason) {
  if (state_ == State::finished || state_ == State::failed) return;
  state_ = State::failed;
  reason_ = std::move(reason);
  text_bytes_ = 0;
  bulk_bytes_ = text_wanted_ = bulk_wanted_ = mark_bytes_ = 0;
  learning_ = false;
}

void Session::fail_idle(unsigned seconds) { fail("nothing came or went for " + std::to_string(seconds) + " s" + where()); }

void Session::connection_lost(const char* why) {
  if (state_ != State::running) return;
  // A peer may close without an answer to a transmitter's QUIT.
  if (step_ == Step::quit && transmits()) {
    state_ = State::finished;
    return;
  }
  // For each connection, NPtcp opens its listener, and then closes it. A connection made while the listener is closed is reset. So the
  // session tries another connection.
  if (options_.resets() && introduced_ && untouched_) {
    state_ = State::between;
    text_bytes_ = text_wanted_ = 0;
    return;
  }
  fail(why + where());
}

}  // namespace neap::netpipe
