// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/serial.hpp"

#include <atomic>
#include <cstdint>

#include "kernel/machine.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cpu.hpp"

namespace neap::x86::serial {

namespace {

// National Semiconductor PC16550D data sheet, section 8.
constexpr std::uint16_t com1 = 0x3f8;
constexpr std::uint16_t data = com1 + 0;
constexpr std::uint16_t divisor_low = com1 + 0;  // while line_control has divisor_access
constexpr std::uint16_t divisor_high = com1 + 1;
constexpr std::uint16_t interrupt_enable = com1 + 1;
constexpr std::uint16_t fifo_control = com1 + 2;
constexpr std::uint16_t line_control = com1 + 3;
constexpr std::uint16_t modem_control = com1 + 4;
constexpr std::uint16_t line_status = com1 + 5;
constexpr std::uint16_t scratch = com1 + 7;
constexpr std::uint8_t divisor_access = 0x80;
constexpr std::uint8_t eight_bits_no_parity = 0x03;
constexpr std::uint8_t fifo_enable_and_clear = 0x07;
constexpr std::uint8_t terminal_ready_request_to_send = 0x03;
constexpr std::uint8_t transmitter_holding_empty = 0x20;
constexpr std::uint8_t transmitter_empty = 0x40;
constexpr unsigned fifo_bytes = 16;

// The other end may be a file on a busy host. Once it has taken nothing for this long, later characters are tried without waiting.
constexpr std::uint64_t character_wait_ns = 1'000'000'000;

constinit bool present = false;
constinit bool stuck = false;
constinit unsigned room = 0;
constinit unsigned long long lost = 0;
constinit std::atomic<std::uint32_t> lock{0};  // 0: free
constinit std::atomic<bool> broken{false};

bool wait_for(std::uint8_t status, std::uint64_t limit_ns) {
  if (in8(line_status) & status) return true;
  const auto start = rough_ns();
  while (!(in8(line_status) & status)) {
    if (rough_ns() - start > limit_ns) return false;
    pause();
  }
  return true;
}

void put(char letter) {
  if (room == 0) {
    if (!wait_for(transmitter_holding_empty, stuck ? 0 : character_wait_ns)) {
      stuck = true;
      ++lost;
      return;
    }
    stuck = false;
    room = fifo_bytes;
  }
  --room;
  out8(data, static_cast<std::uint8_t>(letter));
}

}  // namespace

void initialise() {
  // Two patterns in the scratch register: an absent UART reads as 0xff, a floating bus as what was written last.
  for (const std::uint8_t pattern : {std::uint8_t{0x5a}, std::uint8_t{0xa5}}) {
    out8(scratch, pattern);
    (void)in8(modem_control);
    if (in8(scratch) != pattern) return;
  }
  present = true;
  out8(interrupt_enable, 0);
  out8(line_control, divisor_access);
  out8(divisor_low, 1);  // 115200 baud of a 1.8432 MHz clock
  out8(divisor_high, 0);
  out8(line_control, eight_bits_no_parity);
  out8(fifo_control, fifo_enable_and_clear);
  out8(modem_control, terminal_ready_request_to_send);
}

void write(std::string_view text) {
  if (!present) return;
  bool locked = false;
  if (!broken.load()) {
    const auto start = rough_ns();
    while (!(locked = lock.exchange(1, std::memory_order_acquire) == 0)) {
      if (broken.load() || rough_ns() - start > std::uint64_t{line_wait_ms} * 1'000'000) break;
      pause();
    }
  }
  for (const char letter : text) {
    if (letter == '\n') put('\r');
    put(letter);
  }
  if (locked) lock.store(0, std::memory_order_release);
}

void drain() {
  if (present) (void)wait_for(transmitter_empty, 20'000'000);
}

void break_lock() { broken.store(true); }

unsigned long long characters_lost() { return lost; }

}  // namespace neap::x86::serial

namespace neap::machine {

void console_write(std::string_view text) noexcept { x86::serial::write(text); }

}  // namespace neap::machine
