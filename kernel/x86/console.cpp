// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/console.hpp"

#include <atomic>
#include <span>
#include <string_view>

#include "kernel/boot_log.hpp"
#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/serial.hpp"
#include "kernel/x86/vga.hpp"

namespace neap::x86::console {

namespace {

constexpr std::uint64_t line_wait_ns = 200'000'000;  // longest wait for a line of another core

constinit EarlyOptions chosen{};
constinit std::atomic<bool> opened{false}, held{false}, broken{false};

void write_devices(std::string_view text) {
  serial::write(text);
  vga::write(text);
}

void write(std::string_view text) {
  if (!opened.load()) return;
  bool locked = false;
  if (!broken.load()) {
    const WaitLimit limit(line_wait_ns);
    while (!(locked = !held.exchange(true, std::memory_order_acquire))) {
      if (broken.load() || limit.passed()) break;
      pause();
    }
  }
  write_devices(text);
  if (locked) held.store(false, std::memory_order_release);
}

void write_boot_log() {
  char lines[1024];
  for (std::uint64_t next = 0;;) {
    const auto part = boot_log::read(next, lines);
    if (part.bytes == 0) return;
    write_devices({lines, part.bytes});
    next = part.first + part.bytes;
  }
}

}  // namespace

void open(const EarlyOptions& options) {
  require(!opened.load(), "console::open called twice");
  chosen = options;
  for (const SerialPort& port : std::span(options.serial).first(options.serial_count)) {
    if (!serial::open(port)) print("neap: there is no UART at ", hex(port.port));
  }
  if (options.vga && !vga::open()) print("neap: there is no screen in text mode (UEFI leaves it in graphics)");
  write_boot_log();
  opened.store(true);
}

const EarlyOptions& options() { return chosen; }
void use_new_tables() { vga::use_new_tables(); }
void drain() { serial::drain(); }

void break_lock() {
  broken.store(true);
  boot_log::break_lock();
  // If no device was opened yet, the panic is shown on the devices that most machines have.
  if (!opened.load()) open(EarlyOptions{});
}

}  // namespace neap::x86::console

namespace neap::machine {

void console_write(std::string_view text) noexcept {
  boot_log::append(text);
  x86::console::write(text);
}

}  // namespace neap::machine
