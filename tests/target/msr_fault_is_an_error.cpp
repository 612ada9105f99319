// SPDX-License-Identifier: BSL-1.0
// Access to an MSR that does not exist returns an error, on every core, and changes no register.
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/msr.hpp"
#include "tests/target/check.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  using namespace x86;
  using test::check;
  arguments.finish();
  for (unsigned core = 0; core < core_count(); ++core) {
    co_await on_core(core, [] {
      // This MSR follows the APIC's registers in x2APIC mode. It is reserved, so reading it faults on every CPU (SDM 3A, 11.12.1.2).
      constexpr std::uint32_t reserved_msr = 0x8ff;
      const double kept = static_cast<double>(test::hidden(3)) / 2 + core_count();
      if (features().x2apic) {
        const auto read = read_msr(reserved_msr);
        check(!read.has_value(), "reading a reserved MSR");
        check(read.error().code == ErrorCode::unsupported && read.error().detail == reserved_msr, "the error names it",
              read.error().detail);
        check(!write_msr(reserved_msr, 1).has_value(), "writing a reserved MSR");
      }
      const auto base = read_msr(msr_fs_base);
      check(base.has_value() && *base != 0, "an MSR that exists");
      check(write_msr(msr_fs_base, *base).has_value(), "writing an MSR that exists");
      check(kept == 1.5 + core_count(), "values in vector registers are kept");
    });
  }
  co_return 0;
}
