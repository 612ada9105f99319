// SPDX-License-Identifier: BSL-1.0
// Bytes with an owner.
//
// Received bytes lie in the card's buffers; sent bytes lie wherever the application keeps them, and may not change before the peer has
// acknowledged them. A Buffer is a move-only chain of pieces, each with what must be done when nobody needs it any more: so nothing is
// copied, and nothing is freed while the card may still read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace neap::net {

class Buffer {
 public:
  using Release = void (*)(void* owner) noexcept;

  /// One piece. Its header lies beside the bytes (received, copied) or comes from a per-core free list (referenced).
  struct Piece {
    const std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    bool pooled = false;        ///< the header goes back to the free list when the piece is released
    Release release = nullptr;  ///< called once with `owner`, on the core that holds the buffer
    void* owner = nullptr;
    Piece* next = nullptr;
  };

  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)),
        last_(std::exchange(other.last_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        pieces_(std::exchange(other.pieces_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (first_ != nullptr) release_all();
  }

  /// Copies `bytes` into memory of its own. Empty buffer if there is no memory (`bytes()` tells), or for more than 4 GiB - 1.
  [[nodiscard]] static Buffer copy(std::span<const std::byte> bytes);
  /// Refers to `bytes` (up to 4 GiB - 1); `release(owner)` is called when they are no longer needed (null: they live for ever). If there is
  /// no memory for the header, that is at once, and the buffer is empty.
  [[nodiscard]] static Buffer reference(std::span<const std::byte> bytes, Release release, void* owner);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Pieces; each costs a header and the rounding of the heap besides its bytes.
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  [[nodiscard]] const Piece* first() const noexcept { return first_; }
  [[nodiscard]] Piece* first() noexcept { return first_; }
  [[nodiscard]] std::span<const std::byte> front() const noexcept {
    return first_ == nullptr ? std::span<const std::byte>{} : std::span{first_->data, first_->bytes};
  }

  /// A tail that continues the last piece in the same block of gathered bytes (gathered_piece.hpp) becomes one piece with it.
  void append(Buffer&& tail) noexcept {
    if (first_ == nullptr) {  // nearly always
      first_ = std::exchange(tail.first_, nullptr);
      last_ = std::exchange(tail.last_, nullptr);
      bytes_ = std::exchange(tail.bytes_, 0);
      pieces_ = std::exchange(tail.pieces_, 0);
    } else {
      append_behind(tail);
    }
  }
  /// Drops the first `bytes`, releasing the pieces that are used up.
  void drop_front(std::size_t bytes) noexcept;
  /// Copies up to `out.size()` bytes from the front without dropping them; returns how many.
  std::size_t peek(std::span<std::byte> out) const noexcept;
  /// Takes the chain out; the caller releases its pieces by `release_piece`.
  [[nodiscard]] Piece* detach() noexcept;
  static void release_piece(Piece* piece) noexcept;
  void clear() noexcept {
    if (first_ != nullptr) release_all();
  }

  /// Appends a piece whose header is the caller's until `release` is called.
  void append_piece(Piece& piece) noexcept;
  /// Gives this core's spare headers back to malloc (tests, which look for leaks).
  static void trim_free_list() noexcept;

 private:
  /// Takes over the pieces of `tail`; this buffer is not empty.
  void append_behind(Buffer& tail) noexcept;
  void release_all() noexcept;

  Piece* first_ = nullptr;
  Piece* last_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t pieces_ = 0;
};

}  // namespace neap::net
