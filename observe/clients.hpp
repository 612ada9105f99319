// SPDX-License-Identifier: BSL-1.0
// The places that clients take.
//
// Control serves few at a time, so that whoever opens many connections costs little. A client that is silent keeps its place as long as
// nobody else wants it: a person at a prompt may think. When all places are taken, the one that has been silent for longest, and for long
// enough, has to go.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "kernel/spin_lock.hpp"
#include "observe/client.hpp"

namespace neap::observe {

class Clients {
 public:
  static constexpr unsigned clients_max = 16;

  /// `silence`: how long a client must have been silent to be displaced.
  explicit Clients(std::chrono::nanoseconds silence) noexcept : silence_(silence) {}
  /// False: there is no place. `displaced` is set if somebody has to go for this one. On the client's core.
  [[nodiscard]] bool admit(Client& client, bool& displaced);
  /// On the client's core; one that was never admitted may leave, too.
  void leave(Client& client) noexcept;
  [[nodiscard]] unsigned count() const noexcept;

 private:
  struct Place {
    Client* client = nullptr;
    std::uint64_t id = 0;
    bool leaving = false;  ///< told to go, and no longer counted
  };
  void displace(std::uint64_t id) noexcept;

  const std::chrono::nanoseconds silence_;
  mutable SpinLock lock_;
  std::uint64_t last_id_ = 0;
  std::array<Place, std::size_t{2} * clients_max> places_;  // twice: those who were told to go may take a while
};

}  // namespace neap::observe
