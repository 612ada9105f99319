// SPDX-License-Identifier: BSL-1.0
// The files of a web application in one read-only block of memory.
//
// There is no file system. Scripts, JSON files and static content are given as one block: a boot module, or bytes linked into the image.
// The block comes from outside, so each offset is checked once, when the archive is opened. After that a look-up is a binary search in the
// block itself. Nothing is copied, and all cores share the block.
//
// Format, all numbers little-endian, all offsets from the block's first byte:
//
//   offset  0  8 bytes   "NEAPARC1"
//   offset  8  uint32    number of files, at least 1
//   offset 12  uint32    index of the entry script
//   offset 16  records of 16 bytes, one for each file, in strictly ascending order of the paths' bytes:
//                uint32 offset of the path, uint32 bytes of the path, uint32 offset of the content, uint32 bytes of the content
//   then       paths and contents, in any order. A byte 0 follows each content and is not part of it. Bytes after the last one are ignored
//              (a boot module may be padded).
//
// A path is UTF-8, has 1 to 1,024 bytes and is relative: `lib/users.js`. It has no empty part, no part `.` or `..`, no backslash and no
// control character. No path is a folder of another one (`a` beside `a/b`). Scripts see `/lib/users.js`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/error.hpp"

namespace neap::webserver {

/// A view of an archive. The block MUST outlive the view and its copies. An archive that was not opened has no files.
class Archive {
 public:
  static constexpr std::size_t files_max = 100'000, path_bytes_max = 1024, block_bytes_max = std::size_t{1} << 30;

  Archive() = default;
  /// Checks the whole index. Errors: `invalid`, with the number of the file or the offset as detail.
  [[nodiscard]] static Result<Archive> open(std::span<const std::byte> block) noexcept;

  /// The content of a file, by its path without a leading slash. A byte 0 follows the content.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view path) const noexcept;
  /// True if a file's path begins with `path` and a slash. The empty path is the archive's root.
  [[nodiscard]] bool has_folder(std::string_view path) const noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::string_view path(std::size_t index) const noexcept;
  [[nodiscard]] std::string_view content(std::size_t index) const noexcept;
  /// The path of the script that runs first. The archive MUST have files.
  [[nodiscard]] std::string_view entry() const noexcept { return path(entry_); }

 private:
  [[nodiscard]] std::size_t lower_bound(std::string_view path) const noexcept;

  std::span<const std::byte> block_;
  std::size_t count_ = 0, entry_ = 0;
};

/// Makes the block of an archive, for tests and tools on the host.
struct ArchiveFile {
  std::string path, content;
};
[[nodiscard]] std::vector<std::byte> make_archive(std::vector<ArchiveFile> files, std::string_view entry);

}  // namespace neap::webserver
