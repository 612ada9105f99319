// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/detail.hpp"

#include <mutex>
#include <new>
#include <vector>

#include "apps/memcached/text_line.hpp"

namespace neap::memcached {

template <typename Change>
void Details::change(std::string_view key, Change change) noexcept {
  if (!on()) return;
  const std::size_t end = key.find(prefix_end_);
  if (end == std::string_view::npos || !is_one_word(key.substr(0, end))) return;  // `text` has one line for each prefix
  const std::lock_guard lock(lock_);
  try {
    const std::string prefix(key.substr(0, end));
    auto found = counts_.find(prefix);
    if (found == counts_.end()) {
      if (counts_.size() >= prefixes_max) return;
      found = counts_.emplace(prefix, Counts{}).first;
    }
    change(found->second);
  } catch (const std::bad_alloc&) {  // the request is not counted
  }
}

void Details::note_get(std::string_view key, bool hit) noexcept {
  change(key, [hit](Counts& counts) {
    ++counts.gets;
    if (hit) ++counts.hits;
  });
}

void Details::note_set(std::string_view key) noexcept {
  change(key, [](Counts& counts) { ++counts.sets; });
}

void Details::note_delete(std::string_view key) noexcept {
  change(key, [](Counts& counts) { ++counts.deletes; });
}

void Details::clear() noexcept {
  const std::lock_guard lock(lock_);
  counts_.clear();
}

std::string Details::text() {
  std::vector<std::pair<std::string, Counts>> copy;
  {
    const std::lock_guard lock(lock_);
    copy.assign(counts_.begin(), counts_.end());
  }
  std::string text;
  for (const auto& [prefix, counts] : copy) {
    TextLine<400> line;
    line.put("PREFIX ").put(prefix).put(" get ").number(counts.gets).put(" hit ").number(counts.hits);
    line.put(" set ").number(counts.sets).put(" del ").number(counts.deletes).put("\r\n");
    text += line.text();
  }
  return text + "END\r\n";
}

}  // namespace neap::memcached
