// SPDX-License-Identifier: BSL-1.0
// A session with a simulated connection: back-pressure, sending after the peer has read, and peers that disconnect.
#include "apps/memcached/session.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/memcached/test_peer.hpp"
#include "tests/host/allocated_bytes.hpp"
#include "tests/host/panics.hpp"
#include "tests/host/progress_watchdog.hpp"

namespace neap::memcached {
namespace {

using test::Peer;
using test::Server;

struct SessionTest : testing::Test {
  Server server;
  Peer peer{server};
};

TEST_F(SessionTest, PipelinedRequestsOfOneBufferAreAnsweredInOneSend) {
  peer.send("set a 0 0 1\r\nx\r\nget a\r\nget b\r\nversion\r\n");
  ASSERT_FALSE(peer.connection.sent.empty());
  EXPECT_EQ(peer.connection.sent.front().size(), peer.connection.sent.bytes());  // one piece
  EXPECT_EQ(peer.read_all(), "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nEND\r\nVERSION 1.6.0-test\r\n");
}

// A reply is written into the frame that is sent. If it turns out to be longer than a frame, nothing of it is lost.
TEST_F(SessionTest, RepliesThatFitAFrameAreWrittenIntoIt) {
  const std::string value(100, 'v'), answer = "VALUE a 0 100\r\n" + value + "\r\nEND\r\n";
  const auto gets = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "get a\r\n";
    return text;
  };
  peer.ask("set a 0 0 100\r\n" + value + "\r\n");
  unsigned frames = peer.connection.frames;
  for (const auto& [count, in_frame] : {std::pair{1, true}, {4, true}, {16, false}, {16, false}, {1, false}, {1, true}, {30, false}}) {
    std::string expected;
    for (int i = 0; i < count; ++i) expected += answer;
    EXPECT_EQ(peer.ask(gets(count)), expected) << count;
    if (in_frame) ++frames;
    EXPECT_EQ(peer.connection.frames, frames) << count;
  }
  EXPECT_EQ(peer.ask("get a\r\nget a"), answer);  // the rest of the second request follows
  EXPECT_EQ(peer.ask("\r\n"), answer);
}

TEST_F(SessionTest, ValuesThatFitTheFrameAreCopiedIntoIt) {
  for (const std::size_t bytes : {1024U, 1300U, 1400U, 1437U, 1460U}) {
    const std::string size = std::to_string(bytes), value(bytes, 'v');
    peer.ask("set a 0 0 " + size + "\r\n" + value + "\r\n");
    peer.ask("get b\r\n");  // a short reply
    const unsigned frames = peer.connection.frames;
    EXPECT_EQ(peer.ask("get a\r\n"), "VALUE a 0 " + size + "\r\n" + value + "\r\nEND\r\n");
    EXPECT_EQ(peer.connection.frames - frames, bytes <= 1400 ? 1U : 0U) << bytes;
  }
}

TEST_F(SessionTest, LongValuesBehindShortOnesLeaveTheFrame) {
  const std::string value(5000, 'v');
  peer.ask("set a 0 0 1\r\nx\r\nset b 0 0 5000\r\n" + value + "\r\n");
  EXPECT_EQ(peer.ask("get a\r\nget b\r\nget a\r\n"),
            "VALUE a 0 1\r\nx\r\nEND\r\nVALUE b 0 5000\r\n" + value + "\r\nEND\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
}

TEST_F(SessionTest, LargeValuesAreNotCopied) {
  const std::string value(5000, 'v');
  peer.ask("set a 0 0 5000\r\n" + value + "\r\n");
  peer.send("get a\r\n");
  const Item* const item = server.store.find(server.store.key("a"), server.service.clock.now()).item;
  EXPECT_EQ(item->references.load(), 2U);
  peer.send("delete a\r\n");
  EXPECT_GT(server.store.held_bytes(), 5000U);  // the reply still refers to the value
  EXPECT_EQ(peer.read_all(), "VALUE a 0 5000\r\n" + value + "\r\nEND\r\nDELETED\r\n");
  EXPECT_EQ(server.store.held_bytes(), 0U);
}

// Requests of a peer that does not read its replies stay unparsed, and the bytes queued for it are bounded.
TEST_F(SessionTest, SlowReaderIsStoppedAndLosesNothing) {
  const std::string value(300'000, 'v');
  peer.ask("set a 0 0 300000\r\n" + value + "\r\n");
  std::string expected;
  constexpr int gets = 60;
  for (int i = 0; i < gets; ++i) {
    peer.send("get a a\r\n");
    expected += "VALUE a 0 300000\r\n" + value + "\r\nVALUE a 0 300000\r\n" + value + "\r\nEND\r\n";
  }
  EXPECT_LE(peer.connection.sent.bytes(), net::Connection::send_queue_bytes_max);
  EXPECT_EQ(server.service.total(Count::reply_waits), 1U);
  EXPECT_LT(server.service.total(Count::cmd_get), 30U);  // further requests wait
  EXPECT_EQ(peer.read_all(), expected);
  EXPECT_EQ(server.service.total(Count::cmd_get), gets * 2U);
}

TEST_F(SessionTest, TinySendSpaceStillDeliversEverything) {
  peer.connection.space = 256 * 1024;  // room for one `send` of the session
  const std::string value(1 << 20, 'v');
  peer.send("set a 0 0 1048576\r\n" + value + "\r\nget a\r\nget a\r\nquit\r\n");
  const std::string expected = "VALUE a 0 1048576\r\n" + value + "\r\nEND\r\n";
  EXPECT_EQ(peer.read_all(), "STORED\r\n" + expected + expected);
  EXPECT_TRUE(peer.connection.closed);
}

// An error in a get replaces the get's values, even if its line arrives in two pieces. So no value is sent before the line ends.
TEST_F(SessionTest, ValuesWaitForTheEndOfTheirLine) {
  EXPECT_EQ(peer.ask("set a 0 0 1\r\nx\r\nget a "), "STORED\r\n");
  EXPECT_EQ(peer.ask(std::string(300, 'k') + "\r\n"), "CLIENT_ERROR bad command line format\r\n");
  EXPECT_EQ(peer.ask("get a"), "");
  EXPECT_EQ(peer.ask(" a\r\n"), "VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
}

TEST_F(SessionTest, QuitClosesAfterTheReply) {
  EXPECT_EQ(peer.ask("get a\r\nquit\r\nget b\r\n"), "END\r\n");
  EXPECT_TRUE(peer.connection.closed);
  EXPECT_FALSE(peer.connection.aborted);
  peer.send("get c\r\n");  // arrives after the quit and is dropped
  EXPECT_EQ(server.service.total(Count::cmd_get), 1U);
}

TEST_F(SessionTest, PeerThatClosesGetsItsAnswersFirst) {
  const std::string value(1 << 20, 'v');
  peer.ask("set a 0 0 1048576\r\n" + value + "\r\n");
  peer.send("get a\r\nget a\r\nget a\r\n");
  peer.session->peer_closed();
  EXPECT_FALSE(peer.connection.closed);  // two replies are not sent yet
  const std::string answer = peer.read_all();
  EXPECT_EQ(answer.size(), 3 * (value.size() + std::string("VALUE a 0 1048576\r\n\r\nEND\r\n").size()));
  EXPECT_TRUE(peer.connection.closed);
}

TEST(Session, PeerThatClosesInTheMiddleOfAValueLeavesNothingBehind) {
  Server server;
  {
    Peer peer(server);
    peer.send("set a 0 0 100000\r\nonly this much");
    EXPECT_GT(server.store.used_bytes(), 100000U);
    peer.session->peer_closed();
    EXPECT_TRUE(peer.connection.closed);
    EXPECT_EQ(server.service.connections(), 1U);
  }
  EXPECT_EQ(server.store.used_bytes(), 0U);
  EXPECT_EQ(server.service.connections(), 0U);
}

TEST(Session, ConnectionGoneInTheMiddleOfAReplyReleasesEverything) {
  Server server;
  {
    Peer peer(server);
    const std::string value(1 << 20, 'v');
    peer.ask("set a 0 0 1048576\r\n" + value + "\r\n");
    for (int i = 0; i < 10; ++i) peer.send("get a\r\n");
    peer.connection.drop_all();
    peer.session->closed();
    peer.session.reset();
  }
  EXPECT_EQ(server.store.find(server.store.key("a"), server.service.clock.now()).item->references.load(), 1U);
  EXPECT_LE(server.service.core(0).replies.chunks_out(), 1U);
}

// The values of an unfinished get are not sent before its line ends. If other connections are answered in between, each value is a separate
// segment, and the reply reaches its limit of segments with few bytes. Then the values must be sent, because the parser cannot continue
// until the reply has room.
TEST(Session, HeldValuesThatFillTheReplyBySegmentsLeave) {
  neap::host::WatchedWork work("Session::work with a reply that is full by segments");
  work.begin_piece();
  Server server;
  Peer peer(server), other(server);
  peer.ask("set a 0 0 1\r\nx\r\n");
  constexpr unsigned keys = 2 * Reply::full_segments;
  peer.send("get ");
  for (unsigned i = 0; i < keys; ++i) {
    peer.send("a ");
    other.send("get a\r\n");
  }
  EXPECT_EQ(server.service.total(Count::no_progress), 0U);
  EXPECT_FALSE(peer.connection.aborted);
  peer.send("\r\n");
  std::string expected;
  for (unsigned i = 0; i < keys; ++i) expected += "VALUE a 0 1\r\nx\r\n";
  EXPECT_EQ(peer.read_all(), expected + "END\r\n");
}

// A parser must not ask for more input if it has a whole word. Otherwise the input is copied into the small buffer for split commands.
TEST(Session, ZeroByteAtTheFrontOfAPieceWithinAGetIsNotCarried) {
  neap::host::WatchedWork work("Session::work with a zero byte within a get");
  work.begin_piece();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{3000}, std::size_t{65535}}) {
    Server server;
    Peer peer(server);
    peer.send("get ");
    peer.send(std::string(1, '\0') + std::string(bytes, 'A'));
    EXPECT_EQ(peer.read_all(), "");
    peer.send("\r\nget a\r\n");
    EXPECT_EQ(peer.read_all(), "ERROR\r\nEND\r\n");
    EXPECT_FALSE(peer.connection.aborted);
    EXPECT_EQ(server.service.total(Count::protocol_overrun), 0U);
  }
}

// The buffer's bounds hold for any number of bytes that a parser requests.
TEST(Carry, TakesNoMoreThanItHasRoomFor) {
  const auto carry = std::make_unique<Carry>();
  EXPECT_TRUE(carry->add(std::string(Carry::bytes_max - 1, 'a')));
  EXPECT_FALSE(carry->add("bc"));
  EXPECT_EQ(carry->text().size(), Carry::bytes_max - 1);
  EXPECT_TRUE(carry->add("b"));
  EXPECT_FALSE(carry->add("c"));
  EXPECT_FALSE(carry->drop_front(Carry::bytes_max + 1));
  EXPECT_TRUE(carry->drop_front(Carry::bytes_max - 1));
  EXPECT_EQ(carry->text(), "b");
}

TEST(Transfer, TakesNoMoreThanTheItemHasRoomFor) {
  Server server;
  auto [item, outcome] = server.store.allocate(server.store.key("a"), 0, expires_never, 10, server.service.clock.now());
  ASSERT_EQ(outcome, Outcome::stored);
  Transfer transfer;
  transfer.fill(std::move(item), 1 << 20);  // more than the item has room for
  EXPECT_TRUE(transfer.take("0123456789"));
  EXPECT_FALSE(transfer.take("abc"));  // the line end has two bytes
  EXPECT_TRUE(transfer.take("\r\n"));
  EXPECT_FALSE(transfer.take("x"));
  transfer.item.reset();
  EXPECT_FALSE(transfer.take("x"));
  transfer.discard(3);
  EXPECT_FALSE(transfer.take("four"));
  EXPECT_TRUE(transfer.take("all"));
}

std::string binary_request(std::uint8_t opcode, std::string_view extras, std::string_view key, std::string_view value,
                           std::uint8_t cas = 0) {
  std::string head(24, '\0');
  const std::size_t body = extras.size() + key.size() + value.size();
  head[0] = '\x80';
  head[1] = static_cast<char>(opcode);
  head[2] = static_cast<char>(key.size() >> 8);
  head[3] = static_cast<char>(key.size());
  head[4] = static_cast<char>(extras.size());
  for (unsigned at = 0; at < 4; ++at) head[8 + at] = static_cast<char>(body >> (24 - 8 * at));
  head[12] = static_cast<char>(body * 7);  // opaque
  head[23] = static_cast<char>(cas);
  return head.append(extras).append(key).append(value);
}

enum class Kind : std::uint8_t { text, meta, binary };

/// A request of a kind that is handled whole, or one that is nearly of this kind.
std::string random_request(std::mt19937& random, Kind kind) {
  const auto below = [&](unsigned bound) { return static_cast<unsigned>(random() % bound); };
  static constexpr std::size_t key_sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 34, 100, 249, 250, 251};
  static constexpr std::size_t value_sizes[] = {0,  1,  9,   10,  15,  16,  17,  31,  32,  33,  62,   63,   64,   65,
                                                94, 99, 100, 126, 127, 500, 509, 510, 512, 999, 1000, 1022, 1023, 5000};
  const std::string key(key_sizes[below(below(2) == 0 ? 16 : 4)], static_cast<char>('a' + below(3)));
  const std::string value(value_sizes[below(static_cast<unsigned>(std::size(value_sizes)))], static_cast<char>('A' + below(26)));
  if (kind == Kind::binary) {
    const std::string extras = std::string("\0\0\0", 3) + static_cast<char>(below(2) * 200) + std::string(4, '\0');
    switch (below(8)) {
      case 0:
        return binary_request(0x01, extras, key, value, static_cast<std::uint8_t>(below(40)));
      case 1:
        return binary_request(0x09, "", key, "");
      case 2:
      case 3:
        return binary_request(0x01, extras, key, value);
      default:
        return binary_request(0x00, "", key, "");
    }
  }
  const std::string bytes = std::to_string(value.size());
  if (kind == Kind::meta && below(8) != 0) {
    static const char* const usual[] = {"v", "k", "f", "c", "s", "t", "q", "O77", "Oabcdefghijklmnopqrstuvwxyz01234"};
    static const char* const others[] = {"h",  "l", "u",  "N30", "R50", "T60", "F7", "Oabcdefghijklmnopqrstuvwxyz012345",
                                         "vv", "T", "E9", "b",   "MA",  "I"};
    std::string flags;
    for (unsigned count = below(6); count-- > 0;) flags += std::string(" ") + usual[below(9)];
    for (unsigned count = below(6) / 4; count-- > 0;) flags += std::string(" ") + others[below(14)];
    if (below(20) == 0) flags += " ";
    const char* const end = below(20) == 0 ? "\n" : "\r\n";
    switch (below(8)) {
      case 0:
        return "mn\r\n";
      case 1:
        return "md " + key + flags + end;
      case 2:
      case 3:
        if (below(2) == 0) flags += below(2) == 0 ? " T60" : " F4294967295";
        return "ms " + key + " " + bytes + flags + end + value + (below(20) == 0 ? "xy\r\n" : "\r\n");
      default:
        return "mg " + key + flags + end;
    }
  }
  switch (below(16)) {
    case 0:
      return "set " + key + " 0 0 " + bytes + " noreply\r\n" + value + "\r\n";
    case 1:
      return "set  " + key + " 4294967295  -1 " + bytes + "\r\n" + value + "\r\n";
    case 2:
      return "set " + key + " 0 0 " + bytes + "\n" + value + "\r\n";
    case 3:
      return "set " + key + " 0 0 " + bytes + "\r\n" + value + "xy\r\n";
    case 4:
      return "set " + key + " 9999999999 0 " + bytes + "\r\n" + value + "\r\n";
    case 5:
      return "get " + key + " a\r\n";
    case 6:
      return "get " + key + (below(2) == 0 ? " \r\n" : "\n");
    case 7:
      return "get  " + key + "\r\n";
    case 8:
    case 9:
    case 10:
      return "set " + key + " " + std::to_string(below(2) * 70'000) + " " + std::to_string(below(2) * 100) + " " + bytes + "\r\n" + value +
             "\r\n";
    default:
      return "get " + key + "\r\n";
  }
}

// Whole requests pass the parsers by. The parsers get the same requests byte by byte, so that no request is whole, and must give the same
// answers.
TEST(Session, WholeRequestsAreAnsweredAsByTheParsers) {
  for (const Kind kind : {Kind::text, Kind::meta, Kind::binary}) {
    std::mt19937 random(3);
    Server server, other;
    Peer peer(server);
    test::Client client(other);
    for (unsigned round = 0; round < 1500; ++round) {
      std::string requests;
      for (unsigned count = 1 + static_cast<unsigned>(random() % 6); count-- > 0;) requests += random_request(random, kind);
      if (random() % 8 == 0) requests.resize(requests.size() - random() % 4);
      ASSERT_EQ(peer.ask(requests), client.talk(requests, 1)) << requests;
    }
    for (const Count count : {Count::requests, Count::cmd_get, Count::cmd_set, Count::get_hits, Count::get_misses}) {
      EXPECT_EQ(server.service.total(count), other.service.total(count)) << static_cast<int>(count);
    }
    EXPECT_EQ(server.store.counters().items, other.store.counters().items);
    EXPECT_EQ(server.store.used_bytes(), other.store.used_bytes());
  }
}

// The memory of many idle connections is that of their sessions. The core's exchange serves all of them.
TEST(Session, IdleSessionsAreSmall) {
  EXPECT_LE(sizeof(Session), 48U);
  Server server;
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 100; ++i) peers.push_back(std::make_unique<Peer>(server));
  const auto serve_all = [&] {
    for (auto& peer : peers) {
      peer->send("get a\r\n");
      peer->connection.acknowledge();
      peer->session->writable();
    }
  };
  serve_all();
  const std::size_t before = host::allocated_bytes();
  serve_all();
  EXPECT_LE(host::allocated_bytes(), before + 1024);
}

// The answer to quiet requests alone is empty.
TEST(Session, QuietMetaRequestsAreFollowedByAnAnswer) {
  Server server;
  Peer peer(server);
  EXPECT_EQ(peer.ask("mn\r\n"), "MN\r\n");
  EXPECT_EQ(peer.ask("mg a q v\r\n"), "");
  EXPECT_EQ(peer.ask("ms a 1 q\r\nx\r\nmg b q\r\n"), "");
  EXPECT_EQ(peer.ask("mg b q\r\nmg a v q\r\nmn\r\n"), "VA 1\r\nx\r\nMN\r\n");
  EXPECT_EQ(peer.ask("mg b q"), "");
  EXPECT_EQ(peer.ask("\r\nmn\r\nget a\r\nmg a k\r\n"), "MN\r\nVALUE a 0 1\r\nx\r\nEND\r\nHD ka\r\n");
  EXPECT_FALSE(peer.connection.aborted);
}

// A failed `require` panics with the text of the broken rule, in release builds too.
TEST(RequireDeathTest, MistakesAreNamed) {
  Server server;
  CoreState& core = server.service.core(0);
  const auto panics = testing::ExitedWithCode(18);
  EXPECT_EXIT((void)server.service.core(1), panics, "memcached: no such core");
  EXPECT_EXIT(core.replies.account().discharge(1), panics, "discharges no more reply bytes than it charged");
  host::expect_panic("a reply exceeds its chunk", [&] {
    Reply reply(core.replies);
    (void)reply.room(1);
    reply.advance(ReplyPool::chunk_bytes + 1);
  });
  host::expect_panic("a session runs on the core of its connection", [&] {
    Session session(server.service, core);
    core.index = 1;
    session.received({});
  });
  host::expect_panic("an item without references cannot be held", [&] {
    auto allocated = server.store.allocate(server.store.key("a"), 0, expires_never, 1, 2);
    allocated.item->references = 0;
    allocated.item->hold();
  });
  EXPECT_EXIT((void)server.store.commit(Mode::set, {}, 0, 2), panics, "only an item that was never linked is committed");
}

// Bytes that are written without a call neither leave the open text nor fill the reply.
TEST(Reply, QuickRoomEndsWhereTheReplyIsFull) {
  ReplyPool pool;
  Reply reply(pool);
  const auto quick_bytes = [&] { return reply.quick_end() - reply.cursor(); };
  EXPECT_EQ(quick_bytes(), 0);
  reply.put("x");
  EXPECT_EQ(quick_bytes(), static_cast<std::ptrdiff_t>(ReplyPool::chunk_bytes) - 1);
  reply.limit(100);
  EXPECT_EQ(quick_bytes(), 99);
  std::memcpy(reply.cursor(), "yz", 2);
  reply.advance_to(reply.cursor() + 2);
  EXPECT_EQ(quick_bytes(), 97);
  EXPECT_FALSE(reply.full());
  EXPECT_EQ(test::take_all(reply), "xyz");
  EXPECT_EQ(quick_bytes(), 100);
}

TEST(Reply, RoomIsNeverMoreThanAChunk) {
  ReplyPool pool;
  Reply reply(pool);
  EXPECT_NE(reply.room(ReplyPool::chunk_bytes), nullptr);
  EXPECT_FALSE(reply.failed());
  EXPECT_EQ(reply.room(ReplyPool::chunk_bytes + 1), nullptr);
  EXPECT_TRUE(reply.failed());
}

// Many connections each have a small reply in flight. These replies share chunks, so they do not cost a page each.
TEST(Session, SmallRepliesUnderWayShareMemory) {
  Server server;
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 1000; ++i) {
    peers.push_back(std::make_unique<Peer>(server));
    peers.back()->send("get a\r\n");
  }
  EXPECT_LE(server.service.core(0).replies.chunks_out(), 3U);
}

}  // namespace
}  // namespace neap::memcached
