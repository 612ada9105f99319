// SPDX-License-Identifier: BSL-1.0
#include "kernel/log_writer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap::log {

constinit thread_local Writer writer;

namespace {

constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint16_t sample_counters = counter::instructions | counter::cycles | counter::reference_cycles | counter::llc_misses |
                                          counter::package_energy | counter::dram_energy | counter::core_c3;
constexpr std::uint16_t residency_counters =
    counter::core_c6 | counter::core_c7 | counter::package_c2 | counter::package_c3 | counter::package_c6 | counter::package_c7;

static_assert(sizeof(Traffic) == 6 * sizeof(std::uint64_t), "six adjacent counters: the fast path loads them two at a time");
static_assert(offsetof(Record, rx_descriptors) == 16 && offsetof(Record, tx_frames) == 32 && offsetof(Record, tx_bytes) == 36);

/// The part of `now - recorded` that fits into a field. The remainder stays for the next record.
template <class Field>
Field take(std::uint64_t now, std::uint64_t& recorded) noexcept {
  const std::uint64_t part = std::min<std::uint64_t>(now - recorded, std::numeric_limits<Field>::max());
  recorded += part;
  return static_cast<Field>(part);
}

/// Moves as much of `overflow` into `field` as fits there.
template <class Field>
void move_into(Field& field, std::uint64_t& overflow) noexcept {
  const std::uint64_t part = std::min<std::uint64_t>(overflow, std::numeric_limits<Field>::max() - field);
  field = static_cast<Field>(field + part);
  overflow -= part;
}

using Counts = std::array<std::uint64_t, 6>;
Counts counts_of(const Traffic& traffic) noexcept {
  return {traffic.rx_descriptors.value(), traffic.rx_frames.value(), traffic.rx_bytes.value(),
          traffic.tx_descriptors.value(), traffic.tx_frames.value(), traffic.tx_bytes.value()};
}

TrafficTotals totals_of(const Traffic& traffic) noexcept {
  return {.rx_descriptors = traffic.rx_descriptors.value(),
          .rx_frames = traffic.rx_frames.value(),
          .rx_bytes = traffic.rx_bytes.value(),
          .tx_descriptors = traffic.tx_descriptors.value(),
          .tx_frames = traffic.tx_frames.value(),
          .tx_bytes = traffic.tx_bytes.value()};
}

__m128i load(const std::byte* from) noexcept { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
/// The low halves of a's two words, then the halves of b that `from_b` selects.
template <int from_b>
__m128i low_halves_and(__m128i a, __m128i b) noexcept {
  return _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b), from_b << 4 | _MM_SHUFFLE(0, 0, 2, 0)));
}
constexpr int low_halves = 0b1000, second_word = 0b1110;

}  // namespace

// --- The fast path -----------------------------------------------------------------------------------------------------------------------
void Writer::record(Kind kind) noexcept {
  const std::uint64_t tsc = machine::timestamp();
  if (--records_to_sample_ == 0) [[unlikely]] {
    record_on_slow_path(kind, tsc, true, 0);
    return;
  }
  if (tsc >= slow_path_tsc_) [[unlikely]] {
    record_on_slow_path(kind, tsc, counters_due(tsc), 0);
    return;
  }
  Entry* const to = next_;
  if (to == limit_) [[unlikely]] {
    record_in_next_chunk(kind);
    return;
  }
  const auto* const counters = reinterpret_cast<const std::byte*>(traffic_);
  const __m128i now[3] = {load(counters), load(counters + 16), load(counters + 32)};
  auto* const recorded = reinterpret_cast<__m128i*>(recorded_);
  const __m128i passed[3] = {_mm_sub_epi64(now[0], recorded[0]), _mm_sub_epi64(now[1], recorded[1]), _mm_sub_epi64(now[2], recorded[2])};
  const __m128i upper_halves = _mm_srli_epi64(_mm_or_si128(_mm_or_si128(passed[0], passed[1]), passed[2]), 32);
  if (_mm_movemask_epi8(_mm_cmpeq_epi8(upper_halves, _mm_setzero_si128())) != 0xFFFF) [[unlikely]] {
    record_on_slow_path(kind, tsc, false, 0);
    return;
  }
  next_ = to + 1;
  for (unsigned i = 0; i < 3; ++i) recorded[i] = now[i];
  static_assert(sizeof(PendingCounts) == 32 && offsetof(Record, control_rx_frames) - 32 == offsetof(PendingCounts, control_rx_frames) &&
                offsetof(Record, control_tx_frames) - 32 == offsetof(PendingCounts, control_tx_frames) &&
                offsetof(Record, control_rx_bytes) - 32 == offsetof(PendingCounts, control_rx_bytes) &&
                offsetof(Record, control_tx_bytes) - 32 == offsetof(PendingCounts, control_tx_bytes) &&
                offsetof(Record, idle_entries) - 32 == offsetof(PendingCounts, idle_entries) &&
                offsetof(Record, idle_ticks) - 32 == offsetof(PendingCounts, idle_ticks));
  auto* const pending = reinterpret_cast<__m128i*>(&pending_);
  const __m128i pending_now[2] = {pending[0], pending[1]};
  pending[0] = pending[1] = _mm_setzero_si128();
  store(to, {.words = {tsc, head_word_ | static_cast<std::uint64_t>(kind)},
             .parts = {low_halves_and<low_halves>(passed[0], passed[1]), low_halves_and<second_word>(passed[2], pending_now[0]),
                       pending_now[1]}});
}

void Writer::record_in_next_chunk(Kind kind) noexcept {
  if (next_chunk()) {
    ++records_to_sample_;  // `record` counts this record again
    record(kind);
  } else {
    ring_->count_unwritten(1);
  }
}

// --- The slow path -----------------------------------------------------------------------------------------------------------------------
bool Writer::record_on_slow_path(Kind kind, std::uint64_t tsc, bool with_counters, unsigned further_entries) noexcept {
  CounterSample sample{};
  if (with_counters) {
    sample = machine::sample_counters();
    next_sample_tsc_ = sample_period_ticks_ != 0 ? tsc + sample_period_ticks_ : never;
    records_to_sample_ = sample_records_ != 0 ? sample_records_ : never;
  }
  slow_path_tsc_ = next_sample_tsc_;
  if (kind == Kind::start) ends_ = {.start = {.tsc = tsc, .counters = sample, .traffic = totals_of(*traffic_)}, .stop = {}, .on = true};
  if (kind == Kind::stop) {
    ends_.stop = {.tsc = tsc, .counters = sample, .traffic = totals_of(*traffic_)};
    ends_.on = false;
  }
  const bool has_sample = (sample.present & sample_counters) != 0;
  const bool has_residency = (sample.present & residency_counters) != 0;
  const bool has_events = (sample.present & counter::events) != 0;
  const unsigned entries = 1 + (has_sample ? 1 : 0) + (has_residency ? 1 : 0) + (has_events ? 1 : 0) + further_entries;
  if (entries > room_end_ - position()) {  // writes all entries or none, because `flags` MUST NOT announce missing entries
    ring_->count_unwritten(entries);
    return false;
  }

  Record record{};
  record.tsc = tsc;
  record.kind = static_cast<std::uint8_t>(kind);
  record.idle_state = idle_state_;
  record.flags = sample.present;
  record.generation = generation_;
  const Counts now = counts_of(*traffic_);
  record.rx_descriptors = take<std::uint32_t>(now[0], recorded_[0]);
  record.rx_frames = take<std::uint32_t>(now[1], recorded_[1]);
  record.rx_bytes = take<std::uint32_t>(now[2], recorded_[2]);
  record.tx_descriptors = take<std::uint32_t>(now[3], recorded_[3]);
  record.tx_frames = take<std::uint32_t>(now[4], recorded_[4]);
  record.tx_bytes = take<std::uint32_t>(now[5], recorded_[5]);
  record.control_rx_frames = pending_.control_rx_frames;
  record.control_tx_frames = pending_.control_tx_frames;
  record.control_rx_bytes = pending_.control_rx_bytes;
  record.control_tx_bytes = pending_.control_tx_bytes;
  record.idle_entries = pending_.idle_entries;
  record.idle_ticks = pending_.idle_ticks;
  pending_ = {};
  refill_pending();
  put(record);
  if (has_sample) put_sample(sample, tsc);
  if (has_residency) put_residency(sample, tsc);
  if (has_events) put_events(sample, tsc);
  return true;
}

void Writer::put_sample(const CounterSample& sample, std::uint64_t tsc) noexcept {
  put(Sample{.tsc = tsc,
             .kind = static_cast<std::uint8_t>(Kind::sample),
             .flags = sample.present,
             .package_energy = sample.package_energy,
             .instructions = sample.instructions,
             .cycles = sample.cycles,
             .reference_cycles = sample.reference_cycles,
             .llc_misses = sample.llc_misses,
             .dram_energy = sample.dram_energy,
             .core_c3 = sample.core_c3});
}

void Writer::put_residency(const CounterSample& sample, std::uint64_t tsc) noexcept {
  put(Residency{.tsc = tsc,
                .kind = static_cast<std::uint8_t>(Kind::residency),
                .flags = sample.present,
                .core_c6 = sample.core_c6,
                .core_c7 = sample.core_c7,
                .package_c2 = sample.package_c2,
                .package_c3 = sample.package_c3,
                .package_c6 = sample.package_c6,
                .package_c7 = sample.package_c7});
}

void Writer::put_events(const CounterSample& sample, std::uint64_t tsc) noexcept {
  put(Events{.tsc = tsc,
             .kind = static_cast<std::uint8_t>(Kind::events),
             .flags = sample.present,
             .event1 = sample.events[0],
             .event2 = sample.events[1],
             .event3 = sample.events[2]});
}

template <class Struct>
void Writer::put(const Struct& entry) noexcept {
  static_assert(sizeof(Struct) == entry_bytes);
  EntryInRegisters registers;
  static_assert(sizeof registers == entry_bytes);
  std::memcpy(&registers, &entry, sizeof entry);
  put(registers);
}

/// The caller MUST have checked that the log has room.
void Writer::put(const EntryInRegisters& entry) noexcept {
  if (next_ == limit_) {
    const bool room = next_chunk();
    require(room, "log: an entry is put only where there is room", room_end_);
  }
  store(next_++, entry);
}

/// Begins the next chunk when the present one is full. False: the log is full.
bool Writer::next_chunk() noexcept {
  const std::uint64_t here = limit_position_;
  if (here == room_end_) return false;
  const std::uint64_t chunk_end = (here / Ring::chunk_entries + 1) * Ring::chunk_entries;
  require(ring_->published() <= here, "log: published entries only grow", here);
  ring_->publish(here, chunk_end);
  limit_position_ = std::min(chunk_end, room_end_);
  next_ = ring_->entry(here);
  limit_ = next_ + (limit_position_ - here);
  position_of_null_ = here * entry_bytes - reinterpret_cast<std::uintptr_t>(next_);
  return true;
}

// --- Functions that count and record -----------------------------------------------------------------------------------------------------
void Writer::watch(const Traffic* traffic) noexcept {
  const Traffic& next = traffic != nullptr ? *traffic : nothing;
  const Counts before = counts_of(*traffic_);
  const Counts after = counts_of(next);
  // The counts that are in no record yet stay pending.
  for (std::size_t i = 0; i < after.size(); ++i) recorded_[i] = after[i] - (before[i] - recorded_[i]);
  traffic_ = &next;
}

void Writer::count_control(const ControlTraffic& passed) noexcept {
  if (!on_) return;
  overflow_control_.rx_frames += passed.rx_frames;
  overflow_control_.rx_bytes += passed.rx_bytes;
  overflow_control_.tx_frames += passed.tx_frames;
  overflow_control_.tx_bytes += passed.tx_bytes;
  refill_pending();
}

void Writer::refill_pending() noexcept {
  move_into(pending_.control_rx_frames, overflow_control_.rx_frames);
  move_into(pending_.control_tx_frames, overflow_control_.tx_frames);
  move_into(pending_.control_rx_bytes, overflow_control_.rx_bytes);
  move_into(pending_.control_tx_bytes, overflow_control_.tx_bytes);
  move_into(pending_.idle_entries, overflow_idle_entries_);
  const bool left =
      (overflow_control_.rx_frames | overflow_control_.tx_frames | overflow_control_.rx_bytes | overflow_control_.tx_bytes) != 0;
  if (left || overflow_idle_entries_ != 0) slow_path_tsc_ = 0;  // the fast path does not check for overflow
}

void Writer::slept(IdleState asked, IdleState state, std::uint64_t asleep_tsc, std::uint64_t awake_tsc, Sleep how) noexcept {
  const std::uint64_t ticks = awake_tsc - asleep_tsc;
  if (asked != IdleState::poll) ++sleeps_;
  idle_ticks_ += ticks;
  if (!on_) return;
  if (static_cast<std::uint8_t>(asked) != idle_state_) {
    idle_state_ = static_cast<std::uint8_t>(asked);
    update_head();
  }
  pending_.idle_ticks += ticks;
  if (++pending_.idle_entries == 0) [[unlikely]] {
    --pending_.idle_entries;
    ++overflow_idle_entries_;
    slow_path_tsc_ = 0;
  }
  if (!idle_records_ || asked == IdleState::poll) return;  // a core that polls does not sleep
  if (position() >= room_end_) {
    ring_->count_unwritten(1);
    return;
  }
  put(Idle{.tsc = awake_tsc,
           .kind = static_cast<std::uint8_t>(Kind::idle),
           .idle_state = static_cast<std::uint8_t>(asked),
           .cause = static_cast<std::uint8_t>(how.cause),
           .vector = how.vector,
           .generation = generation_,
           .tsc_asleep = asleep_tsc,
           .c_state = static_cast<std::uint8_t>(static_cast<unsigned>(state) + 1)});  // 0: an older log, which has no such field
}

void Writer::policy_changed(Settings settings) noexcept {
  settings.tsc = machine::timestamp();
  settings.kind = static_cast<std::uint8_t>(Kind::settings);
  if (on_ && record_on_slow_path(Kind::policy, settings.tsc, counters_due(settings.tsc), 1)) put(settings);
  settings_ = settings;
  has_settings_ = true;
  idle_state_ = settings.idle_state;
  generation_ = settings.generation;
  update_head();
}

void Writer::record_configuration() noexcept {
  if (on_ && has_settings_) put_configuration(settings_);
}

void Writer::collected(std::uint64_t begin_tsc, std::uint64_t bytes_before, std::uint64_t bytes_after) noexcept {
  if (!on_) return;
  if (position() >= room_end_) {
    ring_->count_unwritten(1);
    return;
  }
  put(Collection{.tsc = machine::timestamp(),
                 .kind = static_cast<std::uint8_t>(Kind::collection),
                 .generation = generation_,
                 .tsc_begin = begin_tsc,
                 .bytes_before = bytes_before,
                 .bytes_after = bytes_after});
}

void Writer::add_transaction(unsigned type, const TransactionEnd& end) noexcept {
  require(type < transaction_types_max, "log: a transaction has a known type", type);
  const std::uint64_t tsc = machine::timestamp(), ticks = tsc - end.begin_tsc;
  Transactions& sums = transactions_[type];
  sums.type = static_cast<std::uint8_t>(type);
  sums.committed += end.committed ? 1 : 0;
  sums.rolled_back += end.rolled_back ? 1 : 0;
  sums.failed += end.failed ? 1 : 0;
  sums.retries += end.retries;
  sums.ticks += ticks;
  sums.ticks_max = std::max(sums.ticks_max, ticks);
  reserve_transactions(type);
  // In a full log, the sums grow until the end of the run.
  if (tsc - sums.tsc_begin >= transactions_period_ticks_ && position() < room_end_) put_transactions(sums, tsc);
}

/// Keeps room for the type's entry at the end of the run.
void Writer::reserve_transactions(unsigned type) noexcept {
  if (room_end_ == never || (transactions_reserved_ >> type & 1) != 0 || position() >= room_end_) return;
  transactions_reserved_ |= 1U << type;
  --room_end_;
  if (limit_position_ > room_end_) {
    limit_position_ = room_end_;
    --limit_;
  }
}

/// Writes the sums, if there are any, and begins the next interval. The caller MUST have checked that the log has room.
void Writer::put_transactions(Transactions& sums, std::uint64_t tsc) noexcept {
  Transactions entry = sums;
  sums = {};
  sums.tsc_begin = tsc;
  if ((entry.committed | entry.rolled_back | entry.failed) == 0) return;
  entry.tsc = tsc;
  entry.kind = static_cast<std::uint8_t>(Kind::transactions);
  entry.generation = generation_;
  put(entry);
}

/// Writes the last sums of a run. A type that first came when the log was full has no room, and counts as an entry that did not fit.
void Writer::put_last_transactions(std::uint64_t tsc) noexcept {
  room_end_ += static_cast<unsigned>(std::popcount(transactions_reserved_));  // none is reserved in a log that overwrites
  for (Transactions& sums : transactions_) {
    if (room_end_ != never && (transactions_reserved_ >> sums.type & 1) == 0 && (sums.committed | sums.rolled_back | sums.failed) != 0) {
      ring_->count_unwritten(1);
    } else {
      put_transactions(sums, tsc);
    }
  }
}

Marked Writer::mark(LoadPhase phase) noexcept {
  if (!on_) return Marked::no_run;
  if (position() >= room_end_) {
    ring_->count_unwritten(1);
    return Marked::no_room;
  }
  put(Mark{.tsc = machine::timestamp(),
           .kind = static_cast<std::uint8_t>(Kind::mark),
           .what = static_cast<std::uint8_t>(phase),
           .generation = generation_});
  return Marked::written;
}

std::uint64_t Writer::take_requests() noexcept {
  const std::uint64_t taken = uncounted_requests_;
  uncounted_requests_ = 0;
  return taken;
}

// --- Runs --------------------------------------------------------------------------------------------------------------------------------
void Writer::begin(const RunPlan& plan) noexcept {
  require(ring_ != nullptr && !on_, "log: a run begins on a core that has a ring and no run", plan.run);
  const std::uint64_t tsc = machine::timestamp();
  ring_->restart();
  next_ = limit_ = nullptr;
  limit_position_ = 0;
  position_of_null_ = 0;
  const bool has_events = (machine::power_abilities().counters & counter::events) != 0;
  room_end_ = plan.overwrite ? never : ring_->capacity() - stop_entries - (has_events ? 1 : 0);
  const bool has_counters = machine::power_abilities().counters != 0;
  sample_period_ticks_ = has_counters ? plan.sample_period_ticks : 0;
  sample_records_ = has_counters ? plan.sample_records : 0;
  idle_records_ = plan.idle_records;
  count_requests_ = plan.count_requests;
  requests_at_once_ = plan.requests_at_once;
  configuration_ = plan.configuration;
  uncounted_requests_ = 0;
  // The counts of a run start at zero.
  std::ranges::copy(counts_of(*traffic_), recorded_);
  transactions_period_ticks_ = machine::timestamp_hz() * static_cast<std::uint64_t>(transactions_period.count()) / 1'000;
  transactions_reserved_ = 0;
  for (Transactions& sums : transactions_) {
    sums = {};
    sums.tsc_begin = tsc;
  }
  pending_ = {};
  overflow_idle_entries_ = 0;
  overflow_control_ = {};
  record_on_slow_path(Kind::start, tsc, true, 0);
  put_anchor(plan, tsc);
  if (has_settings_) {
    Settings settings = settings_;
    settings.tsc = tsc;
    settings.changed = nothing_changed;
    put(settings);
    put_configuration(settings);
  }
  publish();
  on_ = true;
}

/// Writes one entry for each setting. `entry` is the Settings entry before them.
void Writer::put_configuration(Settings entry) noexcept {
  if (configuration_ == nullptr) return;
  std::array<ConfiguredSetting, configured_settings_max> all;
  const std::size_t count = configuration_(all);
  require(count <= all.size(), "log: a core has no more settings than their list", count);
  entry.kind = static_cast<std::uint8_t>(Kind::configured);
  for (std::size_t i = 0; i < count; ++i) {
    if (position() >= room_end_) {
      ring_->count_unwritten(count - i);
      return;
    }
    entry.changed = all[i].setting;
    entry.card_value = all[i].value;
    put(entry);
  }
}

void Writer::end(const RunPlan& plan) noexcept {
  require(on_, "log: a run ends on a core where it has begun", plan.run);
  const std::uint64_t tsc = machine::timestamp();
  put_last_transactions(tsc);
  if (!plan.overwrite) room_end_ = ring_->capacity();
  record_on_slow_path(Kind::stop, tsc, true, 0);
  put_anchor(plan, tsc);
  on_ = false;
  count_requests_ = false;
  publish();
}

RunEnds Writer::run_ends() const noexcept {
  RunEnds ends = ends_;
  if (ends.on) ends.stop = {.tsc = machine::timestamp(), .counters = machine::sample_counters(), .traffic = totals_of(*traffic_)};
  return ends;
}

void Writer::put_anchor(const RunPlan& plan, std::uint64_t tsc) noexcept {
  put(Anchor{.tsc = tsc,
             .kind = static_cast<std::uint8_t>(Kind::anchor),
             .generation = generation_,
             .wall_clock_ns = machine::wall_clock_at_boot_ns() + machine::now_ns(),
             .requests = requests(machine::this_core()),
             .package = machine::package_of(machine::this_core()),
             .run = plan.run,
             .sleeps = sleeps_,
             .idle_ticks = idle_ticks_});
}

}  // namespace neap::log
