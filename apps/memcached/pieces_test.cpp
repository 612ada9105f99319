// SPDX-License-Identifier: BSL-1.0
// Values in pieces, in all protocols: lengths around the longest contiguous value and around the ends of pieces, values that are split or
// joined at such places, replies in flight, and memory that ends in the middle of an item.
#include "apps/memcached/pieces.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "apps/memcached/test_peer.hpp"
#include "kernel/memory/size_classes.hpp"

namespace neap::memcached {
namespace {

using test::Client;
using test::Peer;
using test::put;
using test::Server;
using test::text_of;

constexpr std::size_t kib = 1024, mib = kib * kib, longest = contiguous_bytes_max, piece = Pieces::bytes_min;
constexpr std::size_t sizes_at_edges[] = {longest - 1, longest,       longest + 1,   longest + 2, 2 * piece - 2, 2 * piece - 1,
                                          2 * piece,   2 * piece + 1, 3 * piece - 1, 3 * piece,   3 * piece + 1, mib - 1,
                                          mib,         mib + 1,       8 * mib - 1,   8 * mib,     8 * mib + 1};

/// The allocator of a store: it counts, and refuses blocks beyond a number of them.
struct Blocks {
  std::map<void*, std::size_t> bytes;
  std::size_t heap_bytes = 0, largest = 0;
  unsigned left = ~0U;
  bool shrinks = true;
} blocks;

void* allocate_block(std::size_t bytes) noexcept {
  if (blocks.left == 0) return nullptr;
  --blocks.left;
  void* const block = std::malloc(bytes);
  blocks.bytes[block] = memory::heap_bytes(bytes);
  blocks.heap_bytes += memory::heap_bytes(bytes);
  blocks.largest = std::max(blocks.largest, bytes);
  return block;
}
void release_block(void* block) noexcept {
  if (block == nullptr) return;
  const auto found = blocks.bytes.find(block);
  ASSERT_NE(found, blocks.bytes.end()) << "released twice";
  blocks.heap_bytes -= found->second;
  blocks.bytes.erase(found);
  std::free(block);
}

StoreOptions large_values(std::uint32_t value_bytes_max = 16 * mib) {
  StoreOptions options = test::small_store();
  options.memory_bytes = 256 * mib;
  options.value_bytes_max = value_bytes_max;
  return options;
}
StoreOptions counted_blocks() {
  StoreOptions options = large_values();
  options.memory.allocate = &allocate_block;
  options.memory.release = &release_block;
  return options;
}

std::string number(std::uint64_t value) { return std::to_string(value); }
std::string set(const std::string& value, const std::string& more = "") {
  return "set a 0 0 " + number(value.size()) + more + "\r\n" + value + "\r\n";
}
std::string answer(const std::string& value) { return "VALUE a 0 " + number(value.size()) + "\r\n" + value + "\r\nEND\r\n"; }

struct PiecesTest : testing::Test {
  Server server{large_values()};
  Client client{server};
  void TearDown() override {
    Client other(server);
    (void)other.talk("flush_all\r\nget a\r\n");
    EXPECT_EQ(server.store.used_bytes(), server.store.counters().bytes);
    EXPECT_EQ(server.store.held_bytes(), 0U);
    EXPECT_EQ(server.store.retired_bytes(), 0U);
  }
  const Item& item(std::string_view key = "a") { return *server.store.find(server.store.key(key), server.service.clock.now()).item; }
};

TEST(Pieces, CoverEachByteOnce) {
  for (const std::size_t bytes : {longest + 1, 2 * piece, 8 * mib, 8 * mib + 1, 100 * mib + 7, 128 * mib - 1, 128 * mib}) {
    const Pieces pieces(bytes);
    std::size_t sum = 0;
    for (unsigned index = 0; index < pieces.count; ++index) {
      ASSERT_EQ(pieces.index_of(sum), index);
      ASSERT_GT(pieces.bytes_of(index), 0U);
      sum += pieces.bytes_of(index);
      ASSERT_EQ(pieces.index_of(sum - 1), index);
    }
    EXPECT_EQ(sum, bytes);
    EXPECT_LE(pieces.count, Pieces::count_max);
  }
}

// An item's footprint is exactly what its blocks take, and no block is longer than a piece or a contiguous item.
TEST(Pieces, TheFootprintIsThatOfAllBlocks) {
  blocks = {};
  {
    Store store(counted_blocks());
    const std::size_t before = blocks.heap_bytes;
    for (const OwnCas own_cas : {OwnCas(), OwnCas(7)}) {
      for (const std::size_t bytes : sizes_at_edges) {
        blocks.largest = 0;
        auto [item, outcome] = store.allocate(store.key("key"), 0, 0, bytes, 2, own_cas);
        ASSERT_EQ(outcome, Outcome::stored);
        EXPECT_EQ(blocks.heap_bytes - before, Store::footprint(*item.get())) << bytes;
        EXPECT_EQ(item->in_pieces(), bytes > longest);
        EXPECT_LE(blocks.largest, std::max(Pieces(bytes).bytes, Item::contiguous_bytes(3, longest, 8)));
        EXPECT_GE(store.used_bytes(), Store::footprint(*item.get()));
        item.reset();
        EXPECT_EQ(blocks.heap_bytes, before);
        EXPECT_EQ(store.used_bytes(), 0U);
      }
    }
  }
  EXPECT_TRUE(blocks.bytes.empty());
}

// Memory ends at each block of an item in turn. The item is refused, and all of its blocks are free again.
TEST(Pieces, ARefusedPieceFreesTheOthers) {
  blocks = {};
  {
    Store store(counted_blocks());
    for (unsigned core_block = 0; core_block < store.spare_blocks(); ++core_block) {  // use up the spare blocks, which would help out
      blocks.left = 0;
      (void)store.allocate(store.key("x"), 0, 0, store.spare_block_bytes() - 1000, 2);
    }
    blocks.left = ~0U;
    const std::size_t before = blocks.heap_bytes;
    constexpr std::size_t bytes = 5 * piece + 1;
    unsigned refused = 0;
    for (unsigned left = 0;; ++left) {
      blocks.left = left;
      auto [item, outcome] = store.allocate(store.key("key"), 0, 0, bytes, 2);
      if (item) break;
      ++refused;
      ASSERT_EQ(outcome, Outcome::out_of_memory);
      ASSERT_LE(blocks.heap_bytes, before);
      ASSERT_EQ(store.used_bytes(), 0U);
    }
    EXPECT_GE(refused, 7U);
    blocks.left = ~0U;
  }
  EXPECT_TRUE(blocks.bytes.empty());
}

TEST_F(PiecesTest, ValuesOfAllLengthsComeBackWhole) {
  for (const std::size_t bytes : sizes_at_edges) {
    const std::string value = text_of(bytes, static_cast<unsigned>(bytes));
    for (const std::size_t part : {~std::size_t{0}, std::size_t{1009}, piece}) {
      ASSERT_EQ(client.talk(set(value), part), "STORED\r\n") << bytes;
      ASSERT_TRUE(client.talk("get a\r\n") == answer(value)) << bytes;
    }
    EXPECT_EQ(client.talk(set(value, " noreply")), "");
    EXPECT_TRUE(client.talk("gat 100 a\r\n") == answer(value));
    EXPECT_EQ(client.talk("touch a 200\r\n"), "TOUCHED\r\n");
    const std::string cas = number(item().client_cas());
    EXPECT_TRUE(client.talk("gets a a\r\n") == "VALUE a 0 " + number(bytes) + " " + cas + "\r\n" + value + "\r\nVALUE a 0 " +
                                                   number(bytes) + " " + cas + "\r\n" + value + "\r\nEND\r\n");
  }
}

TEST_F(PiecesTest, ALongerValueThanTheLimitIsRefused) {
  const std::string value = text_of(16 * mib);
  EXPECT_EQ(client.talk(set(value)), "STORED\r\n");
  EXPECT_TRUE(client.talk("get a\r\n") == answer(value));
  EXPECT_EQ(client.talk(set(value + "x")), "SERVER_ERROR object too large for cache\r\n");
  EXPECT_EQ(client.talk("get a\r\n"), "END\r\n");
}

// The request is cut in two at each place near the end of a piece.
TEST_F(PiecesTest, ARequestMayBeCutAnywhere) {
  for (const std::size_t bytes : {longest + 1, 2 * piece, 2 * piece + 1}) {
    const std::string value = text_of(bytes), request = set(value);
    const std::size_t head = request.size() - bytes - 2;
    for (const std::size_t edge : {std::size_t{2}, piece, 2 * piece, bytes, bytes + 2}) {
      for (std::size_t cut = std::max(head + edge, std::size_t{3}) - 3; cut < std::min(head + edge + 3, request.size()); ++cut) {
        ASSERT_EQ(client.talk(request.substr(0, cut)), "");
        ASSERT_EQ(client.talk(request.substr(cut)), "STORED\r\n") << cut;
        ASSERT_TRUE(client.talk("get a\r\n") == answer(value)) << cut;
      }
    }
  }
}

TEST_F(PiecesTest, AWrongLineEndIsRefused) {
  for (const std::size_t bytes : {longest + 1, 2 * piece - 1, 2 * piece, 2 * piece + 1}) {
    for (const char* const end : {"\r\r", "xx", "\n\n", "x\n", "\rx"}) {
      for (const std::size_t part : {~std::size_t{0}, std::size_t{1}}) {
        std::string request = set(text_of(bytes));
        request.replace(request.size() - 2, 2, end);
        const std::size_t cut = request.size() - 4;
        ASSERT_EQ(client.talk(request.substr(0, cut)), "");
        ASSERT_EQ(client.talk(request.substr(cut), part), "CLIENT_ERROR bad data chunk\r\n") << bytes;
        ASSERT_EQ(client.talk("get a\r\n"), "END\r\n");
        ASSERT_EQ(server.store.counters().items, 0U);
      }
    }
  }
}

// All pairs of short and long parts. Each join ends at another place of the pieces.
TEST_F(PiecesTest, AppendAndPrependJoinPieces) {
  const std::size_t parts[] = {0, 1, 100, longest - 1, longest, longest + 1, 2 * piece, 2 * piece + 1, mib + 3};
  for (const std::size_t first : parts) {
    for (const std::size_t second : parts) {
      const std::string old = text_of(first, 1), more = text_of(second, 2), size = number(second);
      (void)client.talk(set(old));
      ASSERT_EQ(client.talk("append a 0 0 " + size + "\r\n" + more + "\r\n"), "STORED\r\n");
      ASSERT_TRUE(client.talk("get a\r\n") == answer(old + more)) << first << " + " << second;
      (void)client.talk(set(old));
      ASSERT_EQ(client.talk("ms a " + size + " MP s\r\n" + more + "\r\n"), "HD s" + number(first + second) + "\r\n");
      ASSERT_TRUE(client.talk("get a\r\n") == answer(more + old)) << second << " + " << first;
    }
  }
  (void)client.talk(set(text_of(10 * mib)));
  EXPECT_EQ(client.talk("append a 0 0 " + number(7 * mib) + "\r\n" + text_of(7 * mib) + "\r\n"),
            "SERVER_ERROR object too large for cache\r\n");
  EXPECT_EQ(item().value_bytes, 10 * mib);
}

TEST_F(PiecesTest, MetaCommandsReturnAllFlags) {
  for (const std::size_t bytes : {longest, longest + 1, 2 * piece, mib + 1}) {
    const std::string value = text_of(bytes), size = number(bytes);
    EXPECT_EQ(client.talk("ms a " + size + " T90 F7 E1234567 c s k O9\r\n" + value + "\r\n"), "HD c1234567 s" + size + " ka O9\r\n");
    EXPECT_EQ(client.talk("mg a s t f c h l k O1\r\n"), "HD s" + size + " t90 f7 c1234567 h0 l0 ka O1\r\n");
    EXPECT_TRUE(client.talk("mg a v s c k O2 q\r\n") == "VA " + size + " s" + size + " c1234567 ka O2\r\n" + value + "\r\n");
    EXPECT_TRUE(client.talk("mg a v h T30 t\r\nmn\r\n") == "VA " + size + " h1 T30 t30\r\n" + value + "\r\nMN\r\n" ||
                client.talk("mg a v\r\n") == "VA " + size + "\r\n" + value + "\r\n");
    // md with E makes a copy, which keeps the value.
    EXPECT_EQ(client.talk("md a I E99\r\n"), "HD\r\n");
    EXPECT_TRUE(client.talk("mg a v c\r\n") == "VA " + size + " c99 X W\r\n" + value + "\r\n");
    EXPECT_EQ(client.talk("ms a " + size + " C98 \r\n" + value + "\r\n"), "EX\r\n");
    EXPECT_EQ(client.talk("ms a " + size + " C99 q\r\n" + value + "\r\nmn\r\n"), "MN\r\n");
    EXPECT_EQ(client.talk("md a x\r\nmg a s\r\n"), "HD\r\nHD s0\r\n");
  }
}

TEST_F(PiecesTest, AreNoNumbers) {
  const std::string value = "5" + std::string(longest, ' ');
  (void)client.talk(set(value));
  EXPECT_EQ(client.talk("incr a 1\r\nma a\r\n"),
            "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
            "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
  EXPECT_TRUE(client.talk("get a\r\n") == answer(value));
}

TEST_F(PiecesTest, DumpsShowTheirLength) {
  (void)client.talk(set(text_of(3 * piece)));
  const std::string dump = client.talk("lru_crawler metadump all\r\n");
  const auto at = dump.find(" size=");
  ASSERT_NE(at, std::string::npos) << dump;
  EXPECT_EQ(std::stoul(dump.substr(at + 6)), item().memory_bytes());
  EXPECT_GT(item().memory_bytes(), 3 * piece + Item::header_bytes);
  EXPECT_NE(client.talk("stats items\r\n").find("items:14:number 1\r\n"), std::string::npos);  // 512 KiB to 1 MiB
}

// The cases of memcached's chunked-items.t: an item grows step by step from a few bytes to many pieces, at either end.
TEST_F(PiecesTest, GrowByManySmallSteps) {
  for (const bool at_end : {true, false}) {
    std::string text = "seed";
    ASSERT_EQ(client.talk(set(text)), "STORED\r\n");
    for (unsigned step = 1; step <= 300; ++step) {
      const std::string more = number(step) + ":" + std::string(3000, 'x');
      text = at_end ? text + more : more + text;
      ASSERT_EQ(client.talk((at_end ? "append a 0 0 " : "prepend a 0 0 ") + number(more.size()) + "\r\n" + more + "\r\n"), "STORED\r\n");
      if (step % 20 == 0) {
        ASSERT_TRUE(client.talk("get a\r\n") == answer(text)) << step;
      }
    }
    ASSERT_EQ(client.talk((at_end ? "append a 0 0 " : "prepend a 0 0 ") + number(text.size()) + "\r\n" + text + "\r\n"), "STORED\r\n");
    EXPECT_TRUE(client.talk("get a\r\n") == answer(text + text));
  }
}

/// Retired items wait here until the end of the simulated event.
std::vector<rcu::Node*> waiting;
void end_event() {
  for (rcu::Node* const node : std::exchange(waiting, {})) node->reclaim(node);
}

// A long value in a full store of small items waits while each event evicts a few of them. Commands with small values do not wait.
TEST(Pieces, ALongValueEvictsAFewItemsAnEvent) {
  constexpr unsigned smalls = 80'000, step = 32;
  constexpr std::size_t bytes = 8 * mib;
  StoreOptions options = large_values();
  options.memory_bytes = 12 * mib;
  options.retire = [](rcu::Node& node) noexcept { waiting.push_back(&node); };
  Server server(options);
  Store& store = server.store;
  {
    Client client(server), gone(server), bystander(server);
    for (unsigned index = 0; index < smalls; ++index) {
      ASSERT_EQ(put(store, Mode::set, "k" + number(index), std::string(100, 'v'), 2).outcome, Outcome::stored);
      end_event();
    }
    ASSERT_GT(store.counters().evictions, 0U);
    const std::string value = text_of(bytes), request = set(value);
    std::string_view left = request;
    unsigned events = 0;
    std::uint64_t small_sets = 0;
    while (!left.empty()) {
      const std::uint64_t before = store.counters().evictions;
      left.remove_prefix(client.conversation.consume(left, client.reply));
      ASSERT_LE(store.counters().evictions - before, 2 * step);
      ASSERT_TRUE(left.empty() || client.conversation.waits());
      if (events % 10 == 0) {
        ASSERT_EQ(bystander.talk("set s" + number(small_sets++) + " 0 0 1\r\nx\r\n"), "STORED\r\n");
      }
      end_event();
      ASSERT_LT(++events, 20'000U);
    }
    EXPECT_EQ(test::take_all(client.reply), "STORED\r\n");
    EXPECT_GT(events, bytes / 200 / step / 2);
    EXPECT_TRUE(bystander.talk("get a\r\n") == answer(value));
    EXPECT_LE(store.used_bytes(), options.memory_bytes + store.retired_bytes_max());
    // A client that is gone while it waits leaves no shortage behind. A value that never has room evicts nothing.
    (void)gone.conversation.consume("set b 0 0 8000000\r\n", gone.reply);
    EXPECT_TRUE(gone.conversation.waits());
    for (events = 0; store.is_short_of_memory(); ++events) {
      (void)bystander.conversation.consume("set x 0 0 1\r\nx\r\n", bystander.reply);  // waits while the long item is retired
      bystander.reply.clear();
      end_event();
      ASSERT_LT(events, 20'000U);
    }
    const std::uint64_t evictions = store.counters().evictions;
    EXPECT_EQ(bystander.talk("set c 0 0 16777216\r\n").substr(0, 22), "SERVER_ERROR out of me");
    EXPECT_EQ(store.counters().evictions, evictions);
  }
  end_event();
}

// --- binary ------------------------------------------------------------------------------------------------------------------------------
std::string big(std::uint64_t value, unsigned bytes) {
  std::string text;
  for (unsigned at = bytes; at-- > 0;) text.push_back(static_cast<char>(value >> (8 * at)));
  return text;
}
std::string frame(unsigned magic, unsigned opcode, const std::string& extras, const std::string& key, const std::string& value,
                  std::uint64_t cas = 0, unsigned status = 0) {
  return big(magic, 1) + big(opcode, 1) + big(key.size(), 2) + big(extras.size(), 1) + big(0, 1) + big(status, 2) +
         big(extras.size() + key.size() + value.size(), 4) + big(0, 4) + big(cas, 8) + extras + key + value;
}
std::string ask(unsigned opcode, const std::string& extras, const std::string& value = "") {
  return frame(0x80, opcode, extras, "a", value);
}

TEST_F(PiecesTest, BinaryCommands) {
  enum : unsigned {
    get = 0,
    set = 1,
    increment = 5,
    getq = 9,
    noop = 10,
    getk = 12,
    getkq = 13,
    append = 14,
    setq = 17,
    appendq = 25,
    gat = 29
  };
  const std::string flags = big(7, 4);
  for (const std::size_t bytes : {longest, longest + 1, 2 * piece, 2 * piece + 1, mib}) {
    const std::string value = text_of(bytes), more = text_of(piece + 5, 3);
    for (const std::size_t part : {~std::size_t{0}, std::size_t{10'007}}) {
      const auto expect = [&](const std::string& request, unsigned opcode, const std::string& extras, const std::string& key,
                              const std::string& expected) {
        const std::string reply = client.talk(request, part);
        EXPECT_TRUE(reply == frame(0x81, opcode, extras, key, expected, item().client_cas())) << "opcode " << opcode << ", " << bytes;
      };
      expect(ask(set, flags + big(0, 4), value), set, "", "", "");
      for (const unsigned opcode : {get, getq}) expect(ask(opcode, ""), opcode, flags, "", value);
      for (const unsigned opcode : {getk, getkq}) expect(ask(opcode, ""), opcode, flags, "a", value);
      expect(ask(gat, big(60, 4)), gat, flags, "", value);
      expect(ask(append, "", more), append, "", "", "");
      EXPECT_EQ(client.talk(ask(appendq, "", more), part), "");
      expect(ask(get, ""), get, flags, "", value + more + more);
      EXPECT_EQ(client.talk(ask(setq, flags + big(0, 4), value) + frame(0x80, noop, "", "", ""), part), frame(0x81, noop, "", "", ""));
      expect(ask(get, ""), get, flags, "", value);
    }
  }
  EXPECT_EQ(client.talk(ask(increment, big(1, 8) + big(0, 8) + big(0, 4))).substr(6, 2), big(6, 2));  // not a number
}

// --- Sessions ----------------------------------------------------------------------------------------------------------------------------
// A reply refers to the pieces. They stay until the last byte is acknowledged, whatever happens to the item, and are then free.
TEST(PiecesInFlight, StayUntilTheyAreAcknowledged) {
  for (const char* const change : {"delete a\r\n", "flush_all\r\nget a\r\n", "set a 0 0 1\r\nx\r\n", "append a 0 0 1\r\nx\r\n"}) {
    Server server(large_values());
    const std::string value = text_of(3 * mib + 5);
    Peer reader(server), writer(server);
    ASSERT_EQ(writer.ask(set(value)), "STORED\r\n");
    reader.send("get a\r\n");
    std::string read = reader.connection.acknowledge(100'000);
    (void)writer.ask(change);
    EXPECT_EQ(server.store.held_bytes() - server.service.reply_memory.taken_bytes(), Store::footprint(1, value.size())) << change;
    reader.session->writable();
    while (read.size() < answer(value).size()) {
      const std::string more = reader.connection.acknowledge(777'777);
      ASSERT_FALSE(more.empty());
      read += more;
      reader.session->writable();
    }
    EXPECT_TRUE(read == answer(value));
    EXPECT_EQ(server.store.held_bytes(), 0U);
    (void)writer.ask("delete a\r\n");
    EXPECT_EQ(server.store.used_bytes(), 0U);
  }
}

TEST(PiecesInFlight, AreFreeWhenTheirReaderIsGone) {
  Server server(large_values());
  Peer writer(server);
  ASSERT_EQ(writer.ask(set(text_of(mib))), "STORED\r\n");
  {
    Peer reader(server);
    reader.send("get a a a\r\nget a\r\n");
    (void)writer.ask("delete a\r\n");
    EXPECT_GT(server.store.held_bytes(), mib);
    (void)reader.connection.acknowledge(3 * piece + 11);
  }
  EXPECT_EQ(server.store.held_bytes(), 0U);
  EXPECT_EQ(server.store.used_bytes(), 0U);
}

TEST(PiecesInFlight, AnUnfinishedUploadFreesThem) {
  Server server(large_values());
  for (const std::size_t sent : {std::size_t{30}, piece + 3, mib}) {
    Peer peer(server);
    peer.send(set(text_of(mib)).substr(0, sent));
    EXPECT_EQ(server.store.used_bytes(), Store::footprint(1, mib));
    EXPECT_EQ(server.service.upload_bytes(), Store::footprint(1, mib));
    peer.session->peer_closed();
    peer.session->closed();
    peer.session.reset();
    EXPECT_EQ(server.store.used_bytes(), 0U);
    EXPECT_EQ(server.service.upload_bytes(), 0U);
  }
}

// A reader holds an item while it is evicted.
TEST(PiecesInFlight, OutliveEviction) {
  StoreOptions options = large_values(mib);
  options.memory_bytes = 8 * mib;
  Server server(options);
  const std::string value = text_of(mib);
  Peer reader(server), writer(server);
  ASSERT_EQ(writer.ask(set(value)), "STORED\r\n");
  reader.send("mg a v u\r\n");  // without a note of the use, which would give the item a second chance
  for (int i = 0; i < 20; ++i) {
    const std::string other = text_of(700'000, static_cast<unsigned>(i));
    ASSERT_EQ(writer.ask("set b" + number(static_cast<unsigned>(i)) + " 0 0 700000\r\n" + other + "\r\n"), "STORED\r\n");
    EXPECT_LE(server.store.used_bytes() + server.store.held_bytes(), options.memory_bytes + server.store.retired_bytes_max());
  }
  EXPECT_EQ(writer.ask("get a\r\n"), "END\r\n");
  EXPECT_TRUE(reader.read_all() == "VA 1048576\r\n" + value + "\r\n");
  EXPECT_EQ(server.store.held_bytes(), 0U);
  EXPECT_EQ(server.store.used_bytes(), server.store.counters().bytes);
}

// The largest value that the options allow.
TEST(PiecesInFlight, TheLargestValueComesBackWhole) {
  StoreOptions options = large_values(128 * mib);
  options.memory_bytes = 400 * mib;
  Server server(options);
  Peer peer(server);
  const std::string value = text_of(128 * mib);
  peer.send("set a 0 0 " + number(value.size()) + "\r\n");
  for (std::size_t at = 0; at < value.size(); at += mib) peer.send(std::string_view(value).substr(at, mib));
  EXPECT_EQ(peer.ask("\r\n"), "STORED\r\n");
  EXPECT_TRUE(peer.ask("get a\r\n") == answer(value));
  EXPECT_EQ(server.store.used_bytes(), Store::footprint(1, value.size()));
  EXPECT_EQ(peer.ask("delete a\r\n"), "DELETED\r\n");
  EXPECT_EQ(server.store.used_bytes(), 0U);
}

}  // namespace
}  // namespace neap::memcached
