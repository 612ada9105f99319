// SPDX-License-Identifier: BSL-1.0
// Runs an archive of test262 (test262.hpp) on the host: `webserver_test262 ARCHIVE WATCHDOG_MS`. Prints a line for each run.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "apps/webserver/engine/test262.hpp"

int main(int count, char** words) {
  using namespace neap::webserver;
  if (count != 3) {
    std::fputs("usage: webserver_test262 ARCHIVE WATCHDOG_MS\n", stderr);
    return EXIT_FAILURE;
  }
  std::ifstream file(words[1], std::ios::binary);
  const std::string block{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto archive = Archive::open(std::as_bytes(std::span(block)));
  if (!archive) {
    std::fputs("webserver_test262: the file is no archive\n", stderr);
    return EXIT_FAILURE;
  }
  auto runner = test262::Runner::make(*archive, static_cast<std::uint32_t>(std::strtoul(words[2], nullptr, 10)));
  if (!runner) {
    std::fputs("webserver_test262: the archive has no valid list of tests\n", stderr);
    return EXIT_FAILURE;
  }
  for (std::size_t number = 0; number < runner->size(); ++number) {
    std::puts(runner->run(number).c_str());
    std::fflush(stdout);
  }
  std::puts("262 end");
  return EXIT_SUCCESS;
}
