// SPDX-License-Identifier: BSL-1.0
#include "observe/run_card.hpp"

#include <mutex>
#include <new>

#include "kernel/events.hpp"
#include "kernel/log.hpp"
#include "kernel/panic.hpp"

namespace neap::observe {

void RunCardReader::watch(NetDevice& device) {
  require(device_ == nullptr && this_core() == 0, "the card of runs is watched once, from core 0", this_core());
  device_ = &device;
  log::add_run_observer([this] {
    try {
      start(follow());
    } catch (const std::bad_alloc&) {  // then the next reader of the log calls `follow`
    }
  });
}

task<std::optional<CardCounters>> RunCardReader::read_counters() {
  CardCounters found;
  const Emit emit = [&](std::string_view name, std::uint64_t value) {
    if (found.size() < card_counters_max) found.emplace_back(name.substr(0, card_counter_name_bytes_max), value);
  };
  const auto reported = co_await device_->report_device_counters(std::nullopt, emit);
  if (!reported) co_return std::nullopt;
  co_return std::move(found);
}

task<void> RunCardReader::read_for_start() {
  const auto lock = co_await mutex_.lock();
  next_.reset();
  if (device_ == nullptr) co_return;
  RunCard next{.identity = device_->identity(),
               .queues = device_->limits().queue_pairs,
               .link_at_start = RunCard::Link{.up = device_->link_up(), .megabits = device_->link_megabits()}};
  try {
    next.counters_at_start = co_await read_counters();
  } catch (const std::bad_alloc&) {  // a run begins without the counters
  }
  next_ = std::move(next);
}

task<void> RunCardReader::forget_start() {
  const auto lock = co_await mutex_.lock();
  next_.reset();
}

task<void> RunCardReader::follow() {
  const auto lock = co_await mutex_.lock();
  if (device_ == nullptr) co_return;
  try {
    co_await update();
  } catch (const std::bad_alloc&) {  // the next call tries again
  }
}

task<void> RunCardReader::update() {
  const log::State now = log::state();
  if (now.run == 0) co_return;  // there is no run, or one is just beginning; then a call follows
  const std::shared_ptr<const RunCard> before = of(now.run);
  if (before != nullptr && (before->at_stop || now.running)) co_return;
  RunCard card;
  if (before != nullptr) {
    card = *before;
  } else if (next_) {
    card = *std::exchange(next_, std::nullopt);
  } else {  // not begun by control's `start`
    card = {.identity = device_->identity(), .queues = device_->limits().queue_pairs};
  }
  card.run = now.run;
  if (!now.running) {
    card.counters_at_stop = co_await read_counters();
    card.at_stop = true;
  }
  auto made = std::make_shared<const RunCard>(std::move(card));
  const std::lock_guard guard(last_lock_);
  last_.swap(made);
}

std::shared_ptr<const RunCard> RunCardReader::of(std::uint32_t run) const noexcept {
  const std::lock_guard guard(last_lock_);
  return last_ != nullptr && last_->run == run ? last_ : nullptr;
}

}  // namespace neap::observe
