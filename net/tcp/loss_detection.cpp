// SPDX-License-Identifier: BSL-1.0
// Which segments were delivered, and which are lost: SACK (RFC 2018, 2883), RACK (RFC 8985) and duplicate acknowledgements (RFC 6582).
#include <array>

#include "net/tcp/send_state.hpp"

namespace neap::net::tcp {

namespace {

constexpr std::uint32_t duplicate_threshold = 3;     // DupThresh
constexpr std::uint8_t reordering_persistence = 16;  // RFC 8985, 6.2 step 4: recoveries after which the window of reordering is small again

/// RACK_sent_after(): of segments sent at the same time, those with the higher number are later.
bool sent_after(std::uint32_t sent_us, std::uint32_t end, std::uint32_t other_us, std::uint32_t other_end) noexcept {
  return sent_us == other_us ? after(end, other_end) : after(sent_us, other_us);
}

}  // namespace

// --- What was delivered ------------------------------------------------------------------------------------------------------------------
// RFC 8985, 6.2, steps 2 and 3. A segment that was sent again and is acknowledged sooner than any round trip was not sent in vain before:
// the acknowledgement is that of the original.
void SendState::delivered(const SentSegment& segment, std::uint32_t now_us, bool echo_before_resent) noexcept {
  Flow& f = *flow;
  const std::uint32_t end = segment.end(), elapsed_us = now_us - segment.sent_us;
  if (segment.has(SentSegment::ever_retransmitted)) [[unlikely]] {
    if (echo_before_resent || (f.least_round_trip.known() && elapsed_us < f.least_round_trip.us())) return;
  } else if (before(end, f.delivered_to)) [[unlikely]] {
    f.reordering_seen = true;
    const std::uint32_t usual_us = std::max(f.recent_round_trip_us, f.least_round_trip.known() ? f.least_round_trip.us() : 0);
    if (elapsed_us > usual_us) f.reordering_us = std::max(f.reordering_us, elapsed_us - usual_us);
  }
  f.delivered_to = later(f.delivered_to, end);
  if (!f.recent_valid || sent_after(segment.sent_us, end, f.recent_sent_us, f.recent_end)) [[likely]] {
    f.recent_valid = true;
    f.recent_sent_us = segment.sent_us;
    f.recent_end = end;
    f.recent_round_trip_us = elapsed_us;
  }
}

void SendState::mark_sacked(SentSegment& segment, Progress& progress) noexcept {
  Flow& f = *flow;
  const std::uint32_t numbers = rest_of(segment);
  if (segment.has(SentSegment::lost)) f.lost -= numbers;
  f.sacked += numbers;
  progress.delivered += numbers;
  progress.newly_sacked = true;
  if (!segment.has(SentSegment::ever_retransmitted)) {
    if (at_or_before(segment.end(), f.recover)) progress.original_delivered = true;
    progress.has_sacked_round_trip = true;
    progress.sacked_sent_us = segment.sent_us;
  }
  delivered(segment, progress.now_us, progress.echo_before_resent);
  segment.clear(SentSegment::lost | SentSegment::retransmitted);
  segment.set(SentSegment::sacked);
}

// RFC 2883, 4: the first block reports a duplicate if it is below the acknowledgement, or within the second block.
bool SendState::take_dsack(const Acknowledgement& ack, Progress& progress) noexcept {
  const SequenceRange block = ack.sack[0];
  const bool below = at_or_before(block.end, ack.number);
  const bool within = ack.sack.size() > 1 && at_or_after(block.first, ack.sack[1].first) && at_or_before(block.end, ack.sack[1].end);
  if (!below && !within) return false;
  Flow& f = *flow;
  // Both the original and the probe have arrived.
  if (f.probing && f.probe_resent && block.end == f.probe_end) f.probing = false;
  // Duplicates that the network made say nothing about retransmissions.
  if (!f.undo_resent || before(block.first, f.resent.first) || after(block.end, f.resent.end)) return true;
  progress.dsack = true;
  f.undo_bytes -= std::min(f.undo_bytes, block.end - block.first);
  if (!f.dsack_round || at_or_after(later(una, ack.number), f.dsack_round_end)) {
    f.dsack_round = true;
    f.dsack_round_end = nxt;
    if (f.reordering_steps != 0xFF) ++f.reordering_steps;
    f.reordering_persist = reordering_persistence;
  }
  return true;
}

void SendState::take_sack(const Acknowledgement& ack, Progress& progress, SplitSegment split) noexcept {
  // Blocks in order of their numbers. Blocks outside of what is in flight are not trusted.
  std::array<SequenceRange, 4> blocks{};
  unsigned count = 0;
  for (unsigned i = 0; i < ack.sack.size() && count < blocks.size(); ++i) {
    const SequenceRange block = ack.sack[i];
    if (!before(block.first, block.end) || after(block.end, nxt)) continue;
    if (i == 0 && take_dsack(ack, progress)) continue;
    const std::uint32_t floor = later(una, ack.number);
    if (before(block.first, floor)) continue;
    unsigned at = count++;
    for (; at != 0 && after(blocks[at - 1].first, block.first); --at) blocks[at] = blocks[at - 1];
    blocks[at] = block;
  }
  unsigned next = 0;
  for (SentSegment* segment = head; segment != nullptr && next != count; segment = segment->next) {
    while (next != count && at_or_before(blocks[next].end, segment->sequence)) ++next;
    if (next == count) break;
    const SequenceRange block = blocks[next];
    if (segment->has(SentSegment::sacked) || at_or_after(block.first, segment->end())) continue;
    // Only frames of a long segment are split, so a peer cannot make more segments than there are frames.
    if (after(block.first, segment->sequence)) {
      const std::uint32_t frames_before = (block.first - segment->sequence + mss - 1) / mss;
      split_at(*segment, frames_before * mss, split);
      continue;  // the new segment is the next one
    }
    if (before(block.end, segment->end())) {
      const std::uint32_t covered = block.end - segment->sequence;
      if (!split_at(*segment, covered - covered % mss, split)) continue;
    }
    mark_sacked(*segment, progress);
  }
}

// --- What is lost ------------------------------------------------------------------------------------------------------------------------
void SendState::mark_lost(SentSegment& segment) noexcept {
  flow->lost += rest_of(segment);
  segment.clear(SentSegment::retransmitted);
  segment.set(SentSegment::lost);
}

// RFC 8985, 6.2, step 4. A delay by reordering that was measured is allowed for at once.
std::uint32_t SendState::reordering_window_us() const noexcept {
  const Flow& f = *flow;
  if (!f.reordering_seen && (f.phase == Phase::recovery || f.phase == Phase::timed_out || f.sacked >= duplicate_threshold * mss)) return 0;
  const std::uint32_t least_us = f.least_round_trip.known() ? f.least_round_trip.us() : round_trip.smoothed_us();
  const std::uint64_t window_us =
      std::max<std::uint64_t>(std::uint64_t{least_us} / 4 * f.reordering_steps, std::uint64_t{f.reordering_us} + f.reordering_us / 4);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(window_us, round_trip.smoothed_us()));
}

// RFC 8985, 6.2, step 5.
void SendState::detect_losses(std::uint32_t now_us) noexcept {
  Flow& f = *flow;
  f.check_pending = false;
  if (!f.recent_valid) return;
  // A segment that overtook others was faster than they can be.
  const std::uint32_t usual_us = f.reordering_seen ? std::max(f.recent_round_trip_us, round_trip.smoothed_us()) : f.recent_round_trip_us;
  const std::uint32_t allowed_us = usual_us + reordering_window_us();
  std::int32_t longest_us = 0;
  for (SentSegment* segment = head; segment != nullptr; segment = segment->next) {
    if (!sent_after(f.recent_sent_us, f.recent_end, segment->sent_us, segment->end())) {
      if (!segment->has(SentSegment::ever_retransmitted)) break;  // originals were sent in order
      continue;
    }
    if (segment->has(SentSegment::sacked | SentSegment::lost)) continue;
    const std::int32_t left_us = distance(now_us, segment->sent_us + allowed_us);
    if (left_us <= 0) {
      mark_lost(*segment);
    } else {
      longest_us = std::max(longest_us, left_us);
    }
  }
  if (longest_us != 0) {
    f.check_pending = true;
    f.check_due_us = now_us + static_cast<std::uint32_t>(longest_us) + 1;
  }
}

void SendState::mark_head_lost(SplitSegment split) noexcept {
  if (head == nullptr || head->has(SentSegment::lost)) return;
  const std::uint32_t acknowledged = una - head->sequence;  // this part is removed later
  if (head->bytes > acknowledged + mss) split_at(*head, acknowledged + mss, split);
  mark_lost(*head);
}

// Without SACK, each duplicate acknowledgement says that some segment has left the network (RFC 6582, 5681).
void SendState::take_duplicates(Progress& progress, SplitSegment split) noexcept {
  Flow& f = *flow;
  if (progress.acked != 0) {
    duplicates_ = 0;
    const std::uint32_t explained = progress.acked - std::min(progress.acked, std::uint32_t{mss});
    f.sacked -= std::min(f.sacked, explained);
    if (f.phase == Phase::open) f.sacked = 0;
    if (f.phase == Phase::recovery && before(una, f.recover)) mark_head_lost(split);
  } else if (progress.duplicate) {
    if (duplicates_ != 0xFF) ++duplicates_;
    if (f.phase == Phase::timed_out) return;  // they may come of the retransmissions
    const std::uint32_t outstanding = nxt - una - std::min(nxt - una, f.lost);
    if (f.sacked + mss <= outstanding - std::min(outstanding, std::uint32_t{mss})) {
      f.sacked += mss;
      progress.delivered += mss;
    }
    if (f.phase == Phase::open && duplicates_ == duplicate_threshold && after(una, f.recover)) mark_head_lost(split);
  }
}

}  // namespace neap::net::tcp
