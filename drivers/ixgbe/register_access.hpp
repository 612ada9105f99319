// SPDX-License-Identifier: BSL-1.0
// Register access.
//
// Every access names the register and its fields from the generated table; no other code in the driver uses an offset. A read costs a round
// trip over PCIe (about a microsecond), so no register is read for a frame. A write is posted and ordered after all earlier stores, as a
// tail write requires.
//
// The registers are at a plain address, so that host tests can use ordinary memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ixgbe/registers.hpp"
#include "kernel/error.hpp"
#include "kernel/panic.hpp"
#include "kernel/task.hpp"

namespace neap::ixgbe {

class Registers {
 public:
  static constexpr std::size_t bytes = 128 * 1024;

  Registers() = default;
  /// `bar` is BAR 0. It MUST be at least `bytes` long.
  explicit Registers(std::span<volatile std::byte> bar) noexcept : base_(bar.data()) {
    require(bar.size() >= bytes, "ixgbe: BAR 0 is too small", bar.size());
  }

  template <class Value>
  [[nodiscard]] Value read(reg::Location<Value> where) const noexcept {
    return Value::from_raw(__atomic_load_n(place(where.offset), __ATOMIC_ACQUIRE));
  }

  /// Stores before this call in program order are visible to the card before the register changes.
  template <class Value>
  void write(reg::Location<Value> where, std::type_identity_t<Value> value) const noexcept {
    __atomic_store_n(place(where.offset), value.raw(), __ATOMIC_RELEASE);
  }

  /// Reads the register, lets `change(value)` change fields, and writes the value back. Bits without a name keep their values.
  template <class Value, class Change>
  void modify(reg::Location<Value> where, Change change) const noexcept {
    Value value = read(where);
    change(value);
    write(where, value);
  }

  /// Returns when earlier writes have reached the card (PCIe orders a read after posted writes).
  void flush() const noexcept { (void)read(reg::STATUS); }

  /// True if the card is gone or hangs. Every read then returns all ones; STATUS of a working card never reads as all ones.
  [[nodiscard]] bool card_gone() const noexcept { return read(reg::STATUS).raw() == all_ones; }

  static constexpr std::uint32_t all_ones = ~std::uint32_t{0};

 private:
  [[nodiscard]] volatile std::uint32_t* place(std::uint32_t offset) const noexcept {
    return reinterpret_cast<volatile std::uint32_t*>(base_ + offset);
  }
  volatile std::byte* base_ = nullptr;
};

constexpr Error card_gone_error{.code = ErrorCode::closed, .message = "ixgbe: card is gone, its registers read all ones"};

/// Reads a register every `interval` until `ready(value)` is true. `message`, the error's text, names the register and the missing event.
/// Errors: `timeout` (detail: the last value read), `closed` (card gone).
template <class Value, class Ready>
task<Result<void>> wait_for(Registers registers, reg::Location<Value> where, Ready ready, std::chrono::nanoseconds time_out,
                            const char* message, std::chrono::nanoseconds interval = std::chrono::microseconds{100}) {
  const auto deadline = BootClock::now() + time_out;
  for (;;) {
    // The clock is read before the register, so that a core that was delayed past the deadline reads the register once more.
    const bool late = BootClock::now() >= deadline;
    const Value value = registers.read(where);
    if ((late || value.raw() == Registers::all_ones) && registers.card_gone()) co_return std::unexpected(card_gone_error);
    if (ready(value)) co_return Result<void>{};
    if (late) co_return failure(ErrorCode::timeout, message, value.raw());
    co_await sleep_for(interval);
  }
}

}  // namespace neap::ixgbe
