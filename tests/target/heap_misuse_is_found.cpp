// SPDX-License-Identifier: BSL-1.0
// With `heap=checked`, a write outside of an object, or to a freed object, causes a panic that names the error. Correct use causes no
// panic.
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/target/check.hpp"

namespace {

using neap::test::check;
using neap::test::hidden;

enum Misuse : std::size_t { none, overrun, underrun, late_write, second_free, late_second_free, unknown };

void use_rightly() {
  std::map<std::string, std::vector<int>> map;
  for (int i = 0; i < 300; ++i) map[std::to_string(i % 40) + std::string(static_cast<std::size_t>(i), 'x')].assign(i, i);
  std::ostringstream text;
  for (const auto& [key, values] : map) text << key << ' ' << values.size() << '\n';
  check(text.str().size() > 300, "text");
  void* const memory = std::malloc(10);
  check(std::malloc(hidden(~std::size_t{0} - 64)) == nullptr, "an absurd size is refused");
  std::free(std::realloc(memory, 100'000));
}

[[gnu::noipa]] void commit(std::size_t misuse) {
  auto* const object = hidden(static_cast<volatile char*>(std::malloc(40)));
  void* const plain = const_cast<char*>(object);
  const auto free_others = [](int count) {
    for (int i = 0; i < count; ++i) std::free(hidden(std::malloc(40)));
  };
  if (misuse == overrun) object[40] = 0;
  if (misuse == underrun) object[-1] = 0;
  if (misuse == unknown) std::free(hidden(static_cast<char*>(plain) + 16));
  if (misuse == late_write || misuse == second_free || misuse == late_second_free) std::free(plain);
  if (misuse == late_second_free) free_others(100);
  if (misuse == late_write) {
    object[8] = 0;
    return free_others(300);
  }
  std::free(plain);
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const auto misuse = arguments.choice(
      "misuse", {"none", "overrun", "underrun", "late_write", "second_free", "late_second_free", "unknown"}, 0, "what to do wrong");
  arguments.finish();
  for (unsigned core = 0; core < core_count(); ++core) co_await on_core(core, use_rightly);
  co_await on_core(core_count() - 1, [misuse] { commit(misuse); });
  co_return misuse == none ? 0 : 1;
}
