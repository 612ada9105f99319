// SPDX-License-Identifier: BSL-1.0
// The checks of replies in the fuzzers find what is malformed, and where.
#include "apps/memcached/fuzz_replies.hpp"

#include <gtest/gtest.h>

#include <string>

namespace neap::memcached::fuzz {
namespace {

TEST(FuzzReplies, WholeTextRepliesAreWellFormed) {
  for (const std::string_view reply :
       {"", "STORED\r\nEND\r\n", "VALUE a 0 3\r\n\r\n\n\r\nEND\r\n", "VALUE a 0 1 77\r\nx\r\n", "VA 2 t30 Oabc\r\nxy\r\nHD\r\nEN\r\n",
        "12\r\n", "key=a exp=-1\nEND\r\n", "ts=1.2 gid=3 type=item_get\nskipped=4\n", "ERROR\r\nCLIENT_ERROR bad\r\nSERVER_ERROR no\r\n"}) {
    EXPECT_EQ(malformed_text(reply), reply.size()) << reply;
  }
}

TEST(FuzzReplies, TheFirstMalformedLineIsFound) {
  for (const std::string_view wrong : {"STORED", "STORED\n", "STOR\r\n", "\r\n", "VALUE a 0 3\r\nab\r\n", "VALUE a 0 x\r\nab\r\n",
                                       "VALUE a 0 1\r\nabc\r\n", "VA\r\n", "VA 5\r\nabc\r\n", "12x\r\n", "keys=a\r\n", "=\r\n", "ITEM\n"}) {
    const std::string reply = "OK\r\n" + std::string(wrong);
    EXPECT_EQ(malformed_text(reply), 4U) << wrong;
  }
}

std::string binary(std::string_view lengths, std::string_view status, std::string_view body) {
  return std::string("\x81\0", 2) + std::string(lengths) + std::string(1, '\0') + std::string(status) + std::string(3, '\0') +
         static_cast<char>(body.size()) + std::string(12, '\0') + std::string(body);
}

TEST(FuzzReplies, BinaryReplies) {
  const std::string good = binary({"\0\1\4", 3}, {"\0\1", 2}, "1234key");
  EXPECT_EQ(malformed_binary(good + good), 2 * good.size());
  const std::string wrong_status = binary({"\0\1\4", 3}, {"\0\7", 2}, "1234key"),
                    key_beyond_body = binary({"\0\4\4", 3}, {"\0\1", 2}, "1234key");
  for (const std::string& wrong :
       {good.substr(1), good.substr(0, good.size() - 1), std::string("STORED\r\n"), wrong_status, key_beyond_body}) {
    EXPECT_EQ(malformed_binary(good + wrong), good.size());
  }
}

}  // namespace
}  // namespace neap::memcached::fuzz
