// SPDX-License-Identifier: BSL-1.0
// Runs one test program of the library in the engine, on the host, with the mock of HTTP: `webserver_library MOCKS PROGRAM [FOLDER]`.
//
// MOCKS is library/tests. The files of FOLDER, for example node_modules, are the archive of scripts. The program's lines go to standard
// output. The run ends when no timer is left.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/webserver/engine/engine.hpp"
#include "apps/webserver/engine/strings.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::webserver {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "a file that can be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Copies the functions of the mock, which a script makes, to the object of internalBinding('http').
bool fill_http(Engine& engine, JSValueConst target) {
  JSContext* const context = engine.context();
  const Value global(context, JS_GetGlobalObject(context));
  const Value make(context, JS_GetPropertyStr(context, global.get(), "makeHttpBinding"));
  const Value assign(context,
                     JS_GetPropertyStr(context, Value(context, JS_GetPropertyStr(context, global.get(), "Object")).get(), "assign"));
  const Value mock(context, JS_Call(context, make.get(), JS_UNDEFINED, 0, nullptr));
  if (JS_IsException(mock.get())) return false;
  JSValueConst arguments[] = {target, mock.get()};
  const Value result(context, JS_Call(context, assign.get(), JS_UNDEFINED, 2, arguments));
  return !JS_IsException(result.get());
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

int run(const std::string& mocks, const std::string& program, const std::string& folder) {
  host::HostMachine machine{1};
  const std::vector<std::byte> block = archive_of(folder);
  std::unique_ptr<Engine> engine;
  machine.on(0, [&] {
    auto made = Engine::make(
        {.stack_bytes = 1 << 20,
         .watchdog_ms = 20'000,
         .console_bytes_per_s = 1U << 30,
         .console = [](ConsoleLevel, std::string_view line) { std::printf("%.*s\n", static_cast<int>(line.size()), line.data()); }},
        *Archive::open(block));
    require(made.has_value(), "an engine");
    engine = std::move(*made);
    engine->add_binding("http", &fill_http);
    for (const char* name : {"/engine_setup.js", "/mock_http.js"}) {
      require(engine->run_source(content_of(mocks + name), name).has_value(), "a mock that runs");
    }
    (void)engine->run_source(content_of(program), "/test.js");
  });
  const auto busy = [&] { return machine.value_on(0, [&] { return engine->statistics().timers_pending != 0; }); };
  while (busy()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  (void)std::fflush(stdout);
  machine.on(0, [&] { engine.reset(); });
  return 0;
}

}  // namespace
}  // namespace neap::webserver

int main(int count, char** arguments) {
  if (count != 3 && count != 4) return std::fprintf(stderr, "usage: webserver_library MOCKS PROGRAM [FOLDER]\n"), 2;
  return neap::webserver::run(arguments[1], arguments[2], count == 4 ? arguments[3] : "");
}
