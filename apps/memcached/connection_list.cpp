// SPDX-License-Identifier: BSL-1.0
// Passes over the open connections of a core: the list of `stats conns`, and the check for silent ones.
//
// A connection has no list of memcached's own: the network stack finds connections by hash, and a pass visits its chains. So an idle
// connection takes no memory for this, and a request no instruction. The time of the client's last segment is that of the stack, too.
#include "apps/memcached/connection_list.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "apps/memcached/long_answer.hpp"
#include "apps/memcached/session.hpp"
#include "apps/memcached/text_line.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"

namespace neap::memcached {

namespace {

using std::chrono::milliseconds;

// --- stats conns -------------------------------------------------------------------------------------------------------------------------
class ConnectionList;

/// A step of the list: some connections of one core, as text. Shared with the task that asks that core, because the list may end first.
struct Part {
  ConnectionList* list;  ///< null: its connection has ended
  std::string text;
  std::uint32_t own_id = 0;  ///< of the connection that asks
  std::string own_text;      ///< the lines of that connection, which is the last one of the list
  unsigned core = 0;
  std::uint32_t position = 0;
};

using EndpointText = TextLine<64>;
// As memcached 1.6, which writes "tcp6:[ADDRESS]:PORT" for IPv6.
EndpointText endpoint_text(const net::Endpoint& endpoint) {
  EndpointText text;
  std::array<char, net::Address::text_bytes_max> digits;
  const std::string_view address = endpoint.address.put_text(digits);
  if (endpoint.address.is_v4()) {
    text.put("tcp:").put(address);
  } else {
    text.put("tcp6:[").put(address).put("]");
  }
  text.put(":").number(unsigned{endpoint.port});
  return text;
}

void append_line(std::string& text, std::uint32_t id, std::string_view name, std::string_view value) {
  TextLine<100> line;
  line.put("STAT ").number(id).put(":").put(name).put(" ").put(value).put("\r\n");
  text += line.text();
}

void append_connection(std::string& text, Session& session, std::string_view state, std::uint64_t silent_s) {
  const std::uint32_t id = session.id();
  TextLine<20> seconds;
  append_line(text, id, "addr", endpoint_text(session.connection().remote()).text());
  append_line(text, id, "listen_addr", endpoint_text(session.connection().local()).text());
  append_line(text, id, "state", state);
  append_line(text, id, "secs_since_last_cmd", seconds.number(silent_s).text());
}

class ConnectionList final : public LongAnswer {
 public:
  ConnectionList(Service& service, std::uint32_t own_id)
      : service_(service), part_(std::make_shared<Part>(Part{.list = this, .own_id = own_id})) {
    append_listener(0, "tcp", service.settings.port, "conn_listening");
    if (service.settings.udp_port != 0) append_listener(1, "udp", service.settings.udp_port, "conn_read");
  }
  ~ConnectionList() override { part_->list = nullptr; }
  ConnectionList& operator=(ConnectionList&&) = delete;

  [[nodiscard]] Step write(Reply& reply, Seconds) override {
    if (asking_) return Step::sleeps;
    reply.put(part_->text);
    part_->text.clear();
    if (part_->core == service_.core_count) {
      reply.put(part_->own_text);
      reply.put("END\r\n");
      return Step::done;
    }
    asking_ = true;
    start(ask(service_, part_));
    return Step::sleeps;
  }

 private:
  static constexpr unsigned connections_a_step = 64;

  void append_listener(std::uint32_t id, std::string_view transport, unsigned port, std::string_view state) {
    TextLine<40> address;
    append_line(part_->text, id, "addr", address.put(transport).put(":0.0.0.0:").number(port).text());
    append_line(part_->text, id, "state", state);
  }

  static task<> ask(Service& service, std::shared_ptr<Part> part) {
    Part& next = *part;
    ConnectionList* const own_list = next.list;
    co_await on_core(next.core, [&service, &next] {
      next.position =
          net::visit_connections(service.settings.port, next.position, connections_a_step, [&next](net::ConnectionHandler& handler) {
            Session* const session = static_cast<Handler&>(handler).session();
            if (session == nullptr) return;
            if (session->id() == next.own_id) return append_connection(next.own_text, *session, "conn_parse_cmd", 0);
            const auto silent = std::chrono::duration_cast<std::chrono::seconds>(session->connection().silence());
            append_connection(next.text, *session, session->state(), static_cast<std::uint64_t>(silent.count()));
          });
    });
    if (next.position == 0) ++next.core;
    if (next.list != own_list) co_return;
    next.list->asking_ = false;
    next.list->wake();
  }

  Service& service_;
  std::shared_ptr<Part> part_;
  bool asking_ = false;
};

// --- Silent connections ------------------------------------------------------------------------------------------------------------------
constexpr unsigned connections_a_check = 512;  // in one event

void check_some(Service& service, CoreState& core) {
  const milliseconds limit = std::chrono::seconds(service.settings.idle_timeout_s);
  IdleCheck& check = core.idle;
  check.position = net::visit_connections(service.settings.port, check.position, connections_a_check, [&](net::ConnectionHandler& handler) {
    Session* const session = static_cast<Handler&>(handler).session();
    if (session == nullptr) return;
    const milliseconds silent = session->connection().silence();
    if (silent >= limit && session->end_idle()) return;
    check.open = true;
    check.longest = std::max(check.longest, std::min(silent, limit));
  });
  if (check.position != 0) {
    check.timer.arm(milliseconds(0), [&service, &core] { check_some(service, core); });
    return;
  }
  if (!std::exchange(check.open, false)) return;  // the next connection arms the timer
  const milliseconds wait = std::max(limit - std::exchange(check.longest, milliseconds(0)), limit / idle_checks_max);
  check.timer.arm(wait, [&service, &core] { check_some(service, core); });
}

}  // namespace

std::unique_ptr<LongAnswer> list_connections(Service& service, std::uint32_t own_id) {
  return std::make_unique<ConnectionList>(service, own_id);
}

void expect_idle(Service& service, CoreState& core) {
  if (service.settings.idle_timeout_s == 0 || core.idle.timer.pending() || core.idle.position != 0) return;
  core.idle.timer.arm(std::chrono::seconds(service.settings.idle_timeout_s), [&service, &core] { check_some(service, core); });
}

}  // namespace neap::memcached
