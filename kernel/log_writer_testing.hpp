// SPDX-License-Identifier: BSL-1.0
// For tests of one core's log: a writer with a ring, a card's traffic and a clock that stands still.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "kernel/log_writer.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::log {

constexpr std::uint64_t boot_ns = 1'000'000'000;

template <class Struct>
Struct as(const Record& entry) {
  return std::bit_cast<Struct>(entry);
}

inline std::vector<Record> entries_of(const Ring& ring) {
  const Extent extent = ring.extent();
  std::vector<Record> entries(static_cast<std::size_t>(extent.end - extent.first));
  EXPECT_EQ(ring.read(extent.first, entries), entries.size());
  return entries;
}

inline bool is_ordinary(const Record& entry) { return entry.kind >= 1 && entry.kind <= 5; }

struct Sums {
  std::uint64_t rx_descriptors = 0, rx_frames = 0, rx_bytes = 0, tx_descriptors = 0, tx_frames = 0, tx_bytes = 0;
  std::uint64_t control_rx_frames = 0, control_rx_bytes = 0, control_tx_frames = 0, control_tx_bytes = 0;
  std::uint64_t idle_entries = 0, idle_ticks = 0;
  bool operator==(const Sums&) const = default;
};
inline Sums sums_of(const std::vector<Record>& entries) {
  Sums sums;
  for (const Record& entry : entries) {
    if (!is_ordinary(entry)) continue;
    sums.rx_descriptors += entry.rx_descriptors;
    sums.rx_frames += entry.rx_frames;
    sums.rx_bytes += entry.rx_bytes;
    sums.tx_descriptors += entry.tx_descriptors;
    sums.tx_frames += entry.tx_frames;
    sums.tx_bytes += entry.tx_bytes;
    sums.control_rx_frames += entry.control_rx_frames;
    sums.control_rx_bytes += entry.control_rx_bytes;
    sums.control_tx_frames += entry.control_tx_frames;
    sums.control_tx_bytes += entry.control_tx_bytes;
    sums.idle_entries += entry.idle_entries;
    sums.idle_ticks += entry.idle_ticks;
  }
  return sums;
}

struct LogWriterTest : testing::Test {
  explicit LogWriterTest(std::uint64_t entries = 128) : memory(entries), ring(memory.data(), entries) {
    subject.use(&ring);
    subject.watch(&traffic);
  }
  ~LogWriterTest() override {
    host::set_power_abilities({});
    host::set_counters(0, {});
  }

  void can_count(std::uint16_t counters) {
    host::set_power_abilities({.counters = counters});
    const auto if_there = [counters](std::uint16_t counter, std::uint32_t value) { return (counters & counter) != 0 ? value : 0; };
    host::set_counters(0, {.present = counters,
                           .package_energy = if_there(counter::package_energy, 0x01020304),
                           .dram_energy = if_there(counter::dram_energy, 0x05060708),
                           .instructions = if_there(counter::instructions, 1'000'000),
                           .cycles = if_there(counter::cycles, 2'000'000),
                           .reference_cycles = if_there(counter::reference_cycles, 3'000'000),
                           .llc_misses = if_there(counter::llc_misses, 4'000),
                           .core_c3 = if_there(counter::core_c3, 3),
                           .core_c6 = if_there(counter::core_c6, 6),
                           .core_c7 = if_there(counter::core_c7, 7),
                           .package_c2 = if_there(counter::package_c2, 12),
                           .package_c3 = if_there(counter::package_c3, 13),
                           .package_c6 = if_there(counter::package_c6, 16),
                           .package_c7 = if_there(counter::package_c7, 17)});
  }
  void pass(std::uint64_t frames) {
    traffic.rx_descriptors.add(frames);
    traffic.rx_frames.add(frames);
    traffic.rx_bytes.add(100 * frames);
  }

  /// Ends the run; returns its entries.
  std::vector<Record> ended(const RunPlan& plan = {}) {
    subject.end(plan);
    return entries_of(ring);
  }

  // The host's TSC counts nanoseconds.
  host::ManualClock clock{boot_ns};
  std::vector<Entry> memory;
  Ring ring;
  Traffic traffic;
  Writer subject;
};

}  // namespace neap::log
