// SPDX-License-Identifier: BSL-1.0
#include "kernel/console.hpp"

#include <algorithm>
#include <cstring>

namespace neap {

Line& Line::operator<<(std::string_view text) noexcept {
  const std::size_t fits = std::min(text.size(), bytes_max - used_);
  if (fits != 0) std::memcpy(text_ + used_, text.data(), fits);
  used_ += fits;
  if (fits != text.size()) std::memcpy(text_ + bytes_max - 3, "...", 3);
  return *this;
}

Line& Line::operator<<(Hex value) noexcept {
  char digits[2 + 16] = {'0', 'x'};
  const auto end = std::to_chars(digits + 2, digits + sizeof digits, value.value, 16).ptr;
  return *this << std::string_view(digits, static_cast<std::size_t>(end - digits));
}

void Line::print() noexcept {
  text_[used_] = '\n';
  machine::console_write({text_, used_ + 1});
}

}  // namespace neap
