// SPDX-License-Identifier: BSL-1.0
// The reply to one client: parsers write into it, the session sends from it.
//
// A reply consists of a few short texts and sometimes a large value. Texts and small values are copied one after the other into chunks that
// the core's connections share (copying 200 bytes is cheaper than counting references to them). Large values are sent from where they are
// stored. The reply releases a chunk or an item when the peer has acknowledged its bytes.
//
// A text is written behind the text before it, without a segment of its own: the reply is "open" at the end of the core's current chunk. It
// is closed when another reply needs room in this chunk, or when its segments are needed. A short reply is written into the frame that is
// sent (`open_in`), or copied into its frame, and never closed.
//
// The size is bounded: when the reply is `full()`, the parser stops before the next command (or the next key of a get) until the reply has
// room. A reply that cannot be sent moves into owned chunks (`move_to_own_storage`), so that a few bytes of it do not keep a shared chunk
// in use. Chunks in use are charged to the core's account of reply memory (reply_memory.hpp). Spare chunks have their own count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "apps/memcached/item.hpp"
#include "apps/memcached/reply_memory.hpp"
#include "kernel/counter.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached {

class Reply;

/// The chunks of one core. Only that core MAY use the pool. The pool MUST outlive every reply made with it.
class ReplyPool {
 public:
  static constexpr std::size_t chunk_bytes = 4096 - 32;
  static constexpr unsigned free_chunks_max = 64;  // further free chunks are returned to the allocator

  /// A chunk is shared by many replies, or owned by one reply. An owned chunk has exactly the requested size.
  struct Chunk {
    ReplyPool* pool;
    Chunk* next;
    std::uint32_t references, used;
    std::uint32_t own_bytes;  ///< 0: the chunk is shared
    char bytes[chunk_bytes];
  };

  ReplyPool& operator=(ReplyPool&&) = delete;
  ~ReplyPool();

  /// Returns a chunk with room for `bytes` behind `used`; null if memory or `chunk_bytes` do not suffice. The pool keeps a reference.
  /// Closes the reply that is open, and opens `reply`.
  [[nodiscard]] Chunk* with_room(std::size_t bytes, Reply& reply) noexcept;
  /// Returns a chunk of `bytes` for one reply alone, with one reference; null without memory.
  [[nodiscard]] Chunk* own_chunk(std::size_t bytes) noexcept;
  /// Releases one reference. The signature is that of a buffer's release function.
  static void release_chunk(void* chunk) noexcept;
  [[nodiscard]] ReplyAccount& account() noexcept { return account_; }
  /// Returns the memory of free chunks. Any core MAY call it.
  [[nodiscard]] std::size_t spare_bytes() const noexcept { return free_count_.value() * sizeof(Chunk); }
  [[nodiscard]] unsigned chunks_out() const noexcept { return chunks_out_; }  ///< shared chunks in use, including the current one

 private:
  /// The bytes that the allocator uses for a chunk of `bytes`. Rounding adds at most a quarter (kernel/memory/heap.hpp).
  static constexpr std::size_t footprint(std::size_t bytes) noexcept { return (offsetof(Chunk, bytes) + bytes) * 5 / 4; }
  Chunk* new_chunk(std::size_t bytes) noexcept;
  friend class Reply;
  ReplyAccount account_;
  Chunk* current_ = nullptr;
  Reply* open_ = nullptr;  // the reply with text behind `used` of the current chunk
  Chunk* free_ = nullptr;
  Counter free_count_;
  unsigned chunks_out_ = 0;
};

class Reply {
 public:
  static constexpr std::size_t copy_bytes_max = 1024;   ///< values up to this size are copied, and longer ones that fit the frame
  static constexpr std::size_t full_bytes = 64 * 1024;  ///< a reply may exceed this size by the size of its last value
  static constexpr unsigned full_segments = 256;
  using Release = void (*)(void* owner) noexcept;

  explicit Reply(ReplyPool& pool) noexcept : pool_(pool) {}
  Reply& operator=(Reply&&) = delete;
  ~Reply();

  /// Returns contiguous room for `bytes`. The caller MUST fill the room, and then call `advance`. Returns null if there is no memory, or if
  /// `bytes` exceeds `ReplyPool::chunk_bytes`. Then `failed()` is true, and the caller MUST abort its connection.
  [[nodiscard]] char* room(std::size_t bytes) noexcept {
    if (static_cast<std::size_t>(limit_ - cursor_) >= bytes) [[likely]]
      return cursor_;
    return make_room(bytes);
  }
  [[gnu::always_inline]] void advance(std::size_t bytes) noexcept {
    require(bytes <= static_cast<std::size_t>(limit_ - cursor_), "memcached: a reply exceeds its chunk", bytes);
    cursor_ += bytes;
  }
  /// Returns where the next text begins. The caller MAY write fewer bytes than `quick_end() - cursor()` there, without a call for each
  /// text, and then call `advance_to`. The reply is not full after these bytes. Null if the reply is not open.
  [[nodiscard]] char* cursor() const noexcept { return cursor_; }
  /// The reply MUST NOT be full.
  [[nodiscard]] const char* quick_end() const noexcept {
    return cursor_ + std::min(static_cast<std::size_t>(limit_ - cursor_), full_bytes_ - bytes());
  }
  /// Counts the bytes between `cursor()` and `end` as written.
  [[gnu::always_inline]] void advance_to(const char* end) noexcept { advance(static_cast<std::size_t>(end - cursor_)); }
  /// Appends a copy of `text`, of any length.
  [[gnu::always_inline]] void put(std::string_view text) noexcept {
    if (text.size() - 1 >= static_cast<std::size_t>(limit_ - cursor_)) [[unlikely]]  // also if it is empty
      return put_in_pieces(text);
    std::memcpy(cursor_, text.data(), text.size());
    cursor_ += text.size();
  }
  /// True if a value of `bytes` is copied: it is short, or the frame (`open_in`) has room for it and for `others` bytes around it.
  [[nodiscard]] bool copies(std::size_t bytes, std::size_t others) const noexcept {
    return bytes <= copy_bytes_max || (in_frame_ && static_cast<std::size_t>(limit_ - cursor_) >= bytes + others);
  }
  /// Appends references to the first `bytes` of the value and line end of `item`. The reply holds the item until they are acknowledged.
  void refer(Item& item, std::size_t bytes) noexcept;

  [[nodiscard]] bool full() const noexcept { return bytes() >= full_bytes_ || count_ - first_ >= full_segments; }
  /// Sets the size at which the reply is `full`. The size MUST NOT exceed `full_bytes`.
  void limit(std::size_t bytes) noexcept { full_bytes_ = failed_ ? 0 : bytes; }
  [[nodiscard]] bool empty() const noexcept { return bytes() == 0; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_ + open_bytes(); }
  /// True if there was no memory for a part of the reply.
  [[nodiscard]] bool failed() const noexcept { return failed_; }

  /// Returns the number of bytes written so far. `rewind` to this position removes later bytes, which MUST NOT have been taken.
  [[nodiscard]] std::uint64_t position() const noexcept { return written_ + open_bytes(); }
  void rewind(std::uint64_t position) noexcept;
  /// Returns the number of bytes before `position` that are not taken yet.
  [[nodiscard]] std::size_t bytes_before(std::uint64_t position) const noexcept {
    return position > taken() ? static_cast<std::size_t>(position - taken()) : 0;
  }
  /// Returns the number of bytes that were ever taken, which is the position of the first byte in the reply.
  [[nodiscard]] std::uint64_t taken() const noexcept { return written_ - bytes_; }

  /// Removes up to `limit` bytes from the front and calls `take(data, bytes, release, owner)` for each piece. `take` MUST call
  /// `release(owner)` once, or have it called later.
  template <typename Take>
  void take(std::size_t limit, Take take) noexcept {
    add_open_text();
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
  /// Writes the next texts to `room`, which MUST hold until `close_frame` or `take_frame` is called. If the reply does not fit, its text is
  /// moved into a chunk. The reply MUST be empty.
  void open_in(std::span<std::byte> room) noexcept {
    require(bytes() == 0 && !in_frame_, "memcached: only an empty reply is written into a frame");
    if (limit_ != nullptr) [[unlikely]]
      close();
    text_ = cursor_ = reinterpret_cast<char*>(room.data());
    limit_ = text_ + room.size();
    in_frame_ = true;
  }
  /// True if the whole reply is in the room of `open_in`.
  [[nodiscard]] bool in_frame() const noexcept { return in_frame_; }
  /// Removes the text from the room of `open_in`, and counts it as taken.
  void take_frame() noexcept {
    written_ += open_bytes();
    text_ = cursor_ = limit_ = nullptr;
    in_frame_ = false;
  }
  /// Moves the text from the room of `open_in`, if it is there, into a chunk.
  void close_frame() noexcept {
    if (in_frame_) leave_frame();
  }
  /// Returns the whole reply if it is an open text, otherwise an empty view.
  [[nodiscard]] std::string_view open_text() const noexcept {
    return bytes_ == 0 ? std::string_view{text_, open_bytes()} : std::string_view{};
  }
  /// Removes the text that `open_text` has returned, and counts it as taken. The next text is written to the same place.
  void take_open_text() noexcept {
    written_ += open_bytes();
    cursor_ = text_;
  }
  /// Counts `bytes` as written and taken. The reply MUST be empty.
  void skip(std::size_t bytes) noexcept { written_ += bytes; }
  /// Copies each segment that is a small part of its shared chunk, so that the reply does not keep that chunk in use. Without memory the
  /// segments stay in their chunks.
  void move_to_own_storage() noexcept;
  /// True if a piece that `take` passed with this `release` refers to an item.
  [[nodiscard]] static bool is_item(Release release) noexcept { return release == &release_item; }

 private:
  struct Segment {
    const char* data;
    std::uint32_t bytes;
    Release release;
    void* owner;
  };
  /// Longer segments stay in their shared chunk, because they fill most of it.
  static constexpr std::size_t moved_bytes_max = ReplyPool::chunk_bytes / 2;
  [[nodiscard]] static bool is_moved(const Segment& segment) noexcept;
  static constexpr unsigned inline_segments = 4;
  static constexpr unsigned segments_max = full_segments * 2;  // the command that fills the reply may add a value in pieces
  static_assert(segments_max - full_segments > Pieces::count_max + 16);

  /// A reply that failed is full whatever its size, and is not open.
  void fail() noexcept;
  void count_bytes(std::size_t bytes) noexcept {
    bytes_ += bytes;
    written_ += bytes;
  }
  [[nodiscard]] std::size_t open_bytes() const noexcept { return static_cast<std::size_t>(cursor_ - text_); }
  void put_in_pieces(std::string_view text) noexcept;
  [[nodiscard]] char* make_room(std::size_t bytes) noexcept;
  /// Makes the open text a segment.
  void add_open_text() noexcept {
    if (cursor_ != text_) add_text();
  }
  void add_text() noexcept;
  void leave_frame() noexcept;
  friend class ReplyPool;
  /// Lets another reply use the chunk.
  void close() noexcept;
  void add(const char* data, std::size_t bytes, Release release, void* owner) noexcept;
  bool grow() noexcept;
  static void share(Segment& segment) noexcept;
  void reset_segments() noexcept {
    first_ = count_ = 0;
    if (segments_ != inline_) [[unlikely]]
      free_segments();
  }
  void free_segments() noexcept;

  ReplyPool& pool_;
  // The open text is in the pool's current chunk, or in a frame (`in_frame_`), which ends at `limit_`. All three are null if the reply is
  // not open.
  char* text_ = nullptr;
  char* cursor_ = nullptr;
  char* limit_ = nullptr;
  std::size_t bytes_ = 0, full_bytes_ = full_bytes;  // `bytes_` and `written_` do not include the open text
  std::uint64_t written_ = 0;
  unsigned first_ = 0, count_ = 0, capacity_ = inline_segments;
  bool failed_ = false, in_frame_ = false;
  Segment* segments_ = inline_;
  Segment inline_[inline_segments];
};

}  // namespace neap::memcached
