// SPDX-License-Identifier: BSL-1.0
// Bytes with an owner.
//
// Received bytes are in the card's buffers. Bytes sent by reference stay in the application's memory and MUST NOT change before their
// release. A Buffer is a move-only chain of pieces, and each piece has a function that releases it. So bytes are not copied, and no piece
// is freed while the card may still read it. A Buffer MUST NOT grow beyond 4 GiB - 1.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "kernel/machine.hpp"

namespace neap::net {

class Buffer {
 public:
  using Release = void (*)(void* owner) noexcept;

  /// One piece of a chain. This header is next to received or copied bytes. For referenced bytes, it comes from a per-core free list.
  struct Piece {
    const std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    bool pooled = false;  ///< the header goes back to the free list when the piece is released
    /// The core of a piece that is lent: its lender waits for the end of a call, and then looks whether the piece was released meanwhile.
    /// Releasing a lent piece on that core only ends the loan, which saves two indirect calls a segment. `not_lent`: it is not lent.
    std::uint16_t lent_on = not_lent;
    Release release = nullptr;  ///< called once with `owner`, on the core that holds the buffer
    void* owner = nullptr;
    Piece* next = nullptr;

    static constexpr std::uint16_t not_lent = 0xFFFF;
    /// Ends the loan. Returns true if the borrower keeps the piece. From then on, its `release` is called when it is released.
    [[nodiscard, gnu::always_inline]] bool end_loan() noexcept {
      if (lent().load(std::memory_order_relaxed) == not_lent) return false;
      stop_lending();
      return true;
    }

   private:
    friend class Buffer;
    // Another core may release the piece while the lender ends the loan.
    [[nodiscard]] std::atomic_ref<std::uint16_t> lent() noexcept { return std::atomic_ref(lent_on); }
    void stop_lending() noexcept { lent().store(not_lent, std::memory_order_relaxed); }
  };

  Buffer() = default;
  /// A buffer of one piece. `piece` MUST exist until its `release` is called.
  explicit Buffer(Piece& piece) noexcept : first_(&piece), last_(&piece), bytes_(piece.bytes), pieces_(1) { piece.next = nullptr; }
  /// A buffer of linked pieces, `bytes` together. They MUST exist until their `release` is called.
  Buffer(Piece& first, Piece& last, std::uint32_t bytes, std::uint32_t pieces) noexcept
      : first_(&first), last_(&last), bytes_(bytes), pieces_(pieces) {}
  Buffer(Buffer&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)),
        last_(std::exchange(other.last_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        pieces_(std::exchange(other.pieces_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept;
  [[gnu::always_inline]] ~Buffer() {
    if (first_ == nullptr) return;
    if (pieces_ == 1) {  // nearly always the case
      release_piece(first_);
    } else {
      release_all();
    }
  }

  /// Copies `bytes` into new memory. Returns an empty buffer if memory is short or `bytes` is longer than 4 GiB - 1.
  [[nodiscard]] static Buffer copy(std::span<const std::byte> bytes);
  /// Refers to `bytes` (up to 4 GiB - 1). Calls `release(owner)` when the bytes are no longer needed; null: never. Without memory for the
  /// header, releases the bytes at once and returns an empty buffer.
  [[nodiscard]] static Buffer reference(std::span<const std::byte> bytes, Release release, void* owner);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Returns the number of pieces. Each piece costs memory for a header and the heap's rounding, in addition to its bytes.
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  [[nodiscard]] const Piece* first() const noexcept { return first_; }
  [[nodiscard]] Piece* first() noexcept { return first_; }
  [[nodiscard]] std::span<const std::byte> front() const noexcept {
    return first_ == nullptr ? std::span<const std::byte>{} : std::span{first_->data, first_->bytes};
  }

  /// Moves the pieces of `tail` to the end of this buffer. Adjacent pieces of one block (gathered_piece.hpp) are joined.
  void append(Buffer&& tail) noexcept {
    if (first_ == nullptr) {  // nearly always the case
      first_ = std::exchange(tail.first_, nullptr);
      last_ = std::exchange(tail.last_, nullptr);
      bytes_ = std::exchange(tail.bytes_, 0);
      pieces_ = std::exchange(tail.pieces_, 0);
    } else {
      append_behind(tail);
    }
  }
  /// Moves pieces from the front to the end of `to`. Their bytes MUST be `bytes` together.
  void move_pieces(std::uint32_t bytes, Buffer& to) noexcept;
  /// Drops the first `bytes` bytes and releases the pieces that are used up. The buffer MUST hold at least that many bytes.
  void drop_front(std::size_t bytes) noexcept {
    if (bytes_ == bytes) {  // nearly always the case
      clear();
    } else {
      drop_part(bytes);
    }
  }
  /// Drops the last `bytes` bytes and releases the pieces behind the new end. The buffer MUST hold at least that many bytes. Steps through
  /// the pieces that stay.
  void drop_back(std::size_t bytes) noexcept;
  /// Copies up to `out.size()` bytes from the front without dropping them; returns their number.
  std::size_t peek(std::span<std::byte> out) const noexcept;
  /// Removes and returns the chain. The caller MUST release each piece by `release_piece`.
  [[nodiscard]] Piece* detach() noexcept {
    last_ = nullptr;
    bytes_ = 0;
    pieces_ = 0;
    return std::exchange(first_, nullptr);
  }
  [[gnu::always_inline]] static void release_piece(Piece* piece) noexcept {
    if (piece->lent().load(std::memory_order_relaxed) == machine::this_core()) return piece->stop_lending();
    release_kept(piece);
  }
  [[gnu::always_inline]] void clear() noexcept {
    if (pieces_ == 1) {  // nearly always the case
      release_piece(detach());
    } else if (first_ != nullptr) {
      release_all();
    }
  }

  /// Appends a piece. `piece` MUST exist until its `release` is called.
  void append_piece(Piece& piece) noexcept;
  /// Returns this core's spare headers to malloc (for tests that look for leaks).
  static void trim_free_list() noexcept;

 private:
  /// As `append`, for a buffer that is not empty.
  void append_behind(Buffer& tail) noexcept;
  /// As `drop_front`, for any number of bytes and pieces.
  void drop_part(std::size_t bytes) noexcept;
  /// Releases a piece that is not lent.
  static void release_kept(Piece* piece) noexcept;
  /// Returns a header to the free list.
  static void give_back(Piece* piece) noexcept;
  void release_all() noexcept;

  Piece* first_ = nullptr;
  Piece* last_ = nullptr;
  std::uint32_t bytes_ = 0, pieces_ = 0;
};

}  // namespace neap::net
