// SPDX-License-Identifier: BSL-1.0
// One client's conversation on the host, without a network: requests from standard input, replies to standard output. The program serves
// differential_test.py, and experiments with the parsers: `printf 'get a\r\n' | memcached_replay`. An argument is the largest value, in
// bytes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "apps/memcached/test_server.hpp"

int main(int argc, char** argv) {
  using namespace neap::memcached;
  std::string request;
  char piece[65536];
  for (std::size_t bytes; (bytes = std::fread(piece, 1, sizeof piece, stdin)) > 0;) request.append(piece, bytes);
  StoreOptions options = test::small_store();
  if (argc > 1) options.value_bytes_max = static_cast<std::uint32_t>(std::strtoul(argv[1], nullptr, 10));
  test::Server server(options);
  test::Client client(server);
  const std::string answer = client.talk(request);
  return std::fwrite(answer.data(), 1, answer.size(), stdout) == answer.size() ? 0 : 1;
}
