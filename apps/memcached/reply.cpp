// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/reply.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace neap::memcached {

ReplyPool::~ReplyPool() {
  if (current_ != nullptr) release_chunk(current_);
  require(chunks_out_ == 0, "memcached: a reply pool outlives its chunks", chunks_out_);
  while (free_ != nullptr) {
    Chunk* const next = free_->next;
    std::free(free_);
    free_ = next;
  }
}

ReplyPool::Chunk* ReplyPool::with_room(std::size_t bytes, Reply& reply) noexcept {
  if (open_ != nullptr) open_->close();
  Chunk* const chunk = current_ != nullptr && chunk_bytes - current_->used >= bytes ? current_ : new_chunk(bytes);
  if (chunk != nullptr) open_ = &reply;
  return chunk;
}

/// Makes another chunk the current chunk, and releases the pool's reference to the old one.
ReplyPool::Chunk* ReplyPool::new_chunk(std::size_t bytes) noexcept {
  if (bytes > chunk_bytes) return nullptr;                 // no chunk has that much room
  if (current_ != nullptr && current_->references == 1) {  // no reply refers to the chunk, so it is used again
    current_->used = 0;
    return current_;
  }
  Chunk* chunk = free_;
  if (chunk != nullptr) {
    require(free_count_.value() > 0, "memcached: a spare chunk that is not counted");
    free_ = chunk->next;
    free_count_.subtract(1);
  } else {
    chunk = static_cast<Chunk*>(std::malloc(sizeof(Chunk)));
    if (chunk == nullptr) return nullptr;
  }
  chunk->pool = this;
  chunk->references = 1;
  chunk->used = 0;
  chunk->own_bytes = 0;
  ++chunks_out_;
  account_.charge(sizeof(Chunk));
  if (current_ != nullptr) release_chunk(current_);
  current_ = chunk;
  return chunk;
}

ReplyPool::Chunk* ReplyPool::own_chunk(std::size_t bytes) noexcept {
  require(bytes > 0 && bytes <= std::numeric_limits<std::uint32_t>::max(), "memcached: size of an owned chunk", bytes);
  void* const memory = std::malloc(offsetof(Chunk, bytes) + bytes);
  if (memory == nullptr) return nullptr;
  auto* const chunk = static_cast<Chunk*>(memory);
  chunk->pool = this;
  chunk->next = nullptr;
  chunk->references = 1;
  chunk->used = chunk->own_bytes = static_cast<std::uint32_t>(bytes);
  account_.charge(footprint(bytes));
  return chunk;
}

void ReplyPool::release_chunk(void* pointer) noexcept {
  auto* const chunk = static_cast<Chunk*>(pointer);
  require(chunk->references > 0, "memcached: a chunk is released once for each reference");
  if (--chunk->references > 0) return;
  ReplyPool& pool = *chunk->pool;
  if (chunk->own_bytes > 0) {
    pool.account_.discharge(footprint(chunk->own_bytes));
    std::free(chunk);
    return;
  }
  require(pool.chunks_out_ > 0, "memcached: a chunk that its pool has not given out");
  --pool.chunks_out_;
  pool.account_.discharge(sizeof(Chunk));
  if (pool.free_count_.value() >= free_chunks_max) {
    std::free(chunk);
    return;
  }
  chunk->next = pool.free_;
  pool.free_ = chunk;
  pool.free_count_.add();
}

Reply::~Reply() {
  clear();
  require(!in_frame_, "memcached: a reply ends outside of frames");
  if (limit_ != nullptr) close();
}

void Reply::fail() noexcept {
  failed_ = true;
  full_bytes_ = 0;
  if (limit_ != nullptr) close();
}

/// The frame is not sent.
void Reply::leave_frame() noexcept {
  const std::string_view text{text_, open_bytes()};
  text_ = cursor_ = limit_ = nullptr;
  in_frame_ = false;
  put_in_pieces(text);
}

char* Reply::make_room(std::size_t bytes) noexcept {
  if (in_frame_) {
    leave_frame();
    return room(bytes);
  }
  ReplyPool::Chunk* const chunk = failed_ ? nullptr : pool_.with_room(bytes, *this);
  if (chunk == nullptr) {
    fail();
    return nullptr;
  }
  text_ = cursor_ = chunk->bytes + chunk->used;
  limit_ = chunk->bytes + ReplyPool::chunk_bytes;
  return cursor_;
}

void Reply::add_text() noexcept {
  close_frame();
  if (cursor_ == text_) return;  // there was no memory for a text of a frame
  ReplyPool::Chunk* const chunk = pool_.current_;
  require(pool_.open_ == this && text_ == chunk->bytes + chunk->used && cursor_ <= limit_, "memcached: an open text ends its chunk");
  char* const start = text_;
  const std::size_t bytes = open_bytes();
  chunk->used += static_cast<std::uint32_t>(bytes);
  text_ = cursor_;
  count_bytes(bytes);
  if (count_ > first_) {
    Segment& last = segments_[count_ - 1];
    if (last.data + last.bytes == start && last.owner == chunk) {
      last.bytes += static_cast<std::uint32_t>(bytes);
      return;
    }
  }
  ++chunk->references;
  add(start, bytes, &ReplyPool::release_chunk, chunk);
}

void Reply::close() noexcept {
  add_open_text();
  require(pool_.open_ == this, "memcached: only the open reply is closed");
  pool_.open_ = nullptr;
  text_ = cursor_ = limit_ = nullptr;
}

void Reply::put_in_pieces(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t piece = std::min(text.size(), copy_bytes_max);
    char* const to = room(piece);
    if (to == nullptr) return;
    std::memcpy(to, text.data(), piece);
    advance(piece);
    text.remove_prefix(piece);
  }
}

void Reply::refer(Item& item, std::size_t bytes) noexcept {
  require(bytes <= item.value_line_bytes(), "memcached: a reply refers to more than an item has", bytes);
  close_frame();
  add_open_text();
  for (std::size_t done = 0; done < bytes && !failed_;) {
    const std::string_view part = item.part(done).substr(0, bytes - done);
    if (done >= item.value_bytes) return put(part);  // the line end behind pieces, which needs no segment of its own
    item.hold();
    count_bytes(part.size());
    add(part.data(), part.size(), &release_item, &item);
    done += part.size();
  }
}

/// Appends a segment, which takes over one of the caller's references to `owner`. The caller MUST have counted `bytes`.
void Reply::add(const char* data, std::size_t bytes, Release release, void* owner) noexcept {
  if (count_ == capacity_ && !grow()) {
    fail();
    bytes_ -= bytes;
    written_ -= bytes;
    release(owner);
    return;
  }
  require(count_ < capacity_, "memcached: more segments than room for them", count_);
  segments_[count_++] = {data, static_cast<std::uint32_t>(bytes), release, owner};
}

bool Reply::grow() noexcept {
  if (first_ > 0) {  // the array elements of taken segments are free
    std::copy(segments_ + first_, segments_ + count_, segments_);
    count_ -= first_;
    first_ = 0;
    return true;
  }
  if (capacity_ == segments_max) return false;
  const unsigned capacity = std::min(capacity_ * 8, segments_max);
  auto* const larger = static_cast<Segment*>(std::malloc(capacity * sizeof(Segment)));
  if (larger == nullptr) return false;
  std::copy(segments_, segments_ + count_, larger);
  if (segments_ != inline_) std::free(segments_);
  pool_.account().charge((capacity - (segments_ != inline_ ? capacity_ : 0)) * sizeof(Segment));
  segments_ = larger;
  capacity_ = capacity;
  return true;
}

bool Reply::is_moved(const Segment& segment) noexcept {
  return segment.release == &ReplyPool::release_chunk && segment.bytes <= moved_bytes_max &&
         static_cast<const ReplyPool::Chunk*>(segment.owner)->own_bytes == 0;
}

/// Copies each run of consecutive segments for which `is_moved` is true into one segment, in one owned chunk.
void Reply::move_to_own_storage() noexcept {
  add_open_text();
  unsigned kept = first_;
  for (unsigned at = first_; at < count_;) {
    unsigned end = at;
    std::size_t bytes = 0;
    while (end < count_ && is_moved(segments_[end])) bytes += segments_[end++].bytes;
    ReplyPool::Chunk* const chunk = bytes > 0 ? pool_.own_chunk(bytes) : nullptr;
    if (chunk == nullptr) {
      end = std::max(end, at + 1);
      while (at < end) segments_[kept++] = segments_[at++];
      continue;
    }
    for (char* to = chunk->bytes; at < end; ++at) {
      const Segment& segment = segments_[at];
      require(segment.bytes <= static_cast<std::size_t>(chunk->bytes + bytes - to), "memcached: a segment exceeds its owned chunk");
      std::memcpy(to, segment.data, segment.bytes);
      to += segment.bytes;
      segment.release(segment.owner);
    }
    segments_[kept++] = {chunk->bytes, static_cast<std::uint32_t>(bytes), &ReplyPool::release_chunk, chunk};
  }
  count_ = kept;
}

void Reply::share(Segment& segment) noexcept {
  if (segment.release == &release_item) {
    static_cast<Item*>(segment.owner)->hold();
  } else {
    auto* const chunk = static_cast<ReplyPool::Chunk*>(segment.owner);
    require(chunk->references > 0, "memcached: a segment's chunk has a reference");
    ++chunk->references;
  }
}

void Reply::free_segments() noexcept {
  pool_.account().discharge(capacity_ * sizeof(Segment));
  std::free(segments_);
  segments_ = inline_;
  capacity_ = inline_segments;
}

void Reply::rewind(std::uint64_t position) noexcept {
  require(position >= taken(), "memcached: bytes that were taken cannot be withdrawn", position);
  if (position >= written_) {
    require(position <= this->position(), "memcached: only written bytes are withdrawn", position);
    cursor_ = text_ + (position - written_);
    return;
  }
  cursor_ = text_;
  while (written_ > position && count_ > first_) {
    Segment& last = segments_[count_ - 1];
    const std::uint64_t excess = written_ - position;
    if (excess < last.bytes) {
      last.bytes -= static_cast<std::uint32_t>(excess);
      bytes_ -= excess;
      written_ -= excess;
      return;
    }
    bytes_ -= last.bytes;
    written_ -= last.bytes;
    --count_;
    last.release(last.owner);
  }
}

void Reply::clear() noexcept {
  cursor_ = text_;
  for (unsigned at = first_; at < count_; ++at) segments_[at].release(segments_[at].owner);
  bytes_ = 0;
  reset_segments();
}

}  // namespace neap::memcached
