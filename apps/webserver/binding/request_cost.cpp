// SPDX-License-Identifier: BSL-1.0
// Usage: `webserver_request [REQUESTS [json]]`: answers requests over a simulated connection, to count their instructions (valgrind
// --tool=callgrind). The network and the kernel are not included.
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "apps/webserver/binding/http_binding.hpp"
#include "apps/webserver/engine/engine.hpp"
#include "apps/webserver/http_core.hpp"
#include "apps/webserver/test_peer.hpp"

namespace {

using namespace neap;
using namespace neap::webserver;

struct Ports final : PortOpener {
  void open(HttpBinding&, std::uint16_t) override {}
};

constexpr std::string_view script =
    "require('node:http').createServer((request, response) => {"
    "  response.writeHead(200, { 'Content-Type': 'text/plain' }); response.end('Hello World\\n'); }).listen(8080);";
/// As scripts/json.js.
constexpr std::string_view json_script =
    "require('node:http').createServer((request, response) => { let text = ''; request.setEncoding('utf8');"
    "  request.on('data', (piece) => { text += piece; });"
    "  request.on('end', () => { const reply = JSON.stringify(JSON.parse(text));"
    "    response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(reply) });"
    "    response.end(reply); }); }).listen(8080);";
constexpr std::string_view hello_request = "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

}  // namespace

int main(int count, char** words) {
  const int requests = count > 1 ? std::atoi(words[1]) : 10'000;
  const bool json = count > 2 && std::string_view(words[2]) == "json";
  std::string body = "{\"items\":[";
  for (int item = 0; body.size() < 1000; ++item)
    body += std::string(item == 0 ? "" : ",") + R"({"id":)" + std::to_string(item) + R"(,"name":"n"})";
  body += "]}";
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  const std::string request = json ? post : std::string(hello_request);
  auto engine = Engine::make({}, Archive());
  if (!engine) return 1;
  HttpCore core([]() noexcept -> std::int64_t { return 784'111'777; });
  Ports ports;
  HttpBinding binding(**engine, core, ports, {});
  if (!(*engine)->run_source(json ? json_script : script)) return 1;
  binding.port_opened(8080, nullptr);
  net::PlayedConnection connection;
  const std::unique_ptr<net::ConnectionHandler> handler = binding.accept(8080, connection);
  connection.begin(*handler);
  for (int at = 0; at < requests; ++at) {
    handler->received(net::Buffer::copy(std::as_bytes(std::span(request))));
    connection.end_event();
    if (connection.acknowledge().empty()) return 1;
  }
  handler->closed();
  return 0;
}
