// SPDX-License-Identifier: BSL-1.0
// The binding `http`: requests and responses as objects of JavaScript.
//
// A request of the usual kind must not run any JavaScript but the server's own handler, because each call between the languages and each
// property costs some hundred instructions. So the objects `req` and `res` are made here, without a constructor, and their usual methods
// are functions of C++. The rest of Node's interface (streams, events, rarer arguments) is library/http.js, whose prototypes these objects
// have. That code makes its state at its first use.
//
// Life. A `Message` joins one exchange with its two objects. It lives until the exchange is closed and both objects are freed. A script may
// keep objects of requests for ever, so about `kept_max` closed messages keep their exchange; the objects of further ones get copies of
// the request's properties, which count as memory of the script.
//
// Errors. A handler that throws, or that the watchdog ends, gets its client a 500. If the response has begun, the connection is reset. The
// same holds for callbacks of a request's body, and for a promise that the handler returns and that is rejected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "apps/webserver/engine/engine.hpp"
#include "apps/webserver/engine/strings.hpp"
#include "apps/webserver/exchange.hpp"
#include "apps/webserver/http_core.hpp"
#include "kernel/counter.hpp"
#include "kernel/timer.hpp"

namespace neap::webserver {

class HttpBinding;
struct Message;

/// Opens a port on all cores. `HttpBinding::port_opened` is called later on the core that asked, in an event of its own.
class PortOpener {
 public:
  virtual ~PortOpener() = default;
  virtual void open(HttpBinding& binding, std::uint16_t port) = 0;
};

/// One server object of the script on this core.
struct ScriptServer {
  ScriptServer(HttpCore& core, Application& application) : http(core, application) { http.context = this; }
  HttpServer http;
  JSValue object = JS_UNDEFINED;   ///< the script's Server; held while it listens or has connections
  JSValue handler = JS_UNDEFINED;  ///< called with (req, res)
  std::uint16_t port = 0;          ///< 0: it does not listen
  bool listening = false;          ///< the port is open, and `_listening` was called
  bool close_reported = false;     ///< `_closed` was called
  bool client_error = false;       ///< refused requests go to `_clientError`
};

/// Counters of a core's script. Only that core writes them; any core may read them.
struct ScriptCounters {
  Counter handler_errors;     ///< answers 500, and connections reset, because a handler failed
  Counter handler_timeouts;   ///< those that the watchdog ended
  Counter handler_no_memory;  ///< those that reached the limit of memory
  Counter messages_kept;      ///< closed messages whose objects the script keeps, now
  Counter messages_copied;    ///< those beyond `HttpBinding::kept_max`
};

/// Calls `emit` with the name and the value of each counter.
void report_script_counters(const ScriptCounters& counters, const Emit& emit);

class HttpBinding final : public Application {
 public:
  static constexpr unsigned kept_max = 1000;

  /// Limits that a script cannot exceed.
  struct Settings {
    std::uint32_t connections_max = 0;  ///< of each server; 0: no limit
  };

  /// `engine`, `core` and `opener` MUST outlive the binding's last call. Adds the binding `http` to the engine.
  HttpBinding(Engine& engine, HttpCore& core, PortOpener& opener, const Settings& settings);
  HttpBinding(const HttpBinding&) = delete;
  HttpBinding& operator=(const HttpBinding&) = delete;
  ~HttpBinding() override;

  /// The handler of a new connection of a port; null if no server of this core listens there.
  [[nodiscard]] std::unique_ptr<net::ConnectionHandler> accept(std::uint16_t port, net::Connection& connection);
  /// Reports to the servers that asked for the port. `error`: a code of Node's such as "EADDRINUSE"; null: the port is open.
  void port_opened(std::uint16_t port, const char* error) noexcept;
  /// Reports to the scripts that closed servers have no more connections. Called once a second while there are such servers.
  void report_closed_servers() noexcept;
  /// True if a server of this core listens, or waits for its port.
  [[nodiscard]] bool wants_ports() const noexcept;
  [[nodiscard]] const ScriptCounters& counters() const noexcept { return counters_; }
  /// The binding of this core. There MUST be one.
  [[nodiscard]] static HttpBinding& here() noexcept;

  // For the natives.
  /// The script has added a listener to the request or the response.
  void observe(Message& message) noexcept;
  /// Reports the end of the body of a request that has none.
  void report_no_body(JSValueConst request) noexcept;
  [[nodiscard]] JSValue method_value(http::Method method) noexcept;
  [[nodiscard]] JSAtom end_slow() const noexcept { return end_slow_; }
  [[nodiscard]] JSAtom write_head() const noexcept { return write_head_; }

  // Application
  void request(Exchange& exchange) override;
  void body(Exchange& exchange, std::span<const std::byte> piece) override;
  void body_end(Exchange& exchange) override;
  void writable(Exchange& exchange) override;
  void sent(Exchange& exchange) override;
  void closed(Exchange& exchange, bool aborted) override;
  bool client_error(Session& session, const http::ParseError& error) override;

 private:
  friend struct RequestNatives;
  friend struct ResponseNatives;
  friend struct ServerNatives;
  friend struct Message;

  [[nodiscard]] Message* new_message(Exchange& exchange) noexcept;
  [[nodiscard]] bool make_objects(Message& message) noexcept;
  void clear_message(Message& message) noexcept;
  void keep_spare(Message& message) noexcept;
  void delete_message(Message& message) noexcept;
  void end_message(Message& message) noexcept;
  void note_kept(Message& message) noexcept;
  /// One of the two objects, or the exchange, no longer uses the message.
  void release(Message& message) noexcept;
  void copy_request(Message& message) noexcept;
  /// Answers 500 or resets the connection, after a turn that belongs to the exchange has failed.
  void fail(Exchange& exchange, Engine::Outcome outcome) noexcept;
  void watch_promise(Message& message, JSValueConst promise) noexcept;
  /// Calls a method of an object: within a turn as a microtask of it, else as a turn of its own. Returns the outcome of the turn.
  Engine::Outcome notify(JSValueConst object, JSAtom method, std::span<JSValueConst> arguments) noexcept;
  [[nodiscard]] Engine::Outcome call_method(JSValueConst object, JSAtom method, std::span<JSValueConst> arguments) noexcept;
  [[nodiscard]] bool fill(JSValueConst target) noexcept;
  [[nodiscard]] ScriptServer* find(JSValueConst object) noexcept;
  [[nodiscard]] ScriptServer* find(std::uint16_t port) noexcept;
  void sweep_servers() noexcept;
  [[nodiscard]] JSContext* context() const noexcept { return engine_.context(); }

  const Settings settings_;
  Engine& engine_;
  HttpCore& core_;
  PortOpener& opener_;
  JSClassID request_class_ = 0, response_class_ = 0;
  JSValue request_prototype_ = JS_UNDEFINED, response_prototype_ = JS_UNDEFINED;
  std::array<JSValue, 64> method_names_;  ///< by http::Method, made at their first use
  Atom on_body_, on_aborted_, on_finish_, on_close_, on_drain_, end_slow_, write_head_, listening_name_, closed_name_, client_error_;
  Timer closing_timer_;
  std::vector<std::unique_ptr<ScriptServer>> servers_;
  Message* spare_ = nullptr;
  unsigned spare_count_ = 0;
  ScriptCounters counters_;
};

}  // namespace neap::webserver
