// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/limits.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/memcached/test_peer.hpp"

namespace neap::memcached {
namespace {

using test::Peer;
using test::Server;

TEST(AdmissionTest, CountsOpenConnections) {
  Admission admission(2, 0);
  EXPECT_EQ(admission.admit(1), Admission::Verdict::admitted);
  EXPECT_EQ(admission.admit(1), Admission::Verdict::admitted);
  EXPECT_EQ(admission.admit(2), Admission::Verdict::too_many);
  EXPECT_EQ(admission.open(), 2U);
  admission.release(1);
  EXPECT_EQ(admission.admit(2), Admission::Verdict::admitted);
}

TEST(AdmissionTest, CountsTheConnectionsOfEachPeer) {
  Admission admission(10, 2);
  EXPECT_EQ(admission.admit(1), Admission::Verdict::admitted);
  EXPECT_EQ(admission.admit(1), Admission::Verdict::admitted);
  EXPECT_EQ(admission.admit(1), Admission::Verdict::too_many_of_peer);
  EXPECT_EQ(admission.admit(2), Admission::Verdict::admitted);
  EXPECT_EQ(admission.open(), 3U);  // a refused connection is not counted
  admission.release(1);
  EXPECT_EQ(admission.admit(1), Admission::Verdict::admitted);
}

/// A cache of 1 MiB, so uploads may take 128 KiB.
struct UploadsTest : testing::Test {
  static StoreOptions options() {
    StoreOptions made = test::small_store();
    made.memory_bytes = 1 << 20;
    return made;
  }
  void begin_upload(Peer& peer) { peer.send("set k 0 0 50000\r\n" + std::string(100, 'x')); }

  Server server{options()};
};

TEST_F(UploadsTest, AnUploadIsCountedUntilItsValueHasArrived) {
  Peer peer(server);
  begin_upload(peer);
  EXPECT_GT(server.service.upload_bytes(), 50'000U);
  EXPECT_EQ(peer.session->state(), "conn_nread");
  EXPECT_EQ(peer.ask(std::string(49'900, 'x') + "\r\n"), "STORED\r\n");
  EXPECT_EQ(server.service.upload_bytes(), 0U);
  EXPECT_EQ(peer.session->state(), "conn_read");
}

TEST_F(UploadsTest, AClientThatLeavesEndsItsUpload) {
  {
    Peer peer(server);
    begin_upload(peer);
  }
  EXPECT_EQ(server.service.upload_bytes(), 0U);
  EXPECT_EQ(server.store.used_bytes(), 0U);
}

// After its FIN a client may fall silent, and then keeps its connection for a minute. It must not keep an uncounted value as well.
TEST_F(UploadsTest, AClientThatClosesItsSideEndsItsUpload) {
  Peer peer(server);
  begin_upload(peer);
  peer.session->peer_closed();
  EXPECT_TRUE(peer.connection.closed);
  EXPECT_EQ(server.service.upload_bytes(), 0U);
  EXPECT_EQ(server.store.used_bytes(), 0U);
}

TEST_F(UploadsTest, AWatcherThatClosesItsSideIsNoWatcherAnyMore) {
  Peer peer(server);
  EXPECT_EQ(peer.ask("watch fetchers\r\n"), "OK\r\n");
  EXPECT_EQ(server.service.watchers.count(), 1U);
  peer.session->peer_closed();
  EXPECT_TRUE(peer.connection.closed);
  EXPECT_EQ(server.service.watchers.count(), 0U);
}

// Clients that announce values and send nothing more must not evict the cache. The clients that make progress are not reset.
TEST_F(UploadsTest, StalledUploadsOverTheLimitAreReset) {
  Peer stalled(server), working(server), late(server);
  begin_upload(stalled);
  test::advance_s(1);
  begin_upload(working);
  test::advance_s(Uploads::stall_s);
  working.send("more");
  EXPECT_FALSE(stalled.connection.aborted);  // the limit is not reached
  begin_upload(late);
  EXPECT_TRUE(stalled.connection.aborted);
  EXPECT_FALSE(working.connection.aborted || late.connection.aborted);
  EXPECT_EQ(server.service.total(Count::uploads_reset), 1U);
  EXPECT_LE(server.service.upload_bytes(), server.store.memory_bytes() / Uploads::memory_divisor);
}

// Above twice the limit, the upload without progress for the longest time is reset even if that is not long.
TEST_F(UploadsTest, AboveTwiceTheLimitAnyUploadMayBeReset) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 10; ++i) {
    peers.push_back(std::make_unique<Peer>(server));
    begin_upload(*peers.back());
  }
  EXPECT_LE(server.service.upload_bytes(), 2 * server.store.memory_bytes() / Uploads::memory_divisor);
  EXPECT_TRUE(peers.front()->connection.aborted);
  EXPECT_FALSE(peers.back()->connection.aborted);
}

TEST_F(UploadsTest, ASilentConnectionIsReset) {
  Peer idle(server), uploading(server);
  idle.ask("get a\r\n");
  begin_upload(uploading);
  EXPECT_TRUE(idle.session->end_idle());
  EXPECT_TRUE(uploading.session->end_idle());
  EXPECT_TRUE(idle.connection.aborted && uploading.connection.aborted);
  EXPECT_EQ(server.service.total(Count::idle_kicks), 2U);
}

TEST(AcceptTest, AConnectionOverTheLimitGetsAnErrorAndIsClosed) {
  Settings settings = test::test_settings();
  settings.connections_max = 1;
  Server server(test::small_store(), 1, settings);
  net::PlayedConnection first, second;
  auto handler = accept(server.service, first);
  auto refused = accept(server.service, second);
  EXPECT_FALSE(first.closed);
  EXPECT_TRUE(second.closed);
  EXPECT_EQ(second.acknowledge(), "ERROR Too many open connections\r\n");
  EXPECT_EQ(server.service.total(Count::rejected_connections), 1U);
  EXPECT_EQ(server.service.admission.open(), 1U);
  first.begin(*handler);
  handler->closed();
  EXPECT_EQ(server.service.admission.open(), 0U);
}

}  // namespace
}  // namespace neap::memcached
