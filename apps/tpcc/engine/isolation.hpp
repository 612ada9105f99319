// SPDX-License-Identifier: BSL-1.0
// A check that a history of transactions is serialisable, from the versions that each transaction read and wrote.
//
// A transaction depends on another one if it read what the other one wrote (write-read), replaced it (write-write), or if the other one
// replaced what it read (read-write). A history is serialisable if these edges form no cycle (Adya, 1999). The check uses no commit
// numbers. For tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace neap::transactions::testing {

/// The version of a row: the number of its updates. A transaction that writes version n has read version n - 1.
struct Access {
  std::uint64_t key, version;
};
struct History {
  struct Entry {
    std::vector<Access> reads, writes;
  };
  std::vector<Entry> entries;
};

/// Returns the first violation as a text; an empty text if the history is serialisable.
inline std::string find_violation(const History& history) {
  const std::size_t count = history.entries.size();
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> writers;
  for (std::size_t at = 0; at < count; ++at) {
    for (const auto& [key, version] : history.entries[at].writes) {
      if (!writers.emplace(std::pair(key, version), at).second)
        return "a lost update: version " + std::to_string(version) + " of row " + std::to_string(key) + " was written twice";
    }
  }
  std::vector<std::vector<std::size_t>> later(count);
  std::vector<std::size_t> earlier_count(count, 0);
  const auto add_edge = [&](std::size_t from, std::size_t to) {
    if (from == to) return;
    later[from].push_back(to);
    ++earlier_count[to];
  };
  for (std::size_t at = 0; at < count; ++at) {
    const auto& [reads, writes] = history.entries[at];
    for (const auto& [key, version] : reads) {
      if (const auto writer = writers.find({key, version}); writer != writers.end()) {
        add_edge(writer->second, at);
      } else if (version != 0) {
        return "version " + std::to_string(version) + " of row " + std::to_string(key) + " was read, and no transaction wrote it";
      }
      if (const auto next = writers.find({key, version + 1}); next != writers.end()) add_edge(at, next->second);
    }
    for (const auto& [key, version] : writes) {
      if (const auto next = writers.find({key, version + 1}); next != writers.end()) add_edge(at, next->second);
    }
  }
  // Transactions without an earlier one are removed, one after the other. Those that remain are in cycles or after them.
  std::vector<std::size_t> free;
  for (std::size_t at = 0; at < count; ++at) {
    if (earlier_count[at] == 0) free.push_back(at);
  }
  std::size_t removed = 0;
  while (!free.empty()) {
    const std::size_t at = free.back();
    free.pop_back();
    ++removed;
    for (const std::size_t next : later[at]) {
      if (--earlier_count[next] == 0) free.push_back(next);
    }
  }
  return removed == count ? "" : "a cycle of dependencies among " + std::to_string(count - removed) + " transactions";
}

}  // namespace neap::transactions::testing
