// SPDX-License-Identifier: BSL-1.0
// Scripts answer requests through the binding, over a simulated connection.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/webserver/binding/http_binding.hpp"
#include "apps/webserver/engine/test_engine.hpp"
#include "apps/webserver/http_core.hpp"
#include "apps/webserver/test_peer.hpp"

namespace neap::webserver {
namespace {

std::int64_t fixed_date() noexcept { return 784'111'777; }  // Sun, 06 Nov 1994 08:49:37 GMT

/// Opens each port at once, when the test asks for it.
struct OpenedPorts final : PortOpener {
  void open(HttpBinding&, std::uint16_t port) override { ports.push_back(port); }
  std::vector<std::uint16_t> ports;
};

/// A client's connection.
struct Client {
  net::PlayedConnection connection;
  std::unique_ptr<net::ConnectionHandler> handler;

  void send(std::string_view text) {
    handler->received(net::Buffer::copy(std::as_bytes(std::span(text))));
    connection.end_event();
  }
  std::string read() {
    std::string text = connection.acknowledge();
    if (connection.writable_due()) handler->writable();
    connection.end_event();
    return text + connection.acknowledge();
  }
  std::string ask(std::string_view text) {
    send(text);
    return read();
  }
  ~Client() {
    if (handler != nullptr) handler->closed();
  }
};

class Binding : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.watchdog_ms = 200;
    options.memory_max_bytes = 32 << 20;
    options.stack_bytes = test_stack_bytes;
    options.console = [this](ConsoleLevel, std::string_view line) { console += std::string(line) + "\n"; };
    auto made = Engine::make(std::move(options), Archive());
    ASSERT_TRUE(made) << made.error().message;
    engine = std::move(*made);
    binding = std::make_unique<HttpBinding>(*engine, core, opener, HttpBinding::Settings{});
  }
  void TearDown() override {
    engine->collect();
    EXPECT_EQ(binding->counters().messages_kept.value(), 0U) << "objects of closed requests are still there";
    binding.reset();
    engine.reset();
  }

  /// Runs a script that makes a server with `handler`, and opens its port.
  void serve(const std::string& handler, const std::string& before = "") {
    const auto run = engine->run_source("const http = require('node:http');" + before + "\nglobalThis.server = http.createServer(" +
                                        handler + ");\nserver.listen(8080, () => console.log('listening'));");
    ASSERT_TRUE(run) << run.error();
    for (const std::uint16_t port : std::exchange(opener.ports, {})) binding->port_opened(port, nullptr);
    EXPECT_NE(console.find("listening"), std::string::npos) << console;
    console.clear();
  }
  std::unique_ptr<Client> connect() {
    auto client = std::make_unique<Client>();
    client->handler = binding->accept(8080, client->connection);
    EXPECT_NE(client->handler, nullptr);
    client->connection.begin(*client->handler);
    return client;
  }
  std::string get(const std::string& path = "/") { return connect()->ask("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n"); }
  static std::string body_of(const std::string& reply) { return reply.substr(std::min(reply.find("\r\n\r\n") + 4, reply.size())); }

  HttpCore core{&fixed_date};
  OpenedPorts opener;
  std::string console;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<HttpBinding> binding;
};

TEST_F(Binding, AHelloHasNodesBytes) {
  serve("(req, res) => { res.writeHead(200, {'Content-Type': 'text/plain'}); res.end('Hello World\\n'); }");
  EXPECT_EQ(get(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: keep-alive\r\n"
            "Keep-Alive: timeout=5\r\nContent-Length: 12\r\n\r\nHello World\n");
}

TEST_F(Binding, ARequestHasItsProperties) {
  serve(R"((req, res) => res.end(JSON.stringify([req.method, req.url, req.httpVersion, req.headers, req.rawHeaders, req.complete])))");
  const auto client = connect();
  EXPECT_EQ(body_of(client->ask("DELETE /a?b=c HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2\r\nCookie: a\r\nCookie: b\r\nSet-Cookie: s\r\n"
                                "User-Agent: one\r\nUser-Agent: two\r\n\r\n")),
            R"(["DELETE","/a?b=c","1.1",{"host":"h","x-a":"1, 2","cookie":"a; b","set-cookie":["s"],"user-agent":"one"},)"
            R"(["Host","h","X-A","1","x-a","2","Cookie","a","Cookie","b","Set-Cookie","s","User-Agent","one","User-Agent","two"],true])");
}

TEST_F(Binding, MiddlewareMayAssignPropertiesOfARequest) {
  serve("(req, res) => { req.url = req.url + '!'; req.method = 'X'; req.user = 7; res.end(req.url + req.method + req.user); }");
  EXPECT_EQ(body_of(get("/p")), "/p!X7");
}

TEST_F(Binding, FieldsAreKeptAsTheScriptSetThem) {
  serve(R"((req, res) => {
    res.setHeader('X-Number', 5);
    res.setHeader('x-List', ['a', 'b']);
    res.setHeader('X-Gone', 'x');
    res.removeHeader('x-gone');
    res.appendHeader('X-List', 'c');
    const seen = [res.getHeader('x-number'), res.getHeader('X-LIST'), res.hasHeader('x-gone'), res.getHeaderNames()];
    res.statusCode = 201;
    res.statusMessage = 'Made';
    res.end(JSON.stringify(seen));
  })");
  const std::string reply = get();
  EXPECT_EQ(body_of(reply), R"([5,["a","b","c"],false,["x-number","x-list"]])");
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 201 Made\r\nX-Number: 5\r\nX-List: a\r\nX-List: b\r\nX-List: c\r\n")) << reply;
}

TEST_F(Binding, FieldsThatCouldForgeAResponseAreRefusedWithNodesCodes) {
  serve(R"((req, res) => {
    const codes = [];
    const attempt = (action) => { try { action(); codes.push('none'); } catch (error) { codes.push(error.code); } };
    attempt(() => res.setHeader('a b', 'x'));
    attempt(() => res.setHeader('a', 'x\r\ny: z'));
    attempt(() => res.setHeader('a', '\u0100'));
    attempt(() => res.setHeader('a', undefined));
    attempt(() => res.writeHead(99));
    attempt(() => res.writeHead(200, 'a\nb'));
    attempt(() => res.writeHead(200, {'Content-Length': 'x'}));
    attempt(() => res.writeHead(200, ['a', '1', 'b']));
    res.writeHead(200, ['a', '1', 'b', '2']);
    attempt(() => res.writeHead(200));
    attempt(() => res.setHeader('a', 'b'));
    attempt(() => res.end({}));
    res.end(codes.join(' '));
  })");
  const std::string reply = get();
  EXPECT_EQ(body_of(reply),
            "ERR_INVALID_HTTP_TOKEN ERR_INVALID_CHAR ERR_INVALID_CHAR ERR_HTTP_INVALID_HEADER_VALUE ERR_HTTP_INVALID_STATUS_CODE "
            "ERR_INVALID_CHAR ERR_HTTP_INVALID_HEADER_VALUE ERR_INVALID_ARG_VALUE ERR_HTTP_HEADERS_SENT ERR_HTTP_HEADERS_SENT "
            "ERR_INVALID_ARG_TYPE");
  EXPECT_NE(reply.find("\r\na: 1\r\nb: 2\r\n"), std::string::npos) << reply;
}

TEST_F(Binding, ABodyArrivesAsAStream) {
  serve(R"((req, res) => {
    const pieces = [];
    req.on('data', (piece) => pieces.push(piece));
    req.on('end', () => res.end(Buffer.concat(pieces).toString() + req.complete));
  })");
  const auto client = connect();
  client->send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  EXPECT_EQ(client->read(), "");
  EXPECT_EQ(body_of(client->ask("2\r\nde\r\n0\r\n\r\n")), "abcdetrue");
  EXPECT_EQ(body_of(client->ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz")), "xyztrue");
  EXPECT_EQ(body_of(client->ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n")), "true") << "a request without body has an end, too";
}

TEST_F(Binding, ABodyMayBeIterated) {
  serve("async (req, res) => { let text = ''; for await (const piece of req) text += piece; res.end(text.toUpperCase()); }");
  EXPECT_EQ(body_of(connect()->ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz")), "XYZ");
}

TEST_F(Binding, AResponseMayBeWrittenInPieces) {
  serve("(req, res) => { res.write('a'); res.write(Buffer.from('bc')); res.end('d'); }");
  EXPECT_EQ(body_of(get()), "1\r\na\r\n2\r\nbc\r\n1\r\nd\r\n0\r\n\r\n");
}

TEST_F(Binding, EventsOfAResponseComeInNodesOrder) {
  serve(R"((req, res) => {
    res.on('finish', () => console.log('finish', res.writableFinished));
    res.on('close', () => console.log('close'));
    res.end('x', () => console.log('callback'));
    console.log('end', res.writableEnded);
  })");
  (void)get();
  EXPECT_EQ(console, "end true\nfinish true\ncallback\nclose\n");
}

TEST_F(Binding, AHandlerThatThrowsGetsItsClient500AndTheConnectionGoesOn) {
  serve("(req, res) => { if (req.url === '/bad') throw new Error('broken'); res.end('good'); }");
  const auto client = connect();
  EXPECT_TRUE(client->ask("GET /bad HTTP/1.1\r\nHost: h\r\n\r\n").starts_with("HTTP/1.1 500 ")) << console;
  EXPECT_NE(console.find("Error: broken"), std::string::npos) << console;
  EXPECT_EQ(body_of(client->ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n")), "good");
  EXPECT_EQ(binding->counters().handler_errors.value(), 1U);
}

TEST_F(Binding, AHandlerThatFailsLaterGetsItsClient500) {
  serve("async (req, res) => { await null; await new Promise((done) => queueMicrotask(done)); throw new Error('late'); }");
  EXPECT_TRUE(get().starts_with("HTTP/1.1 500 ")) << console;
  EXPECT_NE(console.find("Error: late"), std::string::npos) << console;
  EXPECT_EQ(engine->statistics().unhandled_rejections, 0U);
}

TEST_F(Binding, AHandlerThatFailsWithinItsResponseIsReset) {
  serve("(req, res) => { res.write('half'); throw new Error('broken'); }");
  const auto client = connect();
  client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(client->connection.aborted);
}

TEST_F(Binding, ALoopWithoutEndGetsItsClient500) {
  serve("(req, res) => { if (req.url === '/loop') for (;;); res.end('good'); }");
  const auto client = connect();
  EXPECT_TRUE(client->ask("GET /loop HTTP/1.1\r\nHost: h\r\n\r\n").starts_with("HTTP/1.1 500 "));
  EXPECT_EQ(binding->counters().handler_timeouts.value(), 1U);
  EXPECT_EQ(body_of(get()), "good");
}

TEST_F(Binding, AllMemoryTakenGetsItsClient500) {
  serve("(req, res) => { if (req.url === '/all') { const all = []; for (;;) all.push(new Array(10000).fill(1)); } res.end('good'); }");
  const auto client = connect();
  EXPECT_TRUE(client->ask("GET /all HTTP/1.1\r\nHost: h\r\n\r\n").starts_with("HTTP/1.1 500 "));
  EXPECT_EQ(binding->counters().handler_no_memory.value(), 1U);
  EXPECT_EQ(body_of(get()), "good");
}

TEST_F(Binding, KeptRequestsKeepTheirProperties) {
  serve("(req, res) => { kept.push(req, res); res.end(); }", "globalThis.kept = [];");
  const auto client = connect();
  constexpr unsigned requests = HttpBinding::kept_max + 100;
  for (unsigned at = 0; at < requests; ++at) (void)client->ask("GET /" + std::to_string(at) + " HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(binding->counters().messages_kept.value(), requests);
  EXPECT_GE(binding->counters().messages_copied.value(), 99U);
  const auto checked = engine->run_source(
      "for (let at = 0; at < kept.length / 2; ++at) {"
      "  if (kept[2 * at].url !== '/' + at || kept[2 * at].headers.host !== 'h') throw new Error('request ' + at + ' ' + kept[2 * at].url);"
      "  kept[2 * at + 1].end();"
      "}"
      "kept.length = 0;");
  EXPECT_TRUE(checked) << checked.error();
}

// The objects of a request serve the next one if the script has left no trace on them.
TEST_F(Binding, NothingOfARequestIsSeenByTheNextOne) {
  serve(R"((req, res) => {
    const seen = [req.mine, res.mine, seenRequests.has(req), seenResponses.has(res), Object.isExtensible(req), res.statusCode,
                  res.getHeaderNames().length, Object.getPrototypeOf(res) === http.ServerResponse.prototype, req.headers.mark,
                  req.listenerCount('x')].join();
    if (req.url === '/property') { req.mine = 1; res.mine = 1; }
    if (req.url === '/weak') { seenRequests.set(req, 1); seenResponses.add(res); }
    if (req.url === '/frozen') Object.freeze(req);
    if (req.url === '/prototype') Object.setPrototypeOf(res, Object.create(http.ServerResponse.prototype));
    if (req.url === '/listener') req.on('x', () => {});
    if (req.url === '/state') { res.statusCode = 404; res.setHeader('a', 'b'); }
    res.end(seen);
  })",
        "globalThis.seenRequests = new WeakMap(); globalThis.seenResponses = new WeakSet();");
  const auto client = connect();
  for (const std::string path : {"/", "/property", "/", "/weak", "/", "/frozen", "/", "/prototype", "/", "/listener", "/", "/state", "/"}) {
    EXPECT_EQ(body_of(client->ask("GET " + path + " HTTP/1.1\r\nHost: h\r\nMark: " + path + "\r\n\r\n")),
              ",,false,false,true,200,0,true," + path + ",0")
        << "after " << path;
  }
}

TEST_F(Binding, AClientThatLeavesIsReported) {
  serve(
      "(req, res) => { req.on('data', () => {}); req.on('aborted', () => console.log('aborted'));"
      " res.on('close', () => console.log('closed', res.writableFinished)); }");
  {
    const auto client = connect();
    client->send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nxyz");
  }
  EXPECT_NE(console.find("aborted\n"), std::string::npos) << console;
  EXPECT_NE(console.find("closed false\n"), std::string::npos) << console;
}

TEST_F(Binding, AClosedServerReportsItsEnd) {
  serve("(req, res) => { res.end('x'); }");
  auto client = connect();
  (void)client->ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(engine->run_source("server.close(() => console.log('ended'));"));
  EXPECT_EQ(binding->accept(8080, client->connection), nullptr);
  client.reset();
  binding->report_closed_servers();
  EXPECT_EQ(console, "ended\n");
}

TEST_F(Binding, TwoServersOfOnePortAreRefused) {
  serve("(req, res) => { res.end('x'); }");
  ASSERT_TRUE(
      engine->run_source("const other = require('http').createServer(() => {});"
                         "other.on('error', (error) => console.log(error.code)); other.listen(8080);"));
  EXPECT_EQ(console, "EADDRINUSE\n");
}

}  // namespace
}  // namespace neap::webserver
