// SPDX-License-Identifier: BSL-1.0
// The machine behind neap_network.h: one core, a card whose frames the caller sees, the network, and its sockets. Internal to net/object.
#pragma once

#include <cstdint>
#include <deque>
#include <expected>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "net/bring_up.hpp"
#include "net/testing/wire.hpp"
#include "tests/host/stepped_machine.hpp"

namespace neap::net::object {

using testing::Bytes;

struct SentFrame {
  Bytes bytes;
  std::uint64_t time_ns;
};

/// The object of a handle.
class Socket {
 public:
  virtual ~Socket() = default;
};

struct MachineSettings {
  AddressSetting address{.dhcp = false, .address = {0xC0A80001}, .netmask = {0xFFFF0000}, .gateway = {0xC0A80002}};
  std::uint64_t seed = 1;
  bool answers_arp = true;
  /// Settings of the machine itself, by their names of policy.hpp.
  std::map<std::string, std::string, std::less<>> policy;
  /// Reads the words of neap_machine_make. The error is a line for the caller.
  [[nodiscard]] static std::expected<MachineSettings, std::string> parse(std::string_view words);
};

class Machine {
 public:
  explicit Machine(MachineSettings settings);
  Machine& operator=(Machine&&) = delete;
  ~Machine();

  /// Starts the network. The error is a line for the caller.
  [[nodiscard]] std::expected<void, std::string> start();

  void put_frame(Bytes frame);
  /// As `put_frame`, with an Ethernet header in front of an IP packet.
  void put_packet(const Bytes& packet);
  [[nodiscard]] bool has_packet() const noexcept { return !frames_.empty(); }
  /// Removes and returns the oldest sent frame. Its bytes are empty if there is none.
  [[nodiscard]] SentFrame take_frame();
  /// As `take_frame`, but skips frames that are not IP, and removes the Ethernet header and padding.
  [[nodiscard]] SentFrame take_packet();
  /// Advances the clock to `time_ns`, or until a packet was sent. Returns true if one was.
  bool advance_to_packet(std::uint64_t time_ns);

  [[nodiscard]] host::SteppedMachine& core() noexcept { return core_; }
  [[nodiscard]] NetworkControl& network() noexcept { return *network_; }
  /// True while a packet that the caller has put in is processed.
  [[nodiscard]] bool receiving() const noexcept { return receiving_; }

  /// Returns the new handle of a socket.
  [[nodiscard]] int add(std::shared_ptr<Socket> socket);
  template <class Kind>
  [[nodiscard]] std::shared_ptr<Kind> find(int handle) const {
    const auto found = sockets_.find(handle);
    return found == sockets_.end() ? nullptr : std::dynamic_pointer_cast<Kind>(found->second);
  }
  void remove(int handle) { sockets_.erase(handle); }

 private:
  [[nodiscard]] bool keep(const Bytes& frame);

  static constexpr int first_handle = 3;
  MachineSettings settings_;
  host::SteppedMachine core_;
  testing::WireCard card_;
  std::unique_ptr<NetworkControl> network_;
  std::deque<SentFrame> frames_;
  std::map<int, std::shared_ptr<Socket>> sockets_;
  bool receiving_ = false, answering_ = false;
  std::deque<Bytes> answers_;
};

/// The process's machine; null: there is none.
[[nodiscard]] std::unique_ptr<Machine>& the_machine() noexcept;

}  // namespace neap::net::object
