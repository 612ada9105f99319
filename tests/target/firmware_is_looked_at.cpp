// SPDX-License-Identifier: BSL-1.0
// The firmware may leave an IOMMU on, for DMA and interrupts. The kernel turns the IOMMU off when it examines the machine; a second
// examination changes nothing. With `iommu=on` the machine has an IOMMU (QEMU's model of Intel's), and the test turns it on like firmware.
#include <cstddef>

#include "kernel/x86/acpi.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/firmware/this_machine.hpp"
#include "kernel/x86/paging.hpp"
#include "tests/target/check.hpp"

namespace {

using namespace neap;
using test::check;

// Intel VT for Directed I/O, 11.4.
constexpr std::uint32_t global_command = 0x18, global_status = 0x1c, root_table = 0x20, interrupt_table = 0xb8;
constexpr std::uint32_t translation = 1U << 31, set_root_table = 1U << 30, interrupts = 1U << 25, set_interrupt_table = 1U << 24;

alignas(4096) std::byte empty_tables[2][4096];

class Unit {
 public:
  explicit Unit(volatile std::byte* page) : page_(page) {}
  [[nodiscard]] std::uint32_t status() const { return *reinterpret_cast<volatile std::uint32_t*>(page_ + global_status); }
  void table(std::uint32_t offset, const void* memory) {
    *reinterpret_cast<volatile std::uint64_t*>(page_ + offset) = machine::physical_address(memory);
  }
  void command(std::uint32_t kept, std::uint32_t bit) {
    *reinterpret_cast<volatile std::uint32_t*>(page_ + global_command) = kept | bit;
    for (unsigned i = 0; i < 1000 && !(status() & bit); ++i) x86::wait_ns(10'000);
    check(status() & bit, "the IOMMU takes a command", bit);
  }

 private:
  volatile std::byte* page_;
};

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const bool with_iommu = arguments.flag("iommu", false, "whether the machine has an Intel IOMMU");
  arguments.finish();
  const auto& units = x86::acpi::tables().remapping;
  check(units.count == (with_iommu ? 1U : 0U), "IOMMUs that ACPI lists", units.count);
  if (with_iommu) {
    const auto page = x86::paging::map(units.bases[0], 4096, x86::paging::Access::read_write, x86::paging::Cache::uncached);
    check(page.has_value(), "mapping the IOMMU");
    Unit unit(*page);
    check(!(unit.status() & (translation | interrupts)), "SeaBIOS leaves it off", unit.status());
    unit.table(root_table, empty_tables[0]);
    unit.command(0, set_root_table);
    unit.table(interrupt_table, empty_tables[1]);
    unit.command(0, set_interrupt_table);
    unit.command(0, translation);
    unit.command(translation, interrupts);
    print("left on");
    x86::firmware::check_machine();
    check(!(unit.status() & (translation | interrupts)), "the IOMMU is off", unit.status());
  }
  print("looked at");
  x86::firmware::check_machine();
  print("looked at again");
  co_return 0;
}
