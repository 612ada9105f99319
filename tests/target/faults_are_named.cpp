// SPDX-License-Identifier: BSL-1.0
// Each fault ends in a panic that names the fault and the functions that led to it. The word `fault=` chooses the fault; target_test.py has
// the expected output of each.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "kernel/panic.hpp"
#include "tests/target/check.hpp"

namespace {

using neap::test::hidden;

[[gnu::noinline]] void function_that_reads_null() {
  volatile const int* pointer = hidden(static_cast<const int*>(nullptr));
  (void)*pointer;
}

[[gnu::noinline]] void function_that_jumps_to_null() {
  auto* const function = hidden(static_cast<void (*)()>(nullptr));
  function();
  asm volatile("");  // prevents a tail call
}

[[gnu::noinline]] void write_byte(std::uintptr_t address) { *reinterpret_cast<volatile std::uint8_t*>(address) = 0xc3; }

[[gnu::noinline]] void execute(void* memory) {
  constexpr std::uint8_t return_instruction = 0xc3;
  std::memset(memory, return_instruction, 16);
  hidden(reinterpret_cast<void (*)()>(memory))();
  asm volatile("");
}

// The callers pass addresses that are not canonical. In a canonical address, bits 63 to 47 are equal (SDM 1, 3.3.7.1).
[[gnu::noinline]] void read_through_a_wild_pointer(std::uintptr_t address) { (void)*reinterpret_cast<volatile const int*>(address); }

// The push causes a page fault, and the fault's handler has no stack either: a double fault.
[[gnu::noinline]] void fault_without_a_stack() { asm volatile("movq $0x1000, %%rsp; pushq $0" ::: "memory"); }

std::uint64_t recurse_without_end(std::uint64_t depth);
// The callee is a run-time value, so that the compiler does not see that this recursion never ends.
constinit std::uint64_t (*next_recursion)(std::uint64_t) = recurse_without_end;

[[gnu::noinline]] std::uint64_t recurse_without_end(std::uint64_t depth) {
  volatile std::uint64_t room[16];
  room[depth % 16] = depth;
  return hidden(next_recursion)(depth + 1) + room[(depth + 1) % 16];
}

// Two functions call each other, so no two adjacent frames are equal.
std::uint64_t recurse_elsewhere(std::uint64_t depth);
constinit std::uint64_t (*next_elsewhere)(std::uint64_t) = recurse_elsewhere;

[[gnu::noinline]] std::uint64_t recurse_in_turns(std::uint64_t depth) { return hidden(next_elsewhere)(depth + 1) + depth; }
[[gnu::noinline]] std::uint64_t recurse_elsewhere(std::uint64_t depth) { return hidden(recurse_in_turns)(depth + 1) * depth; }

constinit const int constant_data[4] = {1, 2, 3, 4};

[[gnu::noinline]] void divide_by_zero() {
  volatile int zero = 0;
  volatile int result = hidden(100) / zero;
  (void)result;
}

enum Fault : std::size_t {
  null_read,
  null_jump,
  text_write,
  text_write_direct_map,
  constant_write,
  heap_execute,
  stack_execute,
  data_execute,
  stack_overflow,
  stack_overflow_in_turns,
  wild_read,
  far_write,
  double_fault,
  divide,
  invalid_opcode,
  uncaught_exception,
  failed_requirement,
};
constexpr std::initializer_list<std::string_view> fault_names{
    "null_read",     "null_jump",    "text_write",     "text_write_direct_map",   "constant_write",     "heap_execute",
    "stack_execute", "data_execute", "stack_overflow", "stack_overflow_in_turns", "wild_read",          "far_write",
    "double_fault",  "divide",       "invalid_opcode", "uncaught_exception",      "failed_requirement",
};

[[gnu::noipa]] void commit(std::size_t fault) {
  static std::array<std::uint8_t, 64> data{};
  const auto code = reinterpret_cast<std::uintptr_t>(&divide_by_zero);
  switch (fault) {
    case null_read:
      return function_that_reads_null();
    case null_jump:
      return function_that_jumps_to_null();
    case text_write:
      return write_byte(code);
    case text_write_direct_map: {
      const auto physical = neap::machine::physical_address(reinterpret_cast<const void*>(code));
      return write_byte(reinterpret_cast<std::uintptr_t>(neap::machine::direct_map(physical)));
    }
    case constant_write:
      return write_byte(reinterpret_cast<std::uintptr_t>(&constant_data));
    case heap_execute:
      return execute(std::malloc(64));
    case stack_execute: {
      std::array<std::uint8_t, 64> local{};
      return execute(local.data());
    }
    case data_execute:
      return execute(data.data());
    case stack_overflow:
      (void)recurse_without_end(0);
      return;
    case stack_overflow_in_turns:
      (void)recurse_in_turns(0);
      return;
    case wild_read:
      return read_through_a_wild_pointer(0x6b6b'6b6b'6b6b'6b6b);  // the pattern of freed memory
    case far_write:
      return write_byte(0x7fff'0000'0000);
    case double_fault:
      return fault_without_a_stack();
    case divide:
      return divide_by_zero();
    case invalid_opcode:
      asm volatile("ud2");
      return;
    case uncaught_exception:
      throw std::runtime_error("nobody catches this");
    case failed_requirement:
      neap::require(hidden(false), "what had to hold did not", 42);
      return;
    default:
      return;
  }
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  static std::size_t fault;
  fault = arguments.choice("fault", fault_names, 0, "what to do wrong");
  const auto core = arguments.number("core", 0, {.min = 0, .max = core_count() - 1}, "where");
  const bool together = arguments.choice("together", {"no", "yes"}, 0, "on all cores at once") != 0;
  arguments.finish();
  for (unsigned other = 0; together && other < core_count(); ++other) {
    test::check(spawn_on(other,
                         [] {
                           static constinit std::atomic<unsigned> there{0};
                           ++there;
                           while (there.load() != core_count()) asm volatile("pause");
                           commit(fault);
                         })
                    .has_value(),
                "spawned");
  }
  if (together) co_await sleep_for(std::chrono::hours(1));
  test::check(spawn_on(static_cast<unsigned>(core), [] { commit(fault); }).has_value(), "spawned");
  co_await sleep_for(std::chrono::seconds(5));
  print("FAILED: nothing stopped it");
  co_return 1;
}
