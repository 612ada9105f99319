// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/binary_protocol.hpp"

#include <gtest/gtest.h>

#include <string>

#include "apps/memcached/test_talks.hpp"

namespace neap::memcached {
namespace {

using namespace std::string_literals;
using namespace test;

std::string big(std::uint64_t value, unsigned bytes) {
  std::string text;
  for (unsigned at = bytes; at-- > 0;) text.push_back(static_cast<char>(value >> (8 * at)));
  return text;
}

constexpr std::uint32_t opaque = 0xdeadbeef;

std::string frame(unsigned magic, unsigned opcode, unsigned status, const std::string& extras, const std::string& key,
                  const std::string& value, std::uint64_t cas) {
  return big(magic, 1) + big(opcode, 1) + big(key.size(), 2) + big(extras.size(), 1) + big(0, 1) + big(status, 2) +
         big(extras.size() + key.size() + value.size(), 4) + big(opaque, 4) + big(cas, 8) + extras + key + value;
}
std::string ask(unsigned opcode, const std::string& extras = "", const std::string& key = "", const std::string& value = "",
                std::uint64_t cas = 0) {
  return frame(0x80, opcode, 0, extras, key, value, cas);
}
std::string says(unsigned opcode, unsigned status = 0, const std::string& extras = "", const std::string& key = "",
                 const std::string& value = "", std::uint64_t cas = 0) {
  return frame(0x81, opcode, status, extras, key, value, cas);
}
/// Returns a header that announces parts of these lengths, without the parts.
std::string head(unsigned opcode, unsigned key_bytes, unsigned extras_bytes, std::uint64_t body_bytes) {
  return big(0x80, 1) + big(opcode, 1) + big(key_bytes, 2) + big(extras_bytes, 1) + big(0, 3) + big(body_bytes, 4) + big(opaque, 4) +
         big(0, 8);
}
std::string store_extras(std::uint32_t flags = 0, std::uint32_t expiry = 0) { return big(flags, 4) + big(expiry, 4); }
std::string count_extras(std::uint64_t delta, std::uint64_t initial = 0, std::uint32_t expiry = 0) {
  return big(delta, 8) + big(initial, 8) + big(expiry, 4);
}
std::string invalid(unsigned opcode) { return says(opcode, 4, "", "", "Invalid arguments"); }

enum : unsigned {
  get,
  set,
  add,
  replace,
  remove,
  increment,
  decrement,
  quit,
  flush,
  getq,
  noop,
  version,
  getk,
  getkq,
  append,
  prepend,
  stat,
  setq,
  addq,
  replaceq,
  removeq,
  incrementq,
  decrementq,
  quitq,
  flushq,
  appendq,
  prependq,
  touch = 0x1c,
  gat,
  gatq,
  gatk = 0x23,
  gatkq
};

const std::string key_250(250, 'k');

const Talk talks[] = {
    {"Noop", ask(noop), says(noop)},
    {"Version", ask(version), says(version, 0, "", "", "1.6.0-test")},
    {"SetGet", ask(set, store_extras(0x01020304), "a", "value") + ask(get, "", "a"),
     says(set, 0, "", "", "", 1) + says(get, 0, big(0x01020304, 4), "", "value", 1)},
    {"GetMiss", ask(get, "", "a"), says(get, 1, "", "", "Not found")},
    {"GetkHitAndMiss", ask(setq, store_extras(), "a", "v") + ask(getk, "", "a") + ask(getk, "", "b"),
     says(getk, 0, big(0, 4), "a", "v", 1) + says(getk, 1, "", "b")},
    {"QuietGetsTellHitsOnly",
     ask(setq, store_extras(), "a", "v") + ask(getq, "", "b") + ask(getkq, "", "b") + ask(getq, "", "a") + ask(getkq, "", "a") + ask(noop),
     says(getq, 0, big(0, 4), "", "v", 1) + says(getkq, 0, big(0, 4), "a", "v", 1) + says(noop)},
    {"AddReplace",
     ask(replace, store_extras(), "a", "1") + ask(add, store_extras(), "a", "2") + ask(add, store_extras(), "a", "3") +
         ask(replace, store_extras(7), "a", "4") + ask(get, "", "a"),
     says(replace, 1, "", "", "Not found") + says(add, 0, "", "", "", 1) + says(add, 2, "", "", "Data exists for key.") +
         says(replace, 0, "", "", "", 2) + says(get, 0, big(7, 4), "", "4", 2)},
    {"QuietStoresTellErrorsOnly",
     ask(replaceq, store_extras(), "a", "1") + ask(addq, store_extras(), "a", "2") + ask(addq, store_extras(), "a", "3") +
         ask(replaceq, store_extras(), "a", "4") + ask(setq, store_extras(), "a", "5") + ask(noop),
     says(replaceq, 1, "", "", "Not found") + says(addq, 2, "", "", "Data exists for key.") + says(noop)},
    {"CasMatches",
     ask(set, store_extras(), "a", "1") + ask(set, store_extras(), "a", "2", 1) + ask(set, store_extras(), "a", "3", 1) +
         ask(set, store_extras(), "b", "3", 9) + ask(get, "", "a"),
     says(set, 0, "", "", "", 1) + says(set, 0, "", "", "", 2) + says(set, 2, "", "", "Data exists for key.") +
         says(set, 1, "", "", "Not found") + says(get, 0, big(0, 4), "", "2", 2)},
    {"Delete",
     ask(setq, store_extras(), "a", "1") + ask(remove, "", "a", "", 7) + ask(remove, "", "a") + ask(remove, "", "a") +
         ask(removeq, "", "a"),
     says(remove, 2, "", "", "Data exists for key.") + says(remove) + says(remove, 1, "", "", "Not found") +
         says(removeq, 1, "", "", "Not found")},
    {"DeleteQuiet", ask(setq, store_extras(), "a", "1") + ask(removeq, "", "a") + ask(get, "", "a"), says(get, 1, "", "", "Not found")},
    {"AppendPrepend",
     ask(append, "", "a", "x") + ask(setq, store_extras(5), "a", "m") + ask(append, "", "a", "z") + ask(prepend, "", "a", "a") +
         ask(appendq, "", "a", "!") + ask(prependq, "", "a", "?") + ask(get, "", "a"),
     says(append, 5, "", "", "Not stored.") + says(append, 0, "", "", "", 2) + says(prepend, 0, "", "", "", 3) +
         says(get, 0, big(5, 4), "", "?amz!", 5)},
    {"AppendCas", ask(set, store_extras(), "a", "m") + ask(append, "", "a", "z", 9) + ask(append, "", "a", "z", 1),
     says(set, 0, "", "", "", 1) + says(append, 2, "", "", "Data exists for key.") + says(append, 0, "", "", "", 2)},
    {"CountCreatesAndCounts",
     ask(increment, count_extras(5, 10), "n") + ask(increment, count_extras(5, 10), "n") + ask(decrement, count_extras(100), "n") +
         ask(get, "", "n"),
     says(increment, 0, "", "", big(10, 8), 1) + says(increment, 0, "", "", big(15, 8), 2) + says(decrement, 0, "", "", big(0, 8), 3) +
         says(get, 0, big(0, 4), "", "0 ", 3)},
    {"CountWithoutCreating", ask(increment, count_extras(5, 10, 0xffffffff), "n") + ask(decrementq, count_extras(5, 10, 0xffffffff), "n"),
     says(increment, 1, "", "", "Not found") + says(decrementq, 1, "", "", "Not found")},
    {"CountQuiet",
     ask(incrementq, count_extras(1, 41), "n") + ask(incrementq, count_extras(2), "n") + ask(decrementq, count_extras(1), "n") +
         ask(get, "", "n"),
     says(get, 0, big(0, 4), "", "42", 3)},
    {"CountWraps", ask(setq, store_extras(), "n", "18446744073709551615") + ask(increment, count_extras(2), "n"),
     says(increment, 0, "", "", big(1, 8), 2)},
    {"CountNotNumeric", ask(setq, store_extras(), "n", "x") + ask(increment, count_extras(2), "n"),
     says(increment, 6, "", "", "Non-numeric server-side value for incr or decr")},
    {"CountCas",
     ask(setq, store_extras(), "n", "1") + ask(increment, count_extras(2), "n", "", 9) + ask(increment, count_extras(2), "n", "", 1),
     says(increment, 2, "", "", "Data exists for key.") + says(increment, 0, "", "", big(3, 8), 2)},
    {"TouchAndGat",
     ask(setq, store_extras(3), "a", "v") + ask(touch, big(0, 4), "a") + ask(gat, big(0, 4), "a") + ask(gatk, big(0, 4), "a") +
         ask(gatq, big(0, 4), "a") + ask(gatkq, big(0, 4), "a"),
     says(touch, 0, big(3, 4), "", "", 1) + says(gat, 0, big(3, 4), "", "v", 1) + says(gatk, 0, big(3, 4), "a", "v", 1) +
         says(gatq, 0, big(3, 4), "", "v", 1) + says(gatkq, 0, big(3, 4), "a", "v", 1)},
    {"TouchAndGatMiss",
     ask(touch, big(0, 4), "a") + ask(gat, big(0, 4), "a") + ask(gatk, big(0, 4), "a") + ask(gatq, big(0, 4), "a") +
         ask(gatkq, big(0, 4), "a"),
     says(touch, 1, "", "", "Not found") + says(gat, 1, "", "", "Not found") + says(gatk, 1, "", "a")},
    {"TouchEndsTheItem", ask(setq, store_extras(3), "a", "v") + ask(touch, big(2592001, 4), "a") + ask(get, "", "a"),
     says(touch, 0, big(3, 4), "", "", 1) + says(get, 1, "", "", "Not found")},
    {"ExpiryIsUnsigned", ask(setq, store_extras(3), "a", "v") + ask(touch, big(0xffffffff, 4), "a") + ask(get, "", "a"),
     says(touch, 0, big(3, 4), "", "", 1) + says(get, 0, big(3, 4), "", "v", 1)},
    {"Flush",
     ask(setq, store_extras(), "a", "v") + ask(flush) + ask(get, "", "a") + ask(setq, store_extras(), "a", "v") + ask(flushq) +
         ask(get, "", "a") + ask(flush, big(0, 4)) + ask(flush, big(10, 4)),
     says(flush) + says(get, 1, "", "", "Not found") + says(get, 1, "", "", "Not found") + says(flush) + says(flush)},
    {"EmptyValue", ask(set, store_extras(), "a") + ask(get, "", "a"), says(set, 0, "", "", "", 1) + says(get, 0, big(0, 4), "", "", 1)},
    {"AnyBytesInKeyAndValue", ask(set, store_extras(), "a b\r\n\0\x80"s, "\x80\r\nget a\r\n\0"s) + ask(get, "", "a b\r\n\0\x80"s),
     says(set, 0, "", "", "", 1) + says(get, 0, big(0, 4), "", "\x80\r\nget a\r\n\0"s, 1)},
    {"LongestKey", ask(set, store_extras(), key_250, "v") + ask(getk, "", key_250),
     says(set, 0, "", "", "", 1) + says(getk, 0, big(0, 4), key_250, "v", 1)},
    {"LargestValue", ask(set, store_extras(), "a", std::string(1 << 20, 'v')) + ask(get, "", "a"),
     says(set, 0, "", "", "", 1) + says(get, 0, big(0, 4), "", std::string(1 << 20, 'v'), 1)},
    {"TooLarge", ask(setq, store_extras(), "a", "v") + ask(set, store_extras(), "a", std::string((1 << 20) + 1, 'v')) + ask(get, "", "a"),
     says(set, 3, "", "", "Too large.") + says(get, 1, "", "", "Not found")},
    {"StatEndsWithAnEmptyOne", ask(stat, "", "reset"), says(stat)},
    {"StatUnknown", ask(stat, "", "nonsense"), says(stat, 1, "", "", "Not found")},
    {"Quit", ask(quit) + ask(noop), says(quit), true},
    {"QuitQuiet", ask(quitq) + ask(noop), "", true},
    // After contradictory lengths, the server sends an error and does not search for the next request.
    {"UnknownCommand", ask(0x77) + ask(noop), says(0x77, 0x81, "", "", "Unknown command") + says(noop)},
    {"UnknownCommandWithBody", ask(0x77, "extra", "key", "value") + ask(noop), says(0x77, 0x81, "", "", "Unknown command") + says(noop)},
    {"KeyTooLong", ask(get, "", std::string(251, 'k')) + ask(noop), invalid(get), true},
    {"KeyLongerThanBody", head(get, 10, 0, 5) + ask(noop), says(get, 0x81, "", "", "Unknown command"), true},
    {"ExtrasLongerThanBody", head(set, 1, 8, 8) + ask(noop), says(set, 0x81, "", "", "Unknown command"), true},
    {"GetWithoutKey", ask(get) + ask(noop), invalid(get), true},
    {"GetWithExtras", ask(get, "abcd", "a") + ask(noop), invalid(get), true},
    {"GetWithValue", ask(get, "", "a", "v") + ask(noop), invalid(get), true},
    {"SetWithoutExtras", ask(set, "", "a", "v") + ask(noop), invalid(set), true},
    {"SetWithoutKey", ask(set, store_extras(), "", "v") + ask(noop), invalid(set), true},
    {"AppendWithExtras", ask(append, store_extras(), "a", "v") + ask(noop), invalid(append), true},
    {"IncrementWithShortExtras", ask(increment, "12345678", "a") + ask(noop), invalid(increment), true},
    {"TouchWithoutExtras", ask(touch, "", "a") + ask(noop), invalid(touch), true},
    {"FlushWithKey", ask(flush, "", "a") + ask(noop), invalid(flush), true},
    {"NoopWithBody", ask(noop, "", "", "x") + ask(noop), invalid(noop), true},
    {"QuitWithBody", ask(quit, "", "x") + ask(noop), invalid(quit), true},
    {"WrongMagicAfterAGoodRequest", ask(noop) + "get a\r\n" + std::string(40, 'x'), says(noop), true},
    {"ResponseMagic", ask(noop) + says(noop), says(noop), true},
};

}  // namespace

namespace test {
INSTANTIATE_TEST_SUITE_P(Binary, Talks, testing::ValuesIn(each_of(talks)), name_of);
}

namespace {

struct BinaryProtocol : test::OneClient {};
struct BinaryProtocolOfLittleMemory : test::LittleMemory {};

TEST_F(BinaryProtocol, StatReportsNamesAndValues) {
  client.talk(ask(setq, store_extras(), "a", "v"));
  const std::string shown = client.talk(ask(stat));
  EXPECT_NE(shown.find(says(stat, 0, "", "curr_items", "1")), std::string::npos);
  EXPECT_TRUE(shown.ends_with(says(stat)));
}

TEST_F(BinaryProtocol, ExpiryAndTheTextProtocolSeeTheSameItems) {
  Client& binary = client;
  Client text(server);
  EXPECT_EQ(binary.talk(ask(setq, store_extras(9, 5), "a", "v")), "");
  EXPECT_EQ(text.talk("get a\r\n"), "VALUE a 9 1\r\nv\r\nEND\r\n");
  test::advance_s(5);
  EXPECT_EQ(binary.talk(ask(get, "", "a")), says(get, 1, "", "", "Not found"));
  EXPECT_EQ(text.talk("set a 4 0 2\r\nhi\r\n"), "STORED\r\n");
  EXPECT_EQ(binary.talk(ask(get, "", "a")), says(get, 0, big(4, 4), "", "hi", 2));
}

TEST_F(BinaryProtocolOfLittleMemory, OutOfMemoryIsReportedAndTheDataDiscarded) {
  EXPECT_EQ(client.talk(ask(set, store_extras(), "a", std::string(5000, 'v')) + ask(noop)),
            says(set, 0x82, "", "", "Out of memory") + says(noop));
}

}  // namespace
}  // namespace neap::memcached
