// SPDX-License-Identifier: BSL-1.0
// The smallest application: every core says hello, in turn; then the machine switches off.
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  for (unsigned core = 0; core < core_count(); ++core) {
    co_await on_core(core, [] { print("hello from core ", this_core()); });
  }
  co_return 0;
}
