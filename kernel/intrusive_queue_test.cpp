// SPDX-License-Identifier: BSL-1.0
#include "kernel/intrusive_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernel/remote_queue.hpp"

namespace neap {
namespace {

struct Entry : QueueLink {
  int number = 0;
};

class IntrusiveQueueTest : public testing::Test {
 protected:
  IntrusiveQueueTest() {
    for (int i = 0; i < 4; ++i) entries[static_cast<std::size_t>(i)].number = i;
  }
  void push_all() {
    for (Entry& entry : entries) queue.push_back(entry);
  }
  std::vector<int> pop_all() {
    std::vector<int> numbers;
    while (Entry* const entry = queue.pop_front()) numbers.push_back(entry->number);
    return numbers;
  }

  std::array<Entry, 4> entries;
  IntrusiveQueue<Entry, QueueLink> queue;
};

TEST_F(IntrusiveQueueTest, ReturnsObjectsInTheOrderOfQueueing) {
  push_all();
  EXPECT_EQ(queue.front(), &entries[0]);
  EXPECT_EQ(pop_all(), (std::vector{0, 1, 2, 3}));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.front(), nullptr);
}

// A node that runs may queue itself again, so it must be out of the queue before it runs.
TEST_F(IntrusiveQueueTest, ReturnedObjectMayBeQueuedAgain) {
  push_all();
  Entry* const first = queue.pop_front();
  EXPECT_FALSE(is_queued(*first));
  queue.push_back(*first);
  EXPECT_EQ(pop_all(), (std::vector{1, 2, 3, 0}));
}

TEST_F(IntrusiveQueueTest, RemovesFirstMiddleAndLast) {
  for (int removed = 0; removed < 4; ++removed) {
    push_all();
    Entry& entry = entries[static_cast<std::size_t>(removed)];
    queue.remove(entry);
    EXPECT_FALSE(is_queued(entry));
    queue.push_back(entry);
    std::vector<int> expected;
    for (int i = 0; i < 4; ++i) {
      if (i != removed) expected.push_back(i);
    }
    expected.push_back(removed);
    EXPECT_EQ(pop_all(), expected);
  }
  queue.push_back(entries[0]);
  queue.remove(entries[0]);
  EXPECT_TRUE(queue.empty());
}

TEST_F(IntrusiveQueueTest, MovedQueueKeepsItsObjects) {
  push_all();
  IntrusiveQueue<Entry, QueueLink> moved = std::move(queue);
  EXPECT_TRUE(queue.empty());
  queue.push_back(*moved.pop_front());
  IntrusiveQueue<Entry, QueueLink> assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.front(), &entries[1]);
  EXPECT_EQ(pop_all(), (std::vector{0}));
}

TEST_F(IntrusiveQueueTest, ReceivesFromARemoteListInTheOrderOfSending) {
  RemoteList<QueueLink, &queue_end<QueueLink>> list;
  queue.take_reversed(list.take_newest_first());
  EXPECT_TRUE(queue.empty());
  for (std::size_t i = 0; i < 3; ++i) {
    list.push(entries[i]);
    EXPECT_TRUE(is_queued(entries[i]));
  }
  queue.take_reversed(list.take_newest_first());
  EXPECT_TRUE(list.empty());
  queue.push_back(entries[3]);
  EXPECT_EQ(pop_all(), (std::vector{0, 1, 2, 3}));
}

using IntrusiveQueueDeathTest = IntrusiveQueueTest;

TEST_F(IntrusiveQueueDeathTest, QueueingTwiceIsAPanic) {
  push_all();
  EXPECT_DEATH(queue.push_back(entries[0]), "queued at most once");
  EXPECT_DEATH(queue.push_back(entries[3]), "queued at most once") << "the last one, whose link leads nowhere";
}

TEST_F(IntrusiveQueueDeathTest, RemovingFromAnotherQueueIsAPanic) {
  queue.push_back(entries[0]);
  IntrusiveQueue<Entry, QueueLink> other;
  other.push_back(entries[1]);
  EXPECT_DEATH(queue.remove(entries[1]), "not in");
}

}  // namespace
}  // namespace neap
