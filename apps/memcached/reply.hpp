// SPDX-License-Identifier: BSL-1.0
// What goes back to one client: where the parsers write, and where a connection takes from.
//
// A reply is a few short texts and now and then a large value. Texts and small values are copied one behind the other into chunks that the
// core's connections share (copying 200 bytes is cheaper than counting references to them); large values are referred to where they are
// stored. What was written stays until the connection has taken it, and the chunk or item behind it until the peer has acknowledged it.
//
// The size is bounded: once `full()`, the parser stops at the next boundary and goes on when there is room again. A reply that cannot leave
// moves into storage of its own (`move_to_own_storage`), so that a few bytes of it do not keep a shared chunk. All memory is counted
// (reply_memory.hpp), from the moment that it leaves the allocator or the list of spare chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/memcached/item.hpp"
#include "apps/memcached/reply_memory.hpp"

namespace neap::memcached {

/// The chunks of one core. Used there only; outlives every reply made with it.
class ReplyPool {
 public:
  static constexpr std::size_t chunk_bytes = 4096 - 32;
  static constexpr unsigned free_chunks_max = 64;  // beyond that they go back to the allocator

  /// Shared by many replies, or one reply's own; the latter has as many bytes as were asked for.
  struct Chunk {
    ReplyPool* pool;
    Chunk* next;
    std::uint32_t references;
    std::uint32_t used;
    std::uint32_t own_bytes;  ///< 0: shared
    char bytes[chunk_bytes];
  };

  ReplyPool() = default;
  ReplyPool(const ReplyPool&) = delete;
  ReplyPool& operator=(const ReplyPool&) = delete;
  ~ReplyPool();

  /// A chunk with room for `bytes` behind `used`; null without memory, and for more than `chunk_bytes`. The pool keeps a reference to it.
  [[nodiscard]] Chunk* with_room(std::size_t bytes) noexcept {
    if (current_ != nullptr && chunk_bytes - current_->used >= bytes) return current_;
    return turn_page(bytes);
  }
  /// A chunk of `bytes` for one reply alone, with one reference; null without memory.
  [[nodiscard]] Chunk* own_chunk(std::size_t bytes) noexcept;
  /// Gives one reference back; has the shape of a buffer's release function.
  static void release_chunk(void* chunk) noexcept;
  [[nodiscard]] ReplyAccount& account() noexcept { return account_; }
  [[nodiscard]] unsigned chunks_out() const noexcept { return chunks_out_; }  ///< shared ones that are not free, the current one included

 private:
  /// Bytes taken from the allocator for a chunk of `bytes`: rounding adds a quarter at most (kernel/memory/heap.hpp).
  static constexpr std::size_t footprint(std::size_t bytes) noexcept { return (offsetof(Chunk, bytes) + bytes) * 5 / 4; }
  Chunk* turn_page(std::size_t bytes) noexcept;
  ReplyAccount account_;
  Chunk* current_ = nullptr;
  Chunk* free_ = nullptr;
  unsigned free_count_ = 0;
  unsigned chunks_out_ = 0;
};

class Reply {
 public:
  static constexpr std::size_t copy_bytes_max = 1024;   ///< values up to this are copied, longer ones referred to
  static constexpr std::size_t full_bytes = 64 * 1024;  ///< one value more may follow: at most this plus `max_item`
  static constexpr unsigned full_segments = 256;

  using Release = void (*)(void* owner) noexcept;

  explicit Reply(ReplyPool& pool) noexcept : pool_(pool) {}
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  ~Reply() { clear(); }

  /// Contiguous room for `bytes`, to be filled and then counted by `advance`. Null without memory, and for more than
  /// `ReplyPool::chunk_bytes`: then the reply has `failed` and its connection can only be cut.
  [[nodiscard]] char* room(std::size_t bytes) noexcept {
    filling_ = pool_.with_room(bytes);
    if (filling_ == nullptr) [[unlikely]] {
      failed_ = true;
      return nullptr;
    }
    return filling_->bytes + filling_->used;
  }
  void advance(std::size_t bytes) noexcept {
    char* const start = filling_->bytes + filling_->used;
    filling_->used += static_cast<std::uint32_t>(bytes);
    count_bytes(bytes);
    if (count_ > first_ && segments_[count_ - 1].data + segments_[count_ - 1].bytes == start && segments_[count_ - 1].owner == filling_) {
      segments_[count_ - 1].bytes += static_cast<std::uint32_t>(bytes);
      return;
    }
    ++filling_->references;
    add(start, bytes, &ReplyPool::release_chunk, filling_);
  }
  /// Copies `text`, of any length.
  void put(std::string_view text) noexcept;
  /// Refers to `bytes` of `item`, which is held until they are acknowledged.
  void refer(Item& item, std::string_view bytes) noexcept;

  [[nodiscard]] bool full() const noexcept { return bytes_ >= full_bytes_ || count_ - first_ >= full_segments || failed_; }
  /// From here on `full` at that many bytes, at most `full_bytes`.
  void limit(std::size_t bytes) noexcept { full_bytes_ = bytes; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// There was no memory for something that had to be said.
  [[nodiscard]] bool failed() const noexcept { return failed_; }

  /// How much was ever written: a place to which the reply can be cut back, as long as what lies behind it was not taken.
  [[nodiscard]] std::uint64_t position() const noexcept { return written_; }
  void rewind(std::uint64_t position) noexcept;
  /// Bytes before `position` that were not taken yet.
  [[nodiscard]] std::size_t bytes_before(std::uint64_t position) const noexcept {
    return position > taken() ? static_cast<std::size_t>(position - taken()) : 0;
  }
  /// How much was ever taken: the position of the front.
  [[nodiscard]] std::uint64_t taken() const noexcept { return written_ - bytes_; }

  /// Hands over up to `limit` bytes from the front: `take(data, bytes, release, owner)` for each piece, which then owes one
  /// `release(owner)`.
  template <typename Take>
  void take(std::size_t limit, Take take) noexcept {
    while (limit > 0 && first_ < count_) {
      Segment& segment = segments_[first_];
      if (segment.bytes > limit) {
        share(segment);
        take(segment.data, limit, segment.release, segment.owner);
        segment.data += limit;
        segment.bytes -= static_cast<std::uint32_t>(limit);
        bytes_ -= limit;
        return;
      }
      ++first_;
      limit -= segment.bytes;
      bytes_ -= segment.bytes;
      take(segment.data, std::size_t{segment.bytes}, segment.release, segment.owner);
    }
    if (first_ == count_) reset_segments();
  }
  void clear() noexcept;
  /// Copies the parts that are little of their shared chunk, so that the reply keeps only its own memory. Without memory, they stay.
  void move_to_own_storage() noexcept;
  /// True if a piece given out by `take` refers to an item.
  [[nodiscard]] static bool is_item(Release release) noexcept { return release == &release_item; }

 private:
  struct Segment {
    const char* data;
    std::uint32_t bytes;
    Release release;
    void* owner;
  };
  /// Segments longer than this stay in their shared chunk: they are most of it.
  static constexpr std::size_t moved_bytes_max = ReplyPool::chunk_bytes / 2;
  [[nodiscard]] static bool is_moved(const Segment& segment) noexcept;
  static constexpr unsigned inline_segments = 4;
  static constexpr unsigned segments_max = full_segments * 2;  // a command adds a few more after `full`

  void count_bytes(std::size_t bytes) noexcept {
    bytes_ += bytes;
    written_ += bytes;
  }
  void add(const char* data, std::size_t bytes, Release release, void* owner) noexcept;
  bool grow() noexcept;
  static void share(Segment& segment) noexcept;
  void reset_segments() noexcept;

  ReplyPool& pool_;
  ReplyPool::Chunk* filling_ = nullptr;  // from `room` to `advance`
  std::size_t bytes_ = 0;
  std::size_t full_bytes_ = full_bytes;
  std::uint64_t written_ = 0;
  unsigned first_ = 0;
  unsigned count_ = 0;
  unsigned capacity_ = inline_segments;
  bool failed_ = false;
  Segment* segments_ = inline_;
  Segment inline_[inline_segments];
};

}  // namespace neap::memcached
