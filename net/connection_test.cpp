// SPDX-License-Identifier: BSL-1.0
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "net/testing/handlers.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

using namespace std::chrono_literals;
using host::HostMachine;

constexpr Endpoint service{.address = server_address, .port = 7};

bool ended(const Record& record) { return record.destroyed > 0; }

TEST(Connection, EchoesReceivedBytes) {
  TwoMachines world;
  world.listen(7, [](Connection&) { return std::make_unique<EchoHandler>(); });
  auto record = std::make_shared<Record>();
  EXPECT_EQ(world.connect(service, recording(record, {.check_seed = 5, .send_seed = 5, .send_bytes = 300'000, .expect_bytes = 300'000})),
            std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*record); }));
  EXPECT_EQ(record->received, 300'000U);
  expect_ended_well(*record);
}

struct TransferCase {
  const char* name;
  double lost, repeated, late;
  bool offload;
  std::size_t piece_bytes;
  const char* tso = nullptr;  ///< "changing": each form in turn during the transfer
};

class Transfer : public ::testing::TestWithParam<TransferCase> {};

// 10 MB arrive complete in both directions at once, on every wire. Payload is overwritten and freed at its release, and the test's cards
// read frames late. So a release before the last read shows as a wrong byte or a sanitizer's report.
TEST_P(Transfer, BothWaysComplete) {
  const TransferCase& with = GetParam();
  TwoMachinesOptions options;
  options.server.checksum_offload = options.client.checksum_offload = with.offload;
  options.server.read_delay = options.client.read_delay = 200us;
  options.server.ring_frames = options.client.ring_frames = 64;
  if (with.tso != nullptr) options.server.tso_bytes_max = options.client.tso_bytes_max = 64 * 1024;
  TwoMachines world(options);
  const bool changing = with.tso != nullptr && std::string_view(with.tso) == "changing";
  if (with.tso != nullptr && !changing) EXPECT_EQ(world.set_tso(with.tso), "");
  const std::size_t total = with.lost > 0 || with.tso != nullptr ? 2'000'000 : 10'000'000;
  auto server = std::make_shared<Record>();
  auto client = std::make_shared<Record>();
  world.listen(
      7, recording(server, {.check_seed = 1, .send_seed = 2, .send_bytes = total, .piece_bytes = with.piece_bytes, .expect_bytes = total}));
  world.server_card.set_faults(with.lost, with.repeated, with.late);
  world.client_card.set_faults(with.lost, with.repeated, with.late);
  EXPECT_EQ(world.connect(
                service,
                recording(client,
                          {.check_seed = 2, .send_seed = 1, .send_bytes = total, .piece_bytes = with.piece_bytes, .expect_bytes = total})),
            std::nullopt);
  const auto done = [&] { return ended(*server) && ended(*client); };
  for (unsigned change = 0; changing && !done(); ++change) {
    EXPECT_EQ(world.set_tso(policy::segmentation_names[change % 3]), "");
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_TRUE(HostMachine::wait_until(done, 100s)) << server->received << " " << client->received;
  EXPECT_EQ(server->received, total);
  EXPECT_EQ(client->received, total);
  expect_ended_well(*server);
  expect_ended_well(*client);
  const Counters counters = world.counters_of(0);
  if (with.lost > 0) EXPECT_GT(counters.retransmissions + world.counters_of(1).retransmissions, 0U);
  EXPECT_EQ(counters.joined_frames, world.server_card.frames_segmented());
  EXPECT_EQ(counters.joined_frames > 0, with.tso != nullptr);
  EXPECT_GE(counters.joined_segments, 2 * counters.joined_frames);
  EXPECT_EQ(counters.frames_sent, world.server_card.frames_sent());
}

INSTANTIATE_TEST_SUITE_P(
    Wire, Transfer,
    ::testing::Values(TransferCase{"Clean", 0, 0, 0, true, 16384}, TransferCase{"SoftwareChecksums", 0, 0, 0, false, 16384},
                      TransferCase{"SmallPieces", 0, 0, 0, true, 700}, TransferCase{"Reordering", 0, 0.02, 0.05, true, 16384},
                      TransferCase{"Loss", 0.01, 0.01, 0.01, true, 5000}, TransferCase{"TsoCopied", 0, 0, 0, true, 16384, "copy"},
                      TransferCase{"TsoChained", 0, 0, 0, true, 16384, "chain"},
                      TransferCase{"TsoOfSmallPieces", 0, 0, 0, true, 700, "chain"},
                      TransferCase{"TsoCopiedWithLoss", 0.01, 0.01, 0.01, true, 50'000, "copy"},
                      TransferCase{"TsoChainedWithLoss", 0.01, 0.01, 0.01, true, 50'000, "chain"},
                      TransferCase{"TsoChanging", 0.002, 0.01, 0.01, true, 50'000, "changing"}),
    [](const auto& tested) { return tested.param.name; });

// An answer in several writes must not become several segments: each would cost an acknowledgement and a wake-up.
TEST(Connection, GathersAnEventsWritesIntoOneSegment) {
  TwoMachines world;
  auto server = std::make_shared<Record>();
  auto client = std::make_shared<Record>();
  std::atomic<int> data_segments{0};
  world.server_card.tap([&](const Bytes& frame) {
    if (frame.size() > 100) ++data_segments;
    return true;
  });
  static constexpr char stored[512] = {'x'};
  world.listen(7,
               recording(server, {.on_received = [](RecordingHandler& handler, Buffer) {
                           Connection& connection = handler.connection();
                           for (const char* word : {"VALUE ", "key ", "0 ", "512\r\n"}) {
                             EXPECT_TRUE(connection.send(Buffer::copy(std::as_bytes(std::span(word, std::strlen(word))))).has_value());
                           }
                           EXPECT_TRUE(connection.send(Buffer::reference(std::as_bytes(std::span(stored)), nullptr, nullptr)).has_value());
                           EXPECT_TRUE(connection.send(Buffer::copy(std::as_bytes(std::span("\r\nEND\r\n", 7)))).has_value());
                         }}));
  EXPECT_EQ(world.connect(service, recording(client, {.send_seed = 1, .send_bytes = 20, .keep_text = true, .close_when_sent = false})),
            std::nullopt);
  const std::size_t answer = 6 + 4 + 2 + 5 + 512 + 7;
  EXPECT_TRUE(HostMachine::wait_until([&] { return client->received == answer; }));
  EXPECT_EQ(data_segments, 1);
  world.machine.on(world.client_core, [&] { EXPECT_TRUE(client->text.starts_with("VALUE key 0 512\r\nx")) << client->text; });
}

// The peer closes its side first and still receives the whole answer.
TEST(Connection, AnswerIsSentAfterAHalfClose) {
  TwoMachines world;
  auto server = std::make_shared<Record>();
  auto client = std::make_shared<Record>();
  world.listen(7, recording(server, {.check_seed = 1, .send_seed = 2, .send_bytes = 3'000'000, .answer_close = false}));
  EXPECT_EQ(world.connect(service,
                          [&](Connection& connection) {
                            connection.end_sending();
                            return std::make_unique<RecordingHandler>(client, RecordingHandler::Behaviour{.check_seed = 2});
                          }),
            std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*server) && ended(*client); }));
  EXPECT_EQ(client->received, 3'000'000U);
  EXPECT_EQ(client->peer_closed, 1);
  expect_ended_well(*server);
  expect_ended_well(*client);
}

// Bytes that a peer sends after this side's close are discarded and counted. They must neither reset the connection nor keep it open.
TEST(Connection, CloseDiscardsLaterBytes) {
  TwoMachines world;
  auto server = std::make_shared<Record>();
  auto client = std::make_shared<Record>();
  world.listen(7, recording(server, {.on_received = [](RecordingHandler& handler, Buffer) { handler.connection().close(); }}));
  EXPECT_EQ(world.connect(service, recording(client, {.send_seed = 1, .send_bytes = 1'000'000, .answer_close = false})), std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*server) && ended(*client); }));
  EXPECT_GT(world.counters_of(0).discarded_bytes, 900'000U);
  EXPECT_EQ(world.counters_of(0).connections_reset, 0U);
  expect_ended_well(*server);
  expect_ended_well(*client);
}

TEST(Connection, ResetInTheMiddleEndsBothHandlersOnce) {
  TwoMachines world;
  auto server = std::make_shared<Record>();
  auto client = std::make_shared<Record>();
  world.listen(7,
               recording(server, {.send_seed = 2, .send_bytes = 50'000'000, .on_received = [](RecordingHandler& handler, Buffer) {
                                    if (handler.record().received > 500'000) {
                                      handler.connection().abort();
                                      EXPECT_FALSE(handler.connection().send(Buffer::copy(std::as_bytes(std::span("x", 1)))).has_value());
                                    }
                                  }}));
  EXPECT_EQ(world.connect(service, recording(client, {.check_seed = 2, .send_seed = 1, .send_bytes = 5'000'000})), std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*server) && ended(*client); }));
  expect_ended_well(*server);
  expect_ended_well(*client);
  EXPECT_EQ(world.counters_of(0).connections_reset, 1U);
  EXPECT_EQ(world.counters_of(1).connections_reset, 1U);
}

// A handler that keeps received bytes closes its peer's window. When it releases them, in other events, the remaining bytes arrive.
TEST(Connection, KeptBuffersCloseTheWindowAndOpenItAgain) {
  TwoMachines world;
  auto server = std::make_shared<Record>();
  auto client = std::make_shared<Record>();
  struct Kept {
    std::vector<Buffer> buffers;
    bool keep = true;
  };
  auto kept = std::make_shared<Kept>();
  world.listen(7, recording(server, {.check_seed = 1, .on_received = [kept](RecordingHandler&, Buffer data) {
                                       if (kept->keep) kept->buffers.push_back(std::move(data));
                                     }}));
  EXPECT_EQ(world.connect(service, recording(client, {.send_seed = 1, .send_bytes = 1'500'000})), std::nullopt);
  std::size_t stalled = 0;
  EXPECT_TRUE(HostMachine::wait_until([&] {
    const std::size_t before = std::exchange(stalled, server->received.load());
    std::this_thread::sleep_for(700ms);
    return stalled == before && stalled > 0;
  }));
  EXPECT_LE(stalled, 256U * 1024);
  EXPECT_GT(stalled, 200U * 1024);
  const Counters held = world.counters_of(0);
  EXPECT_LE(held.receive_held_max, 129U);  // the card's buffers were not used up
  EXPECT_GT(held.receive_copied, 0U);
  world.machine.on(0, [&] {
    kept->keep = false;
    kept->buffers.clear();
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*server) && ended(*client); }));
  EXPECT_EQ(server->received, 1'500'000U);
  expect_ended_well(*server);
  expect_ended_well(*client);
}

// Received bytes may be handed over to another core, and kept after their connection has ended.
TEST(Connection, ReceivedBytesMayBeReleasedElsewhereAndLate) {
  TwoMachines world;
  auto server = std::make_shared<Record>();
  auto client = std::make_shared<Record>();
  auto kept = std::make_shared<std::vector<Buffer>>();
  world.listen(7, recording(server, {.on_received = [kept](RecordingHandler&, Buffer data) { kept->push_back(std::move(data)); }}));
  EXPECT_EQ(world.connect(service, recording(client, {.send_seed = 1, .send_bytes = 20'000})), std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*server) && ended(*client); }));
  world.machine.on(world.client_core, [&] { kept->clear(); });
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server_card.buffers_out() == 0; }));
}

// Frames that a full ring refused are sent later, in order and without loss.
class FullRing : public ::testing::TestWithParam<const char*> {};

TEST_P(FullRing, DelaysAndLosesNothing) {
  TwoMachinesOptions options;
  options.server.tso_bytes_max = 64 * 1024;
  options.server.ring_frames = 4;
  options.server.read_delay = 300us;
  options.server.pieces_max = 3;
  TwoMachines world(options);
  EXPECT_EQ(world.set_tso(GetParam()), "");
  auto server = std::make_shared<Record>();
  auto client = std::make_shared<Record>();
  world.listen(7, recording(server, {.send_seed = 2, .send_bytes = 1'000'000, .piece_bytes = 333}));
  EXPECT_EQ(world.connect(service, recording(client, {.check_seed = 2})), std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*server) && ended(*client); }));
  EXPECT_EQ(client->received, 1'000'000U);
  EXPECT_GT(world.server_card.found_full(), 0U);
  const Counters counters = world.counters_of(0);
  EXPECT_EQ(counters.transmit_full, world.server_card.found_full());
  EXPECT_EQ(counters.retransmissions, 0U);  // a full ring is not a lost frame
  EXPECT_GT(counters.transmit_copied, 0U);  // frames of more pieces than this card takes
  EXPECT_LE(world.server_card.pieces_max_seen(), 3U);
  expect_ended_well(*server);
}

INSTANTIATE_TEST_SUITE_P(Tso, FullRing, ::testing::ValuesIn(policy::segmentation_names),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(Connection, RefusalAndTimeOutAreReported) {
  TwoMachines world;
  EXPECT_EQ(world.connect({.address = server_address, .port = 9}, recording(std::make_shared<Record>())), ErrorCode::closed);
  EXPECT_EQ(world.connect({.address = {0x0A000063}, .port = 9}, recording(std::make_shared<Record>())), ErrorCode::timeout);
  world.machine.run(0, [&]() -> task<void> {
    const Result<void> elsewhere = co_await world.client->connect(service, recording(std::make_shared<Record>()));
    EXPECT_EQ(elsewhere.error().code, ErrorCode::unsupported);
  });
}

// A port that was just used may still be in TIME-WAIT at the peer, which then does not answer a SYN. So all other ports are used first.
TEST(Connection, LocalPortsRestBeforeTheyAreUsedAgain) {
  TwoMachines world;
  world.listen(7, [](Connection&) { return std::make_unique<EchoHandler>(); });
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 500; ++i) {
    auto client = std::make_shared<Record>();
    EXPECT_EQ(world.connect(service,
                            [&](Connection& connection) {
                              ports.insert(connection.local().port);
                              connection.abort();
                              return std::make_unique<RecordingHandler>(client, RecordingHandler::Behaviour{});
                            }),
              std::nullopt);
    EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*client); }));
  }
  EXPECT_EQ(ports.size(), 500U);
}

TEST(Connection, AnAcceptorMayRefuse) {
  TwoMachines world;
  world.listen(7, [](Connection&) -> std::unique_ptr<ConnectionHandler> { return nullptr; });
  auto client = std::make_shared<Record>();
  EXPECT_EQ(world.connect(service, recording(client)), std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*client); }));
  EXPECT_EQ(world.counters_of(0).connections_refused, 1U);
  EXPECT_EQ(world.counters_of(0).connections_open, 0U);
  expect_ended_well(*client);
}

// A handler without memory ends its connection, not the machine.
TEST(Connection, HandlerOutOfMemoryEndsItsConnectionOnly) {
  TwoMachines world;
  auto server = std::make_shared<Record>();
  world.listen(7, recording(server, {.on_received = [](RecordingHandler&, Buffer) { throw std::bad_alloc(); }}));
  auto client = std::make_shared<Record>();
  EXPECT_EQ(world.connect(service, recording(client, {.send_seed = 1, .send_bytes = 10, .close_when_sent = false})), std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*client) && ended(*server); }));
  EXPECT_EQ(world.counters_of(0).handler_out_of_memory, 1U);
}

TEST(Connection, SendTakesAllOrNothing) {
  TwoMachines world;
  auto server = std::make_shared<Record>();
  world.listen(7, recording(server, {.check_seed = 3}));
  auto client = std::make_shared<Record>();
  static std::vector<std::byte> big(Connection::send_queue_bytes_max);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = pattern(i, 3);
  EXPECT_EQ(world.connect(service,
                          [&](Connection& connection) {
                            Buffer all = Buffer::reference(big, nullptr, nullptr);
                            EXPECT_TRUE(connection.send(std::move(all)).has_value());
                            EXPECT_EQ(connection.send_space_bytes(), 0U);
                            Buffer more = Buffer::reference(std::span(big).first(1), nullptr, nullptr);
                            const Result<void> refused = connection.send(std::move(more));
                            EXPECT_EQ(refused.error().code, ErrorCode::full);
                            EXPECT_EQ(more.bytes(), 1U);  // NOLINT: an error leaves it unchanged
                            return std::make_unique<RecordingHandler>(client, RecordingHandler::Behaviour{});
                          }),
            std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return server->received == big.size() && client->writable > 0; }));
  EXPECT_EQ(server->mismatches, 0U);
}

}  // namespace
}  // namespace neap::net::testing
