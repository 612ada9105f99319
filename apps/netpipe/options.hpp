// SPDX-License-Identifier: BSL-1.0
// The options of a measurement.
//
// The protocol does not carry the options. The receiver knows the mode from its own options, which MUST equal the transmitter's, as with
// NetPIPE itself. It finds most sizes by the messages that arrive (session.hpp). The command line and the control command accept the
// options as the same words.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernel/arguments.hpp"
#include "net/network.hpp"

namespace neap::netpipe {

/// The transmitter (NPtcp with -h) sends first, chooses the repeats and ends the run; the receiver answers.
enum class Role : std::uint8_t { transmitter, receiver };

struct Options {
  static constexpr std::uint32_t bytes_max = 1 << 28, perturbation_max = 1 << 20, repeats_max = 0x7FFFFFFF;

  std::uint32_t from = 1;          ///< bytes of the smallest message
  std::uint32_t to = 10'000'000;   ///< bytes of the largest message, without its perturbation; a receiver refuses larger ones
  std::uint32_t perturbation = 3;  ///< this many bytes below and above each size are measured too; 0: none
  std::uint32_t repeats = 0;       ///< messages of each size; 0: as many as take 0.1 s. Only the transmitter's value is used
  bool stream = false;             ///< messages pass only from transmitter to receiver; each trial has its own connection
  bool bidirectional = false;      ///< both sides send at the same time
  bool integrity = false;          ///< contents are checked; each size is measured once (one trial), not three times
  bool reset = false;              ///< each trial has its own connection
  friend bool operator==(const Options&, const Options&) = default;

  /// True if each trial has its own connection.
  [[nodiscard]] bool resets() const noexcept { return reset || stream; }

  /// Reads `from=`, `to=`, `perturbation=`, `repeats=`, `stream=`, `bidirectional=`, `integrity=`, `reset=`; the defaults are those of
  /// `otherwise`. With `integrity=on`, the defaults are 5 for `from` and 0 for `perturbation`.
  static Options from_words(Arguments& arguments, const Options& otherwise);
};

/// A measurement that this machine begins.
struct ClientOptions {
  Options measured;
  net::Endpoint peer;
  unsigned core = 0;
  std::chrono::nanoseconds wait{0};  ///< how long to retry while the peer refuses the first connection
};
/// Reads the words of `Options::from_words` and `peer=A.B.C.D:PORT` or `peer=[IPV6]:PORT`, `core=` and `wait=` (at most an hour). Rejects a
/// bad or missing peer.
ClientOptions client_options(Arguments& arguments, const Options& otherwise, unsigned cores, unsigned core_otherwise);

}  // namespace neap::netpipe
