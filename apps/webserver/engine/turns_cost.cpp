// SPDX-License-Identifier: BSL-1.0
// The cost of a turn, for `valgrind --tool=callgrind`: turns of an empty function, or of the expression in the first argument.
#include <cstdio>
#include <cstdlib>

#include "apps/webserver/engine/engine.hpp"
#include "apps/webserver/engine/strings.hpp"

int main(int count, char** words) {
  using namespace neap::webserver;
  auto engine = Engine::make({}, {});
  if (!engine) return EXIT_FAILURE;
  JSContext* const context = (*engine)->context();
  const unsigned turns = count > 2 ? static_cast<unsigned>(std::atoi(words[2])) : 100'000;
  const std::string source = std::string("globalThis.turn = function () {") + (count > 1 ? words[1] : "") + "}";
  if (const auto run = (*engine)->run_source(source); !run) {
    std::fputs(run.error().c_str(), stderr);
    return EXIT_FAILURE;
  }
  const Value global(context, JS_GetGlobalObject(context));
  const Value function(context, JS_GetPropertyStr(context, global.get(), "turn"));
  for (unsigned turn = 0; turn < turns; ++turn) {
    if ((*engine)->call(function.get(), JS_UNDEFINED, {}) != Engine::Outcome::ok) return EXIT_FAILURE;
  }
  std::printf("%u turns\n", turns);
  return EXIT_SUCCESS;
}
