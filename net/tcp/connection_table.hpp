// SPDX-License-Identifier: BSL-1.0
// Finding a segment's connection.
//
// A core has up to 16,384 connections, and each segment looks for one of them. The nodes are linked into chains, so adding and removing
// allocate nothing. Peers choose addresses and ports. With a known hash they could put all their connections into one chain, so the hash
// has two secret random factors. Multiplication by a random odd number and taking the upper bits is universal: two keys that were chosen
// without knowledge of the factors share a chain with a probability of at most 2 / chains (Dietzfelbinger and others, 1997).
//
// The number of chains is fixed, so a pass over all chains in steps visits each node exactly once, whatever is added or removed meanwhile.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "kernel/panic.hpp"
#include "net/arrived_segment.hpp"

namespace neap::net::tcp {

/// As `SegmentAddresses`, for IPv6: the addresses and ports of a connection's received segments, the peer's first.
struct SegmentAddresses6 {
  std::array<std::uint64_t, 4> addresses{};
  std::uint32_t ports = 0;

  [[nodiscard]] SegmentAddresses6 reversed() const noexcept {
    return {.addresses = {addresses[2], addresses[3], addresses[0], addresses[1]}, .ports = std::rotl(ports, 16)};
  }
  friend bool operator==(const SegmentAddresses6&, const SegmentAddresses6&) = default;
};

/// The random factors of a hash. `addresses` are odd.
struct TableSecret {
  std::array<std::uint64_t, 8> addresses{1, 1, 1, 1, 1, 1, 1, 1};
  std::uint64_t ports = 1;

  [[nodiscard]] static TableSecret random() noexcept;
  /// The upper bits of the result are the hash. 4 instructions for IPv4.
  [[nodiscard]] std::uint64_t hash(const SegmentAddresses& key) const noexcept {
    return key.addresses * addresses[0] + std::uint64_t{key.ports} * ports;
  }
  /// Each half of a word has its own factor. With whole words, the highest bits of two words would cancel out whatever the factors are.
  [[nodiscard]] std::uint64_t hash(const SegmentAddresses6& key) const noexcept {
    std::uint64_t sum = std::uint64_t{key.ports} * ports;
    for (std::size_t i = 0; i < key.addresses.size(); ++i) {
      sum += (key.addresses[i] & 0xFFFF'FFFF) * addresses[2 * i] + (key.addresses[i] >> 32) * addresses[2 * i + 1];
    }
    return sum;
  }
};

/// `Node` has a member `Node* chain_next`, and `bool has_addresses(const Key&) const noexcept`. A node is in one table at a time. The table
/// does not own its nodes, and belongs to one core.
template <class Node, class Key = SegmentAddresses>
class ConnectionTable {
 public:
  ConnectionTable() = default;
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  /// Makes 2^`bits` chains, 1 to 20 bits. MUST be called once, before all other functions. Returns false without memory.
  [[nodiscard]] bool start(unsigned bits, const TableSecret& secret = TableSecret::random()) noexcept {
    require(chains_ == nullptr && bits >= 1 && bits <= 20, "a table of connections is started once, with at most 2^20 chains", bits);
    chains_.reset(new (std::nothrow) Node*[std::size_t{1} << bits]());
    shift_ = static_cast<std::uint8_t>(64 - bits);
    secret_ = secret;
    return chains_ != nullptr;
  }

  /// Returns null if there is no such node. About 12 instructions if the node is the first of its chain.
  [[nodiscard]] Node* find(const Key& key) const noexcept {
    Node* node = chains_[chain_of(key)];
    while (node != nullptr && !node->has_addresses(key)) [[unlikely]]
      node = node->chain_next;
    return node;
  }
  /// `node` MUST NOT be in a table, and no node with the same key may be in this one.
  void add(Node& node, const Key& key) noexcept {
    Node*& first = chains_[chain_of(key)];
    node.chain_next = first;
    first = &node;
    ++count_;
  }
  /// `node` MUST be in this table, with `key`.
  void remove(Node& node, const Key& key) noexcept {
    Node** link = &chains_[chain_of(key)];
    while (*link != &node) {
      require(*link != nullptr, "a connection is removed from a table that it is not in");
      link = &(*link)->chain_next;
    }
    *link = node.chain_next;
    node.chain_next = nullptr;
    --count_;
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t chains() const noexcept { return 1U << (64 - shift_); }
  /// The first node of the chain at `position`, modulo the number of chains; the others follow by `chain_next`.
  [[nodiscard]] Node* first_of(std::uint32_t position) const noexcept { return chains_[position & (chains() - 1)]; }

 private:
  [[nodiscard]] std::size_t chain_of(const Key& key) const noexcept { return static_cast<std::size_t>(secret_.hash(key) >> shift_); }

  std::unique_ptr<Node*[]> chains_;
  std::size_t count_ = 0;
  TableSecret secret_;
  std::uint8_t shift_ = 63;
};

}  // namespace neap::net::tcp
