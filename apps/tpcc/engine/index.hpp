// SPDX-License-Identifier: BSL-1.0
// An ordered index that several cores read and change: a B+ tree from keys to records.
//
// A transaction passes some ten to some hundred look-ups, so a look-up must cost little and must not write to shared memory. Readers use
// the nodes' versions only (index_node.hpp) and begin again when a node has changed under them. An insertion or removal locks one leaf.
// Splits, and removals that empty a leaf, also change upper nodes. They are rare, so one lock for the whole index admits one of them at a
// time. An unlinked node is freed by RCU after the event.
//
// Leaves are not merged. A leaf is unlinked when its last key is removed, so a queue that grows at the right and shrinks at the left needs
// bounded memory. Leaves are not linked to their neighbours: a scan descends once for each leaf, with the bound that the last descent
// found.
//
// All functions MUST be called within an event. The pointers that they return are valid until its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <tuple>
#include <utility>

#include "apps/tpcc/engine/index_node.hpp"
#include "apps/tpcc/engine/record.hpp"
#include "kernel/panic.hpp"
#include "kernel/rcu.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::transactions {

/// The effect of an insertion on leaf versions, for transactions that have scanned the same leaves.
struct LeafChange {
  const Node* leaf = nullptr;
  std::uint64_t before = 0, after = 0;
  const Node* right = nullptr;  ///< the leaf that took over a part of the keys; null without a split
  std::uint64_t right_version = 0;
};

template <unsigned Words>
class Index {
 public:
  using KeyType = Key<Words>;

  /// `record` is null if no record has the key. An insertion of the key or of its neighbours changes the leaf's version.
  struct Found {
    RecordHeader* record;
    const Node* leaf;
    std::uint64_t version;
  };
  /// `existing` is the record that has the key already, if `outcome` is `exists`.
  struct Inserted {
    Outcome outcome;
    RecordHeader* existing = nullptr;
    LeafChange change = {};
  };

  /// The place of the last key, for operations on keys that follow each other (`find_after`, `insert_after`). They need no descent as long
  /// as no other core changes the leaf. A place is empty at first. It MUST NOT be used after the event, or with another index.
  class Place {
    friend class Index;
    Leaf<Words>* leaf = nullptr;
    std::uint64_t version = 0;
    unsigned at = 0;       // of the last key, in the leaf
    bool bounded = false;  // the leaf's keys end before `bound`; this remains so until the leaf's version changes
    KeyType bound;
  };

  /// Throws `bad_alloc`.
  Index() : root_(new Leaf<Words>) { set_reclaim(*root_.load(std::memory_order_relaxed)); }
  Index& operator=(Index&&) = delete;
  /// The records are not freed.
  ~Index() { destroy(root_.load(std::memory_order_relaxed)); }

  [[nodiscard, gnu::always_inline]] Found find(const KeyType& key) const noexcept {
    for (;;) {
      const auto [leaf, version] = descend<Bound::none>(key, nullptr, nullptr);
      const unsigned count = leaf->count.load(std::memory_order_acquire);
      const unsigned at = leaf->keys.template rank<false>(count, key);
      RecordHeader* const record = at < count && leaf->keys.equals(at, key) ? leaf->records[at].load(std::memory_order_acquire) : nullptr;
      if (leaf->is_still(version)) [[likely]]
        return {record, leaf, version};
    }
  }

  /// As `find`, for a key that is probably the next one after that of `place`.
  [[nodiscard, gnu::always_inline]] Found find_after(Place& place, const KeyType& key) const noexcept {
    if (Leaf<Words>* const leaf = place.leaf; leaf != nullptr) {
      const unsigned at = place.at + 1;
      if (at < leaf->count.load(std::memory_order_acquire) && leaf->keys.equals(at, key)) {
        RecordHeader* const record = leaf->records[at].load(std::memory_order_acquire);
        if (leaf->is_still(place.version)) [[likely]] {
          place.at = at;
          return {record, leaf, place.version};
        }
      }
    }
    for (;;) {
      const auto [leaf, version] = descend<Bound::above>(key, &place.bound, &place.bounded);
      const unsigned count = leaf->count.load(std::memory_order_acquire);
      const unsigned at = leaf->keys.template rank<false>(count, key);
      const bool found = at < count && leaf->keys.equals(at, key);
      RecordHeader* const record = found ? leaf->records[at].load(std::memory_order_acquire) : nullptr;
      if (!leaf->is_still(version)) [[unlikely]]
        continue;
      place.leaf = found ? leaf : nullptr;
      place.version = version;
      place.at = at;
      return {record, leaf, version};
    }
  }

  /// Outcomes: done, exists, no_memory.
  [[nodiscard]] Inserted insert(const KeyType& key, RecordHeader* record) noexcept {
    for (;;) {
      const auto [leaf, version] = descend<Bound::none>(key, nullptr, nullptr);
      if (!leaf->try_lock(version)) continue;
      return insert_locked(*leaf, version, leaf->keys.template rank<false>(leaf->count.load(std::memory_order_relaxed), key), key, record);
    }
  }

  /// As `insert`, for a key that is probably above that of `place`.
  [[nodiscard]] Inserted insert_after(Place& place, const KeyType& key, RecordHeader* record) noexcept {
    Leaf<Words>* leaf = std::exchange(place.leaf, nullptr);
    std::uint64_t version = place.version;
    // As long as the leaf has this version, a key between the last one and the bound belongs to it.
    const bool may_follow = leaf != nullptr && leaf->keys.is_less(place.at, key) && (!place.bounded || key < place.bound);
    if (!may_follow || !leaf->try_lock(version)) {
      do {
        std::tie(leaf, version) = descend<Bound::above>(key, &place.bound, &place.bounded);
      } while (!leaf->try_lock(version));
      place.at = Leaf<Words>::capacity;
    }
    const unsigned count = leaf->count.load(std::memory_order_relaxed);
    unsigned at = place.at + 1;
    if (at > count || (at < count && leaf->keys.is_at_most(at, key))) at = leaf->keys.template rank<false>(count, key);
    const Inserted inserted = insert_locked(*leaf, version, at, key, record);
    if (inserted.outcome == Outcome::done && count < Leaf<Words>::capacity) {
      place.leaf = leaf;
      place.version = inserted.change.after;
      place.at = at;
    }
    return inserted;
  }

  /// Removes the entry of `key`, which MUST exist and refer to `record`. Cannot fail.
  void remove(const KeyType& key, const RecordHeader* record) noexcept {
    for (;;) {
      const auto [leaf, version] = descend<Bound::none>(key, nullptr, nullptr);
      if (!leaf->try_lock(version)) continue;
      if (leaf->count.load(std::memory_order_relaxed) == 1) {
        leaf->unlock_unchanged(version);
        remove_last(key, record);
      } else {
        leaf->remove(position_of(*leaf, key, record));
        leaf->unlock_changed(version);
      }
      return;
    }
  }

  /// A leaf during a scan. `bound`: all keys below it (forward) or from it on (backward) are in this leaf or were passed; it is valid if
  /// `bounded`.
  struct Position {
    const Leaf<Words>* leaf;
    std::uint64_t version;
    KeyType bound;
    bool bounded;
  };
  template <bool Forward>
  [[nodiscard]] Position seek(const KeyType& key) const noexcept {
    Position result;
    const auto [leaf, version] = descend<Forward ? Bound::above : Bound::below>(key, &result.bound, &result.bounded);
    result.leaf = leaf;
    result.version = version;
    return result;
  }

  /// Calls `function(key, record)` for all entries in order. MUST NOT run beside changes of the index.
  template <class F>
  void for_each(F&& function) const {
    for (KeyType from{};;) {
      const Position at = seek<true>(from);
      const unsigned count = at.leaf->count.load(std::memory_order_acquire);
      for (unsigned entry = 0; entry < count; ++entry)
        function(at.leaf->keys.get(entry), at.leaf->records[entry].load(std::memory_order_acquire));
      if (!at.bounded) return;
      from = at.bound;
    }
  }

  /// The number of entries; an estimate beside changes. Visits all leaves.
  [[nodiscard]] std::uint64_t size() const noexcept {
    std::uint64_t sum = 0;
    for (KeyType from{};;) {
      const Position at = seek<true>(from);
      sum += at.leaf->count.load(std::memory_order_acquire);
      if (!at.bounded) return sum;
      from = at.bound;
    }
  }

  /// The number of nodes. MUST NOT run beside changes of the index.
  [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_below(root_.load(std::memory_order_acquire)); }
  /// The number of nodes from the root to a leaf.
  [[nodiscard]] unsigned height() const noexcept { return root_.load(std::memory_order_acquire)->level + 1U; }

 private:
  enum class Bound : std::uint8_t { none, above, below };
  using LeafAtVersion = std::pair<Leaf<Words>*, std::uint64_t>;
  static constexpr unsigned height_max = 16;
  struct Step {
    Inner<Words>* node;
    unsigned child;
  };
  struct Path {
    Step steps[height_max];
    unsigned count = 0;
  };

  /// Returns the leaf that has `key` if any leaf has it, and the version of the leaf at a time when that was so. `Bound` selects the
  /// nearest separator above or below that the descent passes: it is where the leaf's keys end.
  template <Bound Which>
  [[gnu::always_inline]] LeafAtVersion descend(const KeyType& key, KeyType* bound, bool* bounded) const noexcept {
    for (;;) {
      Node* node = root_.load(std::memory_order_acquire);
      std::uint64_t version = node->stable_version();
      // A root that has been split still is a node of the index, with an unlocked version. It is no longer the root.
      if (root_.load(std::memory_order_acquire) != node) [[unlikely]]
        continue;
      if constexpr (Which != Bound::none) *bounded = false;
      while (node->level != 0) {
        const auto* const inner = static_cast<const Inner<Words>*>(node);
        const unsigned count = inner->count.load(std::memory_order_acquire);
        const unsigned at = inner->keys.template rank<true>(count, key);
        Node* const child = inner->children[at].load(std::memory_order_acquire);
        if constexpr (Which == Bound::above) {
          if (at < count) {
            *bound = inner->keys.get(at);
            *bounded = true;
          }
        } else if constexpr (Which == Bound::below) {
          if (at > 0) {
            *bound = inner->keys.get(at - 1);
            *bounded = true;
          }
        }
        if (!inner->is_still(version)) [[unlikely]]
          break;  // the pointer may be of an old entry
        const std::uint64_t child_version = child->stable_version();
        if (!inner->is_still(version)) [[unlikely]]
          break;  // the child may have been split before its version was loaded
        node = child;
        version = child_version;
      }
      if (node->level == 0) [[likely]]
        return {static_cast<Leaf<Words>*>(node), version};
    }
  }

  /// Nodes for a split, allocated before anything is changed.
  struct Spares {
    Leaf<Words>* leaf = nullptr;
    Inner<Words>* inner[height_max] = {};
    unsigned inner_count = 0;

    Spares() = default;
    Spares& operator=(Spares&&) = delete;
    ~Spares() {
      delete leaf;
      while (inner_count > 0) delete inner[--inner_count];
    }
    [[nodiscard]] bool allocate(unsigned inner_needed) noexcept {
      leaf = new (std::nothrow) Leaf<Words>;
      if (leaf == nullptr) return false;
      while (inner_count < inner_needed) {
        inner[inner_count] = new (std::nothrow) Inner<Words>(0);
        if (inner[inner_count] == nullptr) return false;
        ++inner_count;
      }
      return true;
    }
    Leaf<Words>* take_leaf() noexcept {
      set_reclaim(*leaf);
      return std::exchange(leaf, nullptr);
    }
    Inner<Words>* take_inner(unsigned level) noexcept {
      Inner<Words>* const taken = inner[--inner_count];
      taken->level = static_cast<std::uint16_t>(level);
      set_reclaim(*taken);
      return taken;
    }
  };

  /// Nodes that a change has locked. Readers must not pass any of them before all are changed.
  struct LockedNodes {
    Node* nodes[height_max + 1];
    std::uint64_t versions[height_max + 1];
    unsigned count = 0;
    void lock(Node& node) noexcept {
      nodes[count] = &node;
      versions[count++] = node.lock();
    }
    void unlock_changed() noexcept {
      while (count > 0) {
        --count;
        nodes[count]->unlock_changed(versions[count]);
      }
    }
  };

  static unsigned position_of(const Leaf<Words>& leaf, const KeyType& key, const RecordHeader* record) noexcept {
    const unsigned count = leaf.count.load(std::memory_order_relaxed);
    const unsigned at = leaf.keys.template rank<false>(count, key);
    require(at < count && leaf.keys.equals(at, key) && leaf.records[at].load(std::memory_order_relaxed) == record,
            "the index has no such record");
    return at;
  }

  /// `at`: the rank of `key` in the locked leaf. Unlocks the leaf.
  [[gnu::always_inline]] Inserted insert_locked(Leaf<Words>& leaf, std::uint64_t version, unsigned at, const KeyType& key,
                                                RecordHeader* record) noexcept {
    const unsigned count = leaf.count.load(std::memory_order_relaxed);
    if (at < count && leaf.keys.equals(at, key)) {
      RecordHeader* const existing = leaf.records[at].load(std::memory_order_relaxed);
      leaf.unlock_unchanged(version);
      return {Outcome::exists, existing};
    }
    if (count == Leaf<Words>::capacity) {
      leaf.unlock_unchanged(version);
      return insert_with_split(key, record);
    }
    leaf.insert(at, key, record);
    return {Outcome::done, nullptr, {.leaf = &leaf, .before = version, .after = leaf.unlock_changed(version)}};
  }

  /// As `descend`, under the structure lock, which keeps the upper nodes as they are.
  Leaf<Words>* walk(const KeyType& key, Path& path) const noexcept {
    Node* node = root_.load(std::memory_order_relaxed);
    while (node->level != 0) {
      auto* const inner = static_cast<Inner<Words>*>(node);
      const unsigned child = inner->keys.template rank<true>(inner->count.load(std::memory_order_relaxed), key);
      require(path.count < height_max, "the index is too high");
      path.steps[path.count++] = {inner, child};
      node = inner->children[child].load(std::memory_order_relaxed);
    }
    return static_cast<Leaf<Words>*>(node);
  }

  [[gnu::noinline]] Inserted insert_with_split(const KeyType& key, RecordHeader* record) noexcept {
    const std::lock_guard guard(structure_);
    Path path;
    Leaf<Words>* const leaf = walk(key, path);
    unsigned full = 0;
    while (full < path.count && path.steps[path.count - 1 - full].node->count.load(std::memory_order_relaxed) == Inner<Words>::capacity)
      ++full;
    Spares spares;
    if (!spares.allocate(full == path.count ? full + 1 : full)) return {Outcome::no_memory};

    LockedNodes locked;
    locked.lock(*leaf);
    const std::uint64_t version = locked.versions[0];
    const unsigned count = leaf->count.load(std::memory_order_relaxed);
    const unsigned at = leaf->keys.template rank<false>(count, key);
    if (at < count && leaf->keys.equals(at, key)) {
      RecordHeader* const existing = leaf->records[at].load(std::memory_order_relaxed);
      leaf->unlock_unchanged(version);
      return {Outcome::exists, existing};
    }
    LeafChange change = {.leaf = leaf, .before = version, .after = version + Node::step};
    if (count < Leaf<Words>::capacity) {  // another core has removed a key or has split the leaf
      leaf->insert(at, key, record);
      leaf->unlock_changed(version);
      return {Outcome::done, nullptr, change};
    }
    // Keys that arrive in ascending order leave full leaves behind, not half-full ones: the split is where the next key is expected.
    const bool ascending = at != 0 && at == leaf->next_expected;
    const unsigned split_at = ascending ? at : count / 2;
    Leaf<Words>* const right = spares.take_leaf();
    leaf->split(split_at, *right);
    if (at < split_at || (at == split_at && at < count)) {
      leaf->insert(at, key, record);
    } else {
      right->insert(at - split_at, key, record);
    }
    change.right = right;
    change.right_version = right->version.load(std::memory_order_relaxed);
    link(path, spares, locked, right->keys.get(0), right);
    locked.unlock_changed();
    return {Outcome::done, nullptr, change};
  }

  /// Inserts `child`, whose keys begin with `separator`, to the right of the nodes of `path`. Splits full nodes.
  void link(const Path& path, Spares& spares, LockedNodes& locked, KeyType separator, Node* child) noexcept {
    for (unsigned depth = path.count; depth-- > 0;) {
      Inner<Words>* const node = path.steps[depth].node;
      const unsigned at = path.steps[depth].child;
      const unsigned count = node->count.load(std::memory_order_relaxed);
      locked.lock(*node);
      if (count < Inner<Words>::capacity) return node->insert(at, separator, child);
      Inner<Words>* const right = spares.take_inner(node->level);
      if (at == count) {  // ascending keys: the full node remains full
        right->children[0].store(child, std::memory_order_release);
      } else {
        const unsigned middle = count / 2;
        const KeyType up = node->split(middle, *right);
        if (at <= middle) {
          node->insert(at, separator, child);
        } else {
          right->insert(at - middle - 1, separator, child);
        }
        separator = up;
      }
      child = right;
    }
    Node* const old = root_.load(std::memory_order_relaxed);
    Inner<Words>* const root = spares.take_inner(old->level + 1U);
    root->children[0].store(old, std::memory_order_release);
    root->insert(0, separator, child);
    root_.store(root, std::memory_order_seq_cst);
  }

  /// Removes a key that is the last one of its leaf, and the leaf and the upper nodes that become empty.
  [[gnu::noinline]] void remove_last(const KeyType& key, const RecordHeader* record) noexcept {
    const std::lock_guard guard(structure_);
    Path path;
    Leaf<Words>* const leaf = walk(key, path);
    const std::uint64_t version = leaf->lock();
    leaf->remove(position_of(*leaf, key, record));
    if (leaf->count.load(std::memory_order_relaxed) != 0 || path.count == 0) {
      leaf->unlock_changed(version);
      return;
    }
    unsigned depth = path.count;  // of the node above, whose child `depth` is removed
    while (depth > 0 && path.steps[depth - 1].node->count.load(std::memory_order_relaxed) == 0) --depth;
    if (depth == 0) {  // the index is empty; the leaf becomes the root
      root_.store(leaf, std::memory_order_seq_cst);
      for (unsigned step = 0; step < path.count; ++step) retire(*path.steps[step].node);
      leaf->unlock_changed(version);
      return;
    }
    Inner<Words>* const above = path.steps[depth - 1].node;
    const std::uint64_t above_version = above->lock();
    above->remove(path.steps[depth - 1].child);
    for (unsigned step = depth; step < path.count; ++step) retire(*path.steps[step].node);
    leaf->unlock_obsolete(version);
    rcu::retire(*leaf);
    above->unlock_changed(above_version);

    for (Node* root = root_.load(std::memory_order_relaxed); root->level != 0 && root->count.load(std::memory_order_relaxed) == 0;) {
      Node* const child = static_cast<Inner<Words>*>(root)->children[0].load(std::memory_order_relaxed);
      root_.store(child, std::memory_order_seq_cst);
      retire(*root);
      root = child;
    }
  }

  /// Marks an unlinked node and frees it after the event.
  static void retire(Node& node) noexcept {
    node.unlock_obsolete(node.lock());
    rcu::retire(node);
  }

  static void set_reclaim(Node& node) noexcept {
    node.reclaim = [](rcu::Node* retired) noexcept { free_node(static_cast<Node*>(retired)); };
  }
  static void free_node(Node* node) noexcept {
    if (node->level == 0) {
      delete static_cast<Leaf<Words>*>(node);
    } else {
      delete static_cast<Inner<Words>*>(node);
    }
  }
  static void destroy(Node* node) noexcept {
    if (node->level != 0) {
      auto* const inner = static_cast<Inner<Words>*>(node);
      for (unsigned child = 0; child <= inner->count.load(std::memory_order_relaxed); ++child)
        destroy(inner->children[child].load(std::memory_order_relaxed));
    }
    free_node(node);
  }
  static std::uint64_t nodes_below(const Node* node) noexcept {
    std::uint64_t sum = 1;
    if (node->level == 0) return sum;
    const auto* const inner = static_cast<const Inner<Words>*>(node);
    for (unsigned child = 0; child <= inner->count.load(std::memory_order_relaxed); ++child)
      sum += nodes_below(inner->children[child].load(std::memory_order_relaxed));
    return sum;
  }

  std::atomic<Node*> root_;
  alignas(64) SpinLock structure_;
};

}  // namespace neap::transactions
