// SPDX-License-Identifier: BSL-1.0
// The meta commands with known bytes. Except where a comment says otherwise, memcached 1.6.38 gives the same replies, but for its CAS ids.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "apps/memcached/base64.hpp"
#include "apps/memcached/test_talks.hpp"

namespace neap::memcached {
namespace {

using test::Talk;

const std::string key_250(250, 'k'), key_251(251, 'k');
const std::string format_error = "CLIENT_ERROR bad command line format\r\n";
const std::string flags_17 = " b c f h k l q s t u v N0 R0 T0 E1 C1 F0";

const Talk talks[] = {
    {"NoOperation", "mn\r\nmn x\r\n  mn\nmz\r\nmz a\r\nm\r\nmnx\r\n", "MN\r\nMN\r\nMN\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n"},
    {"GetForms", "mg\r\nmg z\r\nmg " + key_251 + "\r\nms a 2\r\nhi\r\nmg a\r\nmg a v\r\nmg  a   s  v \r\nmg a v\n",
     "ERROR\r\nEN\r\n" + format_error + "HD\r\nHD\r\nVA 2\r\nhi\r\nVA 2 s2\r\nhi\r\nVA 2\r\nhi\r\n"},
    {"GetFieldsInTheOrderOfTheFlags", "ms a 2 F5 T100\r\nhi\r\nmg a t s k f c Oxy v h l\r\nmg a h k\r\n",
     "HD\r\nVA 2 t100 s2 ka f5 c1 Oxy h0 l0\r\nhi\r\nHD h1 ka\r\n"},
    {"GetMissShowsKeyAndOpaque", "mg z v k s Oabc\r\nmg z q v k\r\nmg z O\r\nmn\r\n", "EN kz Oabc\r\nEN O\r\nMN\r\n"},
    {"GetLeavesUse", "ms a 1\r\nx\r\nmg a u h\r\nmg a u h\r\nmg a h u\r\nmg a h\r\nmg a h\r\n",
     "HD\r\nHD h0\r\nHD h0\r\nHD h0\r\nHD h0\r\nHD h1\r\n"},
    {"FlagErrors",
     "mg a v v\r\nmg a Q\r\nmg a S1\r\nmg a \x80\r\nmg a Nx\r\nmg a T\r\nmg a Rx Mxx\r\nmg a Fx\r\nmg a M Fx\r\nmg a Jx\r\nmg a Dx\r\n"
     "mg a Cx\r\nmg a Ex\r\nmg ! b\r\nmg Zg b\r\nma a v v\r\nma a Q\r\nmd a ! \r\nmg a P1 L2\r\n",
     "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR duplicate flag\r\n"
     "CLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\n"
     "CLIENT_ERROR incorrect length for M token\r\n" +
         format_error +
         "CLIENT_ERROR incorrect length for M token\r\nCLIENT_ERROR invalid numeric initial value\r\n"
         "CLIENT_ERROR invalid numeric delta value\r\nCLIENT_ERROR bad token in command line format\r\n"
         "CLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\n"
         "CLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n"
         "CLIENT_ERROR invalid or duplicate flag\r\nEN\r\n"},
    {"TooManyFlags",
     "mg a" + flags_17 + " x\r\nms a 1" + flags_17 + "\r\nx\r\nmd a" + flags_17 + " x\r\nma a" + flags_17 + " x\r\nmg YQ==" + flags_17 +
         "\r\n",
     "CLIENT_ERROR options flags are too long\r\nCLIENT_ERROR options flags too long\r\nERROR\r\nCLIENT_ERROR options flags too long\r\n"
     "CLIENT_ERROR options flags too long\r\nVA 0 c1 f0 h0 kYQ== b l0 s0 t-1 W\r\n\r\n"},
    {"LongOpaque",
     "mg a O" + std::string(31, 'o') + "\r\nmg a O" + std::string(32, 'o') + "\r\nms a 1 O" + std::string(32, 'o') + "\r\nx\r\nmd a O" +
         std::string(32, 'o') + "\r\n",
     "EN O" + std::string(31, 'o') +
         "\r\nCLIENT_ERROR opaque token too long\r\nCLIENT_ERROR opaque token too long\r\nCLIENT_ERROR opaque token too long\r\n"},
    // memcached makes the item, and counts, before it finds the error.
    {"AnErrorHasNoEffect", "mg a N30 O" + std::string(32, 'o') + "\r\nma n N0 O" + std::string(32, 'o') + "\r\nmg a\r\nmg n\r\n",
     "CLIENT_ERROR opaque token too long\r\nCLIENT_ERROR opaque token too long\r\nEN\r\nEN\r\n"},
    {"BinaryKeys",
     "ms AGEgCg== 2 b k c\r\nhi\r\nmg AGEgCg== b k v\r\nmg AG!EgCg==AAAA b k\r\nmg AGEgCg==\r\nme AGEgCg== b\r\nms Zm9v 1 b\r\nx\r\n"
     "mg foo k\r\nme foo\r\nma Zm9vbg== b N0 k c\r\nmd AGEgCg== b k\r\nmg AGEgCg== b k\r\n",
     "HD kAGEgCg== b c1\r\nVA 2 kAGEgCg== b\r\nhi\r\nHD kAGEgCg== b\r\nEN\r\n"
     "ME AGEgCg== exp=-1 la=0 cas=1 fetch=yes cls=7 size=80\r\nHD\r\nHD kZm9v b\r\n"
     "ME Zm9v exp=-1 la=0 cas=2 fetch=yes cls=7 size=80\r\nHD kZm9vbg== b c3\r\nHD kAGEgCg== b\r\nEN kAGEgCg== b\r\n"},
    // memcached returns the bytes of a key that was not set with the flag b, even if they have blanks and line ends.
    {"BinaryKeysOfOtherItems",
     "mg AGEgCg== b k N30\r\nms Zm9v 1 MA N0 b k\r\nx\r\nms Zm9v 1 MA b k\r\ny\r\nmg Zm9v b k v\r\nmg foo k v\r\n",
     "HD kAGEgCg== b W\r\nHD kZm9v b\r\nHD kZm9v b\r\nVA 2 kZm9v b\r\nxy\r\nVA 2 kfoo\r\nxy\r\n"},
    {"LongestKeys", "ms " + key_250 + " 1 k\r\nx\r\nmg " + key_250 + " k\r\n", "HD k" + key_250 + "\r\nHD k" + key_250 + "\r\n"},
    {"SetForms",
     "ms\r\nms a\r\nms " + key_251 +
         " 1\r\nms a x\r\nms a -1\r\nms a 2147483646\r\nms a +1\r\nx\r\nms a 1 v h t l f u\r\ny\r\nms a 0 s\r\n\r\n",
     "ERROR\r\n" + format_error + format_error + format_error + format_error + format_error + "HD\r\nHD\r\nHD s0\r\n"},
    {"SetFields", "ms a 2 k s c Oxy\r\nhi\r\nms a 2 q\r\nho\r\nms a 2 q ME s k\r\nhu\r\nms a 2 ME c\r\nhu\r\nmg a v\r\n",
     "HD ka s2 c1 Oxy\r\nNS s2 ka\r\nNS c0\r\nVA 2\r\nho\r\n"},
    {"SetErrorsSwallowTheData", "ms a 3 v v\r\nmn\r\r\nms a 3 MX\r\nmn\r\r\nms a 3 Fx\r\nmn\r\r\nmn\r\n",
     "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid mode for ms M token\r\n" + format_error + "MN\r\n"},
    {"SetBadChunk", "ms a 1 q\r\nxyzmn\r\nmg a\r\n", "CLIENT_ERROR bad data chunk\r\nMN\r\nEN\r\n"},
    {"SetModes",
     "ms a 1 MR\r\n1\r\nms a 1 MA\r\n1\r\nms a 1 MP\r\n1\r\nms a 1 ME F7\r\n1\r\nms a 1 ME\r\n2\r\nms a 1 MA s F1 T5\r\n2\r\nms a 1 MP "
     "s\r\n0\r\n"
     "mg a v f t\r\nms a 1 MR\r\n3\r\nms a 1 MS\r\n4\r\nmg a v f\r\n",
     "NS\r\nNS\r\nNS\r\nHD\r\nNS\r\nHD s2\r\nHD s3\r\nVA 3 f7 t-1\r\n012\r\nHD\r\nHD\r\nVA 1 f0\r\n4\r\n"},
    {"AppendVivifies", "ms a 1 MA N30 T90 F3\r\n1\r\nms a 1 MP N60 s\r\n0\r\nmg a v f t\r\n", "HD\r\nHD s2\r\nVA 2 f3 t30\r\n01\r\n"},
    {"SetWithCas",
     "ms a 1 C1\r\n1\r\nms a 1 c\r\n1\r\nms a 1 C9 c\r\n2\r\nms a 1 C0\r\n2\r\nms a 1 C1 c\r\n2\r\nms a 1 C2 MR c\r\n3\r\nms a 1 C9 "
     "MA\r\n4\r\n"
     "ms a 1 C0 MA\r\n4\r\nms a 1 C9 ME\r\n5\r\nms b 1 C9 ME\r\n5\r\nms c 1 C9 MA N0\r\n6\r\nmg a v\r\n",
     "NF\r\nHD c1\r\nEX c0\r\nEX\r\nHD c2\r\nHD c3\r\nEX\r\nHD\r\nNS\r\nHD\r\nHD\r\nVA 2\r\n34\r\n"},
    {"OwnCas",
     "ms a 1 E973 c\r\n1\r\nmg a c\r\ngets a\r\nms a 1 C973 E4000 c\r\n2\r\nms a 1 MA E5 c\r\n3\r\ncas a 0 0 1 5\r\nx\r\nms a 1 E0 "
     "c\r\n1\r\n"
     "mg b N30 E77 c\r\nmg b E78 c\r\nma n N0 E11 c\r\nma n c E12\r\nma n C12 c\r\nmd n C12\r\nmd b C77\r\n",
     "HD c973\r\nHD c973\r\nVALUE a 0 1 973\r\n1\r\nEND\r\nHD c4000\r\nHD c5\r\nSTORED\r\nHD c5\r\nHD c77 W\r\nHD c77 Z\r\nHD c11\r\nHD "
     "c12\r\n"
     "HD c9\r\nEX\r\nHD\r\n"},
    {"Vivify", "mg a s c v N30 t k\r\nmg a N30 t v\r\nmg a\r\nmg b t N30 T60\r\nmg b t\r\nmg c T60 N30 t\r\nmg d N0 t q\r\n",
     "VA 0 s0 c1 t30 ka W\r\n\r\nVA 0 t30 Z\r\n\r\nHD Z\r\nHD t-1 W\r\nHD t60 Z\r\nHD t30 W\r\nHD t-1 W\r\n"},
    {"Recache",
     "ms a 1 T50\r\nx\r\nmg a R30\r\nmg a R60 t\r\nmg a R60\r\nmg a\r\nms a 1 T50\r\ny\r\nmg a T100 R60\r\nmg a R110 T200 t\r\nms b "
     "1\r\nx\r\nmg b "
     "R60\r\n",
     "HD\r\nHD\r\nHD t50 W\r\nHD Z\r\nHD Z\r\nHD\r\nHD\r\nHD t200 W\r\nHD\r\nHD\r\n"},
    {"Touch", "ms a 1\r\nx\r\nmg a t T60\r\nmg a t\r\nmg a T-1\r\nmg a\r\nmg z T30\r\n", "HD\r\nHD t-1\r\nHD t60\r\nHD\r\nEN\r\nEN\r\n"},
    {"DeleteForms",
     "md\r\nmd z\r\nmd z q k Ox\r\nmd " + key_251 +
         "\r\nms a 1\r\n1\r\nmd a C9 k\r\nmd a C0\r\nmd a C1 k Ox\r\nms a 1\r\n1\r\nmd a q\r\nmg a\r\n",
     "ERROR\r\nNF\r\nNF kz Ox\r\n" + format_error + "HD\r\nEX ka\r\nEX\r\nHD ka Ox\r\nHD\r\nEN\r\n"},
    {"Invalidate",
     "ms a 3\r\nmoo\r\nmd a I T30\r\nmg a s t c v\r\nmg a v\r\nms a 1 T90 C0\r\nf\r\nms a 1 I T90 C1\r\nf\r\nmg a t v c\r\nms a 1 I "
     "C99\r\ng\r\n"
     "ms a 1 T90 C3\r\ng\r\nmg a t v\r\n",
     "HD\r\nHD\r\nVA 3 s3 t30 c2 X W\r\nmoo\r\nVA 3 Z X\r\nmoo\r\nEX\r\nHD\r\nVA 1 t30 c3 Z X\r\nf\r\nEX\r\nHD\r\nVA 1 t90\r\ng\r\n"},
    {"InvalidateAgain", "ms a 1\r\nx\r\nmd a I\r\nmg a\r\nmg a\r\nmd a I q\r\nmg a\r\nmd a I E500\r\nmg a c\r\nmd a I\r\nmg a c k\r\n",
     "HD\r\nHD\r\nHD X W\r\nHD Z X\r\nHD X W\r\nHD\r\nHD c500 X W\r\nHD\r\nHD c5 ka X W\r\n"},
    {"DropValue",
     "ms a 3 F5 T90\r\nmoo\r\nmd a x\r\nmg a v f t c\r\nms a 3 F5 T90\r\nmoo\r\nmd a x F8 T30 I\r\nmg a v f t\r\nmd a x E9\r\nmg a v "
     "c\r\nmd z x\r\n",
     "HD\r\nHD\r\nVA 0 f0 t-1 c1\r\n\r\nHD\r\nHD\r\nVA 0 f8 t30 X W\r\n\r\nHD\r\nVA 0 c9\r\n\r\nNF\r\n"},
    {"Count",
     "ma\r\nma n\r\nma n D1 k Ox q\r\nma " + key_251 +
         "\r\nms n 2\r\n10\r\nma n v\r\nma n D5 v c t k s f\r\nma n MD D6 v\r\nma n M- D99 v\r\n"
         "mg n v\r\nma n M+ q v\r\nma n MI D18446744073709551615 v\r\nma n MX\r\n",
     "ERROR\r\nNF\r\nNF kn Ox\r\n" + format_error +
         "HD\r\nVA 2\r\n11\r\nVA 2 c3 t-1 kn\r\n16\r\nVA 2\r\n10\r\nVA 1\r\n0\r\nVA 2\r\n0 \r\nVA 1\r\n0\r\n"
         "CLIENT_ERROR invalid mode for ma M token\r\n"},
    {"CountVivifies",
     "ma n t N30 J13 v q c\r\nma n N60 J99 v t\r\nma n T90 t v\r\nma m T20 N30 t\r\nma o N30 T20 t\r\nma n C1\r\nma n C3 c\r\nma n C0\r\n",
     "VA 2 t-1 c1\r\n13\r\nVA 2 t30\r\n14\r\nVA 2 t90\r\n15\r\nHD t30\r\nHD t20\r\nEX\r\nHD c6\r\nHD\r\n"},
    {"CountNotNumeric", "ms n 1\r\nq\r\nma n\r\nma n q C9\r\nmd n x\r\nma n\r\n",
     "HD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nEX\r\nHD\r\nCLIENT_ERROR cannot increment or decrement "
     "non-numeric value\r\n"},
    {"CountKeepsTheMarks", "ms n 2\r\n10\r\nmd n I\r\nmg n\r\nma n\r\nmg n v h\r\nma n D99\r\nmg n v h\r\n",
     "HD\r\nHD\r\nHD X W\r\nHD\r\nVA 2 h1 Z X\r\n11\r\nHD\r\nVA 3 h0\r\n110\r\n"},
    // memcached applies E and T to the old item if the number becomes longer.
    {"CountOfALongerNumber", "ms n 1\r\n9\r\nma n E55 T30 c v\r\nmg n c t v\r\n", "HD\r\nVA 2 c55\r\n10\r\nVA 2 c55 t30\r\n10\r\n"},
    {"Show", "me\r\nme z\r\nme " + key_251 + "\r\nms a 2 T60\r\nhi\r\nme a\r\nmg a\r\nme a x y z\r\nme ! b\r\n",
     format_error + "EN\r\n" + format_error +
         "HD\r\nME a exp=60 la=0 cas=1 fetch=no cls=7 size=80\r\nHD\r\nME a exp=60 la=0 cas=1 fetch=yes cls=7 size=80\r\n" + format_error},
    {"QuietPipeline", "mg a v q\r\nmg b v q k\r\nms b 1 q\r\nx\r\nmg b v q k\r\nmd b q\r\nmg b q\r\nmn\r\n", "VA 1 kb\r\nx\r\nMN\r\n"},
    {"ClassicCommandsSeeTheSameItems",
     "ms a 2 F3\r\nhi\r\nget a\r\nset b 4 0 1\r\nx\r\nmg b f v\r\nmd a I\r\nget a\r\nincr a 1\r\nset a 0 0 1\r\n1\r\nmg a\r\n",
     "HD\r\nVALUE a 3 2\r\nhi\r\nEND\r\nSTORED\r\nVA 1 f4\r\nx\r\nHD\r\nVALUE a 3 2\r\nhi\r\nEND\r\n"
     "CLIENT_ERROR cannot increment or decrement non-numeric value\r\nSTORED\r\nHD\r\n"},
    {"LargeValues",
     "ms a 5000 k\r\n" + std::string(5000, 'v') + "\r\nmg a v k\r\nmg a s\r\nms a 1048577 q\r\n" + std::string(1048577, 'x') +
         "\r\nmg a\r\n",
     "HD ka\r\nVA 5000 ka\r\n" + std::string(5000, 'v') + "\r\nHD s5000\r\nSERVER_ERROR object too large for cache\r\nEN\r\n"},
    {"AppendTooLarge",
     "ms a 600000\r\n" + std::string(600000, 'x') + "\r\nms a 600000 MA s\r\n" + std::string(600000, 'y') + "\r\nmg a s\r\n",
     "HD\r\nNS s600000\r\nHD s600000\r\n"},
    // Only Neap sends this text (text_protocol.hpp).
    {"LineTooLong", "mg a O" + std::string(2050, 'a') + "\r\nmn\r\n", "CLIENT_ERROR line too long\r\nMN\r\n"},
};

}  // namespace

namespace test {
INSTANTIATE_TEST_SUITE_P(Meta, Talks, testing::ValuesIn(each_of(talks)), name_of);
}

namespace {

struct MetaProtocol : test::OneClient {};
struct MetaProtocolOfLittleMemory : test::LittleMemory {};

// The ids that clients choose are above and below those that the flush takes.
TEST_F(MetaProtocol, AnOwnCasDecidesNothingInAFlush) {
  EXPECT_EQ(
      client.talk("ms high 1 E18446744073709551615\r\n1\r\nms low 1 E1\r\n2\r\nms stale 1\r\n3\r\nmd stale I E18446744073709551615\r\n"
                  "mg viv N0 E18446744073709551615\r\nmg low c\r\n"),
      "HD\r\nHD\r\nHD\r\nHD\r\nHD W\r\nHD c1\r\n");
  EXPECT_EQ(client.talk("flush_all\r\nmg high\r\nmg low\r\nmg stale\r\nmg viv\r\n"), "OK\r\nEN\r\nEN\r\nEN\r\nEN\r\n");
  EXPECT_EQ(client.talk("ms low 1 E1\r\n4\r\nma n N0 E2\r\nmd low I E3\r\nmg low c\r\nmg n c\r\nget low\r\n"),
            "HD\r\nHD\r\nHD\r\nHD c3 X W\r\nHD c2\r\nVALUE low 0 1\r\n4\r\nEND\r\n");
  EXPECT_EQ(client.talk("flush_all\r\nmg low\r\nmg n\r\n"), "OK\r\nEN\r\nEN\r\n");
}

TEST_F(MetaProtocol, OnlyAnOwnCasTakesMemory) {
  static_assert(Item::header_bytes == 68);
  const auto bytes_after = [this](const std::string& request) {
    client.talk("md a q\r\n" + request);
    return server.store.counters().bytes;
  };
  const std::string value = std::string(100, 'v') + "\r\n";
  const std::uint64_t plain = bytes_after("ms a 100\r\n" + value);
  EXPECT_EQ(bytes_after("set a 0 0 100\r\n" + value), plain);
  EXPECT_EQ(bytes_after("ms a 100\r\n" + value + "md a I\r\nmg a\r\n"), plain);
  EXPECT_GT(bytes_after("ms a 115 E1\r\n" + std::string(15, 'v') + value), bytes_after("ms a 115\r\n" + std::string(15, 'v') + value));
}

TEST_F(MetaProtocol, TimesArePassing) {
  EXPECT_EQ(client.talk("ms a 1 T100\r\nx\r\nms b 1\r\nx\r\n"), "HD\r\nHD\r\n");
  test::advance_s(60);
  EXPECT_EQ(client.talk("mg a t l R30\r\nmg a R50 t l\r\nme b\r\n"),
            "HD t40 l60\r\nHD t40 l0 W\r\nME b exp=-1 la=60 cas=2 fetch=no cls=7 size=80\r\n");
  test::advance_s(40);
  EXPECT_EQ(client.talk("mg a\r\nmg a N5\r\nmg a T-1 t\r\nmg a\r\n"), "EN\r\nHD W\r\nHD t0 Z\r\nEN\r\n");  // memcached: near 2^32
}

TEST_F(MetaProtocol, StatisticsCountRequests) {
  client.talk(
      "ms a 1\r\nx\r\nmg a\r\nmg b\r\nmg a T5\r\nmd b\r\nmd a I\r\nmd a\r\nma n\r\nma n N0\r\nma n\r\nms a 1 C5\r\nx\r\nmg a v v\r\n");
  const std::string shown = client.talk("stats\r\n");
  for (const char* line : {"cmd_get 3", "cmd_set 2", "get_hits 2", "get_misses 1", "cmd_touch 1", "touch_hits 1", "delete_misses 1",
                           "delete_hits 1", "incr_misses 1", "incr_hits 1", "cas_misses 1"}) {
    EXPECT_NE(shown.find("STAT " + std::string(line) + "\r\n"), std::string::npos) << line << " in\n" << shown;
  }
}

// Any number of requests may be sent before the first answer is read.
TEST_F(MetaProtocol, PipelinesOfAnyLengthAreAnsweredInBoundedMemory) {
  client.talk("ms a 20000\r\n" + std::string(20'000, 'v') + "\r\nms b 100\r\n" + std::string(100, 'w') + "\r\n");
  constexpr int rounds = 1000;
  std::string request;
  for (int round = 0; round < rounds; ++round) request += "mg a v k\r\nmg z q\r\nmg b v c f t s O1\r\nms c 1 q\r\nx\r\n";
  std::string_view left = request;
  std::size_t bytes = 0, bytes_max = 0;
  for (;;) {
    left.remove_prefix(client.conversation.consume(left, client.reply));
    bytes_max = std::max(bytes_max, client.reply.bytes());
    const bool was_full = client.reply.full();
    bytes += test::take_all(client.reply).size();
    if (left.empty() && !was_full) break;
  }
  EXPECT_EQ(bytes, rounds * (std::string("VA 20000 ka\r\n\r\nVA 100 c2 f0 t-1 s100 O1\r\n\r\n").size() + 20'100));
  EXPECT_LE(bytes_max, Reply::full_bytes + 20'000 + 1024);
}

TEST_F(MetaProtocolOfLittleMemory, OutOfMemoryIsReportedAndTheDataDiscarded) {
  EXPECT_EQ(client.talk("ms a 1\r\nx\r\nms a 5000 q ME\r\n" + std::string(5000, 'y') + "\r\nmg a\r\nms a 1 E5\r\nz\r\nmg a v\r\n"),
            "HD\r\nSERVER_ERROR out of memory storing object\r\nEN\r\nHD\r\nVA 1\r\nz\r\n");
}

TEST(Base64, EncodesAndDecodes) {
  std::string bytes;
  for (unsigned length = 1; length <= key_bytes_max; ++length) {
    bytes.push_back(static_cast<char>(length * 37));
    std::string text(base64::text_bytes(length), '\0');
    EXPECT_EQ(base64::encode(text.data(), bytes), text.data() + text.size());
    std::string decoded(text.size() / 4 * 3, '\0');
    decoded.resize(base64::decode(text, decoded.data()));
    EXPECT_EQ(decoded, bytes);
  }
  char to[16];
  for (const char* wrong : {"", "!", "Zg", "Zg=", "====", "Z===", "Zm9vZ", "Zm9v===="}) EXPECT_EQ(base64::decode(wrong, to), 0U) << wrong;
  EXPECT_EQ(base64::decode("Z m-9_v", to), 3U);
  EXPECT_EQ(std::string_view(to, 3), "foo");
  EXPECT_EQ(base64::decode("Zg==Zm9v", to), 1U);
}

}  // namespace
}  // namespace neap::memcached
