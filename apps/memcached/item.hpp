// SPDX-License-Identifier: BSL-1.0
// One stored item: a header, the key, the value and its line end.
//
// They are in one block of memory, unless the value is longer than `contiguous_bytes_max`. A longer value is in pieces, which are blocks of
// their own: fragmented memory has no room for a block of some megabytes, but for many of 256 KiB. The pointers to the pieces are in the
// first block, where a shorter value would be (pieces.hpp). `part` finds the bytes of a value of any length.
//
// An item is used by the table, by readers on any core inside their event, and by replies that the peer has not acknowledged. Readers are
// protected by RCU at no cost (kernel/rcu.hpp). The table and each reply hold a reference, and releasing the last reference frees the item.
// Once an item is in the table, only its atomic fields change; a new value is a new item.
//
// The store gives each item a CAS id (`cas`) that grows with time, and a flush compares these ids (`Store::flush_up_to_now`). A client may
// override the id that clients see (flag E of the meta commands). Such an item keeps its `cas`, so it is flushed like any other. The
// client's id is in `own_cas_bytes` behind the line end, which other items do not have.
//
// A cache has millions of small items, so the header's size decides how many fit. The key begins directly behind the last member, within
// the padding that the compiler adds to the structure. With a key of 16 bytes and a value of 100, an item takes 186 bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "apps/memcached/clock.hpp"
#include "apps/memcached/pieces.hpp"
#include "kernel/panic.hpp"
#include "kernel/rcu.hpp"

namespace neap::memcached {

constexpr std::size_t key_bytes_max = 250;  // protocol.txt, "Keys"

struct Item {
  // A lookup reads the following members, and the key behind the header.
  std::atomic<Item*> next[2];  ///< chains in the current table and in the new table that is being filled (table.hpp)
  std::uint32_t hash;
  std::uint32_t value_bytes;  ///< without the "\r\n" that is stored behind the value
  std::atomic<Seconds> expires;
  std::atomic<std::uint32_t> accessed;  ///< twice the second of the last noted use, plus 1 if used since eviction last examined the item
  std::atomic<std::uint64_t> cas;       ///< set when the item is linked, and when it becomes stale; clients see `client_cas`
  std::uint32_t flags;
  std::atomic<std::uint32_t> references;
  // `place` is accessed only under the shard's lock while the item is linked, and afterwards only by reclamation.
  union Place {
    struct {
      Item* newer;
      Item* older;
    } order;
    rcu::Node retired;
    Place() : order{nullptr, nullptr} {}
  } place;
  std::uint8_t store;  ///< index of the item's store (`Store::of`)
  std::uint8_t key_bytes;
  /// Written only under the shard's lock, or before the item is linked. A reader that needs both MUST read `cas` before the marks: an item
  /// that becomes stale gets the mark first, so that no reader sees its new id without the mark.
  std::atomic<std::uint8_t> marks{0};
  /// The queue of the item's shard while the item is linked (store_memory.cpp). `held`: unlinked and past its grace period, so only replies
  /// refer to the item.
  enum class Standing : std::uint8_t { probation, main, held } standing = Standing::probation;

  static constexpr std::uint8_t mark_fetched = 1;      ///< was read before eviction last examined the item
  static constexpr std::uint8_t mark_stale = 2;        ///< a client has asked that the value be made anew (flag I of md and ms)
  static constexpr std::uint8_t mark_win_sent = 4;     ///< a client was told to make the value anew (flag W)
  static constexpr std::uint8_t mark_own_cas = 8;      ///< a client has chosen the CAS id; never changes in a linked item
  static constexpr std::uint8_t mark_binary_key = 16;  ///< the key was sent in base64, and is so returned

  static constexpr std::size_t own_cas_bytes = 8;
  static_assert(mark_own_cas == own_cas_bytes, "so that the mark is the number of bytes");
  static constexpr std::size_t header_bytes = 68;  ///< offset of the key
  /// Returns the memory of an item without the allocator's rounding. `more_bytes`: `own_cas_bytes` or 0.
  [[nodiscard]] static constexpr std::size_t memory_bytes(std::size_t key_bytes, std::size_t value_bytes,
                                                          std::size_t more_bytes = 0) noexcept {
    return first_block_bytes(key_bytes, value_bytes, more_bytes) + (is_in_pieces(value_bytes) ? value_bytes : 0);
  }
  /// The same without the pieces.
  [[nodiscard]] static constexpr std::size_t first_block_bytes(std::size_t key_bytes, std::size_t value_bytes,
                                                               std::size_t more_bytes) noexcept {
    return contiguous_bytes(key_bytes, is_in_pieces(value_bytes) ? Pieces(value_bytes).table_bytes() : value_bytes, more_bytes);
  }
  /// The same for a value that is not in pieces.
  [[nodiscard]] static constexpr std::size_t contiguous_bytes(std::size_t key_bytes, std::size_t value_bytes,
                                                              std::size_t more_bytes) noexcept {
    return std::max(header_bytes + key_bytes + value_bytes + 2 + more_bytes, sizeof(Item));  // the padding is a part of the object
  }
  [[nodiscard]] std::size_t more_bytes() const noexcept { return marks.load(std::memory_order_relaxed) & mark_own_cas; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return memory_bytes(key_bytes, value_bytes, more_bytes()); }

  [[nodiscard]] const char* key_data() const noexcept { return reinterpret_cast<const char*>(this) + header_bytes; }
  [[nodiscard]] char* key_data() noexcept { return reinterpret_cast<char*>(this) + header_bytes; }
  [[nodiscard]] std::string_view key() const noexcept { return {key_data(), key_bytes}; }

  [[nodiscard]] bool in_pieces() const noexcept { return is_in_pieces(value_bytes); }
  /// The value and the "\r\n" behind it, for an item that is not in pieces.
  [[nodiscard]] char* value_data() noexcept { return const_cast<char*>(value_line().data()); }
  [[nodiscard]] std::string_view value() const noexcept { return value_line().substr(0, value_bytes); }
  [[nodiscard]] std::string_view value_line() const noexcept {
    require(!in_pieces(), "memcached: a value in pieces is not contiguous", value_bytes);
    return {key_data() + key_bytes, value_line_bytes()};
  }
  [[nodiscard]] std::size_t value_line_bytes() const noexcept { return std::size_t{value_bytes} + 2; }
  /// Returns the bytes from `offset` of the value and the "\r\n", as far as they are contiguous: not empty if `offset` is below
  /// `value_line_bytes()`. For an item of any size.
  [[nodiscard]] std::string_view part(std::size_t offset) const noexcept {
    require(offset < value_line_bytes(), "memcached: an offset is within the value and its line end", offset);
    if (!in_pieces()) return value_line().substr(offset);
    if (offset >= value_bytes) return std::string_view{line_end(), 2}.substr(offset - value_bytes);
    const Pieces pieces(value_bytes);
    const unsigned index = pieces.index_of(offset);
    return std::string_view{piece(index), pieces.bytes_of(index)}.substr(offset - index * pieces.bytes);
  }
  /// Writes `bytes` at `offset` of the value and the "\r\n" of an item that is not linked yet.
  void fill(std::size_t offset, std::string_view bytes) noexcept {
    while (!bytes.empty()) {
      const std::string_view to = part(offset);
      const std::size_t count = std::min(to.size(), bytes.size());
      std::memcpy(const_cast<char*>(to.data()), bytes.data(), count);
      offset += count;
      bytes.remove_prefix(count);
    }
  }
  /// Writes the value of `other` at `offset`, as `fill`.
  void fill_from(std::size_t offset, const Item& other) noexcept {
    for (std::size_t done = 0; done < other.value_bytes;) {
      const std::string_view from = other.part(done).substr(0, other.value_bytes - done);
      fill(offset + done, from);
      done += from.size();
    }
  }
  /// Returns the "\r\n", behind which the client's CAS id is, if there is one.
  [[nodiscard]] const char* line_end() const noexcept {
    return key_data() + key_bytes + (in_pieces() ? Pieces(value_bytes).table_bytes() : value_bytes);
  }
  [[nodiscard]] char* line_end() noexcept { return const_cast<char*>(std::as_const(*this).line_end()); }
  [[nodiscard]] bool ends_in_line_end() const noexcept { return std::memcmp(line_end(), "\r\n", 2) == 0; }

  /// The block of a piece, for an item that is in pieces. The table is not aligned, because keys have any length.
  [[nodiscard]] char* piece(unsigned index) const noexcept {
    char* block = nullptr;
    std::memcpy(&block, key_data() + key_bytes + index * sizeof block, sizeof block);
    return block;
  }
  void set_piece(unsigned index, char* block) noexcept { std::memcpy(key_data() + key_bytes + index * sizeof block, &block, sizeof block); }

  [[nodiscard]] bool has_mark(std::uint8_t mark) const noexcept { return (marks.load(std::memory_order_relaxed) & mark) != 0; }
  void add_marks(std::uint8_t more) noexcept {
    marks.store(static_cast<std::uint8_t>(marks.load(std::memory_order_relaxed) | more), std::memory_order_release);
  }
  /// True if the item was ever read. Eviction sets the mark before it clears the note of the last use.
  [[nodiscard]] bool was_fetched() const noexcept { return (accessed.load(std::memory_order_acquire) & 1) != 0 || has_mark(mark_fetched); }
  /// Returns the CAS id that clients see. A call would cost a binary get 13 instructions.
  [[nodiscard]] [[gnu::always_inline]] std::uint64_t client_cas() const noexcept {
    std::uint64_t id = cas.load(std::memory_order_acquire);
    if (has_mark(mark_own_cas)) [[unlikely]]
      std::memcpy(&id, line_end() + 2, sizeof id);
    return id;
  }

  /// Notes a use at `now`. Writes only if eviction has cleared the mark, or if the noted use is at least `note_interval_s` old. A write
  /// moves the cache line away from the other cores, so a popular item is written at most once in that interval, as in memcached.
  [[gnu::always_inline]] void note_use(Seconds now) noexcept {
    const std::uint32_t mark = now << 1 | 1;
    // The difference is twice the seconds since the noted use. It is odd without the mark, and the rotation then makes it very large.
    if (std::rotr(mark - accessed.load(std::memory_order_relaxed), 1) >= note_interval_s) accessed.store(mark, std::memory_order_relaxed);
  }
  static constexpr Seconds note_interval_s = 60;

  /// Adds a reference. The item MUST already have a reference of the caller or, in the event of the lookup, of the table.
  void hold() noexcept {
    require(references.fetch_add(1, std::memory_order_relaxed) != 0, "memcached: an item without references cannot be held");
  }
};

static_assert(offsetof(Item, standing) + sizeof(Item::Standing) == Item::header_bytes);

/// Releases one reference; releasing the last reference frees the item. The signature is that of a buffer's release function.
void release_item(void* item) noexcept;

/// An item that is not in the table yet: made by `Store::allocate`, filled, then passed to `Store::commit`, or dropped.
class ItemPointer {
 public:
  ItemPointer() = default;
  explicit ItemPointer(Item* item) noexcept : item_(item) {}
  ItemPointer(ItemPointer&& other) noexcept : item_(std::exchange(other.item_, nullptr)) {}
  ItemPointer& operator=(ItemPointer&& other) noexcept {
    if (this != &other) {
      reset();
      item_ = std::exchange(other.item_, nullptr);
    }
    return *this;
  }
  ~ItemPointer() { reset(); }
  [[nodiscard]] Item* get() const noexcept { return item_; }
  Item* operator->() const noexcept { return item_; }
  explicit operator bool() const noexcept { return item_ != nullptr; }
  [[nodiscard]] Item* detach() noexcept { return std::exchange(item_, nullptr); }
  void reset() noexcept {
    if (item_ != nullptr) release_item(std::exchange(item_, nullptr));
  }

 private:
  Item* item_ = nullptr;
};

}  // namespace neap::memcached
