// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/time_wait.hpp"

#include "net/tcp/options.hpp"

namespace neap::net::tcp {

template <class Key>
bool TimeWaitTable<Key>::add(const Key& key, const TimeWaitNumbers& numbers, std::uint64_t now_us) noexcept {
  if (entries_max_ == 0) return false;
  if (table_.count() >= entries_max_) {
    if (!oldest_->is_over(now_us)) ++counters_.replaced;
    remove(*oldest_);
  }
  Entry* const entry = pool_.take();
  if (entry == nullptr) {
    ++counters_.no_memory;
    return false;
  }
  entry->addresses = key.addresses;
  entry->ports = key.ports;
  entry->send_next = numbers.send_next;
  entry->receive_next = numbers.receive_next;
  entry->timestamp_recent = numbers.timestamp_recent;
  entry->timestamp_offset = numbers.timestamp_offset;
  entry->window = numbers.window;
  entry->has_timestamps = numbers.has_timestamps;
  table_.add(*entry, key);
  link_newest(*entry, now_us);
  return true;
}

// RFC 6191, 2: timestamps, if both connections use them, decide about a SYN, because a peer's clock runs on between connections.
template <class Key>
bool TimeWaitTable<Key>::accepts(const Entry& entry, const TimeWaitSegment& syn) noexcept {
  const bool later_sequence = after(syn.sequence, entry.receive_next);
  if (!syn.has_timestamps) return later_sequence;
  if (!entry.has_timestamps) return true;
  if (syn.timestamp == entry.timestamp_recent) return later_sequence;
  return !timestamp_is_old(syn.timestamp, entry.timestamp_recent);
}

template <class Key>
TimeWaitVerdict TimeWaitTable<Key>::answer(Entry& entry, std::uint64_t now_us) noexcept {
  const auto now_ms = static_cast<std::uint32_t>(now_us / 1000);
  if (entry.answered && now_ms - entry.answered_ms < answer_interval_ms) return TimeWaitVerdict::drop;
  entry.answered = true;
  entry.answered_ms = now_ms;
  return TimeWaitVerdict::acknowledge;
}

// RFC 9293, 3.10.7.4 and 3.10.7.5.
template <class Key>
auto TimeWaitTable<Key>::decide(const Key& key, const TimeWaitSegment& segment, std::uint64_t now_us) noexcept -> Decision {
  Entry* const entry = table_.find(key);
  if (entry == nullptr) return {};
  if (entry->is_over(now_us)) {
    remove(*entry);
    return {};
  }
  Decision decision{.found = true,
                    .verdict = TimeWaitVerdict::drop,
                    .numbers = {.send_next = entry->send_next,
                                .receive_next = entry->receive_next,
                                .timestamp_recent = entry->timestamp_recent,
                                .timestamp_offset = entry->timestamp_offset,
                                .window = entry->window,
                                .has_timestamps = entry->has_timestamps}};
  if (segment.rst) {
    ++counters_.resets_ignored;
    return decision;
  }
  if (segment.syn) {
    if (!segment.ack && accepts(*entry, segment)) {
      ++counters_.syns_accepted;
      remove(*entry);
      decision.verdict = TimeWaitVerdict::accept_syn;
    } else {
      decision.verdict = answer(*entry, now_us);
    }
    return decision;
  }
  if (!segment.ack) return decision;
  const bool old = segment.has_timestamps && entry->has_timestamps && timestamp_is_old(segment.timestamp, entry->timestamp_recent);
  if (segment.fin && !old && segment.sequence + segment.length == entry->receive_next) {
    // The peer's own FIN again: the acknowledgement of it was lost. Only this restarts the time.
    if (segment.has_timestamps && entry->has_timestamps) decision.numbers.timestamp_recent = entry->timestamp_recent = segment.timestamp;
    unlink(*entry);
    link_newest(*entry, now_us);
    decision.verdict = TimeWaitVerdict::acknowledge;
    return decision;
  }
  // An acknowledgement of all is the end, and must not be answered by another one.
  if (!old && segment.length == 0 && segment.sequence == entry->receive_next) return decision;
  decision.verdict = answer(*entry, now_us);
  return decision;
}

template <class Key>
void TimeWaitTable<Key>::expire(std::uint64_t now_us, unsigned budget) noexcept {
  for (; budget > 0 && oldest_ != nullptr && oldest_->is_over(now_us); --budget) remove(*oldest_);
  if (oldest_ == nullptr) pool_.trim();
}

template <class Key>
std::uint64_t TimeWaitTable<Key>::due_us(std::uint64_t now_us) const noexcept {
  if (oldest_ == nullptr) return 0;
  if (oldest_->is_over(now_us)) return now_us;
  const std::uint64_t now_ms = now_us / 1000;
  return (now_ms + (oldest_->end_ms - static_cast<std::uint32_t>(now_ms))) * 1000;
}

template <class Key>
void TimeWaitTable<Key>::link_newest(Entry& entry, std::uint64_t now_us) noexcept {
  entry.end_ms = static_cast<std::uint32_t>((now_us + duration_us_) / 1000);
  entry.older = newest_;
  entry.newer = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->newer) = &entry;
  newest_ = &entry;
}

template <class Key>
void TimeWaitTable<Key>::unlink(Entry& entry) noexcept {
  (entry.older == nullptr ? oldest_ : entry.older->newer) = entry.newer;
  (entry.newer == nullptr ? newest_ : entry.newer->older) = entry.older;
}

template <class Key>
void TimeWaitTable<Key>::remove(Entry& entry) noexcept {
  unlink(entry);
  table_.remove(entry, entry.key());
  pool_.give_back(&entry);
}

template class TimeWaitTable<SegmentAddresses>;
template class TimeWaitTable<SegmentAddresses6>;

}  // namespace neap::net::tcp
