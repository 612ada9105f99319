// SPDX-License-Identifier: BSL-1.0
// The connection to the world: card, wire, clients and load, in a process of their own.
//
// Both share one virtual clock, and the plugin drives it. A page that both map holds the present time, the time of the world's next own
// action, interrupt messages of the card and the phase of the experiment. A stream socket orders the advances: 8 bytes with the target
// time, one byte when all that is due has been done.
#pragma once

#include <cstdint>

namespace neap::model {

enum class Phase : std::uint8_t { set_up, warm_up, window, drain, finished };

class Link {
 public:
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  /// Null, or a sentence.
  [[nodiscard]] const char* connect(const char* path) noexcept;
  [[nodiscard]] bool is_connected() const noexcept { return page_ != nullptr; }

  void publish(std::uint64_t now_ns) noexcept;
  /// Lets the world act up to and including `now_ns`, and waits until this machine may continue. Returns false if the world has ended.
  /// `idle_until_ns`: the earliest time at which a CPU executes an instruction if the card does not act. A world of two machines uses it.
  [[nodiscard]] bool advance(std::uint64_t now_ns, std::uint64_t idle_until_ns) noexcept;
  [[nodiscard]] std::uint64_t next_ns() const noexcept;
  /// The vectors whose messages the card has sent since the last call, a bit each.
  [[nodiscard]] std::uint64_t take_vectors() noexcept;
  [[nodiscard]] Phase phase() const noexcept;
  /// The number of the load under way, from 0. It changes only with the phase.
  [[nodiscard]] std::uint64_t load() const noexcept;
  [[nodiscard]] bool failed() const noexcept;

 private:
  struct Page;
  Page* page_ = nullptr;
  int socket_ = -1;
};

}  // namespace neap::model
