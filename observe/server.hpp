// SPDX-License-Identifier: BSL-1.0
// The control server: who may come in, and what a line is worth.
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

#include "observe/clients.hpp"
#include "observe/command.hpp"
#include "observe/control.hpp"
#include "observe/log_file.hpp"
#include "observe/options.hpp"
#include "observe/turns.hpp"

namespace neap::observe {

/// What control has done since boot; rare events of any core.
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

/// What tests have otherwise.
struct Surroundings {
  void (*power_off)() noexcept;
  void (*reboot)() noexcept;
  std::chrono::nanoseconds proof_limit{std::chrono::seconds(10)};              ///< until a client must have proven itself
  std::chrono::nanoseconds wrong_token_delay{std::chrono::milliseconds(250)};  ///< makes guessing slow
  std::chrono::nanoseconds drain_limit{std::chrono::seconds(10)};              ///< of output after the end, without an acknowledgement
};
[[nodiscard]] Surroundings real_surroundings() noexcept;

class Server final : public Control {
 public:
  Server(Options options, Surroundings surroundings);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Serves `network` from here on; core 0, once. Errors as `Network::listen`.
  [[nodiscard]] task<Result<void>> serve(net::Network& network);

  Result<void> add_command(std::string usage, std::string help, Run run) override;
  Result<void> add_statistics(std::string group, Statistics statistics) override;
  [[nodiscard]] std::uint64_t boot_id() const noexcept override { return boot_.boot_id; }

  /// The whole way of a line to its answer.
  [[nodiscard]] task<std::string> answer(Client& client, std::string_view line);
  /// Gives the client a place among the proven ones, if it has none. False: all are taken by clients at work.
  [[nodiscard]] bool prove(Client& client);
  /// "error: why", counted.
  [[nodiscard]] std::string refuse(std::string_view why);

  /// Null: there is none.
  [[nodiscard]] const Command* find(std::string_view name) const noexcept;
  /// All of them, as `help` lists them.
  [[nodiscard]] std::vector<const Command*> commands() const;
  /// Whether `text` is the token; takes as long for any text of its length.
  [[nodiscard]] bool token_fits(std::string_view text) const noexcept;
  /// Calls `emit` with all counters that control knows of, applications' included; one core's or the machine's.
  void tell_statistics(std::optional<unsigned> core, const Emit& emit) const;

  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const Surroundings& surroundings() const noexcept { return surroundings_; }
  [[nodiscard]] const BootFacts& boot() const noexcept { return boot_; }
  [[nodiscard]] const net::Network* network() const noexcept { return network_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  [[nodiscard]] Clients& clients() noexcept { return clients_; }
  [[nodiscard]] const Clients& clients() const noexcept { return clients_; }
  /// Held by whoever changes the machine's settings or its run.
  [[nodiscard]] Turns& turns() noexcept { return turns_; }

 private:
  struct Added {
    std::string usage, help;
    Command command;
  };
  struct Group {
    std::string name;
    Statistics tell;
  };
  [[nodiscard]] std::unique_ptr<net::ConnectionHandler> accept(net::Connection& connection);
  /// One line and the end; null, which resets the connection, if too many others are being told theirs.
  [[nodiscard]] std::unique_ptr<net::ConnectionHandler> turn_away(net::Connection& connection, const std::string& why);

  Options options_;
  Surroundings surroundings_;
  BootFacts boot_;
  net::Network* network_ = nullptr;
  Counters counters_{};
  Clients clients_;
  Turns turns_;
  std::atomic<unsigned> turned_away_{0};
  // Applications add theirs while clients may already ask; what is below the counts never changes again.
  std::array<std::unique_ptr<Added>, commands_max> added_;
  std::atomic<std::size_t> added_count_{0};
  std::array<std::unique_ptr<Group>, statistics_max> groups_;
  std::atomic<std::size_t> groups_count_{0};
};

}  // namespace neap::observe
