// SPDX-License-Identifier: BSL-1.0
// Admission and displacement of clients, and limits of their memory.
#include "observe/admission.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "observe/testing.hpp"

namespace neap::observe::testing {
namespace {

constexpr const char* token = "correct-horse";
const std::string token_line = std::string("token,") + token;

WorldOptions with_token() {
  WorldOptions options = small_log();
  options.control.token = token;
  return options;
}

// --- The selection -----------------------------------------------------------------------------------------------------------------------
/// Admits clients as the server does.
class Places {
 public:
  bool admit(net::Ipv4Address address) {
    const Victim victim = victim_for_newcomer(present, address, now_ns);
    if (!victim) return false;
    if (*victim) present.erase(present.begin() + static_cast<std::ptrdiff_t>(**victim));
    present.push_back({.address = address, .id = ++last_id, .arrived_ns = now_ns});
    return true;
  }
  bool holds(net::Ipv4Address address) const {
    return std::any_of(present.begin(), present.end(), [&](const Occupant& one) { return one.address == address; });
  }
  std::size_t unproven() const {
    return static_cast<std::size_t>(std::count_if(present.begin(), present.end(), [](const Occupant& one) { return !one.proven; }));
  }
  std::vector<Occupant> present;
  std::uint64_t last_id = 0;
  std::uint64_t now_ns = 0;
};

TEST(Admission, NewcomersFromManyAddressesLeaveTheOwnerTimeForItsToken) {
  constexpr net::Ipv4Address owner{0x0A000001};
  std::minstd_rand random(1);
  for (const std::uint32_t addresses : {1U, 2U, 4U, 100U, 1'000'000U}) {
    Places places;
    for (int tried = 0; tried < 16'384; ++tried) {
      ASSERT_TRUE(places.admit({0x0B000000 + static_cast<std::uint32_t>(random()) % addresses}));
      ASSERT_LE(places.unproven(), unproven_max);
      if (tried % 64 != 0) continue;
      ASSERT_TRUE(places.admit(owner));
      for (unsigned others = 0; others < unproven_max - 1; ++others) {
        ASSERT_TRUE(places.admit({0x0B000000 + static_cast<std::uint32_t>(random()) % addresses}));
        ASSERT_TRUE(places.holds(owner)) << others << " newcomers of " << addresses << " addresses";
      }
      const auto own =
          std::find_if(places.present.begin(), places.present.end(), [&](const Occupant& one) { return one.address == owner; });
      places.present.erase(own);
    }
  }
}

TEST(Admission, AnAddressUsesOnlyItsOwnPlaces) {
  Places places;
  ASSERT_TRUE(places.admit({1}));
  for (int tried = 0; tried < 1000; ++tried) ASSERT_TRUE(places.admit({2}));
  EXPECT_TRUE(places.holds({1}));
  EXPECT_EQ(places.unproven(), 1 + unproven_per_address_max);
}

TEST(Admission, NewcomersOfTheOwnersOwnAddressLeaveItTimeForItsToken) {
  constexpr net::Ipv4Address owner{0x0A000001};
  for (const std::uint32_t addresses : {1U, 7U, 64U}) {
    Places places;
    places.now_ns = protected_ns;
    for (std::uint32_t i = 0; i < 200; ++i) ASSERT_TRUE(places.admit({0x0B000000 + i % addresses}));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(places.admit(owner));
    for (Occupant& one : places.present) one.answered = true;
    ASSERT_TRUE(places.admit(owner));
    const std::uint64_t id = places.last_id;
    const auto is_present = [&] { return std::ranges::any_of(places.present, [&](const Occupant& one) { return one.id == id; }); };
    for (unsigned i = 0; i < 100; ++i) {
      ASSERT_TRUE(places.admit(i % 2 == 0 ? owner : net::Ipv4Address{0x0B000000 + i % addresses}));
      ASSERT_TRUE(is_present()) << i << " newcomers, " << addresses << " other addresses";
      places.present.back().answered = true;
    }
    places.now_ns += protected_ns;
    for (unsigned i = 0; i < unproven_max; ++i) ASSERT_TRUE(places.admit(owner));
    EXPECT_FALSE(is_present()) << "the time of protection is over";
  }
}

// Another connection must not end the delay after a wrong token, because an address could then guess tokens as fast as it connects.
TEST(Admission, AWrongTokensDelayHoldsItsOwnAddressAndNoOther) {
  Places places;
  for (unsigned i = 0; i < unproven_per_address_max; ++i) ASSERT_TRUE(places.admit({1}));
  for (Occupant& one : places.present) one.activity = Activity::delayed;
  EXPECT_EQ(victim_for_newcomer(places.present, net::Ipv4Address{1}, 0).error(), Refusal::delayed);
  for (std::uint32_t address = 2; address < 100; ++address) EXPECT_TRUE(places.admit({address})) << address;
  places.present.front().activity = Activity::idle;
  EXPECT_TRUE(places.admit({1}));
}

TEST(Admission, TheLongestIdleProvenClientIsDisplacedAndNoneThatMakesProgress) {
  std::vector<Occupant> clients;
  const std::uint64_t now_ns = 100'000'000'000;
  for (unsigned i = 0; i + 1 < clients_max; ++i) {
    clients.push_back({.address = net::Ipv4Address{1}, .id = i, .progress_ns = now_ns - i, .activity = Activity::busy, .proven = true});
  }
  clients.push_back({.address = net::Ipv4Address{1}, .id = 90, .progress_ns = 0, .activity = Activity::idle});  // unproven, so not counted
  EXPECT_EQ(victim_for_proven(clients, now_ns), Victim(std::nullopt)) << "a place is free";
  clients.push_back({.address = net::Ipv4Address{1}, .id = 91, .progress_ns = now_ns, .activity = Activity::busy, .proven = true});
  EXPECT_EQ(victim_for_proven(clients, now_ns).error(), Refusal::full);
  clients[3].progress_ns = now_ns - stalled_ns;
  EXPECT_EQ(victim_for_proven(clients, now_ns), Victim(3U)) << "stalled";
  clients[5].activity = clients[7].activity = Activity::idle;
  EXPECT_EQ(victim_for_proven(clients, now_ns), Victim(7U)) << "idle for longest";
  clients[9].activity = Activity::closing;
  EXPECT_EQ(victim_for_proven(clients, now_ns), Victim(9U)) << "closing already";
}

// --- The server --------------------------------------------------------------------------------------------------------------------------
TEST(Control, ConnectionsWithoutTheTokenDoNotLockOutTheOwner) {
  World world(with_token());
  for (unsigned i = 0; i < 3 * clients_max; ++i) world.peer();
  Peer& owner = world.peer();
  EXPECT_EQ(owner.ask(token_line), "ok");
  EXPECT_TRUE(owner.ask("status").starts_with("ok "));
  EXPECT_EQ(world.server.clients().proven(), 1U);
  EXPECT_LE(world.server.clients().unproven(), unproven_per_address_max);
  EXPECT_GE(world.server.counters().unproven_displaced.load(), 3 * clients_max - unproven_per_address_max);
}

/// A connection that ignores all that it receives.
class Stray final : public net::ConnectionHandler {
 public:
  void received(net::Buffer) override {}
};

TEST(Control, TheOwnerIsAdmittedAmongSixteenThousandConnections) {
  WorldOptions options = with_token();
  options.proof_limit = 2s;
  World world(options);
  constexpr unsigned tries = 16'384, at_once = 256;
  unsigned owners = 0;
  for (unsigned tried = 0; tried < tries; tried += at_once) {
    world.machines.machine.run(world.machines.client_core, [&]() -> task<void> {
      for (unsigned i = 0; i < at_once; ++i) {
        const auto connected = co_await world.machines.client->connect(
            control_endpoint, [&](net::Connection& connection) -> std::unique_ptr<net::ConnectionHandler> {
              static constexpr std::string_view texts[] = {"", "status\n", "token,wrong-horse\n", "half a li"};
              const std::string_view text = texts[i % std::size(texts)];
              (void)connection.send(net::Buffer::copy(std::as_bytes(std::span(text))));
              return std::make_unique<Stray>();
            });
        static_cast<void>(connected);  // some connections are reset at once
      }
    });
    if (tried % (8 * at_once) != 0) continue;
    Peer& owner = world.peer();
    ASSERT_EQ(owner.ask(token_line), "ok") << "after " << tried;
    ASSERT_TRUE(owner.ask("rdtsc").starts_with("ok "));
    owner.close();
    ++owners;
  }
  EXPECT_EQ(owners, 8U);
  EXPECT_LE(world.server.clients().count(), clients_max + unproven_max);
  EXPECT_GT(world.server.counters().unproven_displaced.load(), tries / 2);
}

TEST(Control, AClientThatProvesNothingInTimeIsClosed) {
  for (const bool token_needed : {false, true}) {
    WorldOptions options = token_needed ? with_token() : small_log();
    options.proof_limit = 300ms;
    World world(options);
    Peer& proven = world.peer();
    EXPECT_TRUE(proven.ask(token_needed ? token_line : "rdtsc").starts_with("ok"));
    Peer& silent = world.peer();
    Peer& wrong = world.peer();
    EXPECT_TRUE(wrong.ask("no_such_command").starts_with("error: "));
    EXPECT_EQ(silent.rest(),
              token_needed ? "error: closed, since no token came in time\n" : "error: closed, since no valid line came in time\n");
    EXPECT_TRUE(HostMachine::wait_until([&] { return wrong.ended(); }));
    EXPECT_TRUE(proven.ask("rdtsc").starts_with("ok "));
    EXPECT_EQ(world.server.counters().unproven_expired.load(), 2U);
    EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.clients().count() == 1; }));
  }
}

TEST(Control, GuessersWaitAndProvenClientsDoNot) {
  WorldOptions options = with_token();
  options.wrong_token_delay = 1s;
  World world(options);
  Peer& owner = world.peer();
  EXPECT_EQ(owner.ask(token_line), "ok");
  for (unsigned i = 0; i < unproven_per_address_max; ++i) world.peer().send("token,wrong-horse\n");
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.counters().tokens_wrong.load() == unproven_per_address_max; }));
  EXPECT_EQ(world.peer().rest(), "error: too many wrong tokens from this address: wait a second\n");
  EXPECT_EQ(world.server.counters().refused_delayed.load(), 1U);
  EXPECT_TRUE(owner.ask("rdtsc").starts_with("ok "));
  for (unsigned i = 0; i < unproven_per_address_max; ++i) EXPECT_EQ(world.peers[1 + i]->line(), "error: wrong token");
  EXPECT_EQ(world.peer().ask(token_line), "ok");
}

TEST(Control, TheLongestIdleOfSixteenIsDisplaced) {
  World world;
  for (unsigned i = 0; i < clients_max; ++i) EXPECT_TRUE(world.peer().ask("rdtsc").starts_with("ok "));
  EXPECT_TRUE(world.peers[0]->ask("rdtsc").starts_with("ok "));
  EXPECT_TRUE(world.peer().ask("rdtsc").starts_with("ok "));
  EXPECT_EQ(world.peers[1]->rest(), "error: closed, since others need the place and this client was idle for longest\n");
  for (unsigned i = 2; i <= clients_max; ++i) EXPECT_FALSE(world.peers[i]->ended());
  EXPECT_EQ(world.server.counters().clients_displaced.load(), 1U);
  EXPECT_EQ(world.server.clients().proven(), clients_max);
}

TEST(Control, SixteenBusyClientsKeepTheirPlaces) {
  World world;
  EXPECT_EQ(world.peer().ask("start"), "ok run=1");
  world.peers[0]->close();
  for (unsigned i = 0; i < clients_max; ++i) EXPECT_EQ(world.peer().ask("stream,live"), "ok");
  EXPECT_EQ(world.peer().ask("rdtsc"), "error: all 16 places are taken by clients at work");
  EXPECT_EQ(world.server.counters().refused_full.load(), 1U);
  world.peers[1]->abort();
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.clients().proven() < clients_max; }));
  EXPECT_TRUE(world.peer().ask("rdtsc").starts_with("ok "));
}

// --- A client's memory -------------------------------------------------------------------------------------------------------------------

// A piece of one byte holds a card buffer, so a full window of such pieces holds thousands of these buffers.
TEST(Control, SmallPiecesOfAClientThatDoesNotReadHoldFewBuffers) {
  World world;
  Peer& peer = world.peer(false);
  EXPECT_TRUE(peer.ask("help").starts_with("ok "));
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "help\n";
  peer.send(lines);
  (void)world.lines_at_rest();
  for (int i = 0; i < 2000; ++i) peer.send("x");
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.clients().held_bytes() > 15'000; }));
  // Segments that wait for a slow core hold buffers, too, so the number is that of the core at rest.
  const auto few_buffers = [&] {
    constexpr auto buffers_max = static_cast<std::int64_t>(2 * Client::input_pieces_max + 1);
    return HostMachine::wait_until([&] { return world.machines.server_card.buffers_out() <= buffers_max; });
  };
  EXPECT_TRUE(few_buffers()) << world.machines.server_card.buffers_out();
  EXPECT_TRUE(world.peer().ask("rdtsc").starts_with("ok "));
  // Further small pieces also hold few buffers. The server may reset a client that sends them (counter `input_cut`).
  const std::string small(40, 'x');
  for (std::size_t sent = 0; sent <= 2 * Client::input_copied_bytes_max && !peer.ended(); sent += small.size()) {
    const std::uint64_t held = world.server.clients().held_bytes();
    peer.send(small);  // each piece is a separate segment, because the previous one has arrived
    if (!HostMachine::wait_until([&] { return world.server.clients().held_bytes() != held || peer.ended(); })) {
      EXPECT_GT(held, Client::input_copied_bytes_max / 2) << "a full receive window ends the test, too";
      break;
    }
    ASSERT_TRUE(few_buffers()) << sent << ": " << world.machines.server_card.buffers_out();
  }
}

TEST(Control, AnUnprovenClientHoldsLittle) {
  World world(with_token());
  Peer& peer = world.peer(false);
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "help\n";
  peer.send(lines);
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.counters().lines.load() > 0; }));
  (void)world.lines_at_rest();
  EXPECT_LE(world.server.clients().held_bytes(), Client::unproven_input_bytes_max + 2 * Client::unproven_answers_bytes_max);
}

// A log that a slow client does not read uses a limited amount of memory, during the transfer and after its end.
TEST(Control, AnUnreadLogHoldsLimitedMemoryAndThePlaceUntilTheReset) {
  WorldOptions options = small_log(log::WhenFull::stop, 65536);
  options.drain_limit = 500ms;
  World world(options);
  Peer& owner = world.peer();
  EXPECT_EQ(owner.ask("start"), "ok run=1");
  world.record(40'000);
  EXPECT_TRUE(owner.ask("stop").starts_with("ok "));
  Peer& slow = world.peer(false);
  slow.send("get,0\n");
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.clients().held_bytes() >= Client::log_bytes_max; }));
  std::this_thread::sleep_for(200ms);
  EXPECT_LE(world.server.clients().held_bytes(), Client::log_bytes_max + 16384);
  slow.begin_reading();
  EXPECT_GE(slow.rest().size(), 40'000U * 64);
  // A short log is queued completely. A client that reads nothing still counts as one of the server's clients after the log's end.
  EXPECT_EQ(owner.ask("start"), "ok run=2");
  world.record(6'000);
  EXPECT_TRUE(owner.ask("stop").starts_with("ok "));
  Peer& short_one = world.peer(false);
  short_one.send("get,0\n");
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.clients().held_bytes() > 64 * 1024; }));
  EXPECT_EQ(world.server.clients().proven(), 2U);
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.counters().closes_cut.load() == 1; }));
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.clients().held_bytes() == 0; }));
}

}  // namespace
}  // namespace neap::observe::testing
