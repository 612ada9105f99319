// SPDX-License-Identifier: BSL-1.0
// Runs a script in the engine with the server's own HTTP, over simulated connections: `webserver_library_http SETUP PROGRAM [FOLDER]`.
//
// SETUP is over_http_setup.js. The files of FOLDER, for example node_modules, are the archive of scripts. Commands of the script's clients
// are carried out between turns, once a millisecond. The run ends when there is neither a timer nor a connection.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/webserver/binding/http_binding.hpp"
#include "apps/webserver/engine/engine.hpp"
#include "apps/webserver/http_core.hpp"
#include "apps/webserver/test_peer.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::webserver {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "a file that can be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::byte> archive_of(const std::string& folder) {
  std::vector<ArchiveFile> files{{"hello.txt", "hello, archive\n"}, {"test.js", ""}};
  if (!folder.empty()) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
      if (!file.is_regular_file()) continue;
      files.push_back({std::filesystem::relative(file.path(), folder).string(), content_of(file.path().string())});
    }
  }
  return make_archive(std::move(files), "test.js");
}

struct OpenedPorts final : PortOpener {
  void open(HttpBinding&, std::uint16_t port) override { ports.push_back(port); }
  std::vector<std::uint16_t> ports;
};

struct Client {
  net::PlayedConnection connection;
  std::unique_ptr<net::ConnectionHandler> handler;
};

struct Command {
  std::string kind, text;
  int client = 0;
};
std::vector<Command> commands;  // of scripts, for the next `Server::step`

JSValue client_command(JSContext* context, JSValueConst, int, JSValueConst* arguments) {
  Command command;
  const auto kind = latin1_view(context, arguments[0]), text = latin1_view(context, arguments[2]);
  if (!kind || !text || JS_ToInt32(context, &command.client, arguments[1]) < 0) return JS_ThrowTypeError(context, "a command is needed");
  command.kind = *kind;
  command.text = *text;
  commands.push_back(std::move(command));
  return JS_UNDEFINED;
}

/// One core's server, with its clients. All functions run on that core, outside of turns.
class Server {
 public:
  explicit Server(const std::string& folder) : block_(archive_of(folder)) {
    const auto print = [](ConsoleLevel, std::string_view line) { std::printf("%.*s\n", static_cast<int>(line.size()), line.data()); };
    auto made = Engine::make({.stack_bytes = 1 << 20, .watchdog_ms = 20'000, .console_bytes_per_s = 1U << 30, .console = print},
                             *Archive::open(block_));
    require(made.has_value(), "an engine");
    engine_ = std::move(*made);
    binding_ = std::make_unique<HttpBinding>(*engine_, core_, opener_, HttpBinding::Settings{});
    JSContext* const context = engine_->context();
    const Value global(context, JS_GetGlobalObject(context));
    JS_SetPropertyStr(context, global.get(), "clientCommand", JS_NewCFunction(context, &client_command, "clientCommand", 3));
  }
  Server& operator=(Server&&) = delete;

  void run(const std::string& file, const char* name) { (void)engine_->run_source(content_of(file), name); }

  /// Carries out the commands, and gives the clients' scripts what arrived. Returns false if nothing is left to do.
  bool step() {
    for (const std::uint16_t port : std::exchange(opener_.ports, {})) binding_->port_opened(port, nullptr);
    for (const Command& command : std::exchange(commands, {})) carry_out(command);
    std::vector<int> over;
    for (auto& [id, client] : clients_) {
      if (receive(id, *client)) over.push_back(id);
    }
    for (const int id : over) clients_.erase(id);
    return !clients_.empty() || !commands.empty() || !opener_.ports.empty() || engine_->statistics().timers_pending != 0;
  }

 private:
  void carry_out(const Command& command) {
    if (command.kind == "open") {
      auto client = std::make_unique<Client>();
      client->handler = binding_->accept(static_cast<std::uint16_t>(std::stoi(command.text)), client->connection);
      if (client->handler == nullptr) return report(command.client, "", true);
      client->connection.begin(*client->handler);
      clients_.emplace(command.client, std::move(client));
      return;
    }
    const auto found = clients_.find(command.client);
    if (found == clients_.end()) return;
    Client& client = *found->second;
    if (command.kind == "send") {
      if (client.connection.closed || client.connection.aborted) return;
      client.handler->received(net::Buffer::copy(std::as_bytes(std::span(command.text))));
      client.connection.end_event();
    } else {
      client.connection.drop_all();
      client.handler->closed();
      clients_.erase(found);
      report(command.client, "", true);
    }
  }

  /// True if the connection has ended.
  bool receive(int id, Client& client) {
    const std::string text = client.connection.acknowledge();
    if (!text.empty() && client.connection.writable_due()) client.handler->writable();
    client.connection.end_event();
    const bool over = client.connection.aborted || (client.connection.closed && client.connection.unacknowledged() == 0);
    if (over) client.handler->closed();
    if (over || !text.empty()) report(id, text, over);
    return over;
  }

  void report(int id, const std::string& text, bool over) {
    JSContext* const context = engine_->context();
    const Value global(context, JS_GetGlobalObject(context));
    const Value function(context, JS_GetPropertyStr(context, global.get(), "clientReceived"));
    const Value number(context, JS_NewInt32(context, id)), bytes(context, new_latin1(context, text)),
        end(context, JS_NewBool(context, over));
    JSValueConst arguments[] = {number.get(), bytes.get(), end.get()};
    (void)engine_->call(function.get(), JS_UNDEFINED, arguments);
  }

  std::vector<std::byte> block_;
  HttpCore core_{[]() noexcept -> std::int64_t { return 784'111'777; }};
  OpenedPorts opener_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HttpBinding> binding_;
  std::map<int, std::unique_ptr<Client>> clients_;
};

[[noreturn]] void run(const std::string& setup, const std::string& program, const std::string& folder) {
  host::HostMachine machine{1};
  std::unique_ptr<Server> server;
  machine.on(0, [&] {
    server = std::make_unique<Server>(folder);
    server->run(setup, "/over_http_setup.js");
    server->run(program, "/test.js");
  });
  while (machine.value_on(0, [&] { return server->step(); })) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  (void)std::fflush(stdout);
  // The script may still hold objects of requests, whose finalizers need the binding. As in an image, nothing is destroyed.
  std::_Exit(0);
}

}  // namespace
}  // namespace neap::webserver

int main(int count, char** arguments) {
  if (count != 3 && count != 4) return std::fprintf(stderr, "usage: webserver_library_http SETUP PROGRAM [FOLDER]\n"), 2;
  neap::webserver::run(arguments[1], arguments[2], count == 4 ? arguments[3] : "");
}
