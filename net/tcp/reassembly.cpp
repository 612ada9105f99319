// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/reassembly.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "kernel/memory/size_classes.hpp"
#include "kernel/panic.hpp"
#include "net/tcp/sequence.hpp"

namespace neap::net::tcp {

struct OutOfOrder::State {
  static constexpr std::size_t first_capacity = 4;

  std::unique_ptr<Range[]> ranges;  // sorted, neither overlapping nor adjacent
  std::size_t count = 0, capacity = 0;
  std::size_t data_memory_bytes = 0;                    // of all ranges
  std::array<std::uint32_t, sack_blocks_max> recent{};  // a byte of each range that was reported last, the latest first
  std::size_t recent_count = 0;
  SequenceRange duplicate;
  bool has_duplicate = false;
  bool has_fin = false;
  std::uint32_t fin_at = 0;  // the sequence number of the FIN

  /// The first range that ends at `sequence` or behind it.
  [[nodiscard]] std::size_t find(std::uint32_t sequence) const noexcept {
    const Range* const found =
        std::partition_point(ranges.get(), ranges.get() + count, [sequence](const Range& range) { return before(range.end, sequence); });
    return static_cast<std::size_t>(found - ranges.get());
  }
  /// Makes room for one more range. Returns false without memory.
  [[nodiscard]] bool reserve() noexcept {
    if (count < capacity) return true;
    const std::size_t larger = capacity == 0 ? first_capacity : 2 * capacity;
    std::unique_ptr<Range[]> moved(new (std::nothrow) Range[larger]);
    if (moved == nullptr) return false;
    std::move(ranges.get(), ranges.get() + count, moved.get());
    ranges = std::move(moved);
    capacity = larger;
    return true;
  }
  void erase(std::size_t index) noexcept {
    data_memory_bytes -= ranges[index].memory_bytes;
    std::move(ranges.get() + index + 1, ranges.get() + count, ranges.get() + index);
    ranges[--count] = {};
  }
  /// Drops the range that is farthest from the next byte.
  void drop_last(Inserted& result) noexcept {
    ++result.ranges_dropped;
    result.bytes_dropped += ranges[count - 1].end - ranges[count - 1].begin;
    erase(count - 1);
  }
  void report(std::uint32_t begin, std::uint32_t end) noexcept {
    duplicate = {.first = begin, .end = end};
    has_duplicate = true;
  }
  /// The range at `index` is the one that is reported first.
  void touch(std::size_t index) noexcept {
    const Range& range = ranges[index];
    const auto* const last = std::remove_if(recent.begin(), recent.begin() + recent_count,
                                            [&range](std::uint32_t byte) { return in_range(byte, range.begin, range.end); });
    recent_count = std::min<std::size_t>(static_cast<std::size_t>(last - recent.begin()), recent.size() - 1);
    std::move_backward(recent.begin(), recent.begin() + recent_count, recent.begin() + recent_count + 1);
    recent[0] = range.begin;
    ++recent_count;
  }
};

void OutOfOrder::Delete::operator()(State* state) const noexcept { delete state; }

std::size_t OutOfOrder::ranges() const noexcept { return state_ == nullptr ? 0 : state_->count; }

std::size_t OutOfOrder::memory_of_state() const noexcept {
  return neap::memory::heap_bytes(sizeof(State)) + state_->data_memory_bytes +
         (state_->capacity == 0 ? 0 : neap::memory::heap_bytes(state_->capacity * sizeof(Range) + sizeof(std::size_t)));
}

std::span<OutOfOrder::Range> OutOfOrder::all_ranges() noexcept {
  return state_ == nullptr ? std::span<Range>{} : std::span{state_->ranges.get(), state_->count};
}

bool OutOfOrder::make_state() noexcept {
  if (state_ == nullptr) state_.reset(new (std::nothrow) State);
  return state_ != nullptr;
}

void OutOfOrder::release_if_empty() noexcept {
  if (state_ != nullptr && state_->count == 0 && !state_->has_duplicate && !state_->has_fin) state_.reset();
}

void OutOfOrder::count_memory() noexcept {
  std::size_t bytes = 0;
  for (const Range& range : all_ranges()) bytes += range.memory_bytes;
  if (state_ != nullptr) state_->data_memory_bytes = bytes;
}

void OutOfOrder::report_duplicate(std::uint32_t begin, std::uint32_t end) noexcept {
  if (begin == end || !make_state()) return;
  state_->report(begin, end);
}

OutOfOrder::Inserted OutOfOrder::insert(StreamPart&& segment, std::uint32_t next, std::size_t memory_bytes_max, bool sack) noexcept {
  require(after(segment.begin, next), "a segment out of order begins behind the next byte", segment.begin - next);
  Inserted result;
  Buffer data = std::move(segment.data);
  std::uint32_t begin = segment.begin, end = begin + static_cast<std::uint32_t>(data.bytes());
  if (!make_state()) {
    result.bytes_dropped = end - begin;
    return result;
  }
  State& state = *state_;

  // FIN. It counts if no byte behind it is known.
  if (segment.fin && !state.has_fin && (state.count == 0 || at_or_before(state.ranges[state.count - 1].end, end))) {
    state.has_fin = true;
    state.fin_at = end;
    result.kept = true;
  }
  if (state.has_fin && after(end, state.fin_at)) {
    const std::uint32_t behind = std::min(end - state.fin_at, end - begin);
    data.drop_back(behind);
    end -= behind;
  }
  if (data.empty()) {
    release_if_empty();
    return result;
  }

  // A range that begins before the segment, or with it.
  const auto duplicate = [&](std::uint32_t from, std::uint32_t to) {
    if (sack && !result.duplicate) state.report(from, to);
    result.duplicate = true;
  };
  std::size_t index = state.find(begin);
  bool behind_range = false;  // the segment continues the range at `index`
  if (index < state.count && at_or_before(state.ranges[index].begin, begin)) {
    const Range& range = state.ranges[index];
    if (at_or_before(end, range.end)) {
      duplicate(begin, end);
      state.touch(index);
      return result;
    }
    if (begin != range.end) {
      duplicate(begin, range.end);
      data.drop_front(range.end - begin);
      begin = range.end;
    }
    behind_range = true;
  }
  // Ranges that the segment contains are replaced by it. Of one that it overlaps, the bytes are kept.
  const std::size_t following = index + (behind_range ? 1 : 0);
  while (following < state.count && at_or_before(state.ranges[following].end, end)) {
    duplicate(state.ranges[following].begin, state.ranges[following].end);
    state.erase(following);
  }
  if (following < state.count && before(state.ranges[following].begin, end)) {
    duplicate(state.ranges[following].begin, end);
    data.drop_back(end - state.ranges[following].begin);
    end = state.ranges[following].begin;
  }

  // The bounds. Ranges behind the segment go first.
  const bool before_range = following < state.count && state.ranges[following].begin == end;
  const std::size_t needed = following + (before_range ? 1 : 0);  // ranges up to here are not dropped
  const auto over_memory = [&] { return memory_of_state() + segment.memory_bytes > memory_bytes_max; };
  while (over_memory() && state.count > needed) state.drop_last(result);
  if (!behind_range && !before_range && !over_memory() && state.count == ranges_max && following < state.count) state.drop_last(result);
  const bool room = behind_range || before_range || (state.count < ranges_max && state.reserve());
  if (!room || over_memory()) {
    result.bytes_dropped += end - begin;
    release_if_empty();
    return result;
  }

  result.kept = true;
  state.data_memory_bytes += segment.memory_bytes;
  if (behind_range) {
    Range& range = state.ranges[index];
    range.data.append(std::move(data));
    range.end = end;
    range.memory_bytes += segment.memory_bytes;
    range.copied = range.copied && segment.copied;
    if (before_range) {
      Range& joined = state.ranges[following];
      range.data.append(std::move(joined.data));
      range.end = joined.end;
      range.copied = range.copied && joined.copied;
      range.memory_bytes += joined.memory_bytes;
      joined.memory_bytes = 0;
      state.erase(following);
    }
  } else if (before_range) {
    Range& range = state.ranges[following];
    data.append(std::move(range.data));
    range.data = std::move(data);
    range.begin = begin;
    range.memory_bytes += segment.memory_bytes;
    range.copied = range.copied && segment.copied;
  } else {
    Range* const place = state.ranges.get() + index;
    std::move_backward(place, state.ranges.get() + state.count, state.ranges.get() + state.count + 1);
    *place = {.begin = begin, .end = end, .data = std::move(data), .memory_bytes = segment.memory_bytes, .copied = segment.copied};
    ++state.count;
  }
  state.touch(index);
  return result;
}

std::optional<std::uint32_t> OutOfOrder::fin() const noexcept {
  return state_ != nullptr && state_->has_fin ? std::optional(state_->fin_at) : std::nullopt;
}

bool OutOfOrder::first_reaches(std::uint32_t next) const noexcept {
  return (state_->count > 0 && at_or_before(state_->ranges[0].begin, next)) || (state_->has_fin && at_or_before(state_->fin_at, next));
}

StreamPart OutOfOrder::take_next(std::uint32_t next) noexcept {
  require(has_next(next), "a range is taken when the next byte is in it", next);
  State& state = *state_;
  StreamPart part{.begin = next};
  std::uint32_t end = next;
  if (state.count > 0 && at_or_before(state.ranges[0].begin, next)) {
    Range& range = state.ranges[0];
    part.data = std::move(range.data);
    part.memory_bytes = range.memory_bytes;
    part.copied = range.copied;
    part.data.drop_front(std::min<std::size_t>(next - range.begin, part.data.bytes()));
    end = later(range.end, next);
    state.erase(0);
  }
  if (state.has_fin && at_or_before(state.fin_at, end)) {
    part.fin = state.fin_at == end;  // otherwise the peer has sent bytes behind its FIN, and goes on
    state.has_fin = false;
  }
  release_if_empty();
  return part;
}

std::size_t OutOfOrder::sack_blocks(std::uint32_t next, std::span<SequenceRange> blocks) noexcept {
  if (state_ == nullptr || blocks.empty()) return 0;
  State& state = *state_;
  std::size_t count = 0;
  if (state.has_duplicate) {
    blocks[count++] = state.duplicate;
    state.has_duplicate = false;
  }
  for (std::size_t i = 0; i < state.recent_count && count < blocks.size(); ++i) {
    const std::size_t index = state.find(state.recent[i]);
    if (index == state.count) continue;
    const Range& range = state.ranges[index];
    // The range of a byte may have been taken or dropped.
    if (!in_range(state.recent[i], range.begin, range.end) || at_or_before(range.begin, next)) continue;
    const bool with_fin = state.has_fin && state.fin_at == range.end;
    blocks[count++] = {.first = range.begin, .end = range.end + (with_fin ? 1 : 0)};
  }
  release_if_empty();
  return count;
}

std::uint32_t OutOfOrder::drop_all() noexcept {
  std::uint32_t bytes = 0;
  for (const Range& range : all_ranges()) bytes += range.end - range.begin;
  state_.reset();
  return bytes;
}

}  // namespace neap::net::tcp
