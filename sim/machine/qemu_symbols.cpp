// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/qemu_symbols.hpp"

#include <dlfcn.h>

namespace neap::model::qemu {

Symbols q;

namespace {

struct Named {
  const char* name;
  void* place;  // of a pointer
};

const Named all[] = {
    {"qmp_query_version", &q.qmp_query_version},
    {"cpus_get_accel", &q.cpus_get_accel},
    {"icount_get", &q.icount_get},
    {"icount_update", &q.icount_update},
    {"icount_handle_interrupt", &q.icount_handle_interrupt},
    {"bql_locked", &q.bql_locked},
    {"bql_lock_impl", &q.bql_lock_impl},
    {"bql_unlock", &q.bql_unlock},
    {"qemu_in_vcpu_thread", &q.qemu_in_vcpu_thread},
    {"qemu_get_cpu", &q.qemu_get_cpu},
    {"cpu_has_work", &q.cpu_has_work},
    {"cpu_exit", &q.cpu_exit},
    {"cpu_resume", &q.cpu_resume},
    {"cpu_single_step", &q.cpu_single_step},
    {"cpu_set_interrupt", &q.cpu_set_interrupt},
    {"cpu_reset_interrupt", &q.cpu_reset_interrupt},
    {"cpu_restore_state", &q.cpu_restore_state},
    {"cpu_loop_exit", &q.cpu_loop_exit},
    {"cpu_loop_exit_noexc", &q.cpu_loop_exit_noexc},
    {"cpu_loop_exit_restore", &q.cpu_loop_exit_restore},
    {"helper_pause", &q.helper_pause},
    {"helper_hlt", &q.helper_hlt},
    {"x86_cpu_exec_interrupt", &q.x86_cpu_exec_interrupt},
    {"breakpoint_handler", &q.breakpoint_handler},
    {"qemu_system_debug_request", &q.qemu_system_debug_request},
    {"qemu_clock_deadline_ns_all", &q.qemu_clock_deadline_ns_all},
    {"qemu_clock_run_timers", &q.qemu_clock_run_timers},
    {"timer_init_full", &q.timer_init_full},
    {"timer_mod_ns", &q.timer_mod_ns},
    {"timer_del", &q.timer_del},
    {"object_resolve_path_type", &q.object_resolve_path_type},
    {"msix_notify", &q.msix_notify},
    {"address_space_map", &q.address_space_map},
    {"address_space_unmap", &q.address_space_unmap},
    {"qemu_plugin_translate_vaddr", &q.qemu_plugin_translate_vaddr},
    {"timers_state", &q.timers_state},
    {"x86_tcg_ops", &q.x86_tcg_ops},
    {"vfio_user_device_io_ops_sock", &q.vfio_user_device_io_ops_sock},
    {"address_space_memory", &q.address_space_memory},
};

}  // namespace

const char* find_symbols() {
  for (const Named& one : all) {
    void* const found = dlsym(RTLD_DEFAULT, one.name);
    if (found == nullptr) return one.name;
    *static_cast<void**>(one.place) = found;
  }
  return nullptr;
}

}  // namespace neap::model::qemu
