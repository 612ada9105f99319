// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/timer_heap.hpp"

namespace neap::net::tcp {

TimerNode* TimerHeap::merge(TimerNode* one, TimerNode* other) noexcept {
  if (one == nullptr) return other;
  if (other == nullptr) return one;
  if (other->due_us < one->due_us) std::swap(one, other);
  other->before = one;
  other->sibling = one->child;
  if (other->sibling != nullptr) other->sibling->before = other;
  one->child = other;
  return one;
}

// Merges pairs from the first to the last, and then the results from the last to the first. Without recursion: a list may be long.
TimerNode* TimerHeap::merge_siblings(TimerNode* first) noexcept {
  TimerNode* merged = nullptr;  // linked by `sibling`, the last pair first
  while (first != nullptr) {
    TimerNode* const one = first;
    TimerNode* const other = one->sibling;
    first = other != nullptr ? other->sibling : nullptr;
    one->sibling = one->before = nullptr;
    if (other != nullptr) other->sibling = other->before = nullptr;
    TimerNode* const pair = merge(one, other);
    pair->sibling = merged;
    merged = pair;
  }
  TimerNode* root = nullptr;
  while (merged != nullptr) {
    TimerNode* const next = merged->sibling;
    merged->sibling = nullptr;
    root = merge(root, merged);
    merged = next;
  }
  return root;
}

void TimerHeap::cancel(TimerNode& node) noexcept {
  if (!node.armed()) return;
  TimerNode* const children = merge_siblings(node.child);
  if (&node == root_) {
    root_ = children;
  } else {
    require(node.before != nullptr, "a node of a heap that is not the root has a parent or an earlier sibling");
    (node.before->child == &node ? node.before->child : node.before->sibling) = node.sibling;
    if (node.sibling != nullptr) node.sibling->before = node.before;
    root_ = merge(root_, children);
  }
  if (root_ != nullptr) root_->before = root_->sibling = nullptr;
  node = TimerNode{};
}

void TimerHeap::move(TimerNode& node, std::uint64_t due_us) noexcept {
  cancel(node);
  node.due_us = due_us;
  root_ = merge(root_, &node);
  root_->before = root_->sibling = nullptr;
}

}  // namespace neap::net::tcp
