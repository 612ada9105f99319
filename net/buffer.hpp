// SPDX-License-Identifier: BSL-1.0
// Bytes with an owner.
//
// Received bytes lie in the card's buffers; sent bytes lie wherever the application keeps them, and may not change before the peer has acknowledged
// them. A Buffer is a move-only chain of pieces, each with what must be done when nobody needs it any more: so nothing is copied, and nothing is
// freed while the card may still read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace neap::net {

class Buffer {
 public:
  using Release = void (*)(void* owner) noexcept;

  /// One piece. A header of this kind is drawn from a per-core free list.
  struct Piece {
    const std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    Release release = nullptr;  ///< called once with `owner`, on the core that holds the buffer
    void* owner = nullptr;
    Piece* next = nullptr;
  };

  Buffer() = default;
  Buffer(Buffer&& other) noexcept : first_(std::exchange(other.first_, nullptr)), last_(std::exchange(other.last_, nullptr)),
                                    bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { clear(); }

  /// Copies `bytes` into memory of its own. Empty buffer if there is no memory (`bytes()` tells).
  [[nodiscard]] static Buffer copy(std::span<const std::byte> bytes);
  /// Refers to `bytes`; `release(owner)` is called when they are no longer needed (null: they live for ever).
  [[nodiscard]] static Buffer reference(std::span<const std::byte> bytes, Release release, void* owner);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  [[nodiscard]] const Piece* first() const noexcept { return first_; }
  [[nodiscard]] std::span<const std::byte> front() const noexcept {
    return first_ == nullptr ? std::span<const std::byte>{} : std::span{first_->data, first_->bytes};
  }

  void append(Buffer tail) noexcept;
  /// Drops the first `bytes`, releasing the pieces that are used up.
  void drop_front(std::size_t bytes) noexcept;
  /// Copies up to `out.size()` bytes from the front without dropping them; returns how many.
  std::size_t peek(std::span<std::byte> out) const noexcept;
  /// Takes the chain out; the caller releases its pieces by `release_piece`.
  [[nodiscard]] Piece* detach() noexcept;
  static void release_piece(Piece* piece) noexcept;
  void clear() noexcept;

 private:
  Piece* first_ = nullptr;
  Piece* last_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace neap::net
