// SPDX-License-Identifier: BSL-1.0
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
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
