// SPDX-License-Identifier: BSL-1.0
// For tests: a machine that serves control, and its clients on another machine in the same process.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drivers/ixgbe/settings.hpp"
#include "kernel/log.hpp"
#include "kernel/policy.hpp"
#include "net/testing/two_machines.hpp"
#include "observe/server.hpp"

namespace neap::observe::testing {

using namespace std::chrono_literals;
using host::HostMachine;
constexpr std::uint16_t port = 5002;
constexpr net::Endpoint control_endpoint{.address = net::testing::server_address, .port = port};

/// A card without frames, on which tests change settings. It has the 82599's settings. An `itr` is 0 to 1000 us in steps of 2 us.
class FakeDevice final : public policy::Device {
 public:
  Result<std::uint32_t> round_itr(unsigned, std::uint32_t itr_us) const noexcept override {
    if (itr_us > 1000) return failure(ErrorCode::invalid, "itr is 0 to 1000 us", itr_us);
    return itr_us / 2 * 2;
  }
  std::uint32_t itr_us(unsigned core) const noexcept override { return itr_us_[core]; }
  void set_itr(unsigned core, std::uint32_t itr_us) noexcept override { itr_us_[core] = itr_us; }
  void set_interrupt(unsigned, bool) noexcept override {}
  const volatile void* next_receive_line(unsigned) const noexcept override { return nullptr; }
  std::span<const policy::Row> settings() const noexcept override { return ixgbe::setting_rows(); }
  task<Result<Change>> change(policy::Setting, std::uint32_t value, unsigned) override { co_return Change{.value = value}; }

 private:
  std::array<std::atomic<std::uint32_t>, machine::cores_max> itr_us_{};
};

/// A client on the other machine. The test's thread uses it.
class Peer {
 public:
  Peer(net::testing::TwoMachines& world, bool reads = true) : world_(world), seen_(std::make_shared<Seen>()) {
    seen_->reads = reads;
    failed = world.connect(control_endpoint, [seen = seen_](net::Connection& connection) -> std::unique_ptr<net::ConnectionHandler> {
      seen->connection = &connection;
      return std::make_unique<Handler>(seen);
    });
  }
  Peer& operator=(Peer&&) = delete;
  ~Peer() { abort(); }

  std::optional<ErrorCode> failed;

  void send(std::string_view text) {
    on_connection([&](net::Connection& connection) {
      const auto bytes = std::as_bytes(std::span(text));
      for (std::size_t at = 0; at < bytes.size(); at += 16384) {
        EXPECT_TRUE(connection.send(net::Buffer::copy(bytes.subspan(at, std::min<std::size_t>(16384, bytes.size() - at)))).has_value());
      }
    });
  }
  /// Sends without a check, over a connection that may be closed or full.
  void try_send(std::string_view text) {
    on_connection([&](net::Connection& connection) { (void)connection.send(net::Buffer::copy(std::as_bytes(std::span(text)))); });
  }
  /// Returns the next line without its line feed, or no line if none arrives.
  std::optional<std::string> line(std::chrono::seconds limit = 20s) {
    std::optional<std::string> result;
    (void)HostMachine::wait_until([&] { return (result = try_line()).has_value() || ended(); }, limit);
    if (!result) result = try_line();
    return result;
  }
  std::string ask(std::string_view text) {
    send(std::string(text) + '\n');
    return line().value_or("(nothing)");
  }
  std::string rest() {
    EXPECT_TRUE(HostMachine::wait_until([&] { return ended(); }));
    const std::lock_guard lock(seen_->mutex);
    return std::exchange(seen_->text, {});
  }
  std::string take() {
    const std::lock_guard lock(seen_->mutex);
    return std::exchange(seen_->text, {});
  }
  std::size_t received_bytes() {
    const std::lock_guard lock(seen_->mutex);
    return seen_->text.size();
  }
  bool ended() {
    const std::lock_guard lock(seen_->mutex);
    return seen_->peer_closed || seen_->closed;
  }
  bool gone() {
    const std::lock_guard lock(seen_->mutex);
    return seen_->closed;
  }
  bool reset() {
    const std::lock_guard lock(seen_->mutex);
    return seen_->closed && !seen_->peer_closed;
  }
  void begin_reading() {
    world_.machine.on(world_.client_core, [&] {
      seen_->reads = true;
      seen_->unread.clear();
    });
  }
  void end_sending() {
    on_connection([](net::Connection& connection) { connection.end_sending(); });
  }
  void close() {
    on_connection([](net::Connection& connection) { connection.close(); });
  }
  void abort() {
    on_connection([](net::Connection& connection) { connection.abort(); });
  }

 private:
  struct Seen {
    std::mutex mutex;
    std::string text;
    bool peer_closed = false, closed = false;
    // Only the client's core uses the following members.
    net::Connection* connection = nullptr;
    bool reads = true;
    net::Buffer unread;
  };
  class Handler final : public net::ConnectionHandler {
   public:
    explicit Handler(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}
    void received(net::Buffer data) override {
      {
        const std::lock_guard lock(seen_->mutex);
        for (const net::Buffer::Piece* piece = data.first(); piece != nullptr; piece = piece->next) {
          seen_->text.append(reinterpret_cast<const char*>(piece->data), piece->bytes);
        }
      }
      if (!seen_->reads) seen_->unread.append(std::move(data));
    }
    void peer_closed() override {
      {
        const std::lock_guard lock(seen_->mutex);
        seen_->peer_closed = true;
      }
      connection().close();
    }
    void closed() override {
      seen_->connection = nullptr;
      seen_->unread.clear();
      const std::lock_guard lock(seen_->mutex);
      seen_->closed = true;
    }

   private:
    std::shared_ptr<Seen> seen_;
  };

  template <typename Call>
  void on_connection(Call call) {
    world_.machine.on(world_.client_core, [&] {
      if (seen_->connection != nullptr) call(*seen_->connection);
    });
  }
  std::optional<std::string> try_line() {
    const std::lock_guard lock(seen_->mutex);
    const std::size_t end = seen_->text.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string result = seen_->text.substr(0, end);
    seen_->text.erase(0, end + 1);
    return result;
  }

  net::testing::TwoMachines& world_;
  std::shared_ptr<Seen> seen_;
};

struct WorldOptions {
  Options control;
  std::chrono::nanoseconds proof_limit{std::chrono::seconds(60)};
  std::chrono::nanoseconds wrong_token_delay{std::chrono::milliseconds(1)};
  std::chrono::nanoseconds drain_limit{std::chrono::seconds(10)};
  net::testing::TwoMachinesOptions wire;
  unsigned serving_cores = 2;
};

inline std::atomic<int> power_offs{0}, reboots{0};

inline WorldOptions small_log(log::WhenFull when_full = log::WhenFull::stop, std::uint64_t lines = 8192) {
  WorldOptions options;
  options.control.log = {.entries_per_core = lines, .when_full = when_full};
  return options;
}

/// A machine with two serving cores by default, and a client machine with one core.
class World {
 public:
  explicit World(WorldOptions options = small_log())
      : server((host::prepare_pages(), options.control), {.power_off = []() noexcept { ++power_offs; },
                                                          .reboot = []() noexcept { ++reboots; },
                                                          .proof_limit = options.proof_limit,
                                                          .wrong_token_delay = options.wrong_token_delay,
                                                          .drain_limit = options.drain_limit}),
        machines(wire_of(options)) {
    machines.machine.run(0, [&]() -> task<void> {
      policy::use(&device);
      const policy::BootSettings boot_settings;
      const auto applied = co_await policy::apply(boot_settings);
      EXPECT_TRUE(applied.has_value());
      const auto prepared = co_await log::prepare(options.control.log);
      EXPECT_TRUE(prepared.has_value());
      const auto serving = co_await server.serve(*machines.server);
      EXPECT_TRUE(serving.has_value());
    });
  }
  ~World() {
    peers.clear();
    EXPECT_TRUE(HostMachine::wait_until([&] { return server.clients().count() == 0; }));
    machines.machine.run(0, [&]() -> task<void> {
      if (log::state().running) (void)co_await log::stop();
      co_await server.run_card().follow();  // returns after the task that the end of the run started
    });
    for (unsigned core = 0; core < machine::core_count(); ++core) machines.machine.on(core, [] {});
    machines.machine.on(0, [] { policy::use(nullptr); });
  }

  /// Returns a connected client. lwIP resets a SYN from a port that the server has in TIME-WAIT; the client then tries another port.
  Peer& peer(bool reads = true) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      auto made = std::make_unique<Peer>(machines, reads);
      if (made->failed) continue;
      peers.push_back(std::move(made));
      return *peers.back();
    }
    ADD_FAILURE() << "no connection";
    std::abort();
  }
  /// Returns the answer to one line, over a connection of its own.
  std::string ask(std::string_view line) {
    Peer& client = peer();
    std::string answer = client.ask(line);
    client.close();
    return answer;
  }
  /// Waits until the server reads no more lines; returns their number.
  std::uint64_t lines_at_rest() {
    const auto lines = HostMachine::settled([&] { return server.counters().lines.load(); }, 200ms);
    EXPECT_TRUE(lines.has_value());
    return lines.value_or(0);
  }
  /// Makes a run with `records` records on each of the server's cores.
  void make_run(unsigned records) {
    Peer& owner = peer();
    EXPECT_TRUE(owner.ask("start").starts_with("ok run="));
    record(records);
    EXPECT_TRUE(owner.ask("stop").starts_with("ok run="));
    owner.close();
  }
  /// Adds `records` records on each of the server's cores, as if so many interrupts had occurred.
  void record(unsigned records) {
    for (unsigned core = 0; core < machines.client_core; ++core) {
      machines.machine.on(core, [&] {
        for (unsigned i = 0; i < records; ++i) log::interrupt();
      });
    }
  }
  void run(task<void> (*work)()) { machines.machine.run(0, work); }

  // This member is destroyed last, when no core runs any more.
  struct LogRelease {
    ~LogRelease() { log::release(); }
  } log_release;
  FakeDevice device;
  Server server;
  net::testing::TwoMachines machines;
  std::vector<std::unique_ptr<Peer>> peers;

 private:
  static net::testing::TwoMachinesOptions wire_of(const WorldOptions& options) {
    net::testing::TwoMachinesOptions wire = options.wire;
    wire.server.cores = options.serving_cores;
    return wire;
  }
};

}  // namespace neap::observe::testing
