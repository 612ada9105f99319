// SPDX-License-Identifier: BSL-1.0
#include "kernel/kept_panic.hpp"

#include <algorithm>
#include <cstring>

#include "kernel/boot_log.hpp"
#include "kernel/console.hpp"
#include "kernel/crc32c.hpp"
#include "kernel/machine.hpp"

namespace neap::kept_panic {
namespace {

constexpr std::uint64_t magic = 0x5450454b5041454e;  // "NEAPKEPT" in memory
constexpr std::uint32_t version = 1;

struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t boot;
  std::uint32_t panic_boot;
  std::uint32_t text_bytes;
  std::uint32_t reserved;
  std::uint32_t crc32c;  ///< checksum of the text and of the header before this field
};
static_assert(sizeof(Header) == header_bytes);

std::uint32_t checksum(const Header& header, std::span<const std::byte> text) {
  Crc32c crc;
  crc.add(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, crc32c)));
  crc.add(text);
  return crc.value();
}

constinit char found[text_bytes_max]{};
constinit std::size_t found_bytes = 0;
constinit std::uint32_t this_boot = 0;
constinit std::uint64_t own_lines = 0;  // position in the boot log after the text of the previous panic, which is not saved again
constexpr std::uint64_t no_panic = ~std::uint64_t{0};
constinit std::uint64_t message_at = no_panic;  // position shortly before the panic's message; the saved text begins here or earlier

}  // namespace

Kept read(std::span<const std::byte> area) noexcept {
  Header header;
  if (area.size() < sizeof header) return {};
  std::memcpy(&header, area.data(), sizeof header);
  const auto room = area.subspan(sizeof header);
  if (header.magic != magic || header.version != version || header.text_bytes > room.size()) return {};
  const auto text = room.first(header.text_bytes);
  if (checksum(header, text) != header.crc32c) return {};
  return {.boot = header.boot, .panic_boot = header.panic_boot, .text = {reinterpret_cast<const char*>(text.data()), text.size()}};
}

void write(std::span<std::byte> area, const Kept& kept) noexcept {
  if (area.size() < header_bytes) return;
  const auto room = area.subspan(header_bytes);
  std::string_view kept_text = kept.text;
  if (kept_text.size() > room.size()) {
    kept_text.remove_prefix(kept_text.size() - room.size());
    const std::size_t line = kept_text.find('\n');
    if (line != kept_text.npos && line + 1 < kept_text.size()) kept_text.remove_prefix(line + 1);
  }
  if (!kept_text.empty()) std::memmove(room.data(), kept_text.data(), kept_text.size());
  Header header{.magic = magic,
                .version = version,
                .boot = kept.boot,
                .panic_boot = kept.panic_boot,
                .text_bytes = static_cast<std::uint32_t>(kept_text.size()),
                .reserved = 0,
                .crc32c = 0};
  header.crc32c = checksum(header, room.first(kept_text.size()));
  std::memcpy(area.data(), &header, sizeof header);
}

void take_over() noexcept {
  const auto area = machine::kept_memory();
  if (area.size() < header_bytes) return;
  const Kept kept = read(area);
  this_boot = kept.boot + 1;
  found_bytes = std::min(kept.text.size(), sizeof found);
  if (found_bytes != 0) std::memcpy(found, kept.text.data(), found_bytes);
  write(area, {.boot = this_boot, .panic_boot = 0, .text = {}});
  machine::write_back_caches();
  if (found_bytes != 0) {
    print("neap: start ", kept.panic_boot, " ended in a panic; its last lines:");
    for (std::string_view rest = text(); !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      print("| ", rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    print("neap: this is start ", this_boot, " since memory was last lost");
  }
  own_lines = boot_log::extent().end;
  message_at = no_panic;
}

std::string_view text() noexcept { return {found, found_bytes}; }
std::uint32_t boot_number() noexcept { return this_boot; }

void keep() noexcept {
  const auto area = machine::kept_memory();
  if (area.size() < header_bytes) return;
  static char lines[text_bytes_max];  // static, because a panic's stack is small
  const std::uint64_t end = boot_log::extent().end;
  const auto before = [](std::uint64_t position, std::uint64_t bytes) { return position > bytes ? position - bytes : 0; };
  if (message_at == no_panic) message_at = before(end, sizeof lines / 4);
  const std::uint64_t from = std::min(before(end, sizeof lines), message_at);
  const auto part = boot_log::read(std::max(own_lines, from), lines);
  std::string_view last(lines, part.bytes);
  // The copy begins in the middle of a line: skip to the next line.
  if (from > own_lines) last.remove_prefix(std::min(last.find('\n') + 1, last.size()));
  write(area, {.boot = this_boot, .panic_boot = this_boot, .text = last});
  machine::write_back_caches();
}

}  // namespace neap::kept_panic
