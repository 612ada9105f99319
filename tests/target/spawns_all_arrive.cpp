// SPDX-License-Identifier: BSL-1.0
// Every piece of work that is accepted runs once. In this test, objects ("balls") are passed from core to core by all kinds of calls. At
// the end each ball that was passed on ("thrown") has arrived ("caught") once, and the memory of all balls is free again.
#include <atomic>
#include <memory>

#include "kernel/counter.hpp"
#include "kernel/ebb.hpp"
#include "kernel/timer.hpp"
#include "tests/target/stress.hpp"

namespace {

using namespace neap;
using test::check;
constexpr unsigned balls_each = 64;

struct Player {
  test::Chance chance{this_core() + 1};
  Counter thrown, caught, refused, ended;
};
constexpr Ebb<Player> player;

std::atomic<bool> stop{false};
std::uint64_t throws_each = 0;

/// An object on the heap that is passed from core to core. `flights` counts how often it was passed on.
struct Ball {
  std::uint64_t flights = 0, number = 0;
  Timer timer;
};

void catch_ball(std::unique_ptr<Ball> ball);

task<void> walk(std::unique_ptr<Ball> ball, unsigned there) {
  const unsigned home = this_core();
  const auto ask = [&ball] { return ++ball->flights; };
  const auto flights = co_await on_core(there, ask);
  check(this_core() == home && flights == ball->flights, "a call comes home with what it gave");
  catch_ball(std::move(ball));
}

void fly_by_timer(std::unique_ptr<Ball> ball) {
  Ball& flying = *ball;
  flying.timer.arm(std::chrono::microseconds(player->chance.below(300)),
                   [&flying] { spawn([&flying] { catch_ball(std::unique_ptr<Ball>(&flying)); }); });
  ball.release();
}

void throw_ball(std::unique_ptr<Ball> ball) {
  player->thrown.add();
  const unsigned there = player->chance.below(core_count());
  const unsigned how = player->chance.below(4);
  if (how == 0) return spawn([ball = std::move(ball)]() mutable { catch_ball(std::move(ball)); });
  if (how == 1) return fly_by_timer(std::move(ball));
  if (how == 2) return start(walk(std::move(ball), there));
  Ball* const bare = ball.release();
  if (spawn_on(there, [bare] { catch_ball(std::unique_ptr<Ball>(bare)); }).has_value()) return;
  player->refused.add();  // the queue is full: the ball stays on this core
  spawn([bare] { catch_ball(std::unique_ptr<Ball>(bare)); });
}

void catch_ball(std::unique_ptr<Ball> ball) {
  player->caught.add();
  ++ball->flights;
  if (stop.load(std::memory_order_relaxed) || (throws_each != 0 && ball->flights >= throws_each)) {
    player->ended.add();
  } else {
    throw_ball(std::move(ball));
  }
}

std::uint64_t sum(Counter Player::* counter) {
  std::uint64_t all = 0;
  for (unsigned core = 0; core < core_count(); ++core) {
    if (const Player* const one = player.on(core); one != nullptr) all += (one->*counter).value();
  }
  return all;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  test::Stress stress(arguments);
  arguments.finish();
  co_await on_each_core([] { player->thrown.add(0); });
  const std::uint64_t before = co_await test::settled_memory_bytes();
  const std::uint64_t balls = std::uint64_t{balls_each} * core_count();
  throws_each = stress.seconds == 0 ? 4'000 / core_count() : 0;
  co_await on_each_core([] {
    for (unsigned i = 0; i < balls_each; ++i) throw_ball(std::make_unique<Ball>());
  });
  if (stress.seconds != 0) co_await sleep_for(std::chrono::seconds(stress.seconds));
  if (stress.seconds != 0) stop = true;
  co_await test::wait_for([balls] { return sum(&Player::ended) == balls; }, "a ball did not come down");
  const std::uint64_t thrown = sum(&Player::thrown), caught = sum(&Player::caught);
  check(thrown == caught, "balls caught are not those thrown; missing", thrown - caught);
  const std::uint64_t after = co_await test::settled_memory_bytes();
  // Coroutines and events in flight may have left spare pages on each core.
  check(after <= before + 64 * 1024 * core_count(), "bytes more in use than before", after - before);
  print("spawns: ", thrown, " thrown and caught on ", core_count(), " cores, ", sum(&Player::refused), " met a full queue");
  co_return 0;
}
