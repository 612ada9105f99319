// SPDX-License-Identifier: BSL-1.0
// Conversations with known bytes, for tests of a protocol. They are sent in one piece, byte by byte, and split in two at every position.
//
// A parser that keeps a pointer into the first piece, or loses its position between two pieces, gives a wrong answer at one of the splits.
// A test program passes its conversations to `Talks` by INSTANTIATE_TEST_SUITE_P.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "apps/memcached/test_server.hpp"

namespace neap::memcached::test {

/// A request, and the exact reply of memcached 1.6.18 with an empty cache; `closed` is true if memcached then closes the connection.
struct Talk {
  const char* name;
  std::string request, reply;
  bool closed = false;
};

struct OneClient : testing::Test {
  explicit OneClient(const StoreOptions& options = small_store()) : server(options) {}
  Server server;
  Client client{server};
};

/// One client of a server with a cache of 4 KiB.
struct LittleMemory : OneClient {
  LittleMemory() : OneClient(options()) {}
  static StoreOptions options() {
    StoreOptions options = small_store();
    options.memory_bytes = 4096;
    return options;
  }
};

/// Returns a pointer to each conversation. Some conversations have megabytes, and GoogleTest copies a parameter several times in each
/// process.
inline std::vector<const Talk*> each_of(std::span<const Talk> talks) {
  std::vector<const Talk*> pointers;
  for (const Talk& talk : talks) pointers.push_back(&talk);
  return pointers;
}
inline void PrintTo(const Talk* talk, std::ostream* out) { *out << talk->name; }
inline std::string name_of(const testing::TestParamInfo<const Talk*>& talk) { return talk.param->name; }

class Talks : public testing::TestWithParam<const Talk*> {
 protected:
  void expect(std::size_t piece) {
    Server server;
    Client client(server);
    EXPECT_EQ(client.talk(GetParam()->request, piece), GetParam()->reply) << "in pieces of " << piece;
    EXPECT_EQ(client.conversation.closing(), GetParam()->closed);
  }
};

TEST_P(Talks, InOnePiece) { expect(~std::size_t{0}); }

TEST_P(Talks, ByteByByte) {
  if (GetParam()->request.size() < 200'000) expect(1);
  expect(1009);
}

TEST_P(Talks, CutAtEveryByte) {
  const std::string& request = GetParam()->request;
  const std::size_t step = request.size() < 3000 ? 1 : request.size() / 97;
  for (std::size_t cut = 1; cut < request.size(); cut += step) {
    Server server;
    Client client(server);
    std::string reply = client.talk(request.substr(0, cut));
    reply += client.talk(request.substr(cut));
    ASSERT_EQ(reply, GetParam()->reply) << "cut behind byte " << cut;
    ASSERT_EQ(client.conversation.closing(), GetParam()->closed);
  }
}

}  // namespace neap::memcached::test
