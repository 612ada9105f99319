// SPDX-License-Identifier: BSL-1.0
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "machine_list_private.h"

// --- JSON --------------------------------------------------------------------------------------------------------------------------------
static void quote(FILE* out, const char* text) {
  fputc('"', out);
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') fputc('\\', out);
    fputc(*text < ' ' || *text > '~' ? '?' : *text, out);
  }
  fputc('"', out);
}

static void begin(struct json* json, const char* name) {
  fputc(json->has_members ? ',' : '{', json->out);
  json->has_members = true;
  quote(json->out, name);
  fputc(':', json->out);
}

void json_text(struct json* json, const char* name, const char* value) {
  begin(json, name);
  quote(json->out, value);
}

void json_number(struct json* json, const char* name, uint64_t value) {
  begin(json, name);
  fprintf(json->out, "%llu", (unsigned long long)value);
}

void json_flag(struct json* json, const char* name, bool value) {
  begin(json, name);
  fputs(value ? "true" : "false", json->out);
}

void json_open_list(struct json* json, const char* name) {
  begin(json, name);
  fputc('[', json->out);
  json->has_elements = false;
}

void json_element(struct json* json, const char* value) {
  if (json->has_elements) fputc(',', json->out);
  json->has_elements = true;
  quote(json->out, value);
}

void json_close_list(struct json* json) { fputc(']', json->out); }

// --- Files of the kernel -----------------------------------------------------------------------------------------------------------------
static bool read_line_of(char* text, size_t bytes, const char* path) {
  FILE* const file = fopen(path, "re");
  if (file == NULL) return false;
  const bool read = fgets(text, (int)bytes, file) != NULL;
  fclose(file);
  if (!read) return false;
  size_t length = strlen(text);
  while (length > 0 && isspace((unsigned char)text[length - 1])) text[--length] = '\0';
  return length > 0;
}

bool read_line(char* text, size_t bytes, const char* path, ...) {
  char whole[PATH_BYTES_MAX];
  va_list arguments;
  va_start(arguments, path);
  const int length = vsnprintf(whole, sizeof whole, path, arguments);
  va_end(arguments);
  return length > 0 && (size_t)length < sizeof whole && read_line_of(text, bytes, whole);
}

bool read_number(uint64_t* value, const char* path, ...) {
  char whole[PATH_BYTES_MAX], text[TEXT_BYTES_MAX];
  va_list arguments;
  va_start(arguments, path);
  const int length = vsnprintf(whole, sizeof whole, path, arguments);
  va_end(arguments);
  if (length <= 0 || (size_t)length >= sizeof whole || !read_line_of(text, sizeof text, whole)) return false;
  if (!isdigit((unsigned char)text[0])) return false;  // also a negative number, which means "not known" in sysfs
  *value = strtoull(text, NULL, strncmp(text, "0x", 2) == 0 ? 16 : 10);
  return true;
}

void json_text_of_file(struct json* json, const char* name, const char* path, ...) {
  char whole[PATH_BYTES_MAX], text[TEXT_BYTES_MAX];
  va_list arguments;
  va_start(arguments, path);
  const int length = vsnprintf(whole, sizeof whole, path, arguments);
  va_end(arguments);
  if (length > 0 && (size_t)length < sizeof whole && read_line_of(text, sizeof text, whole)) json_text(json, name, text);
}

unsigned parse_cores(const char* text, bool cores[CORES_MAX]) {
  memset(cores, 0, CORES_MAX * sizeof cores[0]);
  unsigned count = 0;
  while (isdigit((unsigned char)*text)) {
    char* end;
    const unsigned long first = strtoul(text, &end, 10);
    const unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
    for (unsigned long core = first; core <= last && core < CORES_MAX; ++core) {
      if (!cores[core]) ++count;
      cores[core] = true;
    }
    text = *end == ',' ? end + 1 : end;
  }
  return count;
}

bool read_cores(bool cores[CORES_MAX], unsigned* count, const char* path) {
  char text[TEXT_BYTES_MAX];
  if (!read_line_of(text, sizeof text, path)) return false;
  *count = parse_cores(text, cores);
  return *count > 0;
}
