// SPDX-License-Identifier: BSL-1.0
// Finds the unwind description of a frame.
//
// libgcc's own search takes a lock and allocates memory at the first throw, and finds nothing before constructors have run. A panic can
// neither take locks nor allocate, and cores should not contend for a lock when they throw. The linker already writes a sorted index of all
// frame descriptions (.eh_frame_hdr). So this function, which replaces libgcc's, is a binary search over constant data. Formats: Linux
// Standard Base 5.0, Core, 10.6; DWARF 5, 6.4.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernel/x86/layout.hpp"

namespace {

using neap::x86::address_of;

// The result that libgcc's unwinder expects (unwind-dw2-fde.h is not installed; the layout is part of its ABI).
struct FrameBases {
  void* text;
  void* data;
  void* function;
};

template <typename T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

constexpr std::uint8_t encoding_index = 0x3b;  // table of 4-byte signed offsets from the index's start
constexpr std::uint8_t encoding_count = 0x03;  // 4-byte unsigned
constexpr std::uint8_t form_mask = 0x0f, form_pointer = 0x00, form_unsigned4 = 0x03, form_unsigned8 = 0x04, form_signed4 = 0x0b,
                       form_signed8 = 0x0c;

// Reads a size, which has the same form as an address with this encoding.
std::uint64_t read_size(const std::byte* at, std::uint8_t encoding) {
  switch (encoding & form_mask) {
    case form_unsigned4:
    case form_signed4:
      return read<std::uint32_t>(at);
    case form_pointer:
    case form_unsigned8:
    case form_signed8:
      return read<std::uint64_t>(at);
    default:
      return 0;
  }
}

std::size_t encoded_bytes(std::uint8_t encoding) {
  const auto form = encoding & form_mask;
  return form == form_unsigned4 || form == form_signed4 ? 4 : 8;
}

const std::byte* skip_leb128(const std::byte* at) {
  while ((*at++ & std::byte{0x80}) != std::byte{0}) {
  }
  return at;
}

// Returns how a CIE encodes addresses: the byte for the letter R in its augmentation.
std::uint8_t pointer_encoding(const std::byte* cie) {
  const auto version = static_cast<std::uint8_t>(cie[8]);
  const auto* const augmentation = reinterpret_cast<const char*>(cie + 9);
  if (augmentation[0] != 'z') return form_pointer;
  const auto* at = cie + 9 + std::strlen(augmentation) + 1;
  at = skip_leb128(at);                          // code alignment
  at = skip_leb128(at);                          // data alignment
  at = version == 1 ? at + 1 : skip_leb128(at);  // return address register
  at = skip_leb128(at);                          // augmentation length
  for (const auto* letter = augmentation + 1; *letter != '\0'; ++letter) {
    if (*letter == 'R') return static_cast<std::uint8_t>(*at);
    if (*letter == 'L') ++at;
    if (*letter == 'P') {
      const auto encoding = static_cast<std::uint8_t>(*at);
      at += 1 + encoded_bytes(encoding);
    }
  }
  return form_pointer;
}

}  // namespace

extern "C" const void* _Unwind_Find_FDE(void* pc, FrameBases* bases) {
  const auto* const index = neap::x86::eh_frame_index;
  if (index[0] != std::byte{1} || index[2] != std::byte{encoding_count} || index[3] != std::byte{encoding_index}) return nullptr;
  const auto count = read<std::uint32_t>(index + 8);
  struct Entry {
    std::int32_t function, description;
  };
  const auto entry = [&](std::size_t i) { return read<Entry>(index + 12 + i * sizeof(Entry)); };
  const auto base = address_of(index);
  const auto wanted = static_cast<std::int64_t>(address_of(pc) - base);
  std::size_t low = 0, high = count;  // binary search for the first entry that begins after pc
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    if (entry(middle).function <= wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return nullptr;
  const auto found = entry(low - 1);
  const auto* const description = index + found.description;
  const auto* const cie = description + 4 - read<std::int32_t>(description + 4);
  const auto encoding = pointer_encoding(cie);
  const auto bytes = read_size(description + 8 + encoded_bytes(encoding), encoding);
  if (static_cast<std::uint64_t>(wanted - found.function) >= bytes) return nullptr;
  bases->text = nullptr;
  bases->data = nullptr;
  bases->function = reinterpret_cast<void*>(base + static_cast<std::uint64_t>(std::int64_t{found.function}));
  return description;
}
