// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/pcie.hpp"

#include <array>

namespace neap::x86::pcie {

namespace {

// 7.5.3.4: in both size fields of device control, n means 128 * 2^n bytes.
constexpr unsigned payload_shift = 5, read_request_shift = 12;
constexpr std::uint16_t size_mask = 7;
constexpr unsigned smallest_bytes = 128;
constexpr std::uint64_t bus_bytes = 1 << 20;
constexpr std::uint64_t addresses_end = std::uint64_t{1} << 52;

}  // namespace

Link decode(const Words& words) noexcept {
  constexpr std::array<unsigned, 7> speeds{0, 25, 50, 80, 160, 320, 640};  // 7.5.3.8, current link speed
  const unsigned speed = words.link_status & 0xf;
  return {.lanes = words.link_status >> 4 & 0x3fU,
          .speed_100mtps = speed < speeds.size() ? speeds[speed] : 0,
          .payload_bytes = smallest_bytes << (words.device_control >> payload_shift & size_mask),
          .payload_bytes_max = smallest_bytes << (words.device_capabilities & size_mask),
          .read_request_bytes = smallest_bytes << (words.device_control >> read_request_shift & size_mask),
          .sleeps_l0s = (words.link_control & 1) != 0,
          .sleeps_l1 = (words.link_control & 2) != 0};
}

std::uint64_t megabits_per_second(const Link& link) noexcept {
  const std::uint64_t raw = std::uint64_t{link.lanes} * link.speed_100mtps * 100;
  constexpr unsigned first_with_long_code = 80;
  return link.speed_100mtps < first_with_long_code ? raw * 8 / 10 : raw * 128 / 130;
}

void describe(const Link& link, Line& line) noexcept {
  if (link.lanes == 0 || link.speed_100mtps == 0) {
    line << "no link speed reported";
  } else {
    line << "x" << link.lanes << " at " << link.speed_100mtps / 10 << "." << link.speed_100mtps % 10 << " GT/s";
  }
  line << ", payload " << link.payload_bytes << " of " << link.payload_bytes_max << " bytes, read requests of " << link.read_request_bytes
       << " bytes";
  line << ", ASPM " << (link.sleeps_l0s && link.sleeps_l1 ? "L0s and L1" : link.sleeps_l0s ? "L0s" : link.sleeps_l1 ? "L1" : "off");
}

std::uint16_t payload_matched(std::uint16_t own_control, std::uint16_t port_control) noexcept {
  const unsigned own = own_control >> payload_shift & size_mask;
  const unsigned port = port_control >> payload_shift & size_mask;
  if (own <= port) return own_control;
  return static_cast<std::uint16_t>((own_control & ~(size_mask << payload_shift)) | port << payload_shift);
}

const char* window_problem(const Window& window, std::span<const Window> before, std::span<const machine::MemoryRange> ram) noexcept {
  if (window.first_bus > window.last_bus) return "its bus range is empty";
  if (window.base == 0 || window.base % bus_bytes != 0) return "its base is not aligned";
  // PCI Firmware 3.3, 4.1.2: the base belongs to bus 0, even if the window begins at a later bus.
  const auto first = window.base + window.first_bus * bus_bytes;
  const auto end = window.base + (std::uint64_t{window.last_bus} + 1) * bus_bytes;
  if (window.base >= addresses_end || end > addresses_end) return "it is beyond the addressable range";
  for (const auto& range : ram) {
    if (first < range.physical + range.bytes && range.physical < end) return "it overlaps RAM";
  }
  for (const auto& other : before) {
    if (other.segment == window.segment && window.first_bus <= other.last_bus && other.first_bus <= window.last_bus) {
      return "its buses are listed already";
    }
  }
  return nullptr;
}

}  // namespace neap::x86::pcie
