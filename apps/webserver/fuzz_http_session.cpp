// SPDX-License-Identifier: BSL-1.0
// A fuzzer of HTTP sessions: several connections of one core, and an application that answers in random ways, late, wrongly and not at all.
// One input determines how the clients send, read, stall and disconnect, and what the application does.
//
// The bytes that each client gets are parsed as responses: whatever the application does, they are well-formed and belong to the requests
// in their order. The allocated memory is compared with the core's account. At the end all requests have ended and all memory is free.
//
// With clang the fuzzer is a libFuzzer target (-DNEAP_LIBFUZZER=ON). With any other compiler its `main` generates inputs:
// `fuzz_http_session [SECONDS] [SEED]`.
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/webserver/fuzz_http_requests.hpp"
#include "apps/webserver/test_peer.hpp"
#include "tests/host/allocated_bytes.hpp"

namespace neap::webserver {
namespace {

using host::allocated_bytes;
using test::bytes_of;

enum class Step : std::uint8_t { send, send_bytewise, window, read, read_all, end, vanish, wait, act };
constexpr unsigned steps = 9, connections_max = 6;
constexpr unsigned steps_per_check = 16;
constexpr std::size_t output_bytes_max = 400'000;
/// Memory that no account includes: of each connection its objects, a frame, and the bytes below `output_bytes`, and of the core its pools.
constexpr std::size_t connection_bytes = 160 << 10, core_bytes = 1 << 20;

[[noreturn]] void fail(const char* what, std::size_t got = 0, std::size_t expected = 0) {
  std::fprintf(stderr, "%s: %zu instead of %zu\n", what, got, expected);
  std::abort();
}

/// Received bytes in a block of exactly their size.
struct CardBuffer {
  static inline std::size_t out_bytes = 0;
  std::size_t bytes;
  static net::Buffer make(std::string_view text) {
    auto* const block = static_cast<CardBuffer*>(std::malloc(sizeof(CardBuffer) + text.size()));
    block->bytes = text.size();
    std::memcpy(block + 1, text.data(), text.size());
    out_bytes += malloc_usable_size(block) + sizeof(net::Buffer::Piece);
    return net::Buffer::reference({reinterpret_cast<const std::byte*>(block + 1), text.size()}, &release, block);
  }
  static void release(void* pointer) noexcept {
    out_bytes -= malloc_usable_size(pointer) + sizeof(net::Buffer::Piece);
    std::free(pointer);
  }
};

/// Checks the bytes that one client has received. Each request that the application was given adds an expectation.
class ResponseChecker {
 public:
  void expect(bool is_head) { heads_.push_back(is_head); }
  void add(std::string_view text) {
    text_ += text;
    while (parse()) {
    }
    if (text_.size() > (4 << 20)) fail("a response's head or chunk does not end", text_.size());
  }
  /// `in_order`: the connection was closed, not reset, so that nothing may be missing.
  void finish(bool in_order) {
    if (in_order && (state_ == State::length || state_ == State::chunk || !text_.empty())) fail("a part of a response", text_.size());
  }

 private:
  enum class State : std::uint8_t { head, length, chunk, rest };

  bool parse() {
    if (state_ == State::rest) {
      text_.clear();
      return false;
    }
    if (state_ == State::length) {
      const std::size_t bytes = std::min(left_, text_.size());
      text_.erase(0, bytes);
      left_ -= bytes;
      if (left_ != 0) return false;
      state_ = State::head;
    }
    if (state_ == State::chunk) return parse_chunk();
    const std::size_t end = text_.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const std::string head = text_.substr(0, end + 2);
    text_.erase(0, end + 4);
    if (!head.starts_with("HTTP/1.1 ")) {
      for (const std::string& earlier : seen_) std::fprintf(stderr, "earlier: %s\n", fuzzing::printable(earlier).c_str());
      std::fprintf(stderr, "now: %s\n", fuzzing::printable(head.substr(head.size() - std::min<std::size_t>(head.size(), 300))).c_str());
      fail("no status line");
    }
    seen_.push_back(head + (heads_.empty() ? "-" : heads_.front() ? "HEAD" : "GET"));
    if (closed_) fail("a response after Connection: close");
    const unsigned status = static_cast<unsigned>(std::atoi(head.c_str() + 9));
    if (status < 200) return true;
    bool is_head = false;
    if (!heads_.empty()) {
      is_head = heads_.front();
      heads_.pop_front();
    } else if (status < 400) {
      fail("a response without a request", status);
    }
    closed_ = head.find("\r\nConnection: close\r\n") != std::string::npos;
    if (!closed_ && head.find("\r\nConnection: keep-alive\r\n") == std::string::npos) fail("a response without Connection", status);
    const std::size_t length = head.find("\r\nContent-Length: "), chunked = head.find("\r\nTransfer-Encoding: chunked\r\n");
    if (length != std::string::npos && chunked != std::string::npos) fail("two framings");
    if (is_head || status == 204 || status == 304) return true;
    if (length != std::string::npos) {
      left_ = std::strtoull(head.c_str() + length + 18, nullptr, 10);
      state_ = State::length;
    } else if (chunked != std::string::npos) {
      state_ = State::chunk;
    } else {
      if (!closed_) fail("a body without an end");
      state_ = State::rest;
    }
    return true;
  }

  bool parse_chunk() {
    const std::size_t end = text_.find("\r\n");
    if (end == std::string::npos) return false;
    if (end == 0 || text_.find_first_not_of("0123456789abcdef") != end) fail("no chunk");
    const std::size_t bytes = std::strtoull(text_.c_str(), nullptr, 16);
    if (bytes == 0) {
      const std::size_t last = text_.find("\r\n\r\n");
      if (last == std::string::npos) return false;
      text_.erase(0, last + 4);
      state_ = State::head;
      return true;
    }
    if (text_.size() < end + 2 + bytes + 2) return false;
    if (text_.compare(end + 2 + bytes, 2, "\r\n") != 0) fail("a chunk without an end");
    text_.erase(0, end + 2 + bytes + 2);
    return true;
  }

  State state_ = State::head;
  std::size_t left_ = 0;
  bool closed_ = false;
  std::string text_;
  std::deque<bool> heads_;
  std::vector<std::string> seen_;  ///< heads, for the report
};

class Case;

/// Does something random in each call, with the exchange of the call and with those that it has kept.
class FuzzApplication final : public Application {
 public:
  explicit FuzzApplication(Case& owner) : owner_(owner) {}
  void request(Exchange& exchange) override;
  void body(Exchange& exchange, std::span<const std::byte> piece) override {
    if (piece.empty() || !exchange.connected()) fail("an empty piece, or one without a connection");
    act(exchange);
  }
  void body_end(Exchange& exchange) override {
    if (!exchange.body_complete() || !exchange.connected()) fail("body_end before the end");
    act(exchange);
  }
  void writable(Exchange& exchange) override { act(exchange); }
  void sent(Exchange& exchange) override {
    if (!exchange.ended()) fail("sent before the end");
  }
  void closed(Exchange& exchange, bool aborted) override {
    if (exchange.connected()) fail("closed with a connection");
    if (!aborted && !exchange.ended()) fail("complete without a response");
    if (exchange.context == nullptr) fail("closed twice, or without a request");
    exchange.context = nullptr;
    --open_;
    if (below(4) == 0) act_on_kept();
  }
  bool client_error(Session& session, const http::ParseError& error) override {
    if (below(3) != 0) return false;
    if (below(2) == 0) {
      session.send_error_response(
          bytes_of("HTTP/1.1 " + std::to_string(error.status) + " No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"));
    }
    return true;
  }

  void act_on_kept() {
    if (kept_.empty() || ++depth_ > 3) {
      if (depth_ > 3) --depth_;
      return;
    }
    const std::size_t at = below(static_cast<unsigned>(kept_.size()));
    ExchangeReference taken = std::move(kept_[at]);
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(at));
    act(*taken);
    if (below(3) != 0 && taken->connected()) kept_.push_back(std::move(taken));
    --depth_;
  }
  /// Ends all requests.
  void finish() {
    while (!kept_.empty()) {
      ExchangeReference taken = std::move(kept_.back());
      kept_.pop_back();
      complete(*taken);
    }
  }
  void seed(std::uint32_t seed) { state_ = state_ * 31 + seed; }
  [[nodiscard]] bool idle() const { return kept_.empty(); }
  [[nodiscard]] unsigned open() const { return open_; }
  bool finishing = false;

 private:
  unsigned below(unsigned end) {
    state_ = state_ * 6364136223846793005 + 1442695040888963407;
    return static_cast<unsigned>((state_ >> 33) % end);
  }
  std::string text() {
    static constexpr unsigned most[] = {1, 20, 1500, 5000, 100'000};
    return std::string(below(most[below(5)]), 'r');
  }
  void complete(Exchange& exchange) {
    if (exchange.has_body()) exchange.read_body();
    if (!exchange.head_sent()) {
      (void)exchange.respond({}, bytes_of("end"));
    } else if (!exchange.ended()) {
      (void)exchange.end();
    }
  }
  http::ResponseHead head() {
    static constexpr unsigned statuses[] = {200, 200, 200, 200, 204, 304, 404, 500, 299};
    http::ResponseHead made{.status = statuses[below(9)]};
    if (below(4) == 0) made.lines = "A: b\r\nC: d\r\n";
    if (below(10) == 0) {
      made.lines = "Connection: close\r\n";
      made.contained = {.connection = true, .connection_close = true};
    }
    if (below(10) == 0) made.reason = "Because";
    if (below(10) == 0) made.date = false;
    return made;
  }
  void act(Exchange& exchange) {
    if (finishing) return complete(exchange);
    for (unsigned actions = 1 + below(3); actions > 0; --actions) act_once(exchange);
  }
  void act_once(Exchange& exchange) {
    using Written = Exchange::Written;
    const bool connected = exchange.connected();
    Written result = Written::accepted;
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
        result = exchange.respond(head(), bytes_of(text()));
        break;
      case 4:
        result = exchange.respond(head(), net::Buffer::copy(bytes_of(text())));
        break;
      case 5:
      case 6:
        result = exchange.start(head());
        break;
      case 7: {
        http::ResponseHead with_length = head();
        with_length.length = below(3000);
        result = exchange.start(with_length);
        break;
      }
      case 8:
      case 9:
      case 10:
        result = exchange.write(bytes_of(text()));
        break;
      case 11:
        result = exchange.write(net::Buffer::copy(bytes_of(text())));
        break;
      case 12:
      case 13:
        result = exchange.end(bytes_of(text()));
        break;
      case 14:
        result = exchange.end_with_trailers(below(2) == 0 ? "T: u\r\n" : "");
        break;
      case 15:
        exchange.read_body();
        break;
      case 16:
        below(2) == 0 ? exchange.pause_body() : exchange.report_sent();
        break;
      case 17:
        below(2) == 0 ? exchange.send_continue() : exchange.take_continue();
        break;
      case 18:
        below(4) == 0 ? exchange.destroy() : exchange.set_close();
        break;
      default:
        if (below(2) == 0) {
          result = exchange.inform(103, "Link: x\r\n");
        } else if (kept_.size() < 30) {
          kept_.emplace_back(exchange);
        }
        break;
    }
    if (!connected && result != Written::refused && exchange.connected()) fail("a write without a connection");
    if (below(10) == 0) act_on_kept();
  }

  Case& owner_;
  std::uint64_t state_ = 1;
  std::vector<ExchangeReference> kept_;
  unsigned depth_ = 0, open_ = 0;
};

struct FuzzPeer {
  FuzzPeer(HttpServer& server, HttpCore& core_, std::uint16_t number) : core(core_) {
    connection.peer.port = number;
    handler = server.accept(connection);
    connection.begin(*handler);
  }
  ~FuzzPeer() {
    if (!gone) leave();
  }
  void leave() {
    gone = true;
    connection.drop_all();
    handler->closed();
  }
  void settle() {
    if (gone) return;
    connection.end_event();
    if (connection.aborted || (connection.closed && connection.unacknowledged() == 0)) {
      if (!connection.aborted) checker.finish(true);
      leave();
    }
  }
  void send(std::string_view text) {
    if (gone || connection.closed || peer_closed || text.empty()) return;
    handler->received(CardBuffer::make(text));
  }
  std::size_t read(std::size_t bytes) {
    const std::string text = connection.acknowledge(bytes);
    checker.add(text);
    if (!text.empty() && !gone && connection.writable_due()) handler->writable();
    return text.size();
  }
  void end() {
    if (gone || connection.closed || peer_closed) return;
    peer_closed = true;
    handler->peer_closed();
  }
  HttpCore& core;
  net::PlayedConnection connection;
  std::unique_ptr<net::ConnectionHandler> handler;
  ResponseChecker checker;
  bool peer_closed = false, gone = false;
};

class Case {
 public:
  Case()
      : application_(*this),
        core_([]() noexcept { return test::unix_s; }, {.output_bytes_max = output_bytes_max}, HttpCore::Timing::manual),
        server_(core_, application_, limits()) {
    before_bytes_ = allocated_bytes();
    for (std::uint16_t number = 0; number < connections_max; ++number) replace(number);
  }
  void run(std::string_view input) {
    while (input.size() >= 3) {
      const auto head = static_cast<std::uint8_t>(input[0]);
      const std::size_t number = static_cast<std::uint8_t>(input[1]) | std::size_t{static_cast<std::uint8_t>(input[2])} << 8;
      input.remove_prefix(3);
      application_.seed(static_cast<std::uint32_t>(number * 256 + head));
      const auto step = static_cast<Step>(head % steps);
      std::string_view text;
      if (step == Step::send || step == Step::send_bytewise) {
        text = input.substr(0, number);
        input.remove_prefix(text.size());
      }
      play(step, static_cast<std::uint16_t>(head / steps % connections_max), number, text);
      settle();
      if (++played_ % steps_per_check == 0) check_memory();
    }
    check_memory();
    finish();
  }
  FuzzPeer* peer(std::uint16_t number) { return peers_[number].get(); }

 private:
  static Limits limits() {
    Limits limits;
    limits.requests_per_event = 3;
    limits.discarded_bytes_max = 4000;
    limits.requests_per_connection_max = 50;
    return limits;
  }
  void replace(std::uint16_t number) {
    peers_[number].reset();
    peers_[number] = std::make_unique<FuzzPeer>(server_, core_, number);
  }
  void settle() {
    core_.end_event();
    for (int rounds = 0; core_.resume(); ++rounds) {
      if (rounds > 100'000) fail("a session asks for events for ever");
      core_.end_event();
    }
    for (auto& peer : peers_) peer->settle();
  }

  void play(Step step, std::uint16_t number, std::size_t amount, std::string_view text) {
    FuzzPeer& peer = *peers_[number];
    switch (step) {
      case Step::send:
        return peer.send(text);
      case Step::send_bytewise:
        for (const char letter : text) {
          peer.send({&letter, 1});
          settle();
        }
        return;
      case Step::window:
        // The simulated connection loses a frame that it has no room for; the network's always has this room.
        peer.connection.space = std::clamp(amount * 64, net::Connection::send_copy_bytes_max, net::Connection::send_queue_bytes_max);
        return;
      case Step::read:
        peer.read(amount);
        return;
      case Step::read_all:
        for (int rounds = 0; peer.read(~std::size_t{0}) > 0; ++rounds) {
          if (rounds > 100'000) fail("a response without an end");
          settle();
        }
        return;
      case Step::end:
        return peer.end();
      case Step::vanish:
        return replace(number);
      case Step::wait:
        for (std::size_t seconds = amount % 400; seconds > 0; --seconds) core_.tick();
        return;
      case Step::act:
        return application_.act_on_kept();
    }
  }

  void check_memory() {
    const std::size_t allowed = 2 * core_.output_bytes() + connections_max * connection_bytes + core_bytes + CardBuffer::out_bytes;
    const std::size_t bytes = allocated_bytes();
    if (bytes > before_bytes_ + allowed) fail("more memory is allocated than the accounts say", bytes - before_bytes_, allowed);
    if (core_.output_bytes() > CoreLimits::output_abort_factor * output_bytes_max) fail("output beyond its limit", core_.output_bytes());
  }

  /// All requests are answered and all responses read. A new client is served, whatever the others did.
  void finish() {
    application_.finishing = true;
    for (int rounds = 0;; ++rounds) {
      bool more = !application_.idle();
      application_.finish();
      settle();
      for (auto& peer : peers_) {
        peer->connection.space = net::Connection::send_queue_bytes_max;
        more = peer->read(~std::size_t{0}) > 0 || more;
      }
      settle();
      if (!more) break;
      if (rounds > 100'000) fail("the end is not reached");
    }
    replace(0);
    peers_[0]->send("GET / HTTP/1.0\r\n\r\n");
    settle();
    const std::string answer = peers_[0]->connection.acknowledge();
    if (!answer.starts_with("HTTP/1.1 200 OK\r\n") || !answer.ends_with("\r\n\r\nend")) fail("a bystander is not served", answer.size());
    for (auto& peer : peers_) peer.reset();
    application_.finish();
    if (core_.output_bytes() != 0) fail("output when all is read", core_.output_bytes());
    if (core_.statistics.exchanges.value() != 0) fail("exchanges that are alive", core_.statistics.exchanges.value());
    if (application_.open() != 0) fail("requests without an end", application_.open());
    if (server_.connections() != 0) fail("connections without an end", server_.connections());
    if (CardBuffer::out_bytes != 0) fail("received bytes that are still held", CardBuffer::out_bytes);
    const Statistics& counts = core_.statistics;
    const std::uint64_t ended = counts.requests_completed.value() + counts.requests_aborted.value();
    if (counts.requests.value() != ended) fail("requests that ended", ended, counts.requests.value());
  }

  FuzzApplication application_;
  HttpCore core_;
  HttpServer server_;
  std::size_t before_bytes_ = 0;
  unsigned played_ = 0;
  std::array<std::unique_ptr<FuzzPeer>, connections_max> peers_;
};

void FuzzApplication::request(Exchange& exchange) {
  exchange.context = this;
  ++open_;
  owner_.peer(exchange.remote().port)->checker.expect(exchange.method() == http::Method::head);
  if (!finishing && kept_.size() < 30) kept_.emplace_back(exchange);
  act(exchange);
  // A request that cannot be kept for later is answered now.
  if (exchange.connected() && !exchange.ended() && !finishing && kept_.size() >= 30) complete(exchange);
}

}  // namespace
}  // namespace neap::webserver

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace neap::webserver;
  neap::net::Buffer::trim_free_list();
  const std::size_t before = allocated_bytes();
  std::make_unique<Case>()->run({reinterpret_cast<const char*>(data), size});
  neap::net::Buffer::trim_free_list();
  const std::size_t after = allocated_bytes();
#ifdef __SANITIZE_ADDRESS__
  constexpr bool exact = true;
#else
  constexpr bool exact = false;  // the C library counts the blocks in its caches as allocated
#endif
  if (exact && after > before) fail("allocated after the case", after, before);
  return 0;
}

#ifndef NEAP_LIBFUZZER

namespace {

using neap::webserver::connections_max;
using neap::webserver::Step;

class InputGenerator : public neap::webserver::fuzz::RequestGenerator {
 public:
  using RequestGenerator::RequestGenerator;

  std::string stream() {
    static constexpr unsigned piece_bytes_max[] = {3, 8, 60, 3000, 65535};
    piece_max_ = piece_bytes_max[below(5)];
    stall_ = below(3);
    std::string script;
    std::array<std::string, connections_max> left;
    const unsigned connections = 1 + below(connections_max);
    for (unsigned turns = 0, at = 0; turns < 300 && script.size() < (1 << 17); ++turns) {
      at = below(8) == 0 ? below(connections) : (at + 1) % connections;
      if (left[at].empty() && (turns < connections || below(10) == 0)) {
        for (unsigned count = 1 + below(6); count > 0; --count) left[at] += request();
      }
      script += below(3) == 0 ? event(at) : piece(at, left[at]);
    }
    return script.size() > 4 ? damaged(std::move(script)) : script;
  }

 private:
  std::string step(Step kind, unsigned connection, unsigned number) {
    const unsigned head = static_cast<unsigned>(kind) + connection * neap::webserver::steps;
    return {static_cast<char>(head), static_cast<char>(number), static_cast<char>(number >> 8)};
  }
  std::string piece(unsigned connection, std::string& left) {
    if (left.empty()) return "";
    std::size_t bytes = std::min<std::size_t>(left.size(), 1 + below(piece_max_));
    if (below(4) == 0) bytes = std::min<std::size_t>(left.size(), 1 + left.substr(1).find_first_of("\r\n"));
    const std::string text = left.substr(0, bytes);
    left.erase(0, bytes);
    return step(bytes < 100 && below(10) == 0 ? Step::send_bytewise : Step::send, connection, static_cast<unsigned>(bytes)) + text;
  }
  std::string event(unsigned connection) {
    const unsigned kind = below(stall_ == 0 ? 20 : 12);
    if (kind == 0) return step(Step::window, connection, below(3) == 0 ? 0 : below(2000));
    if (kind == 1) return step(Step::window, connection, 65535);
    if (kind == 2) return step(Step::read, connection, below(3000));
    if (kind == 3) return stall_ == 2 ? "" : step(Step::read, connection, below(65536));
    if (kind == 4) return stall_ == 2 ? "" : step(Step::read_all, connection, 0U);
    if (kind == 5) return below(8) == 0 ? step(Step::end, connection, 0U) : "";
    if (kind == 6) return below(8) == 0 ? step(Step::vanish, connection, 0U) : "";
    if (kind == 7) return below(10) == 0 ? step(Step::wait, connection, below(3) == 0 ? below(400) : below(8)) : "";
    if (kind < 12) return step(Step::act, connection, below(65536));
    return step(Step::read_all, connection, 0U);
  }

  unsigned piece_max_ = 0;
  unsigned stall_ = 0;  ///< 0: clients read; 2: clients rarely read
};

}  // namespace

int main(int count, char** words) { return neap::fuzzing::run<InputGenerator>("fuzz_http_session", count, words); }

#endif
