// SPDX-License-Identifier: BSL-1.0
// The table of commands, and the commands that change runs or the machine. setting_commands.cpp has the settings' commands.
#include <algorithm>
#include <chrono>

#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "kernel/numbers.hpp"
#include "observe/built_in.hpp"
#include "observe/line.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

// --- Runs --------------------------------------------------------------------------------------------------------------------------------
constexpr std::string_view run_is_on = "error: a run is on (stop ends it)";

std::string describe(const Error& error) { return "error: " + std::string(error.message); }

task<std::string> start_run(const Request& request) {
  const auto bounds = parse_run_bounds(request.words);
  if (!bounds) co_return "error: " + bounds.error();
  RunCardReader& card = request.server.run_card();
  const AsyncMutex::Lock lock = co_await request.server.change_mutex().lock();
  if (log::state().running) co_return std::string(run_is_on);
  co_await card.read_for_start();
  const auto run =
      co_await log::start({.time = std::chrono::nanoseconds(static_cast<std::int64_t>(bounds->time_ns)), .requests = bounds->requests});
  if (!run) {
    co_await card.forget_start();
    if (run.error().code == ErrorCode::closed) co_return std::string(run_is_on);
    if (run.error().code == ErrorCode::not_found) co_return "error: this image runs without a log (log= on its command line)";
    co_return describe(run.error());
  }
  Fields fields(" ");
  fields.number("run", *run);
  if (bounds->time_ns > 0) fields.number("time_ns", bounds->time_ns);
  if (bounds->requests > 0) fields.number("requests", bounds->requests);
  co_return "ok " + fields.all();
}

task<std::string> stop_run(const Request& request) {
  const AsyncMutex::Lock lock = co_await request.server.change_mutex().lock();
  const auto stopped = co_await log::stop();
  if (!stopped) co_return stopped.error().code == ErrorCode::closed ? std::string("error: no run is on") : describe(stopped.error());
  Fields fields(" ");
  fields.number("run", log::state().run);
  report_line_counts(fields);
  co_await request.server.run_card().follow();
  co_return "ok " + fields.all();
}

task<std::string> clear_run(const Request& request) {
  const AsyncMutex::Lock lock = co_await request.server.change_mutex().lock();
  const auto cleared = co_await log::clear();
  if (!cleared) co_return cleared.error().code == ErrorCode::closed ? std::string(run_is_on) : describe(cleared.error());
  co_return "ok";
}

task<std::string> mark_phase(const Request& request) {
  const auto* const name = std::find(log::load_phase_names.begin(), log::load_phase_names.end(), request.words[0]);
  if (name == log::load_phase_names.end()) {
    std::string accepted;
    for (const char* const phase : log::load_phase_names) accepted += std::string(accepted.empty() ? "" : " ") + phase;
    co_return "error: '" + shown(request.words[0]) + "' is no phase of a load; accepted here: " + accepted;
  }
  const auto phase = static_cast<log::LoadPhase>(name - log::load_phase_names.begin());
  switch (co_await on_core(0, [phase] { return log::mark(phase); })) {
    case log::Marked::no_run:
      co_return "ok no run";
    case log::Marked::no_room:
      co_return "ok no room";
    case log::Marked::written:
      break;
  }
  co_return "ok";
}

// --- The client and the machine ----------------------------------------------------------------------------------------------------------
task<std::string> help(const Request& request) {
  std::string text;
  if (request.words.empty()) {
    for (const Command* command : request.server.commands()) {
      text += text.empty() ? "ok " : "; ";
      text += command->usage;
    }
    co_return text;
  }
  std::string_view name = request.words[0];
  std::string others;
  for (const Alias& alias : aliases()) {
    if (alias.name == name) name = alias.stands_for;
  }
  for (const Alias& alias : aliases()) {
    if (alias.stands_for != name) continue;
    others += others.empty() ? " (also " : ", ";
    others += alias.name;
  }
  if (!others.empty()) others += ')';
  const Command* const command = request.server.find(name);
  if (command == nullptr) co_return "error: there is no command '" + shown(name) + "' (help lists them)";
  co_return "ok " + std::string(command->usage) + ": " + std::string(command->help) + others;
}

task<std::string> take_token(const Request& request) {
  Client& client = request.client;
  Server& server = request.server;
  if (server.options().token.empty()) co_return "ok no token is needed";
  if (server.token_fits(request.words[0])) {
    if (!server.prove(client)) co_return "error: " + std::string(places_taken);
    client.authorised = true;
    client.wrong_tokens = 0;
    co_return "ok";
  }
  count(server.counters().tokens_wrong);
  client.set_activity(Activity::delayed);
  co_await sleep_for(server.environment().wrong_token_delay);
  if (++client.wrong_tokens >= Client::wrong_tokens_max) client.finish();
  co_return "error: wrong token";
}

task<std::string> power_off(const Request& request) {
  request.client.end_with(request.server.environment().power_off);
  co_return "ok";
}

task<std::string> reboot(const Request& request) {
  request.client.end_with(request.server.environment().reboot);
  co_return "ok";
}

// --- The table ---------------------------------------------------------------------------------------------------------------------------

}  // namespace

std::span<const Command> built_in_commands() {
  static const Command table[] = {
      {.usage = "start[,BOUND]",
       .help =
           "Starts a run on all cores and empties their logs. It ends by stop, after a time (10s) or after a number of requests (100000).",
       .run = &start_run},
      {.usage = "mark,WHAT",
       .help = "Marks in the log that a phase of the load begins: preload, warm_up, window or drain; end: the load is over.",
       .run = &mark_phase},
      {.usage = "stop", .help = "Ends the run: every core writes its last record, with all counters.", .run = &stop_run},
      {.usage = "clear", .help = "Discards the last run.", .run = &clear_run},
      {.usage = "get,CORE",
       .help = "Sends one core's log as a file, header and lines, and closes the connection.",
       .run = &send_log_file,
       .last = true},
      {.usage = "stream,MODE[,run=N][,CORE=POSITION...]",
       .help = "Sends all cores' logs in blocks, after the run or live, from the given positions on; closes the connection.",
       .run = &send_log_stream},
      {.usage = "policy[,CORE]", .help = "Shows the current settings, core by core.", .run = &report_policy},
      {.usage = "status", .help = "Shows the application, the machine's state and the run.", .run = &report_status},
      {.usage = "stats[,CORE]", .help = "Shows all counters, of the machine or of one core.", .run = &report_statistics},
      {.usage = "card[,CORE]",
       .help = "Shows the card's own counters, in all or for one core's queues; the core that opened the card reads its registers.",
       .run = &report_card},
      {.usage = "cores", .help = "Shows settings and cumulative counters of every core; wakes no core.", .run = &report_cores},
      {.usage = "timers[,CORE]",
       .help = "Shows the number of pending timers and the network's next time-outs; visits each core.",
       .run = &report_timers},
      {.usage = "rdtsc", .help = "Shows the time stamp counter and its rate.", .run = &report_time},
      {.usage = "boot", .help = "Shows the booted image and its command line.", .run = &report_boot},
      {.usage = "machine",
       .help = "Shows the facts that decide whether two runs may be compared, as one JSON object: CPU, limits, card, settings.",
       .run = &report_machine_list},
      {.usage = "dmesg[,FROM]", .help = "Shows the console's text from a position on, in one line.", .run = &report_boot_log},
      {.usage = "last_panic",
       .help = "Shows the console's last lines of the previous start, if that ended in a panic.",
       .run = &report_last_panic},
      {.usage = "help[,NAME]", .help = "Lists all commands, or describes one.", .run = &help, .before_token = true},
      {.usage = "token,TOKEN",
       .help = "Proves that the client may use control, if a token is set.",
       .run = &take_token,
       .before_token = true},
      {.usage = "reboot", .help = "Answers, then restarts the machine.", .run = &reboot},
      {.usage = "poweroff", .help = "Answers, then switches the machine off.", .run = &power_off},
  };
  return table;
}

}  // namespace neap::observe
