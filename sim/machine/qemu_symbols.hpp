// SPDX-License-Identifier: BSL-1.0
// QEMU's functions and tables that the parts of qemu.hpp use, found by name in the running program.
//
// They are looked up and not linked, because a plugin with an unknown symbol is refused by the loader, in words that explain nothing.
#pragma once

#include <cstdint>

namespace neap::model::qemu {

struct Cpu;  // QEMU's CPUState

struct Symbols {
  void* (*qmp_query_version)(void** error);
  void* (*cpus_get_accel)();
  std::int64_t (*icount_get)();
  void (*icount_update)(Cpu*);
  void (*icount_handle_interrupt)(Cpu*, int mask);
  bool (*bql_locked)();
  void (*bql_lock_impl)(const char* file, int line);
  void (*bql_unlock)();
  bool (*qemu_in_vcpu_thread)();
  Cpu* (*qemu_get_cpu)(int index);
  bool (*cpu_has_work)(Cpu*);
  void (*cpu_exit)(Cpu*);
  void (*cpu_resume)(Cpu*);
  void (*cpu_single_step)(Cpu*, int flags);
  void (*cpu_set_interrupt)(Cpu*, int mask);
  void (*cpu_reset_interrupt)(Cpu*, int mask);
  bool (*cpu_restore_state)(Cpu*, std::uintptr_t host_address);
  [[noreturn]] void (*cpu_loop_exit)(Cpu*);
  [[noreturn]] void (*cpu_loop_exit_noexc)(Cpu*);
  [[noreturn]] void (*cpu_loop_exit_restore)(Cpu*, std::uintptr_t host_address);
  [[noreturn]] void (*helper_pause)(void* registers);
  [[noreturn]] void (*helper_hlt)(void* registers);
  bool (*x86_cpu_exec_interrupt)(Cpu*, int request);
  void (*breakpoint_handler)(Cpu*);
  void (*qemu_system_debug_request)();
  std::int64_t (*qemu_clock_deadline_ns_all)(int clock, int attributes);
  bool (*qemu_clock_run_timers)(int clock);
  void (*timer_init_full)(void* timer, void* group, int clock, int scale, int attributes, void (*expired)(void*), void* data);
  void (*timer_mod_ns)(void* timer, std::int64_t at_ns);
  void (*timer_del)(void* timer);
  void* (*object_resolve_path_type)(const char* path, const char* type, bool* ambiguous);
  void (*msix_notify)(void* device, unsigned vector);
  void* (*address_space_map)(void* space, std::uint64_t address, std::uint64_t* bytes, bool write, std::uint64_t attributes);
  void (*address_space_unmap)(void* space, void* mapped, std::uint64_t bytes, bool write, std::uint64_t accessed);
  bool (*qemu_plugin_translate_vaddr)(std::uint64_t address, std::uint64_t* physical);
  void *timers_state, *x86_tcg_ops, *vfio_user_device_io_ops_sock, *address_space_memory;
};

extern Symbols q;

/// Fills `q`. Null, or the name of the first symbol that this program does not have.
[[nodiscard]] const char* find_symbols();

}  // namespace neap::model::qemu
