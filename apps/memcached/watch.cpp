// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/watch.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "apps/memcached/service.hpp"
#include "apps/memcached/text_line.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached {

std::uint32_t Watchers::kind_of(std::string_view word) noexcept {
  struct Kind {
    std::string_view word;
    std::uint32_t bit;
  };
  static constexpr Kind kinds[] = {{"fetchers", watched::fetchers},
                                   {"mutations", watched::mutations},
                                   {"evictions", watched::evictions},
                                   {"connevents", watched::connections},
                                   {"deletions", watched::deletions}};
  for (const Kind& kind : kinds) {
    if (word == kind.word) return kind.bit;
  }
  return 0;
}

bool Watchers::add(Watcher& watcher) noexcept {
  const std::lock_guard lock(lock_);
  Watcher** const place = std::ranges::find(list_, nullptr);
  if (place == list_.end()) return false;
  *place = &watcher;
  settle();
  return true;
}

void Watchers::remove(Watcher& watcher) noexcept {
  const std::lock_guard lock(lock_);
  Watcher** const place = std::ranges::find(list_, &watcher);
  require(place != list_.end(), "memcached: a watcher that ends is in the list");
  *place = nullptr;
  settle();
}

void Watchers::settle() noexcept {
  std::uint32_t kinds = 0;
  unsigned count = 0;
  for (const Watcher* const watcher : list_) {
    if (watcher == nullptr) continue;
    kinds |= watcher->kinds_;
    ++count;
  }
  kinds_.store(kinds, std::memory_order_relaxed);
  count_.store(count, std::memory_order_relaxed);
}

void Watchers::write(std::uint32_t kind, std::uint64_t unix_us, std::string_view text) noexcept {
  const std::lock_guard lock(lock_);
  TextLine<80> stamp;
  stamp.put("ts=").number(unix_us / 1'000'000).put(".").millionths(unix_us % 1'000'000).put(" gid=").number(++lines_).put(" ");
  for (Watcher* const watcher : list_) {
    if (watcher == nullptr || (watcher->kinds_ & kind) == 0) continue;
    TextLine<40> skipped;
    if (watcher->skipped_ != 0) skipped.put("skipped=").number(watcher->skipped_).put("\n");
    if (watcher->room_ - watcher->used_ < skipped.text().size() + stamp.text().size() + text.size() + 1) {
      ++watcher->skipped_;
      skipped_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    watcher->skipped_ = 0;
    for (const std::string_view part : {skipped.text(), stamp.text(), text, std::string_view("\n")}) {
      require(watcher->append(part), "memcached: a watcher's buffer has the room that was found");
    }
    sent_.fetch_add(1, std::memory_order_relaxed);
    watcher->core_.watch_call.ask(watcher->core_.index);
  }
}

/// A woken watcher may end, and so leave the list.
void Watchers::wake(unsigned core) {
  for (unsigned at = 0; at < watchers_max; ++at) {
    Watcher* watcher = nullptr;
    {
      const std::lock_guard lock(lock_);
      if (list_[at] != nullptr && list_[at]->core_.index == core) watcher = list_[at];
    }
    if (watcher != nullptr) watcher->wake();  // only this core ends it
  }
}

Watcher::Watcher(Service& service, CoreState& core, std::uint32_t kinds)
    : service_(service),
      core_(core),
      kinds_(kinds),
      room_(service.settings.watcher_buffer_bytes),
      bytes_(std::make_unique<char[]>(room_)) {}

bool Watcher::begin() noexcept {
  listed_ = service_.watchers.add(*this);
  if (listed_) service_.settle_observation();
  return listed_;
}

Watcher::~Watcher() {
  if (!listed_) return;
  service_.watchers.remove(*this);
  service_.settle_observation();
}

bool Watcher::append(std::string_view line) noexcept {
  if (line.size() > room_ - used_) return false;
  const std::size_t at = (first_ + used_) % room_;
  const std::size_t front = std::min(line.size(), room_ - at);
  std::memcpy(bytes_.get() + at, line.data(), front);
  std::memcpy(bytes_.get(), line.data() + front, line.size() - front);
  used_ += line.size();
  return true;
}

LongAnswer::Step Watcher::write(Reply& reply, Seconds) {
  char part[2048];
  for (;;) {
    std::size_t bytes = 0;
    {
      const std::lock_guard lock(service_.watchers.lock_);
      bytes = std::min({used_, sizeof part, room_ - first_});
      std::memcpy(part, bytes_.get() + first_, bytes);
      first_ = (first_ + bytes) % room_;
      used_ -= bytes;
    }
    if (bytes == 0) return Step::sleeps;
    reply.put({part, bytes});
    if (reply.full()) return Step::more;
  }
}

}  // namespace neap::memcached
