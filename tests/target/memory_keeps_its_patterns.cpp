// SPDX-License-Identifier: BSL-1.0
// Stress for the allocator: every core allocates objects, fills them, passes them to other cores, checks, grows and frees them, at random.
// An object that is allocated twice, or written beyond its end, has a wrong pattern. At the end all memory is free again, on every node.
// With `seconds=` the image runs for that time; otherwise it makes a fixed number of steps.
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernel/memory/heap.hpp"
#include "kernel/memory/heap_checks.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "tests/target/check.hpp"

namespace {

using namespace neap;
using test::check;

constexpr unsigned short_steps = 20'000;  // steps of all cores together
constexpr unsigned steps_an_event = 50;
constexpr std::size_t held_max = 100;  // objects that a core holds
constexpr unsigned places = 64;

/// The object's first bytes have its size; its other bytes repeat a byte that depends on its address and on the core that filled it.
struct Object {
  std::uint32_t bytes;
  std::uint8_t pattern;
};

/// Objects that one core leaves for another.
constinit std::array<std::atomic<Object*>, places> shared{};
constinit std::atomic<std::uint64_t> steps_left{0}, steps_done{0}, until_ns{0}, refusals{0};
constinit std::atomic<unsigned> finished{0};

std::uint8_t* content(Object& object) { return reinterpret_cast<std::uint8_t*>(&object + 1); }

void check_pattern(Object& object) {
  const std::uint8_t* const bytes = content(object);
  for (std::size_t i = 0; i < object.bytes - sizeof(Object); ++i) {
    check(bytes[i] == object.pattern, "an object's pattern", reinterpret_cast<std::uintptr_t>(bytes + i));
  }
}

Object* fill(void* memory, std::size_t bytes, std::uint8_t pattern) {
  auto* const object = new (memory) Object{.bytes = static_cast<std::uint32_t>(bytes), .pattern = pattern};
  std::memset(content(*object), pattern, bytes - sizeof(Object));
  return object;
}

std::size_t random_bytes(std::mt19937& random) {
  constexpr std::size_t bytes_min = sizeof(Object);
  const unsigned kind = random() % 64;
  return bytes_min + random() % (kind == 0 ? 1 << 20 : kind <= 2 ? 70'000 : kind <= 5 ? 9'000 : 600);
}

class Worker {
 public:
  explicit Worker(unsigned seed) : random_(seed) { held_.reserve(held_max + 1); }

  void run() {
    for (unsigned i = 0; i < steps_an_event; ++i) {
      if (!take_step()) return finish();
      step();
    }
    spawn([this] { run(); });
  }

 private:
  static bool take_step() {
    steps_done.fetch_add(1, std::memory_order_relaxed);
    if (const auto until = until_ns.load(std::memory_order_relaxed); until != 0) return machine::now_ns() < until;
    std::uint64_t left = steps_left.load(std::memory_order_relaxed);
    while (left != 0 && !steps_left.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
    }
    return left != 0;
  }

  void step() {
    make();
    if (held_.size() <= held_max && random_() % 2 != 0) return;
    if (held_.empty()) return;
    std::swap(held_[random_() % held_.size()], held_.back());
    Object* object = held_.back();
    held_.pop_back();
    const unsigned what = held_.size() < held_max ? random_() % 4 : 2;  // with `held_max` objects, a core passes one to another core
    if (what == 0) return grow(object);
    if (what == 1) return release(object);
    release(shared[random_() % places].exchange(object, std::memory_order_acq_rel));  // usually frees another core's object
  }

  void make() {
    const std::size_t bytes = random_bytes(random_);
    const std::size_t alignment = random_() % 8 == 0 ? std::size_t{32} << random_() % 8 : 16;
    void* const memory = alignment > 16 ? std::aligned_alloc(alignment, bytes) : std::malloc(bytes);
    if (memory == nullptr) {
      refusals.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    check(reinterpret_cast<std::uintptr_t>(memory) % alignment == 0, "alignment", alignment);
    held_.push_back(fill(memory, bytes, static_cast<std::uint8_t>(random_())));
  }

  void grow(Object* object) {
    check_pattern(*object);
    const std::size_t bytes = random_bytes(random_), kept = std::min<std::size_t>(bytes, object->bytes);
    void* const moved = std::realloc(object, bytes);
    if (moved == nullptr) return release(object);
    object = static_cast<Object*>(moved);
    object->bytes = static_cast<std::uint32_t>(kept);
    check_pattern(*object);
    held_.push_back(fill(object, bytes, static_cast<std::uint8_t>(random_())));
  }

  static void release(Object* object) {
    if (object == nullptr) return;
    check_pattern(*object);
    std::free(object);
  }

  void finish() {
    for (Object* const object : held_) release(object);
    held_.clear();
    finished.fetch_add(1, std::memory_order_release);
  }

  std::mt19937 random_;
  std::vector<Object*> held_;
};

std::uint64_t used_bytes() { return memory::heap_counters().used_bytes; }

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const auto seconds = arguments.number("seconds", 0, {.min = 0, .max = 1'000'000}, "how long; 0: a short run");
  const auto seed = arguments.number("seed", 1, {.min = 0, .max = 1'000'000}, "of the random choices");
  arguments.finish();
  std::vector<std::unique_ptr<Worker>> workers;
  for (unsigned core = 0; core < core_count(); ++core)
    workers.push_back(std::make_unique<Worker>(static_cast<unsigned>(seed * 1000 + core)));
  const std::uint64_t used_before = used_bytes();
  steps_left = short_steps;
  until_ns = seconds == 0 ? 0 : machine::now_ns() + seconds * 1'000'000'000;
  for (unsigned core = 0; core < core_count(); ++core) {
    check(spawn_on(core, [worker = workers[core].get()] { worker->run(); }).has_value(), "spawned");
  }
  while (finished.load(std::memory_order_acquire) != core_count()) co_await sleep_for(std::chrono::milliseconds(5));
  for (auto& place : shared) {
    if (Object* const object = place.exchange(nullptr); object != nullptr) {
      check_pattern(*object);
      std::free(object);
    }
  }
  // The heap's checks now free the memory that they hold back. Remote frees arrive when each core has run a round or two of its loop. The
  // memory of the cores' own events varies by some hundred bytes.
  constexpr std::uint64_t own_bytes = 64 * 1024;
  unsigned rounds = 0;
  for (; used_bytes() > used_before + own_bytes && rounds < 10'000; ++rounds) {
    for (unsigned core = 0; core < core_count(); ++core) co_await on_core(core, [] { memory::checks::release_quarantine(); });
  }
  check(used_bytes() <= used_before + own_bytes, "all memory is back", used_bytes() - used_before);
  const auto counters = memory::heap_counters();
  check(core_count() == 1 || counters.remote_frees > steps_done / 16, "objects were freed on other cores", counters.remote_frees);
  print("steps ", steps_done.load(), ", remote frees ", counters.remote_frees, ", refused ", refusals.load());
  co_return 0;
}
