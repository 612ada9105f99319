// SPDX-License-Identifier: BSL-1.0
// A device's registers are accessible wherever its BAR is placed, and its MSI-X messages reach the intended core. The devices are QEMU's:
// ivshmem, with memory as a BAR, and an e1000e, which raises an interrupt when a register is written.
#include <atomic>

#include "kernel/interrupts.hpp"
#include "kernel/pci.hpp"
#include "tests/target/check.hpp"

namespace {

using neap::test::check;

const neap::pci::Device* find(std::uint16_t vendor, std::uint16_t device) {
  for (const auto& candidate : neap::pci::devices()) {
    if (candidate.vendor_id == vendor && candidate.device_id == device) return &candidate;
  }
  return nullptr;
}

void check_memory_bar(const neap::pci::Device& device, bool above_4g) {
  device.enable(true);
  constexpr unsigned bar_of_memory = 2;
  const auto low = device.read_config(0x10 + bar_of_memory * 4, 4) & ~0xfU;
  const auto high = device.read_config(0x14 + bar_of_memory * 4, 4);
  check((high != 0) == above_4g, "where the firmware put the BAR", std::uint64_t{high} << 32 | low);
  const auto bar = device.map_bar(bar_of_memory);
  check(bar.has_value(), "mapped");
  auto* const words = reinterpret_cast<volatile std::uint64_t*>(bar->data());
  const auto last = bar->size() / 8 - 1;
  words[0] = 0x0123456789abcdef;
  words[last] = 0xfedcba9876543210;
  check(words[0] == 0x0123456789abcdef && words[last] == 0xfedcba9876543210, "the BAR keeps what is written", bar->size());
  const auto again = device.map_bar(bar_of_memory);
  check(again.has_value() && again->data() == bar->data() && again->size() == bar->size(), "mapped twice is mapped once");
  check(!device.map_bar(6).has_value() && !device.map_bar(5).has_value(), "a BAR that is not there is an error");
}

std::atomic<unsigned> arrived_on{~0U};

// Intel 82574 datasheet, 10.2.4: ICR (ones clear), ICS, IMS, IVAR. Here the cause "other" raises MSI-X vector 0.
constexpr std::size_t cause = 0xc0, cause_set = 0xc8, mask_set = 0xd0, vector_allocation = 0xe4;
constexpr std::uint32_t cause_other = 1 << 24, other_vector_0_valid = 1 << 19;

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const bool above_4g = arguments.flag("above_4g", false, "whether the memory BAR must lie above 4 GiB");
  arguments.finish();
  const auto* const shared_memory = find(0x1af4, 0x1110);
  check(shared_memory != nullptr, "ivshmem is found");
  check_memory_bar(*shared_memory, above_4g);
  check(shared_memory->msix_vectors() == 0 && !shared_memory->route_msix(0, 0, 0x40).has_value(), "no MSI-X there is an error");

  const auto* const card = find(0x8086, 0x10d3);
  check(card != nullptr, "e1000e is found");
  check(card->class_code == 2 && card->subclass == 0, "its class is Ethernet");
  check(card->msix_vectors() == 5, "its MSI-X vectors", card->msix_vectors());
  check(card->find_capability(0x10) != 0 && card->find_capability(0xee) == 0, "capabilities");
  card->enable(true);
  const auto registers = card->map_bar(0);
  check(registers.has_value() && registers->size() == 128 * 1024, "its registers");
  const auto write = [&](std::size_t offset, std::uint32_t value) {
    *reinterpret_cast<volatile std::uint32_t*>(registers->data() + offset) = value;
  };
  write(vector_allocation, other_vector_0_valid);
  write(mask_set, cause_other);
  for (unsigned core = 0; core < core_count(); ++core) {
    const auto vector = allocate_vector(core, [] { arrived_on.store(this_core()); });
    check(vector.has_value(), "a vector");
    check(card->route_msix(0, core, *vector).has_value(), "routed");
    arrived_on.store(~0U);
    write(cause_set, cause_other);
    for (unsigned i = 0; i < 500 && arrived_on.load() == ~0U; ++i) co_await sleep_for(std::chrono::milliseconds(10));
    check(arrived_on.load() == core, "the interrupt arrived on the core it was sent to", arrived_on.load());
    write(cause, cause_other);
    free_vector(core, *vector);
  }
  constexpr std::uint16_t cache_line_size = 0x0c;
  card->write_config(cache_line_size, 1, 16);
  check(card->read_config(cache_line_size, 1) == 16, "configuration can be written");
  check(!card->route_msix(99, 0, 0x40).has_value() && !card->route_msix(0, core_count(), 0x40).has_value(), "bad routes are errors");
  co_return 0;
}
