// SPDX-License-Identifier: BSL-1.0
#include "net/object/machine.hpp"

#include <charconv>
#include <optional>

#include "kernel/arguments.hpp"
#include "kernel/policy.hpp"
#include "net/testing/frames.hpp"

namespace neap::net::object {

using testing::octet;
using testing::quad;
using testing::word;

namespace {

constexpr std::size_t link_header_bytes = 14;

template <class Number>
bool read(std::string_view text, Number least, Number most, Number& number) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) return false;
  number = value;
  return true;
}

/// Reads `A.B.C.D/LEN[,GATEWAY]`.
std::optional<AddressSetting> read_address(std::string_view text) {
  const std::size_t slash = text.find('/'), comma = text.find(',');
  if (slash == std::string_view::npos) return {};
  const auto address = Ipv4Address::parse(text.substr(0, slash));
  unsigned length = 0;
  const std::size_t length_end = comma == std::string_view::npos ? text.size() : comma;
  if (!address || length_end < slash || !read(text.substr(slash + 1, length_end - slash - 1), 1U, 32U, length)) return {};
  AddressSetting setting{.dhcp = false, .address = *address, .netmask = {~0U << (32 - length)}, .gateway = {}};
  if (comma != std::string_view::npos) {
    const auto gateway = Ipv4Address::parse(text.substr(comma + 1));
    if (!gateway) return {};
    setting.gateway = *gateway;
  }
  return setting;
}

}  // namespace

std::expected<MachineSettings, std::string> MachineSettings::parse(std::string_view words) {
  MachineSettings settings;
  while (!words.empty()) {
    const std::size_t space = words.find(' ');
    const std::string_view item = words.substr(0, space);
    words.remove_prefix(space == std::string_view::npos ? words.size() : space + 1);
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view{} : item.substr(equals + 1);
    bool good = true;
    if (name == "ip") {
      const auto address = read_address(value);
      good = address.has_value();
      if (good) settings.address = *address;
    } else if (name == "seed") {
      good = read(value, std::uint64_t{0}, ~std::uint64_t{0}, settings.seed);
    } else if (name == "arp") {
      good = value == "on" || value == "off";
      settings.answers_arp = value == "on";
    } else {
      settings.policy.insert_or_assign(std::string(name), std::string(value));
    }
    if (!good) return std::unexpected("the setting '" + std::string(item) + "' has a bad value");
  }
  return settings;
}

Machine::Machine(MachineSettings settings) : settings_(std::move(settings)), core_(settings_.seed), card_({.seed = 1}) {
  card_.tap([this](const Bytes& frame) { return keep(frame); });
}

Machine::~Machine() {
  card_.cut();
  // Sockets give their buffers back, and a closed connection's last callback needs its socket no more.
  core_.call([this] { sockets_.clear(); });
  if (network_ != nullptr) {
    bool down = core_.run([this] -> task<void> { co_await network_->take_down(); });
    constexpr std::uint64_t patience_ns = 10'000'000'000;
    if (!down) core_.advance_to(core_.now_ns() + patience_ns);
  }
}

std::expected<void, std::string> Machine::start() {
  std::expected<void, std::string> result;
  const bool ended = core_.run([&] -> task<void> {
    Result<std::unique_ptr<NetworkControl>> network = co_await bring_up(card_, settings_.address, 0, 1);
    if (!network.has_value()) {
      result = std::unexpected(network.error().message);
      co_return;
    }
    network_ = std::move(*network);
    for (const auto& [name, value] : settings_.policy) {
      const auto setting = policy::setting_by_name(name);
      if (!setting.has_value()) {
        result = std::unexpected("there is no setting '" + name + "'");
        co_return;
      }
      const auto applied = co_await policy::set(*setting, value, policy::all_cores);
      if (!applied.has_value()) {
        result = std::unexpected("setting '" + name + "': " + applied.error().why);
        co_return;
      }
    }
  });
  if (!ended) return std::unexpected("the network did not start");
  frames_.clear();
  return result;
}

/// Records a frame that the card sends. An answer to an ARP request is queued, because the card does not deliver frames while it sends.
bool Machine::keep(const Bytes& frame) {
  if (settings_.answers_arp && testing::is_arp(frame, 1)) {
    const Ipv4Address asked{quad(frame, 38)};
    // The machine asks for its own address to detect a conflict (RFC 5227). No answer is sent.
    if (asked != settings_.address.address) answers_.push_back(testing::arp_answer(asked, settings_.address.address, card_.mac()));
    if (!answers_.empty() && !answering_) {
      answering_ = true;
      static_cast<void>(spawn_on(0, [this] {
        answering_ = false;
        for (Bytes& answer : std::exchange(answers_, {})) card_.arrive(std::move(answer), 0);
      }));
    }
    return true;
  }
  frames_.push_back({.bytes = frame, .time_ns = core_.now_ns()});
  return true;
}

void Machine::put_frame(Bytes frame) {
  receiving_ = true;
  constexpr std::size_t least_frame_bytes = 60;
  if (frame.size() < least_frame_bytes) frame.resize(least_frame_bytes);
  card_.arrive(std::move(frame), 0);
  core_.settle();
  receiving_ = false;
}

void Machine::put_packet(const Bytes& packet) {
  Bytes frame;
  MacAddress to = card_.mac();
  // A packet to several machines has their link address (RFC 1112, 6.4; RFC 894).
  const std::uint32_t address = packet.size() >= 20 ? quad(packet, 16) : 0;
  const std::uint32_t host_bits = ~settings_.address.netmask.value;
  if (address == ~0U || (address & host_bits) == host_bits) {
    to = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
  } else if (address >> 28 == 0xE) {
    to = {0x01,
          0x00,
          0x5E,
          static_cast<std::uint8_t>(address >> 16 & 0x7F),
          static_cast<std::uint8_t>(address >> 8),
          static_cast<std::uint8_t>(address)};
  }
  testing::append(frame, to);
  testing::append(frame, testing::neighbour_mac, 6);
  testing::append(frame, !packet.empty() && octet(packet, 0) >> 4 == 6 ? 0x86DD : 0x0800, 2);
  testing::append(frame, packet);
  put_frame(std::move(frame));
}

SentFrame Machine::take_frame() {
  if (frames_.empty()) return {};
  SentFrame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

SentFrame Machine::take_packet() {
  while (!frames_.empty()) {
    SentFrame frame = take_frame();
    Bytes& bytes = frame.bytes;
    if (bytes.size() < link_header_bytes + 20) continue;
    const unsigned type = word(bytes, 12);
    if (type != 0x0800 && type != 0x86DD) continue;
    bytes.erase(bytes.begin(), bytes.begin() + link_header_bytes);
    const std::size_t length = type == 0x0800 ? word(bytes, 2) : 40U + word(bytes, 4);
    if (length < bytes.size()) bytes.resize(length);
    return frame;
  }
  return {};
}

bool Machine::advance_to_packet(std::uint64_t time_ns) {
  core_.settle();
  while (!has_packet() && core_.advance_to_alarm(time_ns)) {
  }
  return has_packet();
}

int Machine::add(std::shared_ptr<Socket> socket) {
  int handle = first_handle;
  while (sockets_.contains(handle)) ++handle;
  sockets_.emplace(handle, std::move(socket));
  return handle;
}

std::unique_ptr<Machine>& the_machine() noexcept {
  static std::unique_ptr<Machine> machine;
  return machine;
}

}  // namespace neap::net::object
