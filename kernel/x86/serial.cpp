// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/serial.hpp"

#include <array>
#include <cstdint>
#include <span>

#include "kernel/panic.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cpu.hpp"

namespace neap::x86::serial {

namespace {

// National Semiconductor PC16550D data sheet, section 8: offsets from the first port.
constexpr std::uint16_t data = 0;
constexpr std::uint16_t divisor_low = 0;  // while line_control has divisor_access
constexpr std::uint16_t divisor_high = 1;
constexpr std::uint16_t interrupt_enable = 1;
constexpr std::uint16_t fifo_control = 2;
constexpr std::uint16_t line_control = 3;
constexpr std::uint16_t modem_control = 4;
constexpr std::uint16_t line_status = 5;
constexpr std::uint16_t scratch = 7;
constexpr std::uint8_t divisor_access = 0x80;
constexpr std::uint8_t eight_bits_no_parity = 0x03;
constexpr std::uint8_t fifo_enable_and_clear = 0x07;
constexpr std::uint8_t terminal_ready_request_to_send = 0x03;
constexpr std::uint8_t transmitter_holding_empty = 0x20;
constexpr std::uint8_t transmitter_empty = 0x40;
constexpr unsigned fifo_bytes = 16;
constexpr std::uint32_t divided_baud = 115200;  // a clock of 1.8432 MHz, divided by 16

// The receiver may be a file on a busy host. If it accepts no character for this long, later characters are written without waiting.
constexpr std::uint64_t character_wait_ns = 1'000'000'000;
constexpr std::uint64_t drain_wait_ns = 20'000'000;

struct Uart {
  std::uint16_t first;
  bool stuck;
  unsigned room;
};

constinit std::array<Uart, EarlyOptions::serial_max> uarts{};
constinit std::size_t uart_count = 0;

std::uint16_t at(const Uart& uart, std::uint16_t offset) { return static_cast<std::uint16_t>(uart.first + offset); }

bool wait_for(const Uart& uart, std::uint8_t status, std::uint64_t limit_ns) {
  if (in8(at(uart, line_status)) & status) return true;
  const WaitLimit limit(limit_ns);
  while (!(in8(at(uart, line_status)) & status)) {
    if (limit.passed()) return false;
    pause();
  }
  return true;
}

void put(Uart& uart, char letter) {
  if (uart.room == 0) {
    if (!wait_for(uart, transmitter_holding_empty, uart.stuck ? 0 : character_wait_ns)) {
      uart.stuck = true;
      return;
    }
    uart.stuck = false;
    uart.room = fifo_bytes;
  }
  require(uart.room <= fifo_bytes, "serial: more room than a FIFO has", uart.room);
  --uart.room;
  out8(at(uart, data), static_cast<std::uint8_t>(letter));
}

}  // namespace

bool open(const SerialPort& port) {
  if (uart_count == uarts.size()) return false;
  Uart uart{.first = port.port, .stuck = false, .room = 0};
  // Writes two patterns to the scratch register: an absent UART reads as 0xff, a floating bus as the value written last.
  for (const std::uint8_t pattern : {std::uint8_t{0x5a}, std::uint8_t{0xa5}}) {
    out8(at(uart, scratch), pattern);
    (void)in8(at(uart, modem_control));
    if (in8(at(uart, scratch)) != pattern) return false;
  }
  require(port.baud != 0 && port.baud <= divided_baud, "serial: a baud rate that a UART cannot have", port.baud);
  const auto divisor = divided_baud / port.baud;
  out8(at(uart, interrupt_enable), 0);
  out8(at(uart, line_control), divisor_access);
  out8(at(uart, divisor_low), static_cast<std::uint8_t>(divisor));
  out8(at(uart, divisor_high), static_cast<std::uint8_t>(divisor >> 8));
  out8(at(uart, line_control), eight_bits_no_parity);
  out8(at(uart, fifo_control), fifo_enable_and_clear);
  out8(at(uart, modem_control), terminal_ready_request_to_send);
  uarts[uart_count++] = uart;
  return true;
}

void write(std::string_view text) {
  for (Uart& uart : std::span(uarts).first(uart_count)) {
    for (const char letter : text) {
      if (letter == '\n') put(uart, '\r');
      put(uart, letter);
    }
  }
}

void drain() {
  for (const Uart& uart : std::span(uarts).first(uart_count)) (void)wait_for(uart, transmitter_empty, drain_wait_ns);
}

}  // namespace neap::x86::serial
