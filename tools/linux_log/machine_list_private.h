// SPDX-License-Identifier: BSL-1.0
// Functions shared by the parts of the machine list: JSON members, and small files of the kernel.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TEXT_BYTES_MAX = 512, PATH_BYTES_MAX = 256, CORES_MAX = 1024 };

// A JSON object that is being written.
struct json {
  FILE* out;
  bool has_members, has_elements;
};

void json_text(struct json* json, const char* name, const char* value);
void json_number(struct json* json, const char* name, uint64_t value);
void json_flag(struct json* json, const char* name, bool value);
void json_open_list(struct json* json, const char* name);
void json_element(struct json* json, const char* value);
void json_close_list(struct json* json);

// Reads the first line of the file, without blanks at its end. `path` is a format for the further arguments. Returns false if there is no
// such file, or if the line is empty.
__attribute__((format(printf, 3, 4))) bool read_line(char* text, size_t bytes, const char* path, ...);
// Reads the number at the start of the file's first line, decimal or 0x hexadecimal.
__attribute__((format(printf, 2, 3))) bool read_number(uint64_t* value, const char* path, ...);
// Writes the file's first line as a text, and leaves the member out if there is none.
__attribute__((format(printf, 3, 4))) void json_text_of_file(struct json* json, const char* name, const char* path, ...);

// Parses "0-3,8" into one bool for each core. Returns the number of cores in the set.
unsigned parse_cores(const char* text, bool cores[CORES_MAX]);
// As `parse_cores`, of the file's first line. Returns false if the file names no core.
bool read_cores(bool cores[CORES_MAX], unsigned* count, const char* path);

// machine_list_card.c: adds the members of the network card `interface`. Returns false if there is no such interface.
bool find_card(char* name, size_t bytes);
bool has_interface(const char* interface);
void add_card(struct json* json, const char* interface);
