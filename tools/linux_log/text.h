// SPDX-License-Identifier: BSL-1.0
// A text that grows at its end in a buffer of fixed size, for JSON and for answers. Numbers and times in words.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct Text {
  char* at;
  size_t bytes, used;  // `bytes` includes the terminating zero
  bool is_cut;
};

__attribute__((format(printf, 2, 3))) void text_add(struct Text* text, const char* format, ...);
/// Adds a JSON string. Control characters and bytes above 126 become `?`.
void text_add_string(struct Text* text, const char* string);
/// Reads the first line of a file, without its line feed. Returns false, and an empty string, if it cannot be read.
bool text_read_line(const char* path, char* into, size_t bytes);
/// Parses a decimal number. Returns false if the word is none, or if it is above `maximum`.
bool text_parse_number(const char* word, uint64_t maximum, uint64_t* number);
/// Parses a time with its unit. Returns 0 if it is none.
uint64_t text_parse_time_ns(const char* word);
