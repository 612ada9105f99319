// SPDX-License-Identifier: BSL-1.0
#include "net/buffer.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "kernel/panic.hpp"
#include "net/gathered_piece.hpp"

namespace neap::net {

namespace {

/// Limit of a core's free list of headers. Further headers are returned to malloc, so that a burst does not occupy memory for ever.
constexpr unsigned spare_pieces_max = 1024;
constexpr std::uint32_t bytes_max = std::numeric_limits<std::uint32_t>::max();

struct FreeList {
  Buffer::Piece* first = nullptr;
  unsigned count = 0;
};
constinit thread_local FreeList free_list;

Buffer::Piece* take_header() noexcept {
  Buffer::Piece* piece = free_list.first;
  if (piece != nullptr) {
    free_list.first = piece->next;
    --free_list.count;
  } else {
    piece = new (std::nothrow) Buffer::Piece;
    if (piece == nullptr) return nullptr;
  }
  piece->pooled = true;
  return piece;
}

}  // namespace

// `release` may free `piece`, so `piece` is not accessed after the call.
void Buffer::release_kept(Piece* piece) noexcept {
  const Release release = piece->release;
  void* const owner = piece->owner;
  if (piece->pooled) give_back(piece);
  if (release != nullptr) release(owner);
}

void Buffer::give_back(Piece* piece) noexcept {
  if (free_list.count >= spare_pieces_max) [[unlikely]] {
    delete piece;
    return;
  }
  piece->next = free_list.first;
  free_list.first = piece;
  ++free_list.count;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    clear();
    first_ = std::exchange(other.first_, nullptr);
    last_ = std::exchange(other.last_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    pieces_ = std::exchange(other.pieces_, 0);
  }
  return *this;
}

Buffer Buffer::copy(std::span<const std::byte> bytes) {
  Buffer buffer;
  if (bytes.empty() || bytes.size() > bytes_max) return buffer;
  void* const block = std::malloc(sizeof(Piece) + bytes.size());
  if (block == nullptr) return buffer;
  auto* const piece = new (block) Piece;
  auto* const data = static_cast<std::byte*>(block) + sizeof(Piece);
  std::memcpy(data, bytes.data(), bytes.size());
  piece->data = data;
  piece->bytes = static_cast<std::uint32_t>(bytes.size());
  piece->release = [](void* owner) noexcept { std::free(owner); };
  piece->owner = block;
  buffer.append_piece(*piece);
  return buffer;
}

Buffer Buffer::reference(std::span<const std::byte> bytes, Release release, void* owner) {
  Buffer buffer;
  Piece* const piece = bytes.empty() || bytes.size() > bytes_max ? nullptr : take_header();
  if (piece == nullptr) {
    if (release != nullptr) release(owner);
    return buffer;
  }
  piece->data = bytes.data();
  piece->bytes = static_cast<std::uint32_t>(bytes.size());
  piece->release = release;
  piece->owner = owner;
  return Buffer(*piece);
}

void Buffer::append_piece(Piece& piece) noexcept {
  require(piece.bytes <= bytes_max - bytes_, "a buffer holds less than 4 GiB", bytes_);
  piece.next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = &piece;
  last_ = &piece;
  bytes_ += piece.bytes;
  ++pieces_;
}

void Buffer::append_behind(Buffer& tail) noexcept {
  if (tail.first_ == nullptr) return;
  require(tail.bytes_ <= bytes_max - bytes_, "a buffer holds less than 4 GiB", bytes_);
  if (GatheredPiece::continues(*last_, *tail.first_)) {
    Piece& joined = *std::exchange(tail.first_, tail.first_->next);
    bytes_ += joined.bytes;
    tail.bytes_ -= joined.bytes;
    --tail.pieces_;
    GatheredPiece::join(*last_, joined);
    if (tail.first_ == nullptr) {
      tail.last_ = nullptr;
      return;
    }
  }
  last_->next = tail.first_;
  last_ = tail.last_;
  bytes_ += tail.bytes_;
  pieces_ += tail.pieces_;
  tail.first_ = nullptr;
  tail.last_ = nullptr;
  tail.bytes_ = 0;
  tail.pieces_ = 0;
}

void Buffer::move_pieces(std::uint32_t bytes, Buffer& to) noexcept {
  while (bytes > 0) {
    require(first_ != nullptr && first_->bytes <= bytes, "whole pieces are moved", bytes);
    Piece& piece = *std::exchange(first_, first_->next);
    if (first_ == nullptr) last_ = nullptr;
    bytes -= piece.bytes;
    bytes_ -= piece.bytes;
    --pieces_;
    to.append_piece(piece);
  }
}

void Buffer::drop_part(std::size_t bytes) noexcept {
  require(bytes <= bytes_, "no more bytes are dropped than a buffer holds", bytes);
  bytes_ -= static_cast<std::uint32_t>(bytes);
  while (first_ != nullptr && bytes >= first_->bytes) {
    Piece* const used_up = first_;
    bytes -= used_up->bytes;
    first_ = used_up->next;
    if (first_ == nullptr) last_ = nullptr;
    --pieces_;
    release_piece(used_up);
  }
  if (bytes > 0) {
    first_->data += bytes;
    first_->bytes -= static_cast<std::uint32_t>(bytes);
  }
}

void Buffer::drop_back(std::size_t bytes) noexcept {
  require(bytes <= bytes_, "no more bytes are dropped than a buffer holds", bytes);
  if (bytes == 0) return;
  if (bytes == bytes_) return clear();
  bytes_ -= static_cast<std::uint32_t>(bytes);
  Piece* last = first_;
  std::uint32_t kept_bytes = last->bytes, kept_pieces = 1;
  while (kept_bytes < bytes_) {
    last = last->next;
    kept_bytes += last->bytes;
    ++kept_pieces;
  }
  last->bytes -= kept_bytes - bytes_;
  Piece* piece = std::exchange(last->next, nullptr);
  last_ = last;
  pieces_ = kept_pieces;
  while (piece != nullptr) release_piece(std::exchange(piece, piece->next));
}

std::size_t Buffer::peek(std::span<std::byte> out) const noexcept {
  std::size_t done = 0;
  for (const Piece* piece = first_; piece != nullptr && done < out.size(); piece = piece->next) {
    const std::size_t bytes = std::min<std::size_t>(piece->bytes, out.size() - done);
    std::memcpy(out.data() + done, piece->data, bytes);
    done += bytes;
  }
  return done;
}

void Buffer::release_all() noexcept {
  Piece* piece = detach();
  while (piece != nullptr) {
    Piece* const next = piece->next;
    release_piece(piece);
    piece = next;
  }
}

void Buffer::trim_free_list() noexcept {
  while (free_list.first != nullptr) {
    Piece* const piece = free_list.first;
    free_list.first = piece->next;
    delete piece;
  }
  free_list.count = 0;
}

}  // namespace neap::net
