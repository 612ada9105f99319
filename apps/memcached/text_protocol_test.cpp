// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/text_protocol.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "apps/memcached/numbers.hpp"
#include "apps/memcached/test_talks.hpp"

namespace neap::memcached {
namespace {

using namespace std::string_literals;
using namespace test;

const std::string key_250(250, 'k');
const std::string key_251(251, 'k');
const std::string format_error = "CLIENT_ERROR bad command line format\r\n";

const Talk talks[] = {
    {"EmptyLine", "\r\n", "ERROR\r\n"},
    {"BareNewline", "\n", "ERROR\r\n"},
    {"OneLetter", "x\r\n", "ERROR\r\n"},
    {"UnknownCommand", "foo\r\n", "ERROR\r\n"},
    {"UpperCase", "GET a\r\n", "ERROR\r\n"},
    {"TabIsNoBlank", "get\ta\r\n", "ERROR\r\n"},
    {"GetMiss", "get a\r\n", "END\r\n"},
    {"GetWithoutKey", "get\r\n", "ERROR\r\n"},
    {"GetBlank", "get \r\n", "ERROR\r\n"},
    {"GetsWithoutKey", "gets\r\n", "ERROR\r\n"},
    {"GetWithBareNewline", "set a 0 0 1\r\nx\r\nget a\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"},
    {"SetWithBareNewlineLine", "set a 0 0 1\nx\r\nget a\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"},
    {"GetManyKeys", "set a 1 0 1\r\nx\r\nset b 2 0 2\r\nyz\r\nget b nope a b\r\n",
     "STORED\r\nSTORED\r\nVALUE b 2 2\r\nyz\r\nVALUE a 1 1\r\nx\r\nVALUE b 2 2\r\nyz\r\nEND\r\n"},
    {"BlanksAreIgnored", "set a 0 0 1\r\nx\r\n get  a   b \r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"},
    {"NulEndsTheLine", "set a 0 0 1\r\nx\r\nget a\0b\r\n"s, "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"},
    {"TabBelongsToTheKey", "set a\tb 0 0 1\r\nx\r\nget a\r\nget a\tb\r\n", "STORED\r\nEND\r\nVALUE a\tb 0 1\r\nx\r\nEND\r\n"},
    {"CarriageReturnInsideAKey", "set a\rb 0 0 1\r\nx\r\nget a\rb\r\n", "STORED\r\nVALUE a\rb 0 1\r\nx\r\nEND\r\n"},
    {"LongestKey", "set " + key_250 + " 0 0 1\r\nx\r\nget " + key_250 + "\r\n", "STORED\r\nVALUE " + key_250 + " 0 1\r\nx\r\nEND\r\n"},
    {"KeyTooLong", "get " + key_251 + "\r\nget a\r\n", format_error + "END\r\n"},
    {"KeyTooLongTakesBackTheValues", "set a 0 0 1\r\nx\r\nget a " + key_251 + " a\r\n", "STORED\r\n" + format_error},
    {"KeyMuchTooLong", "get " + std::string(9000, 'k') + " a\r\nget a\r\n", format_error + "END\r\n"},
    {"Gets", "set a 0 0 1\r\nx\r\ngets a\r\n", "STORED\r\nVALUE a 0 1 1\r\nx\r\nEND\r\n"},
    {"Gat", "set a 0 0 1\r\nx\r\ngat 0 a b\r\ngats 0 a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nVALUE a 0 1 1\r\nx\r\nEND\r\n"},
    {"GatWithoutExpiry", "gat\r\ngat \r\n", "ERROR\r\nERROR\r\n"},
    {"GatWithoutKey", "gat 10\r\n", "END\r\n"},
    {"GatBadExpiry", "gat x a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
    {"GatNegativeEndsTheItem", "set a 0 0 1\r\nx\r\ngat -1 a\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nEND\r\n"},
    {"EmptyValue", "set a 0 0 0\r\n\r\nget a\r\n", "STORED\r\nVALUE a 0 0\r\n\r\nEND\r\n"},
    {"BinaryValue", "set a 0 0 5\r\n\r\n\0\xff\n\r\nget a\r\n"s, "STORED\r\nVALUE a 0 5\r\n\r\n\0\xff\n\r\nEND\r\n"s},
    {"ValueTooLong", "set a 0 0 2\r\nhello\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"},
    {"ValueTooShort", "set a 0 0 5\r\nhi\r\nget a\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"},
    {"ValueWithoutLineEnd", "set a 0 0 1\r\nx\r\nset a 0 0 2\r\nhi\rXget a\r\n",
     "STORED\r\nCLIENT_ERROR bad data chunk\r\nVALUE a 0 1\r\nx\r\nEND\r\n"},
    {"ValueWithTwoNewlines", "set a 0 0 2\r\nhi\n\nget a\r\n", "CLIENT_ERROR bad data chunk\r\nEND\r\n"},
    {"BadChunkQuiet", "set a 0 0 2 noreply\r\nhi\rXget a\r\n", "END\r\n"},
    {"SetNoreply", "set a 0 0 2 noreply\r\nhi\r\nget a\r\n", "VALUE a 0 2\r\nhi\r\nEND\r\n"},
    {"SetOtherSixthWord", "set a 0 0 2 foo\r\nhi\r\n", "STORED\r\n"},
    {"SetTooFewWords", "set a 0 0\r\n", "ERROR\r\n"},
    {"SetTooManyWords", "set a 0 0 2 noreply x\r\nhi\r\n", "ERROR\r\nERROR\r\n"},
    {"SetKeyTooLong", "set " + key_251 + " 0 0 2\r\nhi\r\n", format_error + "ERROR\r\n"},
    {"SetKeyTooLongQuiet", "set " + key_251 + " 0 0 2 noreply\r\nhi\r\n", "ERROR\r\n"},
    {"SetBadFlags", "set a x 0 2\r\nhi\r\n", format_error + "ERROR\r\n"},
    {"SetNegativeFlags", "set a -1 0 2\r\nhi\r\nget a\r\n", format_error + "ERROR\r\nEND\r\n"},
    {"SetLargestFlags", "set a 4294967295 0 2\r\nhi\r\nget a\r\n", "STORED\r\nVALUE a 4294967295 2\r\nhi\r\nEND\r\n"},
    {"SetFlagsKeep32Bits", "set a 4294967296 0 2\r\nhi\r\nget a\r\n", "STORED\r\nVALUE a 0 2\r\nhi\r\nEND\r\n"},
    {"SetNegativeExpiry", "set a 0 -1 2\r\nhi\r\nget a\r\n", "STORED\r\nEND\r\n"},
    {"SetExpiryLongPast", "set a 0 2592001 2\r\nhi\r\nget a\r\n", "STORED\r\nEND\r\n"},
    {"SetBadExpiry", "set a 0 x 2\r\nhi\r\n", format_error + "ERROR\r\n"},
    {"SetNegativeLength", "set a 0 0 -1\r\n", format_error},
    {"SetLengthWithSign", "set a 0 0 +2\r\nhi\r\nget a\r\n", "STORED\r\nVALUE a 0 2\r\nhi\r\nEND\r\n"},
    {"SetLengthWithLetter", "set a 0 0 2x\r\nhi\r\n", format_error + "ERROR\r\n"},
    {"SetLengthOverflows", "set a 0 0 2147483647\r\nhi\r\n", format_error + "ERROR\r\n"},
    {"SetTabBehindANumber", "set a 0\t 0 2\r\nhi\r\n", "STORED\r\n"},
    {"AddReplaceAppendPrepend",
     "add a 0 0 1\r\n1\r\nadd a 0 0 1\r\n2\r\nreplace a 3 0 1\r\n3\r\nreplace z 0 0 1\r\n1\r\nappend z 0 0 1\r\n1\r\nprepend z 0 0 "
     "1\r\n1\r\n"
     "append a 5 9 1\r\n4\r\nprepend a 1 1 1\r\n5\r\nget a\r\n",
     "STORED\r\nNOT_STORED\r\nSTORED\r\nNOT_STORED\r\nNOT_STORED\r\nNOT_STORED\r\nSTORED\r\nSTORED\r\nVALUE a 3 3\r\n534\r\nEND\r\n"},
    {"QuietFormsOfAll",
     "add a 0 0 1 noreply\r\n1\r\nreplace a 0 0 1 noreply\r\n2\r\nappend a 0 0 1 noreply\r\n3\r\nprepend a 0 0 1 noreply\r\n4\r\n"
     "incr a 1 noreply\r\ndecr a 1 noreply\r\ntouch a 0 noreply\r\nget a\r\ndelete a noreply\r\ndelete a noreply\r\nflush_all noreply\r\n"
     "verbosity 1 noreply\r\nget a\r\n",
     "VALUE a 0 3\r\n423\r\nEND\r\nEND\r\n"},
    {"Delete", "delete z\r\nset a 0 0 1\r\n1\r\ndelete a\r\nget a\r\n", "NOT_FOUND\r\nSTORED\r\nDELETED\r\nEND\r\n"},
    {"DeleteWithTime", "set a 0 0 1\r\n1\r\ndelete a 5\r\ndelete a 0 5\r\ndelete a 0\r\ndelete a 0 noreply\r\n",
     "STORED\r\nCLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
     "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\nDELETED\r\n"},
    {"DeleteWords", "delete\r\ndelete a b c d\r\ndelete " + key_251 + "\r\n", "ERROR\r\nERROR\r\n" + format_error},
    {"IncrDecr", "set n 3 0 2\r\n10\r\nincr n 1\r\nincr n 5 noreply\r\nget n\r\ndecr n 7\r\nget n\r\ndecr n 100\r\nget n\r\n",
     "STORED\r\n11\r\nVALUE n 3 2\r\n16\r\nEND\r\n9\r\nVALUE n 3 2\r\n9 \r\nEND\r\n0\r\nVALUE n 3 2\r\n0 \r\nEND\r\n"},
    {"IncrBounds",
     "set n 0 0 1\r\n0\r\nincr n -1\r\nincr n x\r\nincr n 18446744073709551615\r\nincr n 18446744073709551616\r\nincr n 1\r\nget n\r\n",
     "STORED\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\n18446744073709551615\r\n"
     "CLIENT_ERROR invalid numeric delta argument\r\n0\r\nVALUE n 0 20\r\n0                   \r\nEND\r\n"},
    {"IncrWords", "incr z 1\r\nincr z\r\nincr z 1 2\r\nincr z 1 2 3\r\nincr " + key_251 + " 1\r\n",
     "NOT_FOUND\r\nERROR\r\nNOT_FOUND\r\nERROR\r\n" + format_error},
    {"IncrNotNumeric",
     "set n 0 0 2\r\nab\r\nincr n 1\r\nset n 0 0 0\r\n\r\nincr n 1\r\nset n 0 0 2\r\n1a\r\nincr n 1\r\nset n 0 0 2\r\n-1\r\nincr n 1\r\n",
     "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nSTORED\r\n"
     "CLIENT_ERROR cannot increment or decrement non-numeric value\r\nSTORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric "
     "value\r\n"
     "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
    {"IncrKeepsTheLength",
     "set n 0 0 3\r\n1 a\r\nincr n 1\r\nget n\r\nset n 0 0 3\r\n 12\r\nincr n 1\r\nget n\r\nset n 0 0 "
     "25\r\n0000000000000000000000012\r\nincr n 1\r\nget n\r\n",
     "STORED\r\n2\r\nVALUE n 0 3\r\n2  \r\nEND\r\nSTORED\r\n13\r\nVALUE n 0 3\r\n13 \r\nEND\r\nSTORED\r\n13\r\nVALUE n 0 25\r\n"
     "13                       \r\nEND\r\n"},
    {"Touch",
     "touch a\r\ntouch z 0\r\nset a 0 0 1\r\n1\r\ntouch a 0\r\ntouch a x\r\ntouch " + key_251 + " 0\r\ntouch a 0 1\r\ntouch a 0 1 2\r\n",
     "ERROR\r\nNOT_FOUND\r\nSTORED\r\nTOUCHED\r\nCLIENT_ERROR invalid exptime argument\r\n" + format_error + "TOUCHED\r\nERROR\r\n"},
    {"TouchNegativeEndsTheItem", "set a 0 0 1\r\n1\r\ntouch a -1\r\nget a\r\n", "STORED\r\nTOUCHED\r\nEND\r\n"},
    {"Cas",
     "set c 0 0 1\r\n1\r\ncas c 0 0 1 999\r\n2\r\ncas z 0 0 1 1\r\n2\r\ncas c 0 0 1 1\r\n3\r\ngets c\r\ncas c 0 0 1 1\r\n4\r\ncas c 0 0 1 "
     "2 noreply\r\n5\r\nget c\r\n",
     "STORED\r\nEXISTS\r\nNOT_FOUND\r\nSTORED\r\nVALUE c 0 1 2\r\n3\r\nEND\r\nEXISTS\r\nVALUE c 0 1\r\n5\r\nEND\r\n"},
    {"CasMalformed", "cas c 0 0 1 x\r\n2\r\ncas c 0 0 1\r\ncas c 0 0 1 -1\r\n2\r\n",
     format_error + "ERROR\r\nERROR\r\n" + format_error + "ERROR\r\n"},
    {"FlushAll", "set a 0 0 1\r\n1\r\nflush_all\r\nget a\r\nset a 0 0 1\r\n2\r\nget a\r\n",
     "STORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\n2\r\nEND\r\n"},
    {"FlushAllForms",
     "flush_all x\r\nflush_all 0\r\nflush_all -5\r\nflush_all noreply\r\nflush_all 0 noreply\r\nflush_all 1 2\r\nflush_all 1 2 3\r\n",
     "CLIENT_ERROR invalid exptime argument\r\nOK\r\nOK\r\nOK\r\nERROR\r\n"},
    {"Verbosity",
     "verbosity\r\nverbosity 0\r\nverbosity x\r\nverbosity noreply\r\nverbosity 0 noreply\r\nverbosity 0 0\r\nverbosity 0 0 0\r\n",
     "ERROR\r\nOK\r\n" + format_error + "OK\r\nERROR\r\n"},
    {"Version", "version\r\nversion x\r\n", "VERSION 1.6.0-test\r\nVERSION 1.6.0-test\r\n"},
    {"Quit", "version\r\nquit\r\nversion\r\n", "VERSION 1.6.0-test\r\n", true},
    {"QuitWithMore", "quit x\r\nversion\r\n", "", true},
    {"StatsForms",
     "stats foo\r\nstats noreply\r\nstats reset\r\nstats items\r\nstats detail\r\nstats detail on\r\nstats detail dump\r\nstats "
     "cachedump\r\nstats cachedump 1 1\r\n",
     "ERROR\r\nERROR\r\nRESET\r\nEND\r\nCLIENT_ERROR usage: stats detail on|off|dump\r\nOK\r\nEND\r\nCLIENT_ERROR bad command "
     "line\r\nEND\r\n"},
    {"WebPage", "GET / HTTP/1.0\r\n\r\nflush_all\r\n", "", true},
    {"LongestLine", std::string(2048, 'a') + "\r\nget a\r\n", "ERROR\r\nEND\r\n"},
    // For such a line memcached closes the connection without a reply, or answers ERROR. Only Neap sends this text.
    {"LineTooLong", std::string(2050, 'a') + "\r\nget a\r\n", "CLIENT_ERROR line too long\r\nEND\r\n"},
    {"EndlessLine", std::string(100'000, 'a'), "CLIENT_ERROR line too long\r\n"},
    {"DeleteOfAKeyCalledNoreply", "delete noreply\r\n", "NOT_FOUND\r\n"},
    {"TooLarge", "set a 0 0 1\r\nx\r\nset a 0 0 1048577\r\n" + std::string(1048577, 'x') + "\r\nget a\r\n",
     "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n"},
    {"TooLargeQuiet", "add b 0 0 2000000 noreply\r\n" + std::string(2000000, 'x') + "\r\nget a\r\n", "END\r\n"},
    {"AppendTooLarge",
     "set a 0 0 600000\r\n" + std::string(600000, 'x') + "\r\nappend a 0 0 600000\r\n" + std::string(600000, 'y') + "\r\n",
     "STORED\r\nSERVER_ERROR object too large for cache\r\n"},
    {"LargestValue", "set a 7 0 1048576\r\n" + std::string(1048576, 'v') + "\r\nget a\r\n",
     "STORED\r\nVALUE a 7 1048576\r\n" + std::string(1048576, 'v') + "\r\nEND\r\n"},
};

}  // namespace

namespace test {
INSTANTIATE_TEST_SUITE_P(Text, Talks, testing::ValuesIn(each_of(talks)), name_of);
}

namespace {

struct TextProtocol : test::OneClient {};
struct TextProtocolOfLittleMemory : test::LittleMemory {};

TEST_F(TextProtocol, ExpiryRelativeAndAbsolute) {
  const auto now = test::start_unix_s + test::clock_ns / 1'000'000'000;
  EXPECT_EQ(client.talk("set r 0 10 1\r\nr\r\nset d 0 " + std::to_string(now + 20) + " 1\r\nd\r\nset m 0 2592000 1\r\nm\r\n"),
            "STORED\r\nSTORED\r\nSTORED\r\n");
  test::advance_s(9);
  EXPECT_EQ(client.talk("get r d m\r\n"), "VALUE r 0 1\r\nr\r\nVALUE d 0 1\r\nd\r\nVALUE m 0 1\r\nm\r\nEND\r\n");
  test::advance_s(1);
  EXPECT_EQ(client.talk("get r d m\r\n"), "VALUE d 0 1\r\nd\r\nVALUE m 0 1\r\nm\r\nEND\r\n");
  EXPECT_EQ(client.talk("add r 0 0 1\r\nR\r\n"), "STORED\r\n");
  EXPECT_EQ(client.talk("touch d 100\r\n"), "TOUCHED\r\n");
  test::advance_s(11);
  EXPECT_EQ(client.talk("get d\r\n"), "VALUE d 0 1\r\nd\r\nEND\r\n");
  test::advance_s(2592000);
  EXPECT_EQ(client.talk("get r d m\r\n"), "VALUE r 0 1\r\nR\r\nEND\r\n");
  EXPECT_EQ(server.store.counters().items, 1U);  // the expired item was unlinked
}

TEST_F(TextProtocol, DelayedFlushTakesWhatIsThereThen) {
  EXPECT_EQ(client.talk("set a 0 0 1\r\n1\r\nflush_all 5\r\n"), "STORED\r\nOK\r\n");
  test::advance_s(4);
  EXPECT_EQ(client.talk("set b 0 0 1\r\n2\r\nget a b\r\n"), "STORED\r\nVALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nEND\r\n");
  test::advance_s(1);
  EXPECT_EQ(client.talk("set c 0 0 1\r\n3\r\nget a b c\r\n"), "STORED\r\nVALUE c 0 1\r\n3\r\nEND\r\n");
  EXPECT_EQ(client.talk("flush_all 5\r\nflush_all\r\nset d 0 0 1\r\n4\r\n"), "OK\r\nOK\r\nSTORED\r\n");
  test::advance_s(6);
  EXPECT_EQ(client.talk("get c d\r\n"), "VALUE d 0 1\r\n4\r\nEND\r\n");  // the second flush_all replaced the first
}

TEST_F(TextProtocol, StatisticsCountRequests) {
  client.talk("set a 0 0 1\r\nx\r\nget a b\r\ngat 0 a\r\ndelete b\r\nincr b 1\r\ncas b 0 0 1 1\r\nx\r\ntouch b 1\r\n");
  const std::string shown = client.talk("stats\r\n");
  for (const char* line : {"cmd_get 3", "cmd_set 2", "get_hits 2", "get_misses 1", "delete_misses 1", "incr_misses 1", "cas_misses 1",
                           "touch_hits 1", "touch_misses 1", "curr_items 1", "total_items 1", "limit_maxbytes 67108864", "threads 1",
                           "version 1.6.0-test", "time 1700000000", "evictions 0"}) {
    if (std::string_view(line).starts_with("time ")) continue;  // other tests advanced the clock
    EXPECT_NE(shown.find("STAT " + std::string(line) + "\r\n"), std::string::npos) << line << " in\n" << shown;
  }
  EXPECT_TRUE(shown.ends_with("END\r\n"));
  EXPECT_NE(client.talk("stats settings\r\n").find("STAT item_size_max 1048576\r\n"), std::string::npos);
  EXPECT_NE(client.talk("stats items\r\n").find(":number 1\r\n"), std::string::npos);
  EXPECT_NE(client.talk("stats slabs\r\n").find("STAT active_slabs 1\r\n"), std::string::npos);
  EXPECT_EQ(client.talk("stats reset\r\n"), "RESET\r\n");
  const std::string after = client.talk("stats\r\n");
  EXPECT_NE(after.find("STAT cmd_get 0\r\n"), std::string::npos);
  EXPECT_NE(after.find("STAT curr_items 1\r\n"), std::string::npos);
}

// A get of any length is answered with bounded memory: The reply does not exceed its limit, and no value is lost when the parser stops.
TEST_F(TextProtocol, EndlessGetStopsAtAFullReplyAndGoesOn) {
  const std::string value(100'000, 'v');
  client.talk("set a 0 0 100000\r\n" + value + "\r\n");
  std::string request = "get";
  constexpr int keys = 500;
  for (int i = 0; i < keys; ++i) request += " a";
  request += "\r\n";
  std::string_view left = request;
  std::size_t bytes = 0, bytes_max = 0;
  int values = 0;
  for (;;) {
    left.remove_prefix(client.conversation.consume(left, client.reply));
    bytes_max = std::max(bytes_max, client.reply.bytes());
    const bool was_full = client.reply.full();
    const std::string part = test::take_all(client.reply);
    bytes += part.size();
    for (std::size_t at = part.find("VALUE "); at != std::string::npos; at = part.find("VALUE ", at + 1)) ++values;
    if (left.empty() && !was_full) break;
  }
  EXPECT_EQ(values, keys);
  EXPECT_EQ(bytes, keys * (std::string("VALUE a 0 100000\r\n").size() + value.size() + 2) + 5);
  EXPECT_LE(bytes_max, Reply::full_bytes + value.size() + 1024);
}

// Without memory the connection stays open. The item is refused, its data is discarded, and the key's old value is removed.
TEST_F(TextProtocolOfLittleMemory, OutOfMemoryIsReportedAndTheDataDiscarded) {
  EXPECT_EQ(client.talk("set a 0 0 1\r\nx\r\nset a 0 0 5000\r\n" + std::string(5000, 'y') + "\r\nget a\r\nset a 0 0 1\r\nz\r\n"),
            "STORED\r\nSERVER_ERROR out of memory storing object\r\nEND\r\nSTORED\r\n");
}

// Numbers of every length, and the numbers on both sides of each power of ten.
TEST(Numbers, AreWrittenInDecimal) {
  const auto expect = [](std::uint64_t value) {
    char text[number_bytes_max];
    EXPECT_EQ(std::string_view(text, static_cast<std::size_t>(put_number(text, value) - text)), std::to_string(value));
  };
  for (std::uint64_t value = 0; value <= 20'000; ++value) expect(value);
  for (unsigned bits = 1; bits < 64; ++bits) {
    expect((std::uint64_t{1} << bits) - 1);
    expect(std::uint64_t{1} << bits);
  }
  std::uint64_t power = 1;
  for (int digits = 1; digits <= 20; ++digits, power *= 10) {
    expect(power - 1);
    expect(power);
    expect(power + 1);
  }
  expect(UINT64_MAX);
}

// A break at every place of inputs of every length up to 40, and bytes that are no break on both sides of the input.
TEST(Numbers, BreaksAreFoundInside) {
  for (std::size_t length = 0; length <= 40; ++length) {
    for (std::size_t from = 0; from <= length; ++from) {
      for (std::size_t at = 0; at <= length; ++at) {
        for (const char letter : {' ', '\0', '\n', '\x1f'}) {
          const std::unique_ptr<char[]> text(new char[length]);  // its exact size, so that the address sanitizer sees a read outside
          std::fill_n(text.get(), length, '\x80');
          if (at < length) text[at] = letter;
          const char* const end = text.get() + length;
          const char* const found = detail::find_break(text.get(), text.get() + from, end);
          EXPECT_EQ(found, at >= from && at < length ? text.get() + at : end) << length << ' ' << from << ' ' << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace neap::memcached
