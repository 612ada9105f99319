// SPDX-License-Identifier: BSL-1.0
// Waiting for several tasks at once.
//
// Tasks that are awaited one after the other take the sum of their times. `when_all` runs them concurrently and continues when the last has
// ended. It waits for all of them, even if one fails, because the others may still use objects of the caller.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "kernel/task.hpp"

namespace neap {

namespace detail {

template <typename T>
using Kept = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

/// Counts the tasks that still run.
struct Join {
  std::size_t left;
  Completion<> done;
  explicit Join(std::size_t count) : left(count) {}
  void one_ended() noexcept {
    require(left != 0, "more tasks ended than were started");
    if (--left == 0) done.fulfil();
  }
};

template <typename T>
task<void> run_and_join(task<T> work, Outcome<T>& outcome, Join& join) {
  co_await run_into(std::move(work), outcome);
  join.one_ended();
}

/// Starts the tasks. Their frames exist already, so nothing can fail from here on.
inline task<void> run_all(task<void>* runs, std::size_t count, Join& join) {
  Cancellation* const cancellation = co_await OwnCancellation{};
  if (count == 0) co_return;
  for (std::size_t i = 0; i < count; ++i) {
    runs[i].set_cancellation(cancellation);
    start(std::move(runs[i]));
  }
  co_await join.done;
}

template <typename T>
Kept<T> take_kept(Outcome<T>& outcome) {
  if constexpr (std::is_void_v<T>) {
    outcome.take();
    return {};
  } else {
    return outcome.take();
  }
}

}  // namespace detail

/// Runs all tasks on this core, each starting in an event of its own, and ends when all have ended. Returns their results in the order
/// given (`std::monostate` for void), or throws the exception of the first failed task in that order. A cancellation of the awaiting task
/// cancels them.
template <typename T>
task<std::vector<detail::Kept<T>>> when_all(std::vector<task<T>> works) {
  std::vector<detail::Outcome<T>> outcomes(works.size());
  std::vector<task<void>> runs;
  runs.reserve(works.size());
  detail::Join join(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) runs.push_back(detail::run_and_join(std::move(works[i]), outcomes[i], join));
  co_await detail::run_all(runs.data(), runs.size(), join);
  std::vector<detail::Kept<T>> values;
  values.reserve(outcomes.size());
  for (auto& outcome : outcomes) values.push_back(detail::take_kept(outcome));
  co_return values;
}

template <typename... T>
  requires(sizeof...(T) > 0)
task<std::tuple<detail::Kept<T>...>> when_all(task<T>... works) {
  std::tuple<detail::Outcome<T>...> outcomes;
  detail::Join join(sizeof...(T));
  std::vector<task<void>> runs;
  runs.reserve(sizeof...(T));
  std::apply([&](auto&... outcome) { (runs.push_back(detail::run_and_join(std::move(works), outcome, join)), ...); }, outcomes);
  co_await detail::run_all(runs.data(), runs.size(), join);
  // The elements in braces are evaluated from left to right.
  co_return std::apply([](auto&... outcome) { return std::tuple<detail::Kept<T>...>{detail::take_kept(outcome)...}; }, outcomes);
}

/// Runs `call()` as an event on every core, concurrently, and ends when all have ended. If calls fail on several cores, throws the
/// exception of the lowest-numbered of these cores. All cores use the same `call`. Needs no room in the bounded queues of the cores.
template <typename Call>
task<void> on_each_core(Call call) {
  std::vector<task<void>> calls;
  calls.reserve(core_count());
  const auto once = [&call] { static_cast<void>(call()); };
  for (unsigned core = 0; core < core_count(); ++core) calls.push_back(on_core(core, once));
  co_await when_all(std::move(calls));
}

}  // namespace neap
