// SPDX-License-Identifier: BSL-1.0
// The table of commands, and those that change something.
#include <chrono>

#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "kernel/numbers.hpp"
#include "kernel/policy.hpp"
#include "observe/built_in.hpp"
#include "observe/line.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

using policy::Setting;

// --- Settings ----------------------------------------------------------------------------------------------------------------------------

template <Setting setting>
task<std::string> change_policy(const Request& request) {
  const Turns::Turn turn = co_await request.server.turns().take();
  const auto applied = co_await policy::set(setting, std::string(request.words[0]), request.core.value_or(policy::all_cores));
  if (!applied) co_return "error: " + applied.error().why;
  Fields fields(" ");
  fields.number("generation", applied->generation);
  fields.text("cores", applied->cores);
  const std::string lost = policy::is_card_setting(setting) ? " lost=" + std::to_string(applied->lost_frames) : std::string();
  const std::string granted = applied->granted.empty() ? std::string() : " granted=" + applied->granted;
  co_return "ok " + applied->value + granted + lost + ' ' + fields.all();
}

/// The ancestor's `dvfs` took PERF_CTL as it is, in any base.
std::string raw_performance(std::string_view word) {
  const auto raw = parse_number(word);
  return raw ? hexadecimal(*raw) : std::string();
}

// --- Runs --------------------------------------------------------------------------------------------------------------------------------

std::string describe(const Error& error) {
  std::string text = "error: ";
  text += error.message;
  return text;
}

task<std::string> start_run(const Request& request) {
  const auto bounds = parse_run_bounds(request.words);
  if (!bounds) co_return "error: " + bounds.error();
  const Turns::Turn turn = co_await request.server.turns().take();
  const auto run =
      co_await log::start({.time = std::chrono::nanoseconds(static_cast<std::int64_t>(bounds->time_ns)), .requests = bounds->requests});
  if (!run) {
    switch (run.error().code) {
      case ErrorCode::closed:
        co_return "error: a run is on (stop ends it)";
      case ErrorCode::not_found:
        co_return "error: this image runs without a log (log= on its command line)";
      default:
        co_return describe(run.error());
    }
  }
  Fields fields(" ");
  fields.number("run", *run);
  if (bounds->time_ns > 0) fields.number("time_ns", bounds->time_ns);
  if (bounds->requests > 0) fields.number("requests", bounds->requests);
  co_return "ok " + fields.all();
}

task<std::string> stop_run(const Request& request) {
  const Turns::Turn turn = co_await request.server.turns().take();
  const auto stopped = co_await log::stop();
  if (!stopped) co_return stopped.error().code == ErrorCode::closed ? std::string("error: no run is on") : describe(stopped.error());
  Fields fields(" ");
  fields.number("run", log::state().run);
  tell_lines(fields);
  co_return "ok " + fields.all();
}

task<std::string> clear_run(const Request& request) {
  const Turns::Turn turn = co_await request.server.turns().take();
  const auto cleared = co_await log::clear();
  if (!cleared) {
    co_return cleared.error().code == ErrorCode::closed ? std::string("error: a run is on (stop ends it)") : describe(cleared.error());
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
    if (!server.prove(client)) co_return "error: " + std::string(all_places_taken);
    client.authorised = true;
    client.wrong_tokens = 0;
    co_return "ok";
  }
  count(server.counters().tokens_wrong);
  client.set_activity(Activity::delayed);
  co_await sleep_for(server.surroundings().wrong_token_delay);
  if (++client.wrong_tokens >= Client::wrong_tokens_max) client.finish();
  co_return "error: wrong token";
}

task<std::string> power_off(const Request& request) {
  request.client.end_with(request.server.surroundings().power_off);
  co_return "ok";
}

task<std::string> reboot(const Request& request) {
  request.client.end_with(request.server.surroundings().reboot);
  co_return "ok";
}

// --- The tables --------------------------------------------------------------------------------------------------------------------------

constexpr Alias alias_table[] = {
    {.name = "rx_usecs", .stands_for = "itr"},
    {.name = "dvfs", .stands_for = "pstate", .value = &raw_performance, .accepts = "what goes into PERF_CTL, decimal or 0x hexadecimal"},
    {.name = "rapl", .stands_for = "power_limit"},
    {.name = "print", .stands_for = "status"},
};

}  // namespace

std::span<const Command> built_in_commands() {
  static const Command table[] = {
      {.usage = "start[,BOUND]",
       .help = "Begins a run on all cores, which empties their logs; it ends by stop, after a time (10s) or so many requests (100000).",
       .run = &start_run},
      {.usage = "stop", .help = "Ends the run: every core writes its last record, with all counters.", .run = &stop_run},
      {.usage = "clear", .help = "Forgets the last run.", .run = &clear_run},
      {.usage = "get,CORE",
       .help = "Sends one core's log as a file, header and lines, and ends the connection.",
       .run = &send_log_file,
       .last = true},
      {.usage = "stream,MODE[,run=N][,CORE=POSITION...]",
       .help = "Sends all cores' logs in blocks, after the run or live, from the positions on; ends the connection.",
       .run = &send_log_stream},
      {.usage = "idle,STATE[,CORE]",
       .help = "What a core does when it has nothing to do: halt, c1, c1e, c3, c6, c7, deepest, poll or monitor.",
       .run = &change_policy<Setting::idle>},
      {.usage = "itr,TIME[,CORE]",
       .help = "Interrupt moderation of a core's queue in microseconds (8 or 8us), rounded as the card does.",
       .run = &change_policy<Setting::itr>},
      {.usage = "pstate,STATE[,CORE]",
       .help = "A core's frequency: a ratio (24), 2400MHz, 2.4GHz, PERF_CTL as it is (0x1800), or off (the firmware's).",
       .run = &change_policy<Setting::pstate>},
      {.usage = "epp,PREFERENCE[,CORE]",
       .help = "HWP's energy preference of a core, 0 (speed) to 255 (saving) or by Linux's names, or firmware's (off).",
       .run = &change_policy<Setting::epp>},
      {.usage = "power_limit,WATTS[,CORE]",
       .help = "The power limit of a core's package, 35 or 35W; off: the firmware's.",
       .run = &change_policy<Setting::power_limit>},
      {.usage = "turbo,SWITCH[,CORE]", .help = "Turbo of a core's package, on or off.", .run = &change_policy<Setting::turbo>},
      {.usage = "poll_budget,TIME[,CORE]",
       .help = "How long a core looks at its ring before it sleeps, in microseconds (50 or 50us).",
       .run = &change_policy<Setting::poll_budget>},
      {.usage = "rx_ring,N", .help = "Receive descriptors of each queue, 64 to 4096.", .run = &change_policy<Setting::rx_ring>},
      {.usage = "tx_ring,N", .help = "Transmit descriptors of each queue, 64 to 4096.", .run = &change_policy<Setting::tx_ring>},
      {.usage = "rx_budget,N", .help = "Receive descriptors that an event may take.", .run = &change_policy<Setting::rx_budget>},
      {.usage = "pthresh,N", .help = "Transmit prefetch threshold.", .run = &change_policy<Setting::prefetch_threshold>},
      {.usage = "hthresh,N", .help = "Transmit host threshold.", .run = &change_policy<Setting::host_threshold>},
      {.usage = "wthresh,N", .help = "Transmit write-back threshold, 0 to 8.", .run = &change_policy<Setting::write_back_threshold>},
      {.usage = "head_write_back,SWITCH",
       .help = "Sent frames are told by the ring's head, on or off.",
       .run = &change_policy<Setting::head_write_back>},
      {.usage = "rsc,SWITCH", .help = "Receive side coalescing, on or off.", .run = &change_policy<Setting::rsc>},
      {.usage = "promiscuous,SWITCH",
       .help = "Frames for others are received too, on or off.",
       .run = &change_policy<Setting::promiscuous>},
      {.usage = "preset,NAME",
       .help = "The card's settings as the published studies had them (study), or default.",
       .run = &change_policy<Setting::preset>},
      {.usage = "steer,FLOW,CORE",
       .help = "Frames to a port (udp:5000, tcp:5000) go to this core, whatever RSS says; off: no more of this core's.",
       .run = &change_policy<Setting::steer>},
      {.usage = "flow_control,WHICH",
       .help = "Pause frames: receive (obeys them), transmit (sends them), both, off.",
       .run = &change_policy<Setting::flow_control>},
      {.usage = "dca,SWITCH",
       .help = "The card writes into the core's cache, on or off; where the chipset has that.",
       .run = &change_policy<Setting::dca>},
      {.usage = "vlan,ID",
       .help = "Frames carry this VLAN's tag (1 to 4094), and only such are received; or off.",
       .run = &change_policy<Setting::vlan>},
      {.usage = "tso,FORM[,CORE]",
       .help =
           "Segments reach the card as one frame, which it cuts up: copied into one buffer (copy), from where they lie (chain), or off.",
       .run = &change_policy<Setting::tso>},
      {.usage = "policy[,CORE]", .help = "The settings that hold, core by core.", .run = &tell_policy},
      {.usage = "status", .help = "What runs here, and whether a run is on.", .run = &tell_status},
      {.usage = "stats[,CORE]", .help = "All counters, of the machine or of one core.", .run = &tell_statistics},
      {.usage = "card[,CORE]",
       .help = "What the card itself counted, in all or for one core's queues; read from its registers, on the core that opened it.",
       .run = &tell_card},
      {.usage = "cores", .help = "Settings and cumulative counters of every core; wakes none of them.", .run = &tell_cores},
      {.usage = "timers[,CORE]", .help = "How many timers wait, and what the network waits for; asks each core.", .run = &tell_timers},
      {.usage = "rdtsc", .help = "The time stamp counter now, and its rate.", .run = &tell_time},
      {.usage = "boot", .help = "What was booted, and with which words.", .run = &tell_boot},
      {.usage = "dmesg[,FROM]", .help = "What was written to the console, from a position on, as one line.", .run = &tell_boot_log},
      {.usage = "last_panic", .help = "The last lines of the run before, if it ended in a panic.", .run = &tell_last_panic},
      {.usage = "help[,NAME]", .help = "All commands, or what one does.", .run = &help, .before_token = true},
      {.usage = "token,TOKEN",
       .help = "Shows that the client may use control, where a token is asked for.",
       .run = &take_token,
       .before_token = true},
      {.usage = "reboot", .help = "Answers, then starts the machine again.", .run = &reboot},
      {.usage = "poweroff", .help = "Answers, then switches the machine off.", .run = &power_off},
  };
  return table;
}

std::span<const Alias> aliases() noexcept { return alias_table; }

}  // namespace neap::observe
