// SPDX-License-Identifier: BSL-1.0
// Memory runs out at each allocation in turn. A transaction then ends with no_memory, leaves nothing, and succeeds later. This program
// replaces the operators `new` that report failure by null, which the database uses.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "apps/tpcc/consistency.hpp"
#include "apps/tpcc/test_database.hpp"

namespace {

constexpr std::uint64_t unlimited = UINT64_MAX;
std::uint64_t allocations_left = unlimited;

bool may_allocate() noexcept {
  if (allocations_left == unlimited) return true;
  if (allocations_left == 0) return false;
  --allocations_left;
  return true;
}

void* aligned(std::size_t bytes, std::size_t alignment) noexcept {
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

}  // namespace

// All forms are replaced, so that each pair of new and delete uses the same heap.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return may_allocate() ? std::malloc(bytes) : nullptr; }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return may_allocate() ? std::malloc(bytes) : nullptr; }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return may_allocate() ? aligned(bytes, static_cast<std::size_t>(alignment)) : nullptr;
}
void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  void* const memory = aligned(bytes, static_cast<std::size_t>(alignment));
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace neap::tpcc {
namespace {

constexpr std::uint64_t date = 1'800'000'000'000'000;
constexpr Scale scale{.warehouses = 2, .items = 40, .customers_per_district = 12, .orders_per_district = 10, .districts = 2};

class MemoryFull : public testing::Test {
 protected:
  ~MemoryFull() override { allocations_left = unlimited; }

  /// Runs `inputs` with 0, 1, 2 … allocations until it commits. Returns the number of failures.
  unsigned fail_at_each_allocation(const Inputs& inputs) {
    for (unsigned allowed = 0; allowed < 200; ++allowed) {
      allocations_left = allowed;
      const Outcome outcome = one.run(inputs);
      allocations_left = unlimited;
      if (outcome == Outcome::committed) {
        EXPECT_EQ(untouched.run(inputs), Outcome::committed);
        EXPECT_EQ(find_difference(one.database, untouched.database), "");
        EXPECT_EQ(find_inconsistency(one.database), "");
        return allowed;
      }
      EXPECT_EQ(outcome, Outcome::no_memory);
      EXPECT_EQ(find_difference(one.database, untouched.database), "") << "with " << allowed << " allocations";
    }
    ADD_FAILURE() << "the transaction never commits";
    return 0;
  }

  test::LoadedDatabase one{scale}, untouched{scale};
};

// The index needs new nodes from time to time, so each type runs several times.
TEST_F(MemoryFull, EachTransactionLeavesNothingAndSucceedsLater) {
  Generator generator(test::seed, 1, {1, 2}, scale);
  unsigned failures = 0;
  for (unsigned round = 0; round < 8; ++round) {
    for (const TransactionType type : {TransactionType::new_order, TransactionType::payment, TransactionType::delivery,
                                       TransactionType::order_status, TransactionType::stock_level}) {
      const Inputs& inputs = generator.next(type, date + round);
      if (type == TransactionType::new_order &&
          std::get<NewOrderInputs>(inputs).line[std::get<NewOrderInputs>(inputs).lines - 1].item > scale.items)
        continue;
      failures += fail_at_each_allocation(inputs);
    }
  }
  EXPECT_GT(failures, 100U);
}

TEST_F(MemoryFull, ReadersNeedNone) {
  Generator generator(test::seed, 1, {1, 2}, scale);
  for (const TransactionType type : {TransactionType::order_status, TransactionType::stock_level}) {
    allocations_left = 0;
    EXPECT_EQ(one.run(generator.next(type, date)), Outcome::committed);
    allocations_left = unlimited;
  }
}

TEST(MemoryFullWhileLoading, IsReportedAtEachAllocation) {
  constexpr Scale tiny{.warehouses = 1, .items = 20, .customers_per_district = 5, .orders_per_district = 5, .districts = 1};
  std::uint64_t allowed = 0;
  for (;; ++allowed) {
    Database database(tiny);
    allocations_left = allowed;
    const bool loaded = load(database, test::seed, 0, 1);
    allocations_left = unlimited;
    if (loaded) break;
    ASSERT_LT(allowed, 1'000U);
  }
  EXPECT_GT(allowed, 100U);
}

}  // namespace
}  // namespace neap::tpcc
