// SPDX-License-Identifier: BSL-1.0
// A machine under a pseudo-random script of segments and of an application's actions, and a trace of all that it does.
//
// The script depends only on the seed and on the machine's frames. So two machines that shall behave in the same way have equal traces, and
// the first step that differs shows the difference. The machine has one core, and only the script advances the clock. The peers have no TCP
// stack: they repeat, lose, overlap and reorder segments, open and close their windows, and reset connections.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "net/bring_up.hpp"
#include "net/connection_state.hpp"
#include "net/stack.hpp"
#include "net/testing/handlers.hpp"
#include "net/testing/raw_peer.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::net::testing {

/// A frame that the machine sent. Numbers of TCP are relative to the initial ones of their connection.
struct SentFrame {
  unsigned peer = 0;
  std::uint32_t sequence = 0, acknowledged = 0;
  unsigned flags = 0, window = 0, identification = 0;
  Bytes options{}, payload{};
  Bytes others{};  ///< all further bytes of the headers
  bool operator==(const SentFrame&) const = default;
};

/// A call of a handler. Connections are numbered in the order of their acceptance.
struct HandlerCall {
  enum class Kind : std::uint8_t { accepted, received, writable, peer_closed, closed } kind;
  unsigned connection = 0;
  Bytes bytes{};  ///< of `received`
  bool operator==(const HandlerCall&) const = default;
};

/// A value of the machine after a step.
struct Field {
  const char* name;
  unsigned peer;
  std::int64_t value;
  bool operator==(const Field&) const = default;
};

struct ScriptStep {
  std::string what{};
  std::vector<SentFrame> frames{};
  std::vector<HandlerCall> calls{};
  std::vector<Field> fields{};
};

struct ScriptOptions {
  std::uint32_t seed = 1;
  unsigned steps = 1000;
  bool short_path = true;
  const char* tso = "off";
  /// Chances in 1000: of a step that only a faulty or hostile peer makes, and of a step that ends a connection.
  unsigned faults = 150, ends = 10;
  bool echoes = true;  ///< applications may echo
  /// Echoed bytes are sent in the buffers in which they arrived. Otherwise a copy is sent, and the buffers are released at once.
  bool echo_by_reference = false;
  /// Of the peers' largest segments. More than a frame can carry, if the card shall have coalesced frames.
  std::uint32_t segment_bytes_max = 1460;
  std::size_t memory_limit_bytes = 0;  ///< of the stack; 0: its own limit
  CardOptions card{};
};

class ScriptedMachine {
 public:
  explicit ScriptedMachine(const ScriptOptions& options);
  ScriptedMachine& operator=(ScriptedMachine&&) = delete;
  ~ScriptedMachine();

  [[nodiscard]] std::vector<ScriptStep> run();
  /// The calls of `received`, which may be fewer than their entries in the steps.
  [[nodiscard]] std::size_t received_calls() const noexcept { return received_calls_; }

 private:
  static constexpr unsigned peers_max = 3;
  static constexpr std::uint16_t service_port = 7;
  static constexpr Ipv4Address machine_address{0x0A000001};

  /// An application's reaction to received bytes. All reactions depend on the bytes' positions in the stream, not on the calls.
  enum class Habit : std::uint8_t { release, hold, hold_half, echo, answer, close };
  static constexpr unsigned habits = 6;

  class Handler;
  struct Peer {
    std::uint16_t port = 0;
    std::uint64_t mac = 0;
    std::uint32_t first = 0;          ///< its initial sequence number
    std::uint32_t machine_first = 0;  ///< the machine's
    std::uint32_t sent = 0;           ///< the next number that it sends, relative
    std::uint32_t received = 0;       ///< the next number that it expects, relative
    std::uint32_t taken = 0;          ///< the machine's last acknowledgement number, relative
    std::uint32_t edge = 0;           ///< the end of the machine's window after the last step, relative
    std::uint32_t window = 0xFFFF;    ///< in units of 2^`scale`
    unsigned scale = 0;
    bool timestamps = false;
    std::uint32_t machine_clock_first = 0, machine_clock = 0;  ///< the machine's first and last timestamp
    unsigned lose = 0;                                         ///< the next frames of the machine that do not arrive
    bool answered = false, open = false, fin_sent = false, fin_received = false;
    Handler* handler = nullptr;  ///< of its last connection
  };
  struct Sent {
    std::uint32_t sequence, acknowledged;
    unsigned flags = ack_flag;
    std::size_t bytes = 0;
    Bytes options{};
  };

  // The script.
  [[nodiscard]] std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }
  [[nodiscard]] bool chance(unsigned of_1000) { return below(1000) < of_1000; }
  void step();
  void usual_step(unsigned number, Peer& peer);
  void faulty_step(unsigned number, Peer& peer);
  void ending_step(unsigned number, Peer& peer);
  void application_step(unsigned number, Peer& peer);
  [[nodiscard]] Habit any_habit();
  void open(unsigned number, Peer& peer);

  std::atomic<std::size_t> received_calls_{0};

  // The wire.
  void send(const Peer& peer, const Sent& segment);
  void data(Peer& peer, std::size_t bytes, unsigned flags = ack_flag);
  void flush(bool together);
  void settle();
  void wait();
  void process(const Bytes& frame);
  /// Makes the timestamp in `options` relative to the machine's first one, and remembers it.
  static void take_timestamp(Peer& peer, Bytes& options);
  [[nodiscard]] Bytes frame_of(const Peer& peer, const Sent& segment) const;
  void advance(std::chrono::milliseconds by);
  void introduce(unsigned number);

  // The record.
  [[nodiscard]] ScriptStep& now() { return trace_.back(); }
  template <typename... Words>
  void note(const Words&... words) {
    std::string text;
    ((text += [](const auto& word) -> std::string {
       if constexpr (std::is_arithmetic_v<std::decay_t<decltype(word)>>) {
         return std::to_string(word);
       } else {
         return word;
       }
     }(words) + " "),
     ...);
    now().what += text;
  }
  void record_fields();

  const ScriptOptions options_;
  std::mt19937 random_;
  std::vector<ScriptStep> trace_;
  std::array<Peer, peers_max> peers_;
  std::vector<Bytes> batch_;
  std::uint32_t peers_clock_ = 1000;  ///< of the peers' timestamps, in milliseconds
  std::uint16_t next_port_ = 40000;
  unsigned connections_ = 0;
  bool link_ = true, mangle_ = false;
  host::ManualClock clock_{1'000'000'000};
  WireCard card_;
  host::HostMachine machine_{1};
  std::unique_ptr<NetworkControl> network_;
  std::mutex lock_;
  std::vector<Bytes> frames_;       ///< sent by the machine, not yet processed
  std::vector<HandlerCall> calls_;  ///< since the last step
};

}  // namespace neap::net::testing
