// SPDX-License-Identifier: BSL-1.0
// Random transactions that can be repeated on a model, for tests.
//
// A script is a sequence of operations that depends on a seed only. The values that it writes depend on everything that it has read. Its
// digest is of all outcomes and values. So if a set of transactions is run again in a serial order on a `std::map`, equal digests and equal
// contents show that this order explains everything that the transactions saw.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "apps/tpcc/engine/transaction.hpp"

namespace neap::transactions::testing {

struct TestRow {
  std::uint64_t value = 0;
  std::uint64_t copies[5] = {};  // equal to `value`: shows a mixture of two versions
};
constexpr TestRow row_of(std::uint64_t value) noexcept { return {value, {value, value, value, value, value}}; }
inline bool is_whole(const TestRow& row) noexcept {
  return std::ranges::all_of(row.copies, [&](std::uint64_t copy) { return copy == row.value; });
}

/// Keys have two words, so that scans cross a change of the first one.
constexpr Key<2> key_of(std::uint64_t number) noexcept { return {number / 16, number % 16}; }
constexpr std::uint64_t number_of(const Key<2>& key) noexcept { return key[0] * 16 + key[1]; }

using TestTable = Table<TestRow, 2>;
using Contents = std::map<std::uint64_t, std::uint64_t>;

inline Contents contents_of(const TestTable& table) {
  Contents contents;
  table.for_each([&](const Key<2>& key, const TestRow& row) { contents.emplace(number_of(key), is_whole(row) ? row.value : ~0UL); });
  return contents;
}

/// The operations on a table. `broken` is set if a row is not of one version.
struct EngineStore {
  Transaction& transaction;
  TestTable& table;
  bool broken = false;
  Index<2>::Place updated = {}, inserted = {};

  Outcome read(std::uint64_t key, std::uint64_t& value) {
    TestRow row;
    const Outcome outcome = transaction.read(table, key_of(key), row);
    if (outcome == Outcome::found) {
      broken |= !is_whole(row);
      value = row.value;
    }
    return outcome;
  }
  /// `in_order`: probably the key after the one before.
  Outcome update(std::uint64_t key, std::uint64_t& before, std::uint64_t add, bool in_order = false) {
    TestRow* row = nullptr;
    const Outcome outcome = in_order ? transaction.update(table, key_of(key), row, updated) : transaction.update(table, key_of(key), row);
    if (outcome == Outcome::found) {
      broken |= !is_whole(*row);
      before = row->value;
      *row = row_of(before * 3 + add);
    }
    return outcome;
  }
  Outcome insert(std::uint64_t key, std::uint64_t value, bool in_order = false) {
    return in_order ? transaction.insert(table, key_of(key), row_of(value), inserted)
                    : transaction.insert(table, key_of(key), row_of(value));
  }
  Outcome remove(std::uint64_t key) { return transaction.remove(table, key_of(key)); }
  template <class F>
  Outcome scan(std::uint64_t first, std::uint64_t last, bool forward, F&& function) {
    const auto visit = [&](const Key<2>& key, const TestRow& row) {
      broken |= !is_whole(row);
      return function(number_of(key), row.value);
    };
    return forward ? transaction.scan(table, key_of(first), key_of(last), visit)
                   : transaction.scan_back(table, key_of(first), key_of(last), visit);
  }
};

/// The same operations on a map.
struct ModelStore {
  Contents& rows;

  Outcome read(std::uint64_t key, std::uint64_t& value) const {
    const auto at = rows.find(key);
    if (at == rows.end()) return Outcome::absent;
    value = at->second;
    return Outcome::found;
  }
  Outcome update(std::uint64_t key, std::uint64_t& before, std::uint64_t add, bool = false) {
    const auto at = rows.find(key);
    if (at == rows.end()) return Outcome::absent;
    before = at->second;
    at->second = before * 3 + add;
    return Outcome::found;
  }
  Outcome insert(std::uint64_t key, std::uint64_t value, bool = false) {
    return rows.emplace(key, value).second ? Outcome::done : Outcome::exists;
  }
  Outcome remove(std::uint64_t key) { return rows.erase(key) != 0 ? Outcome::done : Outcome::absent; }
  template <class F>
  Outcome scan(std::uint64_t first, std::uint64_t last, bool forward, F&& function) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> found(rows.lower_bound(first), rows.upper_bound(std::max(first, last)));
    if (first > last) found.clear();
    if (!forward) std::ranges::reverse(found);
    for (const auto& [key, value] : found) {
      if (!function(key, value)) break;
    }
    return Outcome::done;
  }
};

class Script {
 public:
  Script(std::uint64_t seed, std::uint64_t keys) : random_(seed), keys_(keys), left_(1 + random_() % 8) {}
  [[nodiscard]] bool finished() const { return left_ == 0; }
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

  template <class Store>
  Outcome step(Store& store) {
    --left_;
    const std::uint64_t key = random_() % keys_, other = random_() % keys_, kind = random_() % 14, limit = 1 + random_() % 40;
    std::uint64_t value = 0;
    Outcome outcome{};
    switch (kind) {
      case 0:
      case 1:
      case 2:
        outcome = store.read(key, value);
        break;
      case 3:
      case 4:
      case 5:
        outcome = store.update(key, value, digest_);
        break;
      case 6:
      case 7:
        outcome = store.insert(key, digest_);
        break;
      case 8:
      case 9:
        outcome = store.remove(key);
        break;
      case 10:
      case 11:  // keys in order
        for (std::uint64_t at = key; at < std::min(key + limit, keys_) && !is_failure(outcome); at += 1 + other % 2) {
          outcome = kind == 10 ? store.update(at, value, digest_, true) : store.insert(at, digest_, true);
          mix(static_cast<std::uint64_t>(outcome));
          mix(value);
        }
        break;
      default: {
        std::uint64_t seen = 0;
        outcome = store.scan(std::min(key, other), std::min(key, other) + keys_ / 4, kind == 12, [&](std::uint64_t at, std::uint64_t with) {
          mix(at);
          mix(with);
          return ++seen < limit;
        });
      }
    }
    mix(static_cast<std::uint64_t>(outcome));
    mix(value);
    return outcome;
  }

 private:
  void mix(std::uint64_t value) { digest_ = (digest_ ^ value) * 0x9E37'79B9'7F4A'7C15U + (digest_ >> 29U); }

  std::mt19937_64 random_;
  std::uint64_t keys_, left_, digest_ = 1;
};

/// A transaction that has committed.
struct Committed {
  std::uint64_t number, seed, digest;
};

/// Runs the transactions again in the order of their numbers, beginning with `contents`, which become the final contents. Returns the
/// number of transactions that must have seen something else than this order explains.
inline std::uint64_t replay(std::vector<Committed> history, std::uint64_t keys, Contents& contents) {
  std::ranges::sort(history, {}, &Committed::number);
  std::uint64_t wrong = 0;
  for (const Committed& committed : history) {
    ModelStore model{contents};
    Script script(committed.seed, keys);
    while (!script.finished()) script.step(model);
    wrong += script.digest() == committed.digest ? 0 : 1;
  }
  return wrong;
}

}  // namespace neap::transactions::testing
