// SPDX-License-Identifier: BSL-1.0
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_add(struct Text* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const size_t room = text->bytes - text->used;
  const int length = vsnprintf(text->at + text->used, room, format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= room) {
    text->is_cut = true;
    text->at[text->used] = 0;
  } else {
    text->used += (size_t)length;
  }
}

void text_add_string(struct Text* text, const char* string) {
  text_add(text, "\"");
  for (; *string; ++string) {
    const unsigned char byte = (unsigned char)*string;
    if (byte == '"' || byte == '\\') {
      text_add(text, "\\%c", byte);
    } else {
      text_add(text, "%c", byte < ' ' || byte > '~' ? '?' : byte);
    }
  }
  text_add(text, "\"");
}

bool text_read_line(const char* path, char* into, size_t bytes) {
  *into = 0;
  FILE* file = fopen(path, "re");
  if (!file) return false;
  const bool is_read = fgets(into, (int)bytes, file) != NULL;
  fclose(file);
  into[strcspn(into, "\n")] = 0;
  return is_read;
}

bool text_parse_number(const char* word, uint64_t maximum, uint64_t* number) {
  char* end;
  errno = 0;
  *number = strtoull(word, &end, 10);
  return *word >= '0' && *word <= '9' && !*end && !errno && *number <= maximum;
}

uint64_t text_parse_time_ns(const char* word) {
  static const struct {
    const char* unit;
    uint64_t ns;
  } units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"m", 60000000000}};
  char* end;
  errno = 0;
  const unsigned long long value = strtoull(word, &end, 10);
  for (size_t i = 0; i < sizeof units / sizeof *units && end != word && *word != '-' && !errno; ++i) {
    if (strcmp(end, units[i].unit) == 0 && value < UINT64_MAX / 2 / units[i].ns) return value * units[i].ns;
  }
  return 0;
}
