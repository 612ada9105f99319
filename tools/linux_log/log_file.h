// SPDX-License-Identifier: BSL-1.0
// The log of one core: a file of a header and entries, written while the run is on and read by control's clients at the same time.
//
// The file is one in the output folder, or one in memory. Its header is written when the run has ended. An entry that does not fit is
// counted as unwritten.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entries.h"

enum { LOG_BUFFER_BYTES = 1 << 16, LOG_RESERVE_ENTRIES = 16 /* for the stop record and its followers */ };

struct LogFile {
  int fd;
  bool is_closing;  // the reserve may be used
  uint64_t entries, unwritten, entries_max;
  uint64_t flushed;  // entries that are in the file
  int error;         // errno of a failed write; 0: none
  size_t used;
  unsigned char buffer[LOG_BUFFER_BYTES];
};

/// An EntrySink: `file` is a LogFile.
void log_append(void* file, const void* entry);
/// Writes the buffer to the file.
void log_flush(struct LogFile* file);
/// Empties the file.
bool log_reset(struct LogFile* file);

/// Numbers of a header beside its text.
struct HeaderNumbers {
  uint32_t core;
  uint64_t entries, first, unwritten;
};
/// Writes HEADER_BYTES to `into`. A text longer than TEXT_BYTES_MAX is cut; the caller keeps it shorter.
void log_header(unsigned char* into, const struct HeaderNumbers* numbers, const char* text);

/// CRC-32C of `bytes` after those of which `crc` is the checksum; begin with 0.
uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);
