// SPDX-License-Identifier: BSL-1.0
#include "observe/server.hpp"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/timer.hpp"
#include "observe/built_in.hpp"
#include "observe/ebbrt_commands.hpp"
#include "observe/line.hpp"

namespace neap::observe {
namespace {

/// The maximum number of rejections in progress, and the time limit of a rejection. Further connections are reset.
constexpr unsigned rejections_max = 8;
constexpr std::chrono::seconds rejection_limit{1};
constexpr std::string_view token_needed = "token needed: send token,...";

/// A connection that gets one line and is closed. The connection is reset if the peer does not close its side.
class Rejection final : public net::ConnectionHandler {
 public:
  explicit Rejection(std::atomic<unsigned>& present) noexcept : present_(present) {}
  ~Rejection() override {
    const unsigned before = present_.fetch_sub(1, std::memory_order_relaxed);
    require(before > 0, "no more rejections end than began", before);
  }
  Rejection& operator=(Rejection&&) = delete;
  void begin(net::Connection& connection) {
    limit_.arm(rejection_limit, [&connection] { connection.abort(); });
  }
  void received(net::Buffer) override {}
  void closed() override { limit_.cancel(); }

 private:
  std::atomic<unsigned>& present_;
  Timer limit_;
};

}  // namespace

Environment machine_environment() noexcept {
  return {.power_off = []() noexcept { machine::exit(machine::ExitStatus::success); }, .reboot = []() noexcept { machine::reboot(); }};
}

Server::Server(Options options, Environment environment)
    : options_(std::move(options)), environment_(environment), boot_(find_boot_facts(options_)) {
  boot_.events = options_.events;
}

task<Result<void>> Server::serve(net::Network& network) {
  require(network_ == nullptr && this_core() == 0, "control serves one network, from core 0", this_core());
  require(options_.control_port.has_value(), "control serves a port");
  network_ = &network;
  run_card_.watch(network.device());
  add_setting_commands();
  const std::uint16_t port = *options_.control_port;
  const std::function<std::unique_ptr<net::ConnectionHandler>(net::Connection&)> acceptor = [this](net::Connection& connection) {
    return accept(connection);
  };
  Result<void> listening = co_await network.listen(port, acceptor);
  if (!listening) co_return listening;
  print("control: listening on ", network.address().to_string(), ":", port, ", for ",
        options_.allow.to_string(network.address(), network.netmask()), options_.token.empty() ? ", without a token" : ", with a token");
  if (options_.dialect == Dialect::ebbrt) print("control: lines of EbbRT's protocol are answered as by EbbRT (dialect=ebbrt)");
  if (options_.allow.narrowed(network.netmask())) {
    print("control: the network's mask (", network.netmask().to_string(), ") is shorter than /16 or was not given, so only ",
          options_.allow.to_string(network.address(), network.netmask()), " may use control: control_allow= names others");
  }
  co_return Result<void>{};
}

std::unique_ptr<net::ConnectionHandler> Server::accept(net::Connection& connection) {
  const net::Address peer = connection.remote().address;
  if (!options_.allow.allows(peer, network_->address(), network_->netmask())) {
    count(counters_.refused_address);
    return reject(connection, peer.to_string() + " may not use control here (control_allow=)");
  }
  auto client = std::make_shared<Client>(*this, connection);
  auto handler = std::make_unique<ClientHandler>(client);
  task<void> conversation = Client::converse(client);
  const auto displaced = clients_.admit(*client);
  if (!displaced) {
    const bool delayed = displaced.error() == Refusal::delayed;
    count(delayed ? counters_.refused_delayed : counters_.refused_full);
    return reject(connection, delayed ? "too many wrong tokens from this address: wait a second" : "all places are taken");
  }
  count(counters_.connections);
  if (*displaced) count(counters_.unproven_displaced);
  start(std::move(conversation));
  return handler;
}

std::unique_ptr<net::ConnectionHandler> Server::reject(net::Connection& connection, const std::string& reason) {
  if (rejections_.fetch_add(1, std::memory_order_relaxed) >= rejections_max) {
    rejections_.fetch_sub(1, std::memory_order_relaxed);
    count(counters_.refused_unheard);
    return nullptr;
  }
  auto refused = std::make_unique<Rejection>(rejections_);
  const std::string line = "error: " + reason + '\n';
  static_cast<void>(connection.send(net::Buffer::copy(std::as_bytes(std::span(line)))));  // may fail, because `close` follows
  connection.close();
  refused->begin(connection);
  return refused;
}

bool Server::prove(Client& client) {
  require(this_core() == client.core(), "a client proves itself on its own core", client.core());
  if (client.proven) return true;
  const auto displaced = clients_.prove(client);
  if (!displaced) {
    count(counters_.refused_full);
    client.finish();
    return false;
  }
  client.set_proven();
  count(counters_.clients);
  if (*displaced) count(counters_.clients_displaced);
  return true;
}

// --- Lines -------------------------------------------------------------------------------------------------------------------------------
std::string Server::refuse(std::string_view reason) {
  count(counters_.refused);
  return "error: " + std::string(reason);
}

task<std::string> Server::answer(Client& client, std::string_view line) {
  require(this_core() == client.core(), "a line is answered on its client's core", client.core());
  count(counters_.lines);
  auto words = split_words(line);
  if (!words) co_return refuse(words.error());

  const std::string_view name = words->front();
  if (options_.dialect == Dialect::ebbrt) {
    if (const auto parsed = ebbrt::parse_line(*words)) co_return co_await answer_ebbrt(client, name, *parsed);
  }
  const auto known = aliases();
  const auto alias = std::find_if(known.begin(), known.end(), [&](const Alias& one) { return one.name == name; });
  const Command* const command = find(alias == known.end() ? name : alias->stands_for);
  const bool locked = !options_.token.empty() && !client.authorised;
  if (locked && (command == nullptr || !command->before_token)) {
    count(counters_.tokens_missing);
    co_return refuse(token_needed);
  }
  if (command == nullptr) {
    const bool is_ebbrts = ebbrt::parse_line(*words).has_value();
    const std::string_view hint = is_ebbrts ? "it is EbbRT's: dialect=ebbrt on the command line" : "help lists them";
    co_return refuse("there is no command '" + shown(name) + "' (" + std::string(hint) + ')');
  }

  if (command->last) client.finish_after();
  std::string replaced;
  if (alias != known.end() && alias->value != nullptr && words->size() > 1) {
    replaced = alias->value((*words)[1]);
    if (replaced.empty()) co_return refuse(std::string(name) + " takes " + std::string(alias->accepts));
    (*words)[1] = replaced;
  }
  const auto checked = check_words(command->usage, *words, core_count());
  if (!checked) co_return refuse(checked.error());

  // If no token is set, the first valid line proves that the peer is a client of control.
  if (!locked && !prove(client)) co_return refuse(places_taken);
  const Request request{.server = *this, .client = client, .name = name, .words = checked->words, .core = checked->core};
  std::string text = co_await command->run(request);
  if (text.starts_with("error")) count(counters_.refused);
  co_return text;
}

task<std::string> Server::answer_ebbrt(Client& client, std::string_view name, ebbrt::Parsed line) {
  if (!options_.token.empty() && !client.authorised) {
    count(counters_.tokens_missing);
    co_return refuse(token_needed);
  }
  std::string text;
  if (!line) {
    text = "error: " + line.error();
  } else if (!prove(client)) {
    co_return refuse(places_taken);
  } else {
    text = co_await ebbrt::execute(*this, client, *line);
  }
  if (text.starts_with("error")) {
    count(counters_.refused);
    ebbrt::report_refusal(name, text);
  }
  co_return text;
}

bool Server::token_fits(std::string_view text) const noexcept {
  // The loop compares all bytes, so its time depends only on the length of `text`.
  std::size_t differences = text.size() ^ options_.token.size();
  for (std::size_t i = 0; i < text.size() && !options_.token.empty(); ++i) {
    differences |= static_cast<unsigned char>(text[i] ^ options_.token[i % options_.token.size()]);
  }
  return differences == 0;
}

const Command* Server::find(std::string_view name) const noexcept {
  for (const Command& command : built_in_commands()) {
    if (command.name() == name) return &command;
  }
  const std::size_t added = added_count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < added; ++i) {
    if (added_[i]->command.name() == name) return &added_[i]->command;
  }
  return nullptr;
}

std::vector<const Command*> Server::commands() const {
  std::vector<const Command*> all;
  for (const Command& command : built_in_commands()) all.push_back(&command);
  const std::size_t added = added_count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < added; ++i) all.push_back(&added_[i]->command);
  return all;
}

// --- Commands and statistics of applications ---------------------------------------------------------------------------------------------
Result<void> Server::add_command(std::string usage, std::string help, Run run) {
  require(run != nullptr, "a command has a function");
  const std::size_t at = added_count_.load(std::memory_order_relaxed);
  if (at == added_.size()) return failure(ErrorCode::full, "no room for another command", at);
  auto added = std::make_unique<Added>();
  added->usage = std::move(usage);
  added->help = std::move(help);
  added->command = {.usage = added->usage, .help = added->help, .run = [run = std::move(run)](const Request& request) {
                      return run(request.words, request.core);
                    }};
  const std::string_view name = added->command.name();
  const auto known = aliases();
  const bool taken = find(name) != nullptr || std::any_of(known.begin(), known.end(), [&](const Alias& one) { return one.name == name; });
  if (name.empty() || taken) return failure(ErrorCode::invalid, "a command needs a name that is not in use");
  added_[at] = std::move(added);
  added_count_.store(at + 1, std::memory_order_release);
  return {};
}

Result<void> Server::add_statistics(std::string group, Statistics statistics) {
  require(statistics != nullptr, "a group of statistics has a function");
  const std::size_t at = groups_count_.load(std::memory_order_relaxed);
  if (at == statistics_max) return failure(ErrorCode::full, "no room for further statistics", at);
  groups_[at] = std::make_unique<Group>(Group{.name = std::move(group), .report = std::move(statistics)});
  groups_count_.store(at + 1, std::memory_order_release);
  return {};
}

void Server::report_statistics(std::optional<unsigned> core, const Emit& emit) const {
  require(!core || *core < core_count(), "statistics are of one of the machine's cores", core.value_or(0));
  report_own_statistics(*this, core, emit);
  const std::size_t groups = groups_count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < groups; ++i) {
    const std::string prefix = groups_[i]->name + '.';
    const Emit with_group = [&](std::string_view name, std::uint64_t value) { emit(prefix + std::string(name), value); };
    groups_[i]->report(core, with_group);
  }
}

// --- Start -------------------------------------------------------------------------------------------------------------------------------
namespace {

/// Makes every core count the chosen events.
task<Result<void>> count_events(const log::Options& options) {
  if (options.events_count == 0) co_return Result<void>{};
  machine::choose_events(std::span(options.events).first(options.events_count));
  for (unsigned core = 0; core < core_count(); ++core) {
    const auto counted = co_await on_core(core, [] { return machine::count_chosen_events(); });
    if (counted) continue;
    print("observe: log_events: core ", core, " cannot count these events: ", counted.error().message);
    co_return counted;
  }
  co_return Result<void>{};
}

}  // namespace

task<Result<Control*>> start(Options options, policy::Device& device, net::Network& network) {
  policy::use(&device);
  if (const auto applied = co_await policy::apply(options.boot_settings); !applied) {
    print("observe: ", applied.error().why);
    co_return failure(applied.error().code, "a setting was refused");
  }
  if (const auto counted = co_await count_events(options.log); !counted) co_return std::unexpected(counted.error());
  if (options.log.entries_per_core > 0) {
    if (const auto prepared = co_await log::prepare(options.log); !prepared) co_return std::unexpected(prepared.error());
  }
  std::unique_ptr<Server> server(new (std::nothrow) Server(std::move(options), machine_environment()));
  if (server == nullptr) co_return failure(ErrorCode::out_of_memory, "no memory for control");
  if (server->options().control_port.has_value()) {
    if (const auto counted = net::count_as_control(*server->options().control_port); !counted) co_return std::unexpected(counted.error());
    if (const auto serving = co_await server->serve(network); !serving) co_return std::unexpected(serving.error());
  }
  co_return server.release();  // never freed
}

}  // namespace neap::observe
