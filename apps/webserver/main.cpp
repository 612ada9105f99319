// SPDX-License-Identifier: BSL-1.0
// A web server in JavaScript: the card, the network, control and log, the script's files, and one engine on each core.
#include <span>
#include <string_view>
#include <utility>

#include "apps/webserver/default_script.hpp"
#include "apps/webserver/engine/archive.hpp"
#include "apps/webserver/options.hpp"
#include "apps/webserver/service.hpp"
#include "drivers/any_card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"
#include "observe/control.hpp"

namespace {

using namespace neap;

struct Words {
  net::AddressSetting address;
  any_card::Choice card;
  observe::Options observation;
  webserver::Options webserver;
};

Words read_words(Arguments& arguments) {
  Words words;
  words.address = net::AddressSetting::from(arguments);
  words.card = any_card::Choice::from(arguments);
  words.observation = observe::Options::from(arguments, any_card::setting_rows());
  words.webserver = webserver::read_options(arguments, memory::page_counters().free_bytes, core_count());
  arguments.finish();
  return words;
}

int fail(const char* what, const Error& error) {
  print("webserver: ", what, ": ", error.message, " (", hex(error.detail), ")");
  return 1;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  Words words = read_words(arguments);

  // The first boot module has the application's files. Without one, the image's own script says hello.
  const std::span<const machine::BootModule> modules = machine::boot_modules();
  auto scripts = webserver::Archive::open(modules.empty() ? webserver::default_script() : modules.front().bytes);
  if (!scripts) co_return fail("the boot module is no archive of scripts", scripts.error());
  print("webserver: ", modules.empty() ? "no boot module, so it runs " : "the script is ", scripts->entry(), ", one of ", scripts->size(),
        " files");

  auto card = co_await any_card::open(words.card, {.reserved_core = words.observation.control_core,
                                                   .reserved_port = words.observation.control_port.value_or(0),
                                                   .frame_bytes_max = words.address.frame_bytes_max()});
  if (!card) co_return fail("no network card", card.error());
  auto network = co_await net::up(*card->device, words.address);
  if (!network) co_return fail("no network", network.error());
  auto control = co_await observe::start(std::move(words.observation), *card->settings, **network);
  if (!control) co_return fail("no control", control.error());

  webserver::Service service(**network, words.webserver, std::move(*scripts));
  if (const auto added = (*control)->add_statistics(
          "webserver", [&service](std::optional<unsigned> core, const Emit& emit) { service.report_counters(core, emit); });
      !added) {
    co_return fail("no statistics", added.error());
  }
  if (const auto started = co_await service.start(); !started) {
    print("webserver: ", started.error());
    co_return 1;
  }

  Completion<> never;  // keeps this task alive; all further work is done in events of connections and timers
  co_await never;
  co_return 0;
}
