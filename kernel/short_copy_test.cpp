// SPDX-License-Identifier: BSL-1.0
// Copies of every size, from and to memory of exactly that size, so that the address sanitizer sees an access outside.
#include "kernel/short_copy.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <numeric>
#include <string_view>

namespace neap {
namespace {

template <typename Copy>
void expect_all_sizes_copied(Copy copy) {
  for (std::size_t bytes = 1; bytes <= 600; ++bytes) {
    const std::unique_ptr<char[]> from(new char[bytes]), to(new char[bytes]());
    std::iota(from.get(), from.get() + bytes, '\x01');
    copy(to.get(), from.get(), bytes);
    EXPECT_EQ(std::string_view(to.get(), bytes), std::string_view(from.get(), bytes)) << bytes;
  }
}

TEST(ShortCopy, CopiesEverySize) {
  expect_all_sizes_copied([](char* to, const char* from, std::size_t bytes) { copy_short(to, from, bytes); });
}

TEST(ShortCopy, CopiesEveryMediumSize) {
  expect_all_sizes_copied([](char* to, const char* from, std::size_t bytes) { copy_medium(to, from, bytes); });
}

}  // namespace
}  // namespace neap
