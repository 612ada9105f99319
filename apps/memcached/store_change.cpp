// SPDX-License-Identifier: BSL-1.0
// Changes that make a new item of the old one: append, prepend, arithmetic, and revisions by md.
//
// The new item is filled without the lock, because the copy may be many megabytes, and discarded if the old item was replaced or became
// stale meanwhile. The old item is held, so its bytes stay even if it is evicted to make room for the new item. Each failed try means that
// another writer of this key succeeded.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "apps/memcached/numbers.hpp"
#include "apps/memcached/store.hpp"

namespace neap::memcached {
namespace {

/// A number as text.
struct Digits {
  char bytes[number_bytes_max];
  std::size_t count;
  explicit Digits(std::uint64_t value) noexcept
      : count(static_cast<std::size_t>(std::to_chars(bytes, bytes + sizeof bytes, value).ptr - bytes)) {}
};

/// The CAS id that a client has chosen for `item`, if there is one.
OwnCas own_cas(const Item& item) noexcept { return item.has_mark(Item::mark_own_cas) ? OwnCas(item.client_cas()) : std::nullopt; }

/// A number that is not longer than the old one is written in place by memcached, so the item keeps its marks.
constexpr std::uint8_t marks_of_a_number = Item::mark_fetched | Item::mark_stale | Item::mark_win_sent | Item::mark_binary_key;

}  // namespace

Store::Done Store::join(Item& piece, bool at_end, std::uint64_t expected_cas, Seconds now) noexcept {
  const Key key{piece.key(), piece.hash};
  for (unsigned attempt = 0; attempt < optimistic_tries_max; ++attempt) {
    Item* const old = peek(key, now).item;
    if (old == nullptr) return {.outcome = Outcome::not_stored, .value_bytes = piece.value_bytes};
    const std::uint64_t cas = old->cas.load(std::memory_order_acquire);
    if (expected_cas != 0 && old->client_cas() != expected_cas) return {.outcome = Outcome::exists, .value_bytes = piece.value_bytes};
    old->hold();
    const ItemPointer holder(old);
    const Item& first = at_end ? *old : piece;
    const Item& second = at_end ? piece : *old;
    const std::size_t bytes = std::size_t{first.value_bytes} + second.value_bytes;
    auto [fresh, outcome] = allocate(key, old->flags, old->expires.load(std::memory_order_relaxed), bytes, now, own_cas(piece));
    if (!fresh) return {.outcome = outcome, .value_bytes = piece.value_bytes};
    require(bytes == fresh->value_bytes, "memcached: both values fit into the new item", fresh->value_bytes);
    fresh->fill_from(0, first);
    fresh->fill_from(first.value_bytes, second);
    Done done{.outcome = Outcome::stored, .copied_bytes = bytes, .value_bytes = fresh->value_bytes};
    if (swap_if_same(*old, cas, fresh, {.expiry = true}, now, done) == Swap::done) return done;
  }
  return {.outcome = Outcome::out_of_memory};
}

Store::Done Store::arithmetic(const Key& key, bool up, std::uint64_t delta, std::uint64_t expected_cas, Seconds now,
                              const NumberExtras& extras) noexcept {
  for (unsigned attempt = 0; attempt < optimistic_tries_max; ++attempt) {
    Item* const old = peek(key, now).item;
    if (old == nullptr) return {.outcome = Outcome::not_found};
    const std::uint64_t cas = old->cas.load(std::memory_order_acquire);
    // memcached too checks this before the CAS id. Its chunked items are no numbers either.
    if (old->value_bytes == 0 || old->in_pieces()) return {.outcome = Outcome::not_numeric};
    if (expected_cas != 0 && old->client_cas() != expected_cas) return {.outcome = Outcome::exists};
    const auto number = read_unsigned(old->value());
    if (!number) return {.outcome = Outcome::not_numeric};
    const std::uint64_t value = up ? *number + delta : *number - std::min(delta, *number);
    const Digits digits(value);
    const std::size_t bytes = std::max<std::size_t>(digits.count, old->value_bytes);
    old->hold();
    const ItemPointer holder(old);
    const Seconds expired_at = old->expires.load(std::memory_order_relaxed);
    auto [fresh, outcome] = allocate(key, old->flags, extras.expires.value_or(expired_at), bytes, now, extras.own_cas);
    if (!fresh) return {.outcome = outcome};
    require(digits.count <= fresh->value_bytes, "memcached: a number fits into its item", digits.count);
    std::memcpy(fresh->value_data(), digits.bytes, digits.count);
    std::memset(fresh->value_data() + digits.count, ' ', bytes - digits.count);
    Done done{.outcome = Outcome::stored, .value = value, .copied_bytes = bytes, .expired_at = expired_at};
    const std::uint8_t marks = bytes == old->value_bytes ? marks_of_a_number : 0;
    if (swap_if_same(*old, cas, fresh, {.expiry = !extras.expires, .marks = marks}, now, done) == Swap::done) return done;
  }
  return {.outcome = Outcome::out_of_memory};
}

Store::Done Store::create_number(const Key& key, std::uint64_t value, Seconds expires, Seconds now, const NumberExtras& extras) noexcept {
  const Digits digits(value);
  auto [item, outcome] = allocate(key, 0, expires, digits.count, now, extras.own_cas);
  if (!item) return {.outcome = outcome};
  require(digits.count == item->value_bytes, "memcached: a new number fits into its item", digits.count);
  std::memcpy(item->value_data(), digits.bytes, digits.count);
  if (extras.binary_key) item->add_marks(Item::mark_binary_key);
  Done done = commit(Mode::add, std::move(item), 0, now);
  done.value = value;
  return done;
}

Store::Done Store::revise(const Key& key, const Revision& revision, Seconds now) noexcept {
  for (unsigned attempt = 0; attempt < optimistic_tries_max; ++attempt) {
    Item* const old = peek(key, now).item;
    if (old == nullptr) return {.outcome = Outcome::not_found};
    const std::uint64_t cas = old->cas.load(std::memory_order_acquire);
    if (revision.expected_cas && old->client_cas() != *revision.expected_cas) return {.outcome = Outcome::exists};
    Done done{.outcome = Outcome::stored};
    if (!revision.without_value && !revision.own_cas && !old->has_mark(Item::mark_own_cas)) {
      if (make_stale_if_same(*old, cas, revision.expires, now, done) == Swap::done) return done;
      continue;
    }
    old->hold();
    const ItemPointer holder(old);
    Kept kept;
    if (!revision.without_value) kept = {.expiry = !revision.expires, .marks = Item::mark_fetched | Item::mark_binary_key};
    const std::size_t value_bytes = revision.without_value ? 0 : old->value_bytes;
    const OwnCas kept_cas = revision.to_stale ? std::nullopt : OwnCas(old->client_cas());
    auto [fresh, outcome] = allocate(key, revision.without_value ? revision.flags : old->flags, revision.expires.value_or(expires_never),
                                     value_bytes, now, revision.own_cas ? revision.own_cas : kept_cas);
    if (!fresh) return {.outcome = outcome};
    require(value_bytes == fresh->value_bytes, "memcached: a value fits into its copy", value_bytes);
    if (!revision.without_value) fresh->fill_from(0, *old);
    if (revision.to_stale) fresh->add_marks(Item::mark_stale);
    done.copied_bytes = value_bytes;
    if (swap_if_same(*old, cas, fresh, kept, now, done) == Swap::done) return done;
  }
  return {.outcome = Outcome::out_of_memory};
}

}  // namespace neap::memcached
