// SPDX-License-Identifier: BSL-1.0
#include "log_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_OFFSET = 64, TEXT_BYTES_MAX = HEADER_BYTES - 1 - TEXT_OFFSET, FORMAT_VERSION = 1 };

void log_append(void* context, const void* entry) {
  struct LogFile* file = context;
  const uint64_t room = file->is_closing ? file->entries_max + LOG_RESERVE_ENTRIES : file->entries_max;
  if (file->error || file->entries >= room) {
    ++file->unwritten;
    return;
  }
  if (file->used == sizeof file->buffer) log_flush(file);
  memcpy(file->buffer + file->used, entry, ENTRY_BYTES);
  file->used += ENTRY_BYTES;
  ++file->entries;
}

void log_flush(struct LogFile* file) {
  size_t done = 0;
  const off_t place = HEADER_BYTES + (off_t)(file->flushed * ENTRY_BYTES);
  while (done < file->used && !file->error) {
    const ssize_t written = pwrite(file->fd, file->buffer + done, file->used - done, place + (off_t)done);
    if (written < 0 && errno != EINTR) file->error = errno;
    if (written > 0) done += (size_t)written;
  }
  const uint64_t lost = (file->used - done + ENTRY_BYTES - 1) / ENTRY_BYTES;
  file->entries -= lost;
  file->unwritten += lost;
  file->flushed = file->entries;
  file->used = 0;
}

bool log_reset(struct LogFile* file) {
  file->entries = file->unwritten = file->flushed = 0;
  file->used = 0;
  file->error = 0;
  file->is_closing = false;
  return ftruncate(file->fd, 0) == 0 && ftruncate(file->fd, HEADER_BYTES) == 0;
}

static void put(unsigned char* at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) at[i] = (unsigned char)(value >> 8 * i);
}

void log_header(unsigned char* into, const struct HeaderNumbers* numbers, const char* text) {
  size_t text_bytes = strlen(text);
  memset(into, ' ', HEADER_BYTES);
  into[HEADER_BYTES - 1] = '\n';
  if (text_bytes > TEXT_BYTES_MAX) text_bytes = TEXT_BYTES_MAX;
  memcpy(into, "NEAPLOG\n", 8);
  put(into + 8, FORMAT_VERSION, 4);
  put(into + 12, HEADER_BYTES, 4);
  put(into + 16, ENTRY_BYTES, 4);
  put(into + 20, numbers->core, 4);
  put(into + 24, numbers->entries, 8);
  put(into + 32, numbers->first, 8);
  put(into + 40, numbers->unwritten, 8);
  put(into + 48, TICKS_PER_SECOND, 8);
  put(into + 56, text_bytes, 4);
  memcpy(into + TEXT_OFFSET, text, text_bytes);
  put(into + 60, crc32c(crc32c(0, into, 60), text, text_bytes), 4);
}

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes) {
  static uint32_t table[256];
  if (!table[1]) {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0x82F63B78u : value >> 1;
      table[i] = value;
    }
  }
  const unsigned char* at = data;
  crc = ~crc;
  for (size_t i = 0; i < bytes; ++i) crc = crc >> 8 ^ table[(crc ^ at[i]) & 0xFF];
  return ~crc;
}
