// SPDX-License-Identifier: BSL-1.0
// A simulated transfer, for tests.
//
// Congestion control and recovery show their mistakes only over thousands of round trips. Here the sender works against a modelled link and
// a modelled receiver on a virtual clock, so a transfer of a minute takes milliseconds and is the same in each run. The link has a rate, a
// queue, delays, loss, reordering and duplication, as Linux's netem has: a reordered frame is not delayed. The receiver keeps what arrives
// out of order, acknowledges every second segment, and reports SACK and DSACK blocks (RFC 2018, 2883).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <queue>
#include <random>
#include <stdexcept>
#include <vector>

#include "net/tcp/send_state.hpp"

namespace neap::net::tcp {

struct SimulatedLink {
  double megabits = 100;
  std::uint32_t delay_us = 5'000;     ///< of data
  std::uint32_t return_delay_us = 0;  ///< of acknowledgements
  double loss = 0, burst_loss = 0;    ///< of data frames; `burst_loss`: probability that four frames in a row are lost
  double acknowledgement_loss = 0;
  double reordering = 0, duplication = 0;  ///< of data frames
  unsigned queue_frames = 1'000;
  unsigned mark_frames = 0;                            ///< frames in the queue from which ECN marks are set; 0: never
  std::uint64_t outage_from_us = 0, outage_to_us = 0;  ///< all frames are lost
  std::uint64_t stall_from_us = 0, stall_to_us = 0;    ///< frames arrive only at the end of this time: the delay has a spike
};

struct SimulatedTransfer {
  SimulatedLink link;
  Settings settings;
  std::uint64_t bytes = 10'000'000;
  std::uint32_t mss = 1'448;
  std::uint32_t receive_window = 8U << 20;
  std::uint32_t frames_joined = 1;  ///< the receiver handles so many frames of a burst as one
  std::uint64_t seed = 1;
  std::uint64_t limit_us = 600'000'000;
  bool echo_timestamps = true;
  unsigned check_every = 16;  ///< events between two checks of the sender's counts
  bool lack_memory = false;   ///< segments cannot be split
};

struct SimulatedResult {
  bool complete = false, gave_up = false;
  std::uint64_t us = 0;
  double megabits = 0;  ///< goodput: payload over the whole time
  std::uint64_t frames = 0, frames_resent = 0;
  std::uint64_t frames_unnecessary = 0;  ///< resent, and had arrived before
  std::uint64_t time_outs = 0, queue_drops = 0, marks = 0;
  std::uint32_t window_max = 0, queue_max = 0;
};

class Simulation {
 public:
  explicit Simulation(const SimulatedTransfer& transfer) : t_(transfer), random_(transfer.seed) {}

  SimulatedResult run() {
    state_.begin(first_, t_.settings);
    state_.establish(t_.mss, t_.settings.sack, t_.settings.ecn);
    state_.update_window(peer_sequence, first_, t_.receive_window);
    send_new();
    while (!result_.gave_up && state_.una != end()) {
      std::uint64_t next_us = events_.empty() ? never : events_.top().at_us;
      const std::uint64_t timer_us = state_.timer() == SendState::Timer::none ? never : std::max(state_.due_us(now_us_), now_us_);
      const std::uint64_t acknowledge_us = acknowledge_due_us_.value_or(never);
      next_us = std::min({next_us, timer_us, acknowledge_us});
      if (next_us == never || next_us > t_.limit_us) break;
      now_us_ = next_us;
      if (next_us == acknowledge_us) {
        acknowledge();
      } else if (next_us == timer_us) {
        fire();
      } else {
        const Event event = events_.top();
        events_.pop();
        if (event.to_sender) {
          take_acknowledgement(acknowledgements_[event.index]);
        } else {
          receive(frames_[event.index]);
        }
      }
      if (++checks_ % t_.check_every == 0) check();
    }
    result_.complete = state_.una == end();
    result_.us = now_us_;
    if (now_us_ != 0) result_.megabits = static_cast<double>(state_.una - first_) * 8 / static_cast<double>(now_us_);
    release(state_.abandon());
    return result_;
  }

  [[nodiscard]] const SendState& state() const { return state_; }
  /// The counts of flags agree with the segments; throws otherwise.
  void check() const;

 private:
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  static constexpr std::uint32_t peer_sequence = 77;
  struct Frame {
    std::uint32_t sequence, bytes, stamp_ms;
    bool resent, marked;
  };
  struct Reply {
    std::uint32_t number, echo_ms;
    unsigned count;
    std::array<SequenceRange, 4> sack;
    bool ece;
  };
  struct Event {
    std::uint64_t at_us, order;
    std::size_t index;
    bool to_sender;
    bool operator<(const Event& other) const { return at_us != other.at_us ? at_us > other.at_us : order > other.order; }
  };

  [[nodiscard]] std::uint32_t end() const { return first_ + static_cast<std::uint32_t>(t_.bytes); }
  [[nodiscard]] std::uint32_t queued() const { return end() - state_.nxt; }
  [[nodiscard]] bool chance(double probability) { return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability; }

  static inline thread_local bool no_split = false;
  static SentSegment* split(SentSegment& /*segment*/, std::uint32_t /*first_bytes*/) noexcept {
    return no_split ? nullptr : new SentSegment;
  }
  static void release(SentSegment* segment) {
    while (segment != nullptr) delete std::exchange(segment, segment->next);
  }

  // --- Sender ---
  void put(std::uint32_t sequence, std::uint32_t bytes, bool resent) {
    while (bytes != 0) {
      const std::uint32_t part = std::min(bytes, t_.mss);
      transmit({.sequence = sequence,
                .bytes = part,
                .stamp_ms = static_cast<std::uint32_t>(now_us_ / 1'000),
                .resent = resent,
                .marked = false});
      sequence += part;
      bytes -= part;
    }
  }
  void send_segment(std::uint32_t bytes) {
    auto* const segment = new SentSegment;
    segment->bytes = bytes;
    put(state_.nxt, bytes, false);
    state_.sent(*segment, now_us_);
    if (state_.take_cwr()) echo_congestion_ = false;
  }
  void send_new() {
    while (const std::uint32_t room = state_.room(now_us_, queued()))
      send_segment(std::min(room, SendState::burst_bytes_max - SendState::burst_bytes_max % t_.mss));
    result_.window_max = std::max(result_.window_max, state_.cwnd);
  }
  void resend(SentSegment& segment) {
    const std::uint32_t from = later(segment.sequence, state_.una);
    put(from, segment.end() - from, true);
    state_.resent(segment, now_us_);
  }
  void send_all() {
    no_split = t_.lack_memory;
    while (SentSegment* const segment = state_.has_retransmission() ? state_.next_retransmission(now_us_, &split) : nullptr)
      resend(*segment);
    send_new();
  }
  void fire() {
    no_split = t_.lack_memory;
    if (state_.timer() == SendState::Timer::retransmission) ++result_.time_outs;
    const SendState::Action action = state_.on_timer(now_us_, queued(), &split);
    release(action.acknowledged);
    using enum SendState::Action::Kind;
    switch (action.kind) {
      case none:
        break;
      case resend:
        this->resend(*action.segment);
        break;
      case probe_new:
        send_segment(std::min(t_.mss, queued()));
        break;
      case probe_window:
        if (const std::uint32_t bytes = state_.window_probe_bytes(queued()); bytes != 0) {
          send_segment(bytes);
        } else {
          transmit({.sequence = state_.una - 1, .bytes = 0, .stamp_ms = 0, .resent = false, .marked = false});
        }
        break;
      case give_up:
        result_.gave_up = true;
        return;
    }
    send_all();
  }
  void take_acknowledgement(const Reply& reply) {
    no_split = t_.lack_memory;
    const SendState::Acknowledged acknowledged = state_.plain(reply.number) && reply.count == 0 && !reply.ece
                                                     ? all(reply.number)
                                                     : state_.on_ack({.now_us = now_us_,
                                                                      .number = reply.number,
                                                                      .sequence = peer_sequence,
                                                                      .window = t_.receive_window,
                                                                      .segment_length = 0,
                                                                      .sack = {reply.sack.data(), reply.count},
                                                                      .echoed_ms = reply.echo_ms,
                                                                      .has_echo = t_.echo_timestamps,
                                                                      .ece = reply.ece,
                                                                      .more_queued = queued() != 0},
                                                                     &split);
    release(acknowledged.segments);
    send_all();
  }
  SendState::Acknowledged all(std::uint32_t number) {
    state_.update_window(peer_sequence, number, t_.receive_window);
    const std::uint32_t numbers = number - state_.una;
    return {.segments = state_.ack_all(now_us_), .numbers = numbers};
  }

  // --- Link ---
  void transmit(Frame frame) {
    ++result_.frames;
    if (frame.resent) ++result_.frames_resent;
    if (lost_in_row_ != 0) {
      --lost_in_row_;
      return;
    }
    if (chance(t_.link.burst_loss)) {
      lost_in_row_ = 3;
      return;
    }
    if (now_us_ >= t_.link.outage_from_us && now_us_ < t_.link.outage_to_us) return;
    if (chance(t_.link.loss)) return;
    for (int copies = chance(t_.link.duplication) ? 2 : 1; copies != 0; --copies) {
      const double frame_us = (frame.bytes + 90) * 8 / t_.link.megabits;
      if (chance(t_.link.reordering)) {  // overtakes all frames
        arrive(frame, now_us_ + 1);
        continue;
      }
      const double start_us = std::max(link_free_us_, static_cast<double>(now_us_));
      const auto waiting = static_cast<std::uint32_t>((start_us - static_cast<double>(now_us_)) * t_.link.megabits / ((t_.mss + 90) * 8));
      result_.queue_max = std::max(result_.queue_max, waiting);
      if (waiting >= t_.link.queue_frames) {
        ++result_.queue_drops;
        continue;
      }
      if (t_.link.mark_frames != 0 && waiting >= t_.link.mark_frames) {
        frame.marked = true;
        ++result_.marks;
      }
      link_free_us_ = start_us + frame_us;
      arrive(frame, static_cast<std::uint64_t>(link_free_us_) + t_.link.delay_us);
    }
  }
  void arrive(const Frame& frame, std::uint64_t at_us) {
    if (at_us >= t_.link.stall_from_us && at_us < t_.link.stall_to_us) at_us = t_.link.stall_to_us;
    frames_.push_back(frame);
    events_.push({.at_us = at_us, .order = order_++, .index = frames_.size() - 1, .to_sender = false});
  }

  // --- Receiver ---
  void receive(const Frame& frame) {
    const std::uint32_t stop = frame.sequence + frame.bytes;
    const bool dctcp = t_.settings.congestion == CongestionControl::dctcp;
    if (dctcp && frame.marked != echo_congestion_ && waiting_frames_ != 0) acknowledge();  // RFC 8257, 3.2
    if (dctcp) echo_congestion_ = frame.marked;
    if (!dctcp && frame.marked) echo_congestion_ = true;
    if (at_or_before(frame.sequence, last_acknowledged_) && frame.bytes != 0) stamp_ms_ = std::max(stamp_ms_, frame.stamp_ms);
    if (at_or_before(stop, received_)) {  // all of it is old
      if (frame.resent) ++result_.frames_unnecessary;
      duplicate_ = frame.bytes != 0 ? std::optional(SequenceRange{frame.sequence, stop}) : std::nullopt;
      return acknowledge();
    }
    if (after(frame.sequence, received_)) {
      if (!insert({frame.sequence, stop})) {
        if (frame.resent) ++result_.frames_unnecessary;
        duplicate_ = SequenceRange{frame.sequence, stop};
      }
      return acknowledge();
    }
    received_ = stop;
    const bool hole = !ranges_.empty();
    std::erase_if(ranges_, [&](const SequenceRange& range) {
      if (after(range.first, received_)) return false;
      received_ = later(received_, range.end);
      return true;
    });
    // Ranges may have become adjacent in any order.
    for (bool again = hole; again;) {
      again = false;
      for (std::size_t i = 0; i < ranges_.size(); ++i) {
        if (!after(ranges_[i].first, received_)) {
          received_ = later(received_, ranges_[i].end);
          ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(i));
          again = true;
          break;
        }
      }
    }
    ++waiting_frames_;
    if (hole || waiting_frames_ >= 2 * t_.frames_joined) return acknowledge();
    if (!acknowledge_due_us_) acknowledge_due_us_ = now_us_ + (waiting_frames_ >= 2 ? 100 : 40'000);
    if (waiting_frames_ >= 2) acknowledge_due_us_ = std::min(*acknowledge_due_us_, now_us_ + 100);
  }
  /// The first range is the one that has changed last. Returns false if the range was there.
  bool insert(SequenceRange range) {
    for (const SequenceRange& old : ranges_) {
      if (at_or_before(old.first, range.first) && at_or_after(old.end, range.end)) return false;
    }
    std::erase_if(ranges_, [&](const SequenceRange& old) {
      if (after(old.first, range.end) || before(old.end, range.first)) return false;
      range = {earlier(range.first, old.first), later(range.end, old.end)};
      return true;
    });
    ranges_.insert(ranges_.begin(), range);
    return true;
  }
  void acknowledge() {
    acknowledge_due_us_.reset();
    waiting_frames_ = 0;
    last_acknowledged_ = received_;
    Reply reply{.number = received_, .echo_ms = stamp_ms_, .count = 0, .sack = {}, .ece = echo_congestion_ && t_.settings.ecn};
    if (t_.settings.sack) {
      if (duplicate_) reply.sack[reply.count++] = *duplicate_;
      for (const SequenceRange& range : ranges_) {
        if (reply.count == 3) break;
        reply.sack[reply.count++] = range;
      }
    }
    duplicate_.reset();
    if (now_us_ >= t_.link.outage_from_us && now_us_ < t_.link.outage_to_us) return;
    if (chance(t_.link.acknowledgement_loss)) return;
    acknowledgements_.push_back(reply);
    events_.push(
        {.at_us = now_us_ + t_.link.return_delay_us + 20, .order = order_++, .index = acknowledgements_.size() - 1, .to_sender = true});
  }

  SimulatedTransfer t_;
  std::mt19937_64 random_;
  SendState state_;
  SimulatedResult result_;
  std::uint32_t first_ = 0xFFFF'0000;  // the numbers wrap early
  std::uint64_t now_us_ = 1'000;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0, checks_ = 0;
  std::vector<Frame> frames_;
  std::vector<Reply> acknowledgements_;
  double link_free_us_ = 0;
  unsigned lost_in_row_ = 0;
  std::uint32_t received_ = first_, last_acknowledged_ = first_, stamp_ms_ = 0;
  std::vector<SequenceRange> ranges_;
  std::optional<SequenceRange> duplicate_;
  std::optional<std::uint64_t> acknowledge_due_us_;
  unsigned waiting_frames_ = 0;
  bool echo_congestion_ = false;
};

inline void Simulation::check() const {
  if (state_.flow == nullptr) return;
  std::uint32_t lost = 0, sacked = 0, expected = state_.una;
  for (const SentSegment* segment = state_.head; segment != nullptr; segment = segment->next) {
    const std::uint32_t numbers = segment->end() - later(segment->sequence, state_.una);
    if (segment == state_.head ? after(segment->sequence, state_.una) : segment->sequence != expected) throw std::logic_error("a hole");
    expected = segment->end();
    if (segment->has(SentSegment::lost)) lost += numbers;
    if (segment->has(SentSegment::sacked)) sacked += numbers;
    if (segment->has(SentSegment::lost) && segment->has(SentSegment::sacked)) throw std::logic_error("lost and received");
  }
  if (expected != state_.nxt) throw std::logic_error("the segments do not end at nxt");
  if (lost != state_.flow->lost) throw std::logic_error("the count of lost numbers");
  if (t_.settings.sack && sacked != state_.flow->sacked) throw std::logic_error("the count of received numbers");
  if (state_.head != nullptr && state_.timer() == SendState::Timer::none) throw std::logic_error("no timer");
}

}  // namespace neap::net::tcp
