// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/timer_heap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace neap::net::tcp {
namespace {

// Compares the heap with a search through all nodes.
TEST(TimerHeap, ReturnsTheEarliestNode) {
  std::mt19937 random(1);
  std::array<TimerNode, 200> nodes;
  std::array<std::uint64_t, 200> due{};
  TimerHeap heap;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t i = random() % nodes.size();
    switch (random() % 4) {
      case 0:
      case 1: {
        const std::uint64_t time = 1 + random() % 1000;
        heap.arm(nodes[i], time);
        due[i] = due[i] == 0 ? time : std::min(due[i], time);
        break;
      }
      case 2:
        heap.cancel(nodes[i]);
        due[i] = 0;
        break;
      default:
        if (TimerNode* const first = heap.first(); first != nullptr) {
          due[static_cast<std::size_t>(first - nodes.data())] = 0;
          heap.cancel(*first);
        }
    }
    std::uint64_t earliest = TimerHeap::never;
    for (const std::uint64_t time : due) {
      if (time != 0) earliest = std::min(earliest, time);
    }
    ASSERT_EQ(heap.due_us(), earliest);
    ASSERT_EQ(nodes[i].armed(), due[i] != 0);
  }
}

// A long list of siblings is merged without recursion.
TEST(TimerHeap, TakesManyNodesOfOneTime) {
  std::vector<TimerNode> nodes(100'000);
  TimerHeap heap;
  for (TimerNode& node : nodes) heap.arm(node, 5);
  for (std::size_t left = nodes.size(); left > 0; --left) {
    ASSERT_EQ(heap.due_us(), 5U);
    heap.cancel(*heap.first());
  }
  EXPECT_EQ(heap.first(), nullptr);
}

}  // namespace
}  // namespace neap::net::tcp
