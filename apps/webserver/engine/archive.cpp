// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/archive.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernel/panic.hpp"

namespace neap::webserver {

namespace {

constexpr std::string_view magic = "NEAPARC1";
constexpr std::size_t header_bytes = 16, record_bytes = 16;

struct Record {
  std::uint32_t path_offset, path_bytes, content_offset, content_bytes;
};

std::uint32_t number_at(std::span<const std::byte> block, std::size_t offset) noexcept {
  std::uint32_t number;
  std::memcpy(&number, block.data() + offset, sizeof number);  // both machines are little-endian
  return number;
}

Record record_at(std::span<const std::byte> block, std::size_t index) noexcept {
  const std::size_t at = header_bytes + index * record_bytes;
  return {number_at(block, at), number_at(block, at + 4), number_at(block, at + 8), number_at(block, at + 12)};
}

std::string_view text_at(std::span<const std::byte> block, std::size_t offset, std::size_t bytes) noexcept {
  return {reinterpret_cast<const char*>(block.data()) + offset, bytes};
}

bool continuation(std::string_view path, std::size_t at) noexcept {
  return at < path.size() && (static_cast<std::uint8_t>(path[at]) & 0xC0) == 0x80;
}

/// True if the bytes are UTF-8 by RFC 3629, without control characters and backslashes.
bool valid_characters(std::string_view path) noexcept {
  for (std::size_t at = 0; at < path.size();) {
    const auto first = static_cast<std::uint8_t>(path[at]);
    if (first < 0x20 || first == 0x7F || first == '\\') return false;
    if (first < 0x80) {
      ++at;
      continue;
    }
    const std::size_t following = first >= 0xC2 && first <= 0xDF ? 1 : (first & 0xF0) == 0xE0 ? 2 : first >= 0xF0 && first <= 0xF4 ? 3 : 0;
    if (following == 0) return false;
    for (std::size_t next = 1; next <= following; ++next) {
      if (!continuation(path, at + next)) return false;
    }
    const auto second = static_cast<std::uint8_t>(path[at + 1]);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
        (first == 0xF4 && second > 0x8F)) {
      return false;
    }
    at += following + 1;
  }
  return true;
}

bool valid_path(std::string_view path) noexcept {
  if (path.empty() || path.size() > Archive::path_bytes_max || !valid_characters(path)) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

bool inside(std::span<const std::byte> block, std::uint64_t offset, std::uint64_t bytes) noexcept { return offset + bytes <= block.size(); }

}  // namespace

Result<Archive> Archive::open(std::span<const std::byte> block) noexcept {
  if (block.size() < header_bytes || text_at(block, 0, magic.size()) != magic) return failure(ErrorCode::invalid, "no archive of scripts");
  if (block.size() > block_bytes_max) return failure(ErrorCode::invalid, "the archive is too large", block.size());
  Archive archive;
  archive.block_ = block;
  archive.count_ = number_at(block, 8);
  archive.entry_ = number_at(block, 12);
  if (archive.count_ == 0 || archive.count_ > files_max || !inside(block, header_bytes, archive.count_ * record_bytes)) {
    return failure(ErrorCode::invalid, "the archive's number of files is wrong", archive.count_);
  }
  if (archive.entry_ >= archive.count_) return failure(ErrorCode::invalid, "the archive's entry does not exist", archive.entry_);
  for (std::size_t index = 0; index < archive.count_; ++index) {
    const Record record = record_at(block, index);
    if (!inside(block, record.path_offset, record.path_bytes) || !inside(block, record.content_offset, record.content_bytes + 1ULL)) {
      return failure(ErrorCode::invalid, "a file lies outside of the archive", index);
    }
    if (block[record.content_offset + record.content_bytes] != std::byte{0}) {
      return failure(ErrorCode::invalid, "no zero byte follows a file of the archive", index);
    }
    if (!valid_path(archive.path(index))) return failure(ErrorCode::invalid, "a path of the archive is wrong", index);
    if (index == 0) continue;
    if (archive.path(index - 1) >= archive.path(index)) return failure(ErrorCode::invalid, "the archive's paths are not in order", index);
    // Other paths may be between a file and a path below it: `a`, `a-b`, `a/b`.
    const std::string_view path = archive.path(index);
    for (std::size_t slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1)) {
      const std::size_t at = archive.lower_bound(path.substr(0, slash));
      if (at < index && archive.path(at) == path.substr(0, slash)) {
        return failure(ErrorCode::invalid, "a path of the archive is both file and folder", index);
      }
    }
  }
  return archive;
}

std::string_view Archive::path(std::size_t index) const noexcept {
  require(index < count_, "an index beyond the archive's files", index);
  const Record record = record_at(block_, index);
  return text_at(block_, record.path_offset, record.path_bytes);
}

std::string_view Archive::content(std::size_t index) const noexcept {
  require(index < count_, "an index beyond the archive's files", index);
  const Record record = record_at(block_, index);
  return text_at(block_, record.content_offset, record.content_bytes);
}

/// The index of the first path that is not less than `path`. While an archive is being opened, later records are not checked yet. So it
/// compares only paths that lie in the block.
std::size_t Archive::lower_bound(std::string_view path) const noexcept {
  std::size_t first = 0, count = count_;
  while (count > 0) {
    const std::size_t half = count / 2;
    const Record record = record_at(block_, first + half);
    const bool less =
        inside(block_, record.path_offset, record.path_bytes) && text_at(block_, record.path_offset, record.path_bytes) < path;
    if (less) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

std::optional<std::string_view> Archive::find(std::string_view path) const noexcept {
  const std::size_t at = lower_bound(path);
  if (at == count_ || this->path(at) != path) return std::nullopt;
  return content(at);
}

bool Archive::has_folder(std::string_view path) const noexcept {
  if (path.empty()) return count_ != 0;
  if (path.size() >= path_bytes_max) return false;
  char prefix[path_bytes_max];
  std::memcpy(prefix, path.data(), path.size());
  prefix[path.size()] = '/';
  const std::string_view folder(prefix, path.size() + 1);
  const std::size_t at = lower_bound(folder);
  return at != count_ && this->path(at).starts_with(folder);
}

std::vector<std::byte> make_archive(std::vector<ArchiveFile> files, std::string_view entry) {
  std::ranges::sort(files, {}, &ArchiveFile::path);
  std::string block(magic), body;
  const auto add = [](std::string& to, std::size_t number) {
    for (int shift = 0; shift < 32; shift += 8) to += static_cast<char>(number >> shift);
  };
  const auto found = std::ranges::find(files, entry, &ArchiveFile::path);
  require(found != files.end(), "the archive lacks its entry");
  add(block, files.size());
  add(block, static_cast<std::size_t>(found - files.begin()));
  const std::size_t body_offset = header_bytes + files.size() * record_bytes;
  for (const ArchiveFile& file : files) {
    add(block, body_offset + body.size());
    add(block, file.path.size());
    body += file.path;
    add(block, body_offset + body.size());
    add(block, file.content.size());
    body += file.content;
    body += '\0';
  }
  block += body;
  const auto bytes = std::as_bytes(std::span(block));
  return {bytes.begin(), bytes.end()};
}

}  // namespace neap::webserver
