// SPDX-License-Identifier: BSL-1.0
// Every length up to 300 at every alignment, at the ends of pages and with random lengths, against plain loops. tests/target/
// memory_functions_agree.cpp compares with newlib's functions, in an image.
#include "kernel/libc/vector_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace neap::libc {
namespace {

using Bytes = std::vector<unsigned char>;
constexpr std::size_t lengths = 301, alignments = 17, margin = 64, page = 4096;
constexpr unsigned char guard = 0xA5;

int sign(int number) { return (number > 0) - (number < 0); }

/// The order of the first bytes that differ.
int plain_order(const unsigned char* one, const unsigned char* other, std::size_t bytes) {
  const auto [left, right] = std::mismatch(one, one + bytes, other);
  return left == one + bytes ? 0 : (*left > *right ? 1 : -1);
}

Bytes pattern(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Bytes made(bytes);
  for (unsigned char& byte : made) byte = static_cast<unsigned char>(random());
  return made;
}

/// Pages whose neighbours cannot be accessed.
class Fenced {
 public:
  explicit Fenced(std::size_t pages = 1) : bytes_((pages + 2) * page) {
    base_ = static_cast<unsigned char*>(mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(base_ + page, pages * page, PROT_READ | PROT_WRITE), 0);
  }
  ~Fenced() { munmap(base_, bytes_); }
  Fenced& operator=(Fenced&&) = delete;
  [[nodiscard]] unsigned char* begin() const { return base_ + page; }
  [[nodiscard]] unsigned char* end() const { return base_ + bytes_ - page; }

 private:
  std::size_t bytes_;
  unsigned char* base_;
};

class Copies : public testing::TestWithParam<bool> {};  // with and without REP

// A copy writes exactly its bytes, and reads them before it writes them if the areas overlap.
TEST_P(Copies, WritesExactlyItsBytesAtEveryAlignment) {
  for (std::size_t bytes = 0; bytes < lengths; ++bytes) {
    const Bytes source = pattern(bytes + alignments, static_cast<unsigned>(bytes));
    for (std::size_t from = 0; from < alignments; ++from) {
      for (const std::size_t to : {std::size_t{0}, std::size_t{1}, std::size_t{7}, from, std::size_t{15}}) {
        Bytes target(bytes + alignments + 2 * margin, guard), wanted = target;
        std::copy_n(source.data() + from, bytes, wanted.data() + margin + to);
        EXPECT_EQ(copy(target.data() + margin + to, source.data() + from, bytes, GetParam()), target.data() + margin + to);
        ASSERT_EQ(target, wanted) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST_P(Copies, OverlappingAreasAreMoved) {
  for (const std::size_t bytes : {1, 3, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 300, 2047, 2048, 5000}) {
    for (const int distance :
         {-2100, -300, -129, -128, -65, -64, -63, -17, -16, -15, -1, 0, 1, 8, 15, 16, 17, 63, 64, 65, 128, 300, 2100}) {
      Bytes memory = pattern(10'000, 7), wanted = memory;
      unsigned char* const from = memory.data() + 2500;
      std::memmove(wanted.data() + 2500 + distance, wanted.data() + 2500, bytes);
      copy(from + distance, from, bytes, GetParam());
      ASSERT_EQ(memory, wanted) << bytes << " bytes by " << distance;
    }
  }
}

TEST_P(Copies, TouchNoOtherPage) {
  const Fenced source(3), target(3);
  for (const std::size_t bytes : {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 128, 129, 200, 2048, 4096, 12288}) {
    copy(target.end() - bytes, source.end() - bytes, bytes, GetParam());
    copy(target.begin(), source.begin(), bytes, GetParam());
    fill(target.end() - bytes, 1, bytes, GetParam());
    fill(target.begin(), 1, bytes, GetParam());
  }
}

TEST_P(Copies, FillWritesExactlyItsBytes) {
  for (std::size_t bytes = 0; bytes < lengths; ++bytes) {
    for (std::size_t to = 0; to < alignments; ++to) {
      Bytes target(bytes + alignments + 2 * margin, guard), wanted = target;
      std::fill_n(wanted.data() + margin + to, bytes, static_cast<unsigned char>(bytes + to));
      EXPECT_EQ(fill(target.data() + margin + to, static_cast<int>(bytes + to) - 512, bytes, GetParam()), target.data() + margin + to);
      ASSERT_EQ(target, wanted) << bytes << " bytes to " << to;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(, Copies, testing::Bool(), [](const auto& tested) { return tested.param ? "repeated" : "vectors"; });

// The first difference decides, at each place, and bytes count as unsigned.
TEST(Comparison, FindsTheFirstDifference) {
  for (std::size_t bytes = 0; bytes < lengths; ++bytes) {
    const Bytes source = pattern(bytes + alignments, static_cast<unsigned>(bytes));
    for (std::size_t from = 0; from < alignments; ++from) {
      Bytes other(source.begin() + static_cast<std::ptrdiff_t>(from), source.begin() + static_cast<std::ptrdiff_t>(from + bytes));
      ASSERT_EQ(compare(source.data() + from, other.data(), bytes), 0);
      for (std::size_t place = 0; place < bytes; place += 1 + bytes / 40) {
        const unsigned char before = other[place];
        for (const unsigned char changed : {static_cast<unsigned char>(before ^ 0x80), static_cast<unsigned char>(before + 1)}) {
          other[place] = changed;
          if (place + 1 < bytes) other[bytes - 1] ^= 0xFF;  // a later difference has no effect
          ASSERT_EQ(sign(compare(source.data() + from, other.data(), bytes)), before < changed ? -1 : 1) << bytes << " at " << place;
          if (place + 1 < bytes) other[bytes - 1] ^= 0xFF;
        }
        other[place] = before;
      }
    }
  }
}

TEST(Comparison, TouchesNoOtherPage) {
  const Fenced one, other;
  for (std::size_t bytes = 0; bytes < lengths; ++bytes) {
    ASSERT_EQ(compare(one.end() - bytes, other.end() - bytes, bytes), 0);
    ASSERT_EQ(compare(one.begin(), other.begin(), bytes), 0);
    ASSERT_EQ(compare(one.begin(), other.end() - bytes, bytes), 0);
  }
}

// Bytes before the area and behind it are not found, and of several the first is.
TEST(Search, FindsTheFirstByteInsideTheArea) {
  constexpr int wanted = 0xFE;
  for (std::size_t bytes = 0; bytes < lengths; ++bytes) {
    for (std::size_t from = 0; from < alignments; ++from) {
      alignas(16) std::array<unsigned char, lengths + 2 * margin> memory{};
      unsigned char* const area = memory.data() + margin + from;
      std::ranges::fill(memory, static_cast<unsigned char>(wanted));
      std::fill_n(area, bytes, static_cast<unsigned char>(1));
      ASSERT_EQ(find(area, wanted, bytes), nullptr) << bytes << " from " << from;
      for (std::size_t place = 0; place < bytes; place += 1 + bytes / 30) {
        area[place] = wanted;
        area[bytes - 1] = wanted;
        ASSERT_EQ(find(area, wanted - 256, bytes), area + place);
        ASSERT_EQ(find(area, wanted, ~std::size_t{0}), area + place);
        area[place] = area[bytes - 1] = 1;
      }
    }
  }
}

TEST(Search, ReadsOnlyAlignedBlocks) {
  const Fenced memory;
  for (std::size_t bytes = 0; bytes < lengths; ++bytes) {
    ASSERT_EQ(find(memory.end() - bytes, 1, bytes), nullptr);
    ASSERT_EQ(find(memory.begin(), 1, bytes), nullptr);
  }
}

TEST(VectorMemory, RandomAreasAgreeWithPlainLoops) {
  std::mt19937 random(20261124);
  Bytes memory = pattern(8192, 1);
  for (int step = 0; step < 100'000; ++step) {
    const std::size_t bytes = random() % (step % 8 == 0 ? 3000 : 80), from = random() % 4096, to = random() % 4096;
    unsigned char *const one = memory.data() + from, *const other = memory.data() + to;
    switch (random() % 4) {
      case 0: {
        Bytes wanted(one, one + bytes);
        copy(other, one, bytes, step % 2 == 0);
        ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), other));
        break;
      }
      case 1:
        fill(other, static_cast<int>(random() % 4), bytes, step % 2 == 0);
        break;
      case 2:
        ASSERT_EQ(sign(compare(one, other, bytes)), plain_order(one, other, bytes));
        break;
      default: {
        const auto value = static_cast<unsigned char>(random() % 4);
        const unsigned char* const end = one + bytes;
        const unsigned char* const wanted = std::find(static_cast<const unsigned char*>(one), end, value);
        ASSERT_EQ(find(one, value, bytes), wanted == end ? nullptr : wanted);
      }
    }
  }
}

}  // namespace
}  // namespace neap::libc
