// SPDX-License-Identifier: BSL-1.0
#include "net/buffer.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace neap::net {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string text_of(const Buffer& buffer) {
  std::string text(buffer.bytes(), ' ');
  EXPECT_EQ(buffer.peek(std::as_writable_bytes(std::span(text))), buffer.bytes());
  return text;
}

struct Owner {
  std::vector<int>* released;
  int number;
  static void release(void* owner) noexcept {
    auto* const self = static_cast<Owner*>(owner);
    self->released->push_back(self->number);
  }
};

TEST(Buffer, PiecesAreReleasedOnceInOrderAsTheyAreUsedUp) {
  std::vector<int> released;
  Owner one{&released, 1}, two{&released, 2}, three{&released, 3};
  Buffer buffer = Buffer::reference(bytes_of("abc"), &Owner::release, &one);
  buffer.append(Buffer::reference(bytes_of("defg"), &Owner::release, &two));
  buffer.append(Buffer::reference(bytes_of("hi"), &Owner::release, &three));
  EXPECT_EQ(text_of(buffer), "abcdefghi");
  buffer.drop_front(2);
  EXPECT_TRUE(released.empty());
  buffer.drop_front(1);
  EXPECT_EQ(released, (std::vector{1}));
  buffer.drop_front(1);
  EXPECT_EQ(text_of(buffer), "efghi");
  EXPECT_EQ(buffer.front().size(), 3U);
  Buffer moved = std::move(buffer);
  EXPECT_TRUE(buffer.empty());  // NOLINT: a moved-from buffer is empty
  moved.drop_front(4);
  EXPECT_EQ(released, (std::vector{1, 2}));
  moved.clear();
  EXPECT_EQ(released, (std::vector{1, 2, 3}));
  Buffer::trim_free_list();
}

TEST(Buffer, BytesAreDroppedAtTheEndWithTheirPieces) {
  for (std::size_t dropped = 0; dropped <= 9; ++dropped) {
    std::vector<int> released;
    Owner one{&released, 1}, two{&released, 2}, three{&released, 3};
    Buffer buffer = Buffer::reference(bytes_of("abc"), &Owner::release, &one);
    buffer.append(Buffer::reference(bytes_of("defg"), &Owner::release, &two));
    buffer.append(Buffer::reference(bytes_of("hi"), &Owner::release, &three));
    buffer.drop_back(dropped);
    EXPECT_EQ(text_of(buffer), std::string_view("abcdefghi").substr(0, 9 - dropped));
    EXPECT_EQ(buffer.pieces(), 3 - released.size());
    EXPECT_EQ(released, dropped == 9   ? (std::vector{1, 2, 3})
                        : dropped >= 6 ? (std::vector{2, 3})
                        : dropped >= 2 ? (std::vector{3})
                                       : std::vector<int>{});
    buffer.append(Buffer::copy(bytes_of("xy")));
    EXPECT_EQ(text_of(buffer), std::string(std::string_view("abcdefghi").substr(0, 9 - dropped)) + "xy");
  }
  Buffer::trim_free_list();
}

TEST(Buffer, CopyIsItsOwnAndPartialPeekCrossesPieces) {
  std::string text = "hello";
  Buffer buffer = Buffer::copy(bytes_of(text));
  text = "xxxxx";
  buffer.append(Buffer::copy(bytes_of(" world")));
  EXPECT_EQ(text_of(buffer), "hello world");
  std::string part(7, ' ');
  EXPECT_EQ(buffer.peek(std::as_writable_bytes(std::span(part))), 7U);
  EXPECT_EQ(part, "hello w");
  buffer = Buffer::copy(bytes_of("new"));  // frees the old pieces
  EXPECT_EQ(text_of(buffer), "new");
  EXPECT_EQ(Buffer::copy({}).bytes(), 0U);
}

TEST(Buffer, AReferenceToNothingIsReleasedAtOnce) {
  std::vector<int> released;
  Owner one{&released, 1};
  const Buffer buffer = Buffer::reference({}, &Owner::release, &one);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(released, (std::vector{1}));
}

TEST(Buffer, DetachedPiecesAreReleasedByTheCaller) {
  std::vector<int> released;
  Owner one{&released, 1}, two{&released, 2};
  Buffer buffer = Buffer::reference(bytes_of("a"), &Owner::release, &one);
  buffer.append(Buffer::reference(bytes_of("b"), &Owner::release, &two));
  Buffer::Piece* piece = buffer.detach();
  EXPECT_TRUE(buffer.empty());
  EXPECT_TRUE(released.empty());
  while (piece != nullptr) Buffer::release_piece(std::exchange(piece, piece->next));
  EXPECT_EQ(released, (std::vector{1, 2}));
  Buffer::trim_free_list();
}

// A lender sees whether its piece was released, and `release` is called only for a piece that is kept.
TEST(Buffer, ALentPieceIsReleasedByItsLenderUnlessItIsKept) {
  std::vector<int> released;
  Owner owner{&released, 1};
  Buffer::Piece piece;
  const auto lend = [&] {
    piece = {.data = bytes_of("abc").data(),
             .bytes = 3,
             .lent_on = static_cast<std::uint16_t>(machine::this_core()),
             .release = &Owner::release,
             .owner = &owner};
    return Buffer(piece);
  };
  {
    const Buffer dropped = lend();
  }
  EXPECT_FALSE(piece.end_loan());
  lend().drop_front(3);
  EXPECT_FALSE(piece.end_loan());
  EXPECT_TRUE(released.empty());
  Buffer kept = lend();
  kept.drop_front(1);
  EXPECT_TRUE(piece.end_loan());
  EXPECT_TRUE(released.empty());
  kept.clear();
  EXPECT_EQ(released, (std::vector{1}));
}

}  // namespace
}  // namespace neap::net
