// SPDX-License-Identifier: BSL-1.0
// What is measured.
//
// Nothing of this is said on the wire: the receiver must know the sizes and the way of measuring from its own options, which therefore must
// be those of the transmitter, as with NetPIPE itself. So they are words of the command line, and the same words over control.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/arguments.hpp"
#include "net/network.hpp"

namespace neap::netpipe {

/// Who sends first and decides (NPtcp with -h), and who answers.
enum class Role : std::uint8_t { transmitter, receiver };

struct Options {
  static constexpr std::uint32_t bytes_max = 1 << 28;
  static constexpr std::uint32_t perturbation_max = 1 << 20;
  static constexpr std::uint32_t repeats_max = 0x7FFFFFFF;

  std::uint32_t from = 1;          ///< bytes of the smallest message
  std::uint32_t to = 10'000'000;   ///< no size beyond it is begun (its perturbation may be)
  std::uint32_t perturbation = 3;  ///< each size is measured that much below and above too; 0: not
  std::uint32_t repeats = 0;       ///< of each size; 0: as many as take a tenth of a second. The transmitter decides
  bool stream = false;             ///< one way only; a connection for each trial
  bool bidirectional = false;      ///< both sides send at once
  bool integrity = false;          ///< contents are checked; one trial a size instead of three
  bool reset = false;              ///< a connection for each trial
  friend bool operator==(const Options&, const Options&) = default;

  /// A connection ends with each trial.
  [[nodiscard]] bool resets() const noexcept { return reset || stream; }

  /// Asks for `from=`, `to=`, `perturbation=`, `repeats=`, `stream=`, `bidirectional=`, `integrity=`, `reset=`; what is not said is as in
  /// `otherwise`. With `integrity=on` sizes begin at 5 and have no perturbation unless these are given.
  static Options from_words(Arguments& arguments, const Options& otherwise);
};

/// A measurement that this machine begins.
struct ClientOptions {
  Options measured;
  net::Endpoint peer;
  unsigned core = 0;
  std::chrono::nanoseconds wait{0};  ///< so long a peer that refuses the first connection is asked again
};
/// Asks for `peer=A.B.C.D:PORT`, `core=` and `wait=` (at most an hour) besides. A bad or missing peer is rejected there.
ClientOptions client_options(Arguments& arguments, const Options& otherwise, unsigned cores, unsigned core_otherwise);

}  // namespace neap::netpipe
