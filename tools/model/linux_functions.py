# SPDX-License-Identifier: BSL-1.0
"""The layer of each function of Linux's kernel, by its name.

Debian's package with the kernel's debug information has 855 MB, so names are the only evidence here. Linux's functions have the prefix of
their subsystem in most cases. The rows below are tried in order, and the first one that matches the beginning of a name holds. A function
without a row has the layer of its neighbours: the linker leaves the functions of a source file side by side, so a function between two of
one layer belongs to that layer (linux_profile.py).

The kernel's allocator, lists and memory functions count as network stack. In a request's path they serve socket buffers and their queues.
"""

import functools
import re
from collections.abc import Sequence

from tools.model.layers import DRIVER, IDLE, INTERRUPT, SOCKET, STACK

# Prefixes and suffixes that say how a function is called or was compiled.
PREFIX = re.compile(r"^(?:__pfx_|__x64_sys_|__ia32_sys_|__se_sys_|__do_sys_|__traceiter_|__SCT__|__SCK__)?_*(?:native_)?_*")
SUFFIX = re.compile(r"\.(?:constprop|isra|part|cold|llvm|lto_priv).*$")

# Names of a row are separated by blanks. Each is a regular expression for the beginning of a name.
ROWS: Sequence[tuple[str, str]] = (
    (
        IDLE,
        "do_idle$ cpu_startup_entry cpu_idle cpuidle menu_ teo_ ladder_ haltpoll intel_idle mwait_idle default_idle "
        "arch_cpu_idle poll_idle tick_nohz_idle tick_nohz_get_sleep tick_nohz_get_next tick_nohz_tick_stopped tick_nohz_stop "
        "tick_nohz_next tick_nohz_restart tick_nohz_retain tick_nohz_update_jiffies tick_nohz_start_idle ct_idle ct_kernel_exit "
        "ct_kernel_enter ct_cpuidle rcu_idle rcu_eqs rcu_dynticks rcu_needs_cpu rcu_prepare_for_idle schedule_idle "
        "pick_next_task_idle set_next_task_idle put_prev_task_idle dequeue_task_idle balance_idle nohz_ quiet_vmstat "
        "refresh_cpu_vm_stats need_update tick_sched_do_idle can_stop_idle get_typical_interval performance_multiplier "
        "get_next_timer_interrupt next_timer_interrupt get_next_event hrtimer_get_next hrtimer_next_event idle_ sched_idle "
        "timer_clear_idle cpu_latency_qos local_touch_nmi leave_mm flush_smp_call_function_queue sched_ttwu_pending "
        "update_ts_time_stats",
    ),
    (
        DRIVER,
        "ixgbe mdio dma_ iommu_ swiotlb is_swiotlb dql_ pci_ msix_ msi_set msi_domain phys_addr_ok check_addr page_frag_ "
        "page_pool netdev_tx_completed debug_dma",
    ),
    (
        SOCKET,
        "entry_SYS entry_INT80 do_syscall syscall_ x64_sys_call sys_ ksys_ exit_to_user arch_exit_to do_int80 fpregs_assert fpregs_restore "
        "switch_fpu_return irqentry_exit_to_user ep_ epoll eventpoll do_epoll reverse_path poll_ eventfd anon_inode sock_ "
        "sockfd_ sys_send sys_recv move_addr import_ iovec_ copy_msghdr copy_iovec scm_ sk_wait inet_sendmsg inet_recvmsg "
        "inet_send inet_accept inet_stream socket_ sendmsg recvmsg get_compat security_ apparmor aa_ tomoyo cap_ selinux smack "
        "bpf_lsm yama_ landlock lockdown fsnotify call_fsnotify vfs_ new_sync rw_verify file_ fput fget fdget f_ alloc_fd "
        "close_fd get_unused ____fput task_work iov_iter copy_from_iter copy_to_iter copy_user copy_from_user copy_to_user "
        "rep_movs rep_stos clear_user strncpy_from check_object_size check_stack_object check_heap_object check_kernel_text "
        "usercopy virt_addr_valid is_vmalloc skb_copy_datagram skb_datagram skb_copy_and simple_copy csum_and_copy "
        "hash_and_copy get_user put_user tcp_poll tcp_stream_memory_free tcp_check_space select_estimate get_task_ioprio "
        "write_iter read_iter do_iter kernel_read kernel_write pipe_ futex plist_ hash_futex get_futex",
    ),
    (
        STACK,
        "tcp tcpv4 bictcp cubictcp bbr_ ip_ ip4_ ip6_ ipv4 ipv6 inet_ inet6 inetpeer in_dev in6_ net_ netif netdev dev_ napi "
        "gro_ skb sk_ udp icmp arp neigh fib rt_ dst_ route_ raw_local raw_v4 raw_rcv raw_icmp eth_ ether vlan bridge br_ "
        "packet_ tpacket nf_ nft_ xt_ qdisc fq_ pfifo sch_ dequeue_skb sch_direct gso validate_xmit xfrm flow_ proto_ ptype_ "
        "deliver_skb enqueue_to_backlog get_rps rps_ xps_ bpf_skops bpf_prog_run bpf_prog cgroup_bpf mem_cgroup memcg "
        "obj_cgroup secure_ siphash csum_ do_csum ping_ lock_sock release_sock consume_skb build_skb alloc_skb kfree_skb "
        "copy_skb reqsk req_ mini_qdisc tc_ tcf_ linkwatch mld_ igmp ndisc addrconf rtnl rtnetlink kmem_ kmalloc kfree krealloc "
        "ksize slab ___slab new_slab get_partial get_freelist put_cpu_partial unfreeze_partials deactivate_slab cache_from_obj "
        "cmpxchg_double memcpy memset memmove memcmp list_ rb_ rhash rht_ alloc_pages get_page rmqueue free_pages free_unref "
        "free_pcp page_frag put_page folio_put zone_ prep_new_page post_alloc compound_ kvmalloc kvfree vmalloc should_failslab "
        "mod_memcg mod_node mod_objcg refill_obj drain_obj charge_ try_charge page_counter fdb_ sockmap sock_map prandom "
        "get_random siphash clear_page discard_slab allocate_slab setup_object free_slab page_cache free_swap free_one_page "
        "free_pcppages uncharge",
    ),
    (
        INTERRUPT,
        "ct_nmi ct_irq rseq_ smpboot enter_lazy blkcg_maybe asm_ common_interrupt sysvec_ irq_ irqentry handle_ generic_handle "
        "note_interrupt apic_ x2apic ack_ do_softirq softirq entry_ error_ ret_from swapgs paranoid idtentry exc_ call_on_irq "
        "restore_regs return_to_ rcu_ call_rcu srcu note_gp local_bh tasklet raise_softirq invoke_softirq wakeup_softirqd "
        "run_ksoftirqd run_timer expire_timers call_timer mod_timer del_timer timer_ timerqueue hrtimer add_timer internal_add "
        "enqueue_timer detach_ lock_hrtimer lock_timer calc_wheel next_expiry get_nohz usecs_to msecs_to nsecs_to jiffies tick_ "
        "ktime timekeeping clock read_tsc sched_clock lapic clockevents lapic_next update_wall update_process update_vsyscall "
        "ntp_ posix_cpu run_posix account_ cputime irqtime vtime update_rq update_load update_cfs update_curr update_dl "
        "update_rt update_blocked update_irq update_min update_other schedule sched_ pick_ put_prev set_next finish_task "
        "prepare_task context_switch switch_ enqueue_ dequeue_ check_preempt wakeup_preempt place_ reweight try_to_wake ttwu "
        "wake_up wake_ default_wake autoremove select_task select_idle available_idle cpus_share_cache newidle load_balance "
        "rebalance find_ psi_ resched cond_resched preempt_ dynamic_ migrate_ set_cpu load_new_mm mm_cid kthread worker_ "
        "process_one queue_work delayed_work insert_work get_work wq_ pwq_ pool_ complete swake prepare_to finish_wait add_wait "
        "remove_wait init_wait woken_ raw_spin raw_read raw_write spin_ read_lock write_lock mutex up_ down_ rwsem osq_ queued_ "
        "pv_ _lock_ percpu_ rwlock lock_ unlock_ smp_ generic_smp flush_smp llist csd_ arch_ cpumask trigger_load add_interrupt "
        "fast_mix mix_interrupt intel_pstate intel_cpufreq cpufreq sugov get_next_freq map_util effective_cpu schedutil "
        "scale_freq arch_scale perf_ x86_pmu intel_pmu entity_ cfs_ rt_rq dl_ hrtick vruntime calc_delta div_ div64 mul_ decay_ "
        "accumulate_ cpuacct cgroup_ cpu_cgroup cpu_util cpu_load calc_load calc_global task_ ___update avg_ attach_ nanosleep "
        "do_nanosleep bitmap_ find_next find_first save_fpregs x86_task tick save_fpu __fdget fpu exit_mm entry notifier "
        "atomic_notifier raw_notifier blocking_notifier static_call trace_ ftrace hw_ irqd irqs",
    ),
)


@functools.cache
def _compiled() -> list[tuple[str, re.Pattern[str]]]:
    # The names' prefixes of ROWS are cut as those of the functions are.
    return [(layer, re.compile("|".join(f"(?:{PREFIX.sub('', word)})" for word in words.split()))) for layer, words in ROWS]


@functools.cache
def layer_by_name(function: str) -> str | None:
    """The layer of a kernel function whose name is known."""
    name = PREFIX.sub("", SUFFIX.sub("", function))
    return next((layer for layer, pattern in _compiled() if pattern.match(name)), None)
