// SPDX-License-Identifier: BSL-1.0
// A two-wire bus (I2C) driven bit by bit.
//
// A pluggable module is identified over such a bus, and many cards only let the driver set and read the bus's two lines. The lines are open
// drain: writing a 1 releases the line. This class is the only master and clocks the bus at 100 kHz or less. Reading a byte busy-waits for
// 0.3 ms.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernel/machine.hpp"
#include "kernel/timer.hpp"

namespace neap {

/// `Lines` has `drive(clock, data)`, which returns when the lines are set, and `data()`, which returns the state of the data line.
template <class Lines>
class TwoWireBus {
 public:
  explicit TwoWireBus(Lines lines) noexcept : lines_(lines) {}

  /// Reads one byte of the device at `address` (the 7-bit address, shifted left by one). Returns false if no device acknowledged.
  [[nodiscard]] bool read(std::uint8_t address, std::uint8_t offset, std::uint8_t& value) const noexcept {
    start();
    bool answered = write_byte(address) && write_byte(offset);
    if (answered) {
      start();
      answered = write_byte(address | 1);
    }
    if (answered) {
      value = 0;
      for (unsigned bit = 0; bit < 8; ++bit) value = static_cast<std::uint8_t>(value << 1 | (clock_bit(true) ? 1 : 0));
      (void)clock_bit(true);  // no acknowledgement: this was the last byte
    }
    stop();
    return answered;
  }

 private:
  static constexpr std::chrono::nanoseconds half_period{5'000};

  void set(bool clock, bool data) const noexcept {
    lines_.drive(clock, data);
    for (const auto end = BootClock::now() + half_period; BootClock::now() < end;) machine::pause();
  }
  void start() const noexcept {
    set(false, true);
    set(true, true);
    set(true, false);
    set(false, false);
  }
  void stop() const noexcept {
    set(false, false);
    set(true, false);
    set(true, true);
  }
  /// Makes one clock cycle with `data` on the line; returns the line's state during the cycle.
  bool clock_bit(bool data) const noexcept {
    set(false, data);
    set(true, data);
    const bool seen = lines_.data();
    set(false, data);
    return seen;
  }
  /// True if the byte was acknowledged (the line pulled to zero in the ninth clock).
  bool write_byte(std::uint8_t byte) const noexcept {
    for (unsigned bit = 8; bit-- > 0;) (void)clock_bit((byte >> bit & 1) != 0);
    return !clock_bit(true);
  }

  Lines lines_;
};

}  // namespace neap
