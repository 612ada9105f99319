// SPDX-License-Identifier: BSL-1.0
// The measurements of one machine: those that peers begin, and at most one that this machine begins.
//
// A connection's session belongs to the connection's core. If each trial has its own connection, the next connection may arrive on another
// core. Until then the service keeps the session under its peer's address, for the core that accepts the connection. (If one address has
// two such measurements at a time, one may get the other's connections. NPtcp itself serves one measurement at a time.)
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/netpipe/link.hpp"
#include "apps/netpipe/options.hpp"
#include "apps/netpipe/runs.hpp"
#include "kernel/spin_lock.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"

namespace neap::netpipe {

class Service {
 public:
  /// The maximum of simultaneous measurements that peers begin; further ones are refused.
  static constexpr unsigned sessions_max = 256;
  /// The maximum of sessions that wait for their next connection; a further session fails.
  static constexpr std::size_t waiting_max = 16;
  static constexpr std::chrono::seconds waiting_limit{20};

  /// The service MUST exist as long as the machine runs. A measurement without the option `core=` runs on `core`. Throws `bad_alloc`.
  Service(net::Network& network, const Options& serving, unsigned core);
  Service& operator=(Service&&) = delete;

  /// Serves `port` on every core. Errors: those of `net::Network::listen`.
  [[nodiscard]] task<Result<void>> serve(std::uint16_t port);
  /// Begins a measurement on `client.core`, with a peer that listens, and returns the run's number. Errors: `full` (a measurement that this
  /// machine began is in progress), `out_of_memory`.
  [[nodiscard]] Result<unsigned> begin(const ClientOptions& client);
  /// Begins a measurement and waits for its end. The returned run has the results, or the reason of a failure.
  [[nodiscard]] task<Result<Run>> measure(ClientOptions client);
  /// Asks the measurement in progress to end before its next message length; returns false if no measurement is in progress.
  [[nodiscard]] task<bool> stop();

  /// Returns the number of cores that can measure.
  [[nodiscard]] unsigned cores() const noexcept { return network_.cores(); }
  [[nodiscard]] unsigned measuring_core() const noexcept { return core_; }
  /// Returns the options for the next sessions that peers begin. `serving` and `set_serving` MAY be called on any core.
  [[nodiscard]] Options serving() const;
  void set_serving(const Options& options);
  /// Returns a copy of the run (`Runs::copy`). Before that, fails the sessions whose next connection did not arrive in time.
  [[nodiscard]] Run run(unsigned number);

  struct Counters {
    std::atomic<std::uint64_t> begun{0}, finished{0}, failed{0};
    std::atomic<std::uint64_t> strangers{0};  ///< measurements of `begun` that failed before the peer sent a word of the protocol
    std::atomic<std::uint64_t> refused{0};    ///< measurements refused by `sessions_max` or without memory
  };
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  void report_counters(const std::function<void(std::string_view name, std::uint64_t value)>& emit) const;

 private:
  struct Waiting {
    net::Address peer;
    std::uint64_t until_ns = 0;
    std::unique_ptr<Session> session;
  };
  using Ended = std::move_only_function<void()>;

  std::unique_ptr<net::ConnectionHandler> accept(net::Connection& connection);
  void served(std::unique_ptr<Session> session, net::Endpoint peer);
  void report(Session& session, const std::string& peer, const Measurement& point);
  void over(const Session& session, const std::string& peer);
  [[nodiscard]] std::unique_ptr<Session> take_waiting(const net::Address& peer);
  [[nodiscard]] bool put_waiting(const net::Address& peer, std::unique_ptr<Session>& session);
  [[nodiscard]] Result<unsigned> begin(const ClientOptions& client, Ended ended);
  task<void> drive(ClientOptions client, unsigned run, unsigned home, Ended ended);
  task<void> measure_here(const ClientOptions& client, unsigned run);
  void give_up(unsigned run) noexcept;
  task<std::unique_ptr<Session>> drive_connections(const ClientOptions& client, std::unique_ptr<Session> session);

  net::Network& network_;
  const unsigned core_;
  const Filling filling_;
  Runs runs_;
  Counters counters_;
  std::atomic<unsigned> sessions_{0};
  std::atomic<bool> measuring_{false};
  std::atomic<unsigned> measuring_core_{0};
  std::atomic<bool> stop_wanted_{false};
  std::atomic<std::uint64_t> silent_until_ns_{0};  // until then, the end of a measurement without a result is not printed
  Session* measuring_session_ = nullptr;           // accessed only on the core that measures

  mutable SpinLock lock_;  // protects the following members
  Options serving_;
  std::vector<Waiting> waiting_;
};

}  // namespace neap::netpipe
