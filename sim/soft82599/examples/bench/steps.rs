// SPDX-License-Identifier: BSL-1.0
//! Counts instructions by single-stepping a child. The count is exact and reproducible, and needs no performance counters of the CPU, which
//! most virtual machines lack. A repeated string instruction counts once.

use std::os::raw::c_int;

/// At this number of steps, the count ends without a result. No benchmark takes so many steps.
const STEPS_MAX: u64 = 50_000_000;

/// Counts the instructions of `work` in a child process. Returns None if this machine does not allow tracing.
pub fn count(work: impl FnOnce()) -> Option<u64> {
    // SAFETY: the program has one thread, so the child may continue as an ordinary program; it ends by _exit.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                libc::_exit(1);
            }
            libc::raise(libc::SIGSTOP);
            std::arch::asm!("int3");
            work();
            std::arch::asm!("int3");
            libc::_exit(0);
        }
        if child < 0 {
            return None;
        }
        let result = follow(child);
        libc::kill(child, libc::SIGKILL);
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        result
    }
}

/// SAFETY: `child` MUST be a child of this process that has requested tracing, or has ended.
unsafe fn follow(child: libc::pid_t) -> Option<u64> {
    if stop_signal(child)? != libc::SIGSTOP || libc::ptrace(libc::PTRACE_CONT, child, 0, 0) != 0 || stop_signal(child)? != libc::SIGTRAP {
        return None;
    }
    let mut count = 0;
    let mut last = 0;
    for _ in 0..STEPS_MAX {
        if libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) != 0 || stop_signal(child)? != libc::SIGTRAP {
            return None;
        }
        let mut information: libc::siginfo_t = std::mem::zeroed();
        if libc::ptrace(libc::PTRACE_GETSIGINFO, child, 0, &mut information) != 0 {
            return None;
        }
        // The kernel's si_code for int3.
        const SI_KERNEL: c_int = 0x80;
        if information.si_code == SI_KERNEL {
            return Some(count);
        }
        let at = libc::ptrace(libc::PTRACE_PEEKUSER, child, std::mem::offset_of!(libc::user_regs_struct, rip), 0);
        count += u64::from(at != last);
        last = at;
    }
    None
}

/// SAFETY: `child` MUST be a child of this process.
unsafe fn stop_signal(child: libc::pid_t) -> Option<c_int> {
    let mut status = 0;
    (libc::waitpid(child, &mut status, 0) == child && libc::WIFSTOPPED(status)).then(|| libc::WSTOPSIG(status))
}
