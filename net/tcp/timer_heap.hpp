// SPDX-License-Identifier: BSL-1.0
// The time-outs of a core's connections.
//
// A core has thousands of connections, and each one postpones its time-out with nearly every segment. So a node stays where it is when its
// time-out moves to a later time: it is found to be early when it fires, and then it is added again. Adding it for an earlier time costs
// a few instructions and allocates nothing, because the links are in the node (a pairing heap: Fredman and others, 1986). A heap has its
// earliest node at hand, so one timer of the kernel serves all connections.
#pragma once

#include <cstdint>
#include <utility>

#include "kernel/panic.hpp"

namespace neap::net::tcp {

struct TimerNode {
  TimerNode* child = nullptr;
  TimerNode* sibling = nullptr;
  TimerNode* before = nullptr;  // the sibling before it, or the parent of a first child; null for the root
  std::uint64_t due_us = 0;     // 0: not in a heap

  [[nodiscard]] bool armed() const noexcept { return due_us != 0; }
};

class TimerHeap {
 public:
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  /// Makes the node fire at `due_us` (not 0) at the latest. 5 instructions if it fires earlier already.
  void arm(TimerNode& node, std::uint64_t due_us) noexcept {
    if (node.due_us != 0 && node.due_us <= due_us) [[likely]]
      return;
    move(node, due_us);
  }
  void cancel(TimerNode& node) noexcept;
  /// The earliest node; null if there is none.
  [[nodiscard]] TimerNode* first() const noexcept { return root_; }
  [[nodiscard]] std::uint64_t due_us() const noexcept { return root_ == nullptr ? never : root_->due_us; }

 private:
  [[gnu::noinline]] void move(TimerNode& node, std::uint64_t due_us) noexcept;
  static TimerNode* merge(TimerNode* one, TimerNode* other) noexcept;
  static TimerNode* merge_siblings(TimerNode* first) noexcept;

  TimerNode* root_ = nullptr;
};

}  // namespace neap::net::tcp
