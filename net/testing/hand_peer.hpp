// SPDX-License-Identifier: BSL-1.0
// A TCP peer whose segments are all made by the test. The machine has one core, and only the test advances the clock.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "net/bring_up.hpp"
#include "net/testing/handlers.hpp"
#include "net/testing/wire.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::net::testing {

namespace tcp {
constexpr std::uint8_t fin = 1, syn = 2, rst = 4, ack = 16;
}  // namespace tcp

/// A TCP segment in host byte order.
struct Segment {
  std::uint32_t seq = 0, acknowledged = 0;
  std::uint8_t flags = tcp::ack;
  std::uint16_t window = 0xFFFF;
  Bytes payload, options;
};

class HandPeer {
 public:
  static constexpr Ipv4Address machine_address{0x0A000001}, peer_address{0x0A000002};
  static constexpr std::uint16_t service_port = 7;

  /// The machine serves `service_port` by one recording handler with this behaviour.
  explicit HandPeer(RecordingHandler::Behaviour behaviour = {.close_when_sent = false}) : card_({.mac = {2, 0, 0, 0, 0, 1}}), machine_(1) {
    card_.tap([this](const Bytes& frame) {
      take(frame);
      return true;
    });
    machine_.run(0, [this]() -> task<void> {
      AddressSetting setting{.dhcp = false, .address = machine_address, .netmask = {0xFFFFFF00}, .gateway = {}};
      network_ = std::move(*co_await bring_up(card_, setting, 0, 1));
    });
    machine_.run(0, [this, behaviour]() -> task<void> {
      const Result<void> listening = co_await network_->listen(service_port, [this, behaviour](Connection& connection) {
        connection_ = &connection;
        record_ = std::make_shared<Record>();
        return std::make_unique<RecordingHandler>(record_, behaviour);
      });
      EXPECT_TRUE(listening.has_value());
    });
    introduce();
  }
  HandPeer(const HandPeer&) = delete;
  HandPeer& operator=(const HandPeer&) = delete;
  ~HandPeer() {
    card_.cut();
    std::atomic<bool> down{false};
    std::thread runner([&] {
      while (!down) {
        clock_.advance(std::chrono::milliseconds(5));
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
    machine_.run(0, [this] { return network_->take_down(); });
    down = true;
    runner.join();
    EXPECT_EQ(card_.buffers_out(), 0);
  }

  /// Opens a connection from `port`; the peer's window is `window`, its SYN has `options`.
  void open(std::uint16_t port = 40000, std::uint16_t window = 0xFFFF, const Bytes& options = {}) {
    port_ = port;
    seq = 0xFFFFF000;  // sequence numbers wrap soon
    send({.seq = seq++, .flags = tcp::syn, .window = window, .payload = {}, .options = options});
    const std::vector<Segment> answer = take_segments();
    ASSERT_EQ(answer.size(), 1U);
    ASSERT_EQ(answer[0].flags, tcp::syn | tcp::ack);
    acknowledged = answer[0].seq + 1;
    send({.seq = seq, .acknowledged = acknowledged, .window = window, .payload = {}, .options = {}});
    ASSERT_NE(connection_, nullptr);
    take_segments();
  }
  /// Delivers a segment and lets the machine process it.
  void send(const Segment& segment) {
    card_.arrive(frame_of(segment), 0);
    settle();
  }
  /// Sends in-order data from the peer with valid numbers.
  void send_data(const Bytes& payload, std::uint16_t window = 0xFFFF) {
    send({.seq = seq, .acknowledged = acknowledged, .window = window, .payload = payload, .options = {}});
    seq += static_cast<std::uint32_t>(payload.size());
  }
  /// Sends the peer's ACK of all bytes received in order.
  void acknowledge(std::uint16_t window = 0xFFFF) {
    send({.seq = seq, .acknowledged = acknowledged, .window = window, .payload = {}, .options = {}});
  }
  /// Makes the machine's application send `bytes` bytes of the pattern with seed 5.
  void application_sends(std::size_t bytes) {
    machine_.on(0, [&] {
      std::vector<std::byte> data(bytes);
      for (std::size_t i = 0; i < bytes; ++i) data[i] = pattern(application_sent_ + i, 5);
      application_sent_ += bytes;
      EXPECT_TRUE(connection_->send(Buffer::copy(data)).has_value());
    });
    settle();
  }
  void close_by_application() {
    machine_.on(0, [this] { connection_->close(); });
    settle();
  }
  /// Returns the segments that the machine has sent since the last call.
  std::vector<Segment> take_segments() {
    const std::lock_guard lock(lock_);
    return std::exchange(segments_, {});
  }
  void advance(std::chrono::milliseconds by) {
    for (auto passed = std::chrono::milliseconds(0); passed < by; passed += std::chrono::milliseconds(50)) {
      clock_.advance(std::chrono::milliseconds(50));
      settle();
    }
  }
  void settle() {
    for (int i = 0; i < 4; ++i) machine_.on(0, [] {});
  }
  Counters counters() {
    Counters result{};
    machine_.on(0, [&] { result = net::counters(0); });
    return result;
  }
  Waits waits() {
    Waits result{};
    machine_.on(0, [&] { result = net::waits(); });
    return result;
  }
  Record& record() { return *record_; }
  WireCard& card() { return card_; }
  host::HostMachine& machine() { return machine_; }
  NetworkControl& network() { return *network_; }

  /// Makes an IPv4 frame from the peer to the machine, with checksums.
  static Bytes ipv4_frame(std::uint8_t protocol, const Bytes& payload, std::uint16_t identification = 1, std::uint16_t fragment = 0) {
    Bytes frame(34);
    const auto put = [&frame](std::size_t at, std::uint32_t value, int bytes) {
      for (int i = 0; i < bytes; ++i) frame[at + static_cast<std::size_t>(i)] = static_cast<std::byte>(value >> 8 * (bytes - 1 - i));
    };
    put(0, 0x02000000, 4);
    put(4, 1, 2);
    put(6, 0x02000000, 4);
    put(10, 2, 2);
    put(12, 0x0800, 2);
    put(14, 0x45, 1);
    put(16, static_cast<std::uint32_t>(20 + payload.size()), 2);
    put(18, identification, 2);
    put(20, fragment, 2);
    put(22, 64, 1);
    put(23, protocol, 1);
    put(26, peer_address.value, 4);
    put(30, machine_address.value, 4);
    frame.insert(frame.end(), payload.begin(), payload.end());
    fill_checksums(frame);
    return frame;
  }

  std::uint32_t seq = 0;           ///< sequence number of the next byte that the peer sends
  std::uint32_t acknowledged = 0;  ///< sequence number of the next byte that the peer expects

 private:
  [[nodiscard]] Bytes frame_of(const Segment& segment) const {
    Bytes tcp;
    const auto put = [&tcp](std::uint32_t value, int bytes) {
      for (int i = bytes - 1; i >= 0; --i) tcp.push_back(static_cast<std::byte>(value >> 8 * i));
    };
    Bytes options = segment.options;
    options.resize((options.size() + 3) / 4 * 4);
    put(port_, 2);
    put(service_port, 2);
    put(segment.seq, 4);
    put(segment.acknowledged, 4);
    put(static_cast<std::uint32_t>((20 + options.size()) / 4) << 4, 1);
    put(segment.flags, 1);
    put(segment.window, 2);
    put(0, 4);
    tcp.insert(tcp.end(), options.begin(), options.end());
    tcp.insert(tcp.end(), segment.payload.begin(), segment.payload.end());
    return ipv4_frame(6, tcp);
  }
  /// Sends an ARP request of the peer, so that the machine learns its address.
  void introduce() {
    Bytes request(60);
    const std::uint8_t bytes[] = {255, 255, 255, 255, 255, 255, 2, 0,  0, 0, 0, 2, 8, 6, 0, 1, 8, 0,  6, 4, 0,
                                  1,   2,   0,   0,   0,   0,   2, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1};
    std::ranges::transform(bytes, request.begin(), [](std::uint8_t byte) { return std::byte{byte}; });
    card_.arrive(request, 0);
    settle();
  }
  void take(const Bytes& frame) {
    const auto read = [&frame](std::size_t at, int bytes) {
      std::uint32_t value = 0;
      for (int i = 0; i < bytes; ++i) value = value << 8 | std::to_integer<std::uint32_t>(frame[at + static_cast<std::size_t>(i)]);
      return value;
    };
    if (frame.size() < 54 || read(12, 2) != 0x0800 || read(23, 1) != 6 || read(36, 2) != port_) return;
    const std::size_t data = 34 + (read(46, 1) >> 4) * 4;
    const std::size_t end = 14 + read(16, 2);
    ASSERT_LE(data, end);
    ASSERT_LE(end, frame.size());
    const std::lock_guard lock(lock_);
    segments_.push_back(
        {.seq = read(38, 4),
         .acknowledged = read(42, 4),
         .flags = static_cast<std::uint8_t>(read(47, 1)),
         .window = static_cast<std::uint16_t>(read(48, 2)),
         .payload = Bytes(frame.begin() + static_cast<std::ptrdiff_t>(data), frame.begin() + static_cast<std::ptrdiff_t>(end)),
         .options = {}});
  }

  host::ManualClock clock_{1'000'000'000};
  WireCard card_;
  host::HostMachine machine_;
  std::unique_ptr<NetworkControl> network_;
  std::uint16_t port_ = 0;
  Connection* connection_ = nullptr;
  std::shared_ptr<Record> record_;
  std::size_t application_sent_ = 0;
  std::mutex lock_;
  std::vector<Segment> segments_;
};

}  // namespace neap::net::testing
