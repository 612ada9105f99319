// SPDX-License-Identifier: BSL-1.0
// The control server: it admits clients and answers their lines.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/async_mutex.hpp"
#include "observe/client_places.hpp"
#include "observe/command_syntax.hpp"
#include "observe/control.hpp"
#include "observe/log_file.hpp"
#include "observe/options.hpp"

namespace neap::observe {

/// Control's counters since boot. Events on any core add to them.
struct Counters {
  using Count = std::atomic<std::uint64_t>;
  Count connections, unproven_displaced, unproven_expired;
  Count clients, clients_displaced, refused_full, refused_delayed, refused_address, refused_unheard;
  Count input_cut, closes_cut;
  Count lines, refused, lines_too_long, lines_half, tokens_missing, tokens_wrong;
  Count gets, get_lines, gets_overtaken;
  Count streams, stream_blocks, stream_lines, stream_gaps, stream_lines_lost, streams_overtaken;
  Count out_of_memory;
};
inline void count(Counters::Count& which, std::uint64_t amount = 1) noexcept { which.fetch_add(amount, std::memory_order_relaxed); }

/// The machine's functions and the time limits, which tests replace.
struct Environment {
  void (*power_off)() noexcept;
  void (*reboot)() noexcept;
  std::chrono::nanoseconds proof_limit{std::chrono::seconds(10)};              ///< time for a client to prove itself
  std::chrono::nanoseconds wrong_token_delay{std::chrono::milliseconds(250)};  ///< delay of the answer to a wrong token
  std::chrono::nanoseconds drain_limit{std::chrono::seconds(10)};              ///< maximum time without an acknowledgement at a close
};
[[nodiscard]] Environment machine_environment() noexcept;

class Server final : public Control {
 public:
  Server(Options options, Environment environment);
  Server& operator=(Server&&) = delete;

  /// Starts to serve `network`. MUST be called once, on core 0, after `policy::use`. Errors: those of `Network::listen`.
  [[nodiscard]] task<Result<void>> serve(net::Network& network);

  Result<void> add_command(std::string usage, std::string help, Run run) override;
  Result<void> add_statistics(std::string group, Statistics statistics) override;
  [[nodiscard]] std::uint64_t boot_id() const noexcept override { return boot_.boot_id; }

  [[nodiscard]] task<std::string> answer(Client& client, std::string_view line);
  /// Gives the client a place among the proven clients (admission.hpp), if it has none. Returns false if busy clients have all places.
  [[nodiscard]] bool prove(Client& client);
  /// Counts a refusal, and returns "error: " followed by `reason`.
  [[nodiscard]] std::string refuse(std::string_view reason);

  [[nodiscard]] const Command* find(std::string_view name) const noexcept;
  /// Returns all commands in the order of `help`.
  [[nodiscard]] std::vector<const Command*> commands() const;
  /// True if `text` is the token. The call takes the same time for any text of a given length.
  [[nodiscard]] bool token_fits(std::string_view text) const noexcept;
  /// Calls `emit` with all counters of one core or of the machine, including those of applications.
  void report_statistics(std::optional<unsigned> core, const Emit& emit) const;

  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const Environment& environment() const noexcept { return environment_; }
  [[nodiscard]] const BootFacts& boot() const noexcept { return boot_; }
  [[nodiscard]] const net::Network* network() const noexcept { return network_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  [[nodiscard]] ClientPlaces& clients() noexcept { return clients_; }
  [[nodiscard]] const ClientPlaces& clients() const noexcept { return clients_; }
  /// A command MUST hold this mutex while it changes settings or the run.
  [[nodiscard]] AsyncMutex& change_mutex() noexcept { return change_mutex_; }
  [[nodiscard]] RunCardReader& run_card() noexcept { return run_card_; }

 private:
  struct Added {
    std::string usage, help;
    Command command;
  };
  struct Group {
    std::string name;
    Statistics report;
  };
  /// Adds a command for each setting of the kernel and of the device in use.
  void add_setting_commands();
  /// Answers a line of EbbRT's protocol (dialect=ebbrt).
  [[nodiscard]] task<std::string> answer_ebbrt(Client& client, std::string_view name, ebbrt::Parsed line);
  [[nodiscard]] std::unique_ptr<net::ConnectionHandler> accept(net::Connection& connection);
  /// Sends one line and closes the connection. If too many rejections are in progress, returns null, which resets the connection.
  [[nodiscard]] std::unique_ptr<net::ConnectionHandler> reject(net::Connection& connection, const std::string& reason);

  Options options_;
  Environment environment_;
  BootFacts boot_;
  net::Network* network_ = nullptr;
  Counters counters_{};
  ClientPlaces clients_;
  AsyncMutex change_mutex_;
  RunCardReader run_card_;
  std::atomic<unsigned> rejections_{0};
  static constexpr std::size_t settings_max = 48;
  // The settings' commands come first. Applications may add commands while clients are served. Elements with an index less than
  // `added_count_` or `groups_count_` never change.
  std::array<std::unique_ptr<Added>, commands_max + settings_max> added_;
  std::atomic<std::size_t> added_count_{0};
  std::array<std::unique_ptr<Group>, statistics_max> groups_;
  std::atomic<std::size_t> groups_count_{0};
};

}  // namespace neap::observe
