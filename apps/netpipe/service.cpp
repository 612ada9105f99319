// SPDX-License-Identifier: BSL-1.0
#include "apps/netpipe/service.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap::netpipe {

namespace {

using std::chrono::milliseconds;

/// Delay before the next connection. The peer has to listen again, and may refuse or reset connections before that.
constexpr milliseconds connect_again_after{5};
constexpr std::chrono::seconds connect_again_limit{10};
/// The interval of lines about measurements that failed before their first result. Otherwise any peer could flood the console.
constexpr std::chrono::seconds failure_print_interval{1};

std::uint64_t in(std::chrono::nanoseconds delay) noexcept { return machine::now_ns() + static_cast<std::uint64_t>(delay.count()); }

}  // namespace

Service::Service(net::Network& network, const Options& serving, unsigned core) : network_(network), core_(core), serving_(serving) {
  waiting_.reserve(waiting_max);
}

Options Service::serving() const {
  const std::lock_guard guard(lock_);
  return serving_;
}

void Service::set_serving(const Options& options) {
  const std::lock_guard guard(lock_);
  serving_ = options;
}

void Service::report_counters(const std::function<void(std::string_view name, std::uint64_t value)>& emit) const {
  emit("begun", counters_.begun);
  emit("finished", counters_.finished);
  emit("failed", counters_.failed);
  emit("strangers", counters_.strangers);
  emit("refused", counters_.refused);
  emit("served_now", sessions_);
}

Run Service::run(unsigned number) {
  static_cast<void>(take_waiting({}));
  return runs_.copy(number);
}

// --- Measurements that peers begin -------------------------------------------------------------------------------------------------------
task<Result<void>> Service::serve(std::uint16_t port) {
  co_return co_await network_.listen(port, [this](net::Connection& connection) { return accept(connection); });
}

std::unique_ptr<net::ConnectionHandler> Service::accept(net::Connection& connection) {
  const net::Endpoint peer = connection.remote();
  std::unique_ptr<Session> session = take_waiting(peer.address);
  if (session == nullptr) {
    if (sessions_.fetch_add(1) >= sessions_max) {
      --sessions_;
      ++counters_.refused;
      return nullptr;
    }
    // `place` lowers `sessions_` when the session is destroyed, because the session's report function owns the last copy of `place`.
    std::shared_ptr<void> place(nullptr, [this](void*) { --sessions_; });
    session = std::make_unique<Session>(
        Role::receiver, serving(), &machine::now_ns,
        [this, place = std::move(place), name = peer.to_string()](Session& own, const Measurement& point) { report(own, name, point); });
    ++counters_.begun;
  }
  return std::make_unique<Link>(connection, std::move(session), filling_,
                                [this, peer](std::unique_ptr<Session> own) { served(std::move(own), peer); });
}

void Service::served(std::unique_ptr<Session> session, net::Endpoint peer) {
  require(session != nullptr, "netpipe: a link returns its session");
  if (session->state() == Session::State::between) {
    if (put_waiting(peer.address, session)) return;
    session->fail("too many measurements wait for their next connection");
  }
  over(*session, peer.to_string());
}

/// A receiver's run is added to the table of runs with its first result. So a peer that causes no result does not displace older runs.
void Service::report(Session& session, const std::string& peer, const Measurement& point) {
  if (session.run == 0) {
    session.run = runs_.begin(session.role(), peer);
    print("netpipe: run ", session.run, ": measured by ", peer);
  }
  runs_.add(session.run, point);
  print(point.shown_line());
}

void Service::over(const Session& session, const std::string& peer) {
  require(session.state() == Session::State::finished || session.state() == Session::State::failed,
          "netpipe: a session that is over ended");
  if (session.completed()) {
    ++counters_.finished;
    if (session.run != 0) print("netpipe: run ", session.run, " finished");
  } else {
    ++(session.introduced() ? counters_.failed : counters_.strangers);
    if (session.run != 0) {
      print("netpipe: run ", session.run, " failed: ", session.reason());
    } else if (session.introduced()) {
      const std::uint64_t now = machine::now_ns();
      std::uint64_t until = silent_until_ns_;
      if (now >= until && silent_until_ns_.compare_exchange_strong(until, in(failure_print_interval))) {
        print("netpipe: no measurement by ", peer, ": ", session.reason());
      }
    }
  }
  runs_.end(session.run, session.completed() ? Session::State::finished : Session::State::failed, session.reason());
}

std::unique_ptr<Session> Service::take_waiting(const net::Address& peer) {
  std::unique_ptr<Session> found;
  std::vector<Waiting> late;
  {
    const std::lock_guard guard(lock_);
    if (waiting_.empty()) return nullptr;
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
      const bool expired = machine::now_ns() >= entry->until_ns;
      if (!expired && (found != nullptr || entry->peer != peer)) {
        ++entry;
        continue;
      }
      if (expired) {
        late.push_back(std::move(*entry));
      } else {
        found = std::move(entry->session);
      }
      entry = waiting_.erase(entry);
    }
  }
  for (Waiting& entry : late) {
    entry.session->fail("the peer opened no further connection within 20 s");
    over(*entry.session, entry.peer.to_string());
  }
  return found;
}

bool Service::put_waiting(const net::Address& peer, std::unique_ptr<Session>& session) {
  static_cast<void>(take_waiting({}));
  const std::lock_guard guard(lock_);
  if (waiting_.size() == waiting_max) return false;
  waiting_.push_back({.peer = peer, .until_ns = in(waiting_limit), .session = std::move(session)});
  return true;
}

// --- Measurements that this machine begins -----------------------------------------------------------------------------------------------
Result<unsigned> Service::begin(const ClientOptions& client) {
  return begin(client, [] {});
}

task<Result<Run>> Service::measure(ClientOptions client) {
  Completion<> done;
  const Result<unsigned> number = begin(client, [&done] { done.fulfil(); });
  if (!number.has_value()) co_return std::unexpected(number.error());
  co_await done;
  co_return run(*number);
}

/// Calls `ended` on this core when the measurement has ended.
Result<unsigned> Service::begin(const ClientOptions& client, Ended ended) {
  if (measuring_.exchange(true)) return failure(ErrorCode::full, "a measurement is under way");
  measuring_core_ = client.core;
  stop_wanted_ = false;
  try {
    require(client.core < core_count(), "netpipe: no such core", client.core);
    const unsigned number = runs_.begin(Role::transmitter, client.peer.to_string());
    neap::start(drive(client, number, this_core(), std::move(ended)));
    return number;
  } catch (const std::bad_alloc&) {
    measuring_ = false;
    return failure(ErrorCode::out_of_memory, "no memory for a measurement");
  }
}

task<void> Service::drive(ClientOptions client, unsigned run, unsigned home, Ended ended) {
  /// This node is handed over to the core that measures, and back, without an allocation.
  struct RemoteRun : RemoteNode {
    RemoteRun(Service& service_, const ClientOptions& client_, unsigned number_)
        : RemoteNode{.run = [](RemoteNode* node) noexcept { static_cast<RemoteRun*>(node)->back.fulfil(); }},
          service(service_),
          client(client_),
          number(number_) {}
    Service& service;
    const ClientOptions& client;
    const unsigned number;
    Completion<> back;
  };
  RemoteRun remote(*this, client, run);
  RemoteRun* const at = &remote;
  print("netpipe: run ", run, ": measuring with ", client.peer.to_string(), " on core ", client.core);
  try {
    co_await on_core(client.core, [at, home] {
      neap::start([](RemoteRun* here, unsigned back) -> task<void> {
        try {
          co_await here->service.measure_here(here->client, here->number);
        } catch (const std::bad_alloc&) {
          here->service.give_up(here->number);
        }
        hand_over(back, *here);
      }(at, home));
    });
    co_await remote.back;
  } catch (const std::bad_alloc&) {  // the measurement has not begun on the other core
    give_up(run);
  }
  measuring_ = false;
  ended();
}

/// Ends a run for lack of memory. The reason's text is so short that storing it does not allocate.
void Service::give_up(unsigned run) noexcept {
  ++counters_.failed;
  runs_.end(run, Session::State::failed, "out of memory");
}

/// Performs a whole run. MUST be called on the core that measures.
task<void> Service::measure_here(const ClientOptions& client, unsigned run) {
  require(this_core() == client.core, "netpipe: a run is measured on its core", client.core);
  auto session = std::make_unique<Session>(
      Role::transmitter, client.measured, &machine::now_ns,
      [this, peer = client.peer.to_string()](Session& own, const Measurement& point) { report(own, peer, point); });
  session->run = run;
  ++counters_.begun;
  session = co_await drive_connections(client, std::move(session));
  if (session == nullptr) throw std::bad_alloc();  // the session was destroyed with a connection for which there was no memory
  over(*session, client.peer.to_string());
}

/// Runs the session in all its connections, and returns it when it has ended. MUST be called on the core that measures.
task<std::unique_ptr<Session>> Service::drive_connections(const ClientOptions& client, std::unique_ptr<Session> session) {
  measuring_session_ = session.get();
  if (stop_wanted_) session->stop();
  const std::unique_ptr<Session*, void (*)(Session**)> shown(&measuring_session_, [](Session** place) { *place = nullptr; });
  std::uint64_t limit_ns = client.wait.count() > 0 ? in(client.wait) : 0;
  for (;;) {
    Completion<std::unique_ptr<Session>> back;
    net::Acceptor acceptor = [this, &session, &back](net::Connection& connection) -> std::unique_ptr<net::ConnectionHandler> {
      try {
        return std::make_unique<Link>(connection, std::move(session), filling_,
                                      [&back](std::unique_ptr<Session> own) { back.fulfil(std::move(own)); });
      } catch (const std::bad_alloc&) {
        measuring_session_ = nullptr;  // the session may have been destroyed with the link, so `stop` must not find it
        throw;
      }
    };
    const Result<void> connected = co_await network_.connect(client.peer, std::move(acceptor));
    if (session == nullptr && !connected.has_value()) break;  // there was no memory, and the session was destroyed with its connection
    if (session == nullptr) session = co_await back;
    if (session->touched()) limit_ns = in(connect_again_limit);
    const bool refused = !connected.has_value() && connected.error().code == ErrorCode::closed;
    const bool again = connected.has_value() || (refused && machine::now_ns() < limit_ns);
    if (!again) session->fail(connected.error().message);
    if (session->state() != Session::State::between || machine::now_ns() >= limit_ns) break;
    co_await sleep_for(connect_again_after);
  }
  if (session != nullptr && session->state() == Session::State::between) session->fail("the peer closes every further connection at once");
  co_return std::move(session);
}

task<bool> Service::stop() {
  if (!measuring_) co_return false;
  stop_wanted_ = true;  // read when the session begins, if it has not begun on its core yet
  co_await on_core(measuring_core_, [this] {
    if (measuring_session_ != nullptr) measuring_session_->stop();
  });
  co_return true;
}

}  // namespace neap::netpipe
