# SPDX-License-Identifier: BSL-1.0
"""The layers of a request that Neap and Linux have in common, so that instructions of both are compared layer by layer.

Both systems have other functions, so a layer is defined by its work:

interrupt and scheduling   interrupts and exceptions, softirqs, event loop and scheduler, timers and clock, locks, RCU
driver                     the card's driver, and the mapping of memory for the card
network stack              frames to segments and back: Ethernet, IP, TCP, queueing; on Linux also allocation and copying in the kernel
socket or connection       bytes between the stack and the application: Neap's connections and buffers; Linux's system calls, sockets,
                           epoll, libevent, copies to and from user memory
application                memcached or NetPIPE, with the C library's functions that it calls
idle loop                  the way into sleep and back: the choice of a state, and its entry
other                      Neap's log and allocator; on Linux all that has no known layer

Neap's connections contain the usual path of TCP. So "socket or connection" of Neap has work that "network stack" of Linux has.
"""

from collections import Counter
from collections.abc import Sequence

from tools.model.profile import Profile

INTERRUPT = "interrupt and scheduling"
DRIVER = "driver"
STACK = "network stack"
SOCKET = "socket or connection"
APPLICATION = "application"
IDLE = "idle loop"
OTHER = "other"
LAYERS = (INTERRUPT, DRIVER, STACK, SOCKET, APPLICATION, IDLE, OTHER)

# The first prefix of a source file's path that matches names its layer.
NEAP: Sequence[tuple[str, str]] = (
    ("apps/", APPLICATION),
    ("kernel/siphash", APPLICATION),
    ("kernel/rcu", APPLICATION),
    ("kernel/spin_lock", APPLICATION),
    ("kernel/libc/", APPLICATION),
    ("kernel/idle", IDLE),
    ("kernel/poll_adaptation", IDLE),
    ("kernel/wake", IDLE),
    ("kernel/watched_line", IDLE),
    ("kernel/x86/power/", IDLE),
    ("kernel/memory/", OTHER),
    ("kernel/log", OTHER),
    ("observe/", OTHER),
    ("kernel/net_device", DRIVER),
    ("kernel/", INTERRUPT),
    ("drivers/", DRIVER),
    ("net/connection", SOCKET),
    ("net/buffer", SOCKET),
    ("net/", STACK),
    ("lwip/", STACK),
)


def of_file(file: str) -> str:
    """The layer of one of Neap's source files."""
    return next((layer for prefix, layer in NEAP if file.startswith(prefix)), OTHER)


def of_neap(profile: Profile) -> Counter[str]:
    """The instructions of Neap's profile by layer."""
    found: Counter[str] = Counter()
    for site, count in profile.instructions.items():
        found[of_file(site.file)] += count
    return found


def functions_of_neap(profile: Profile, layer: str) -> Counter[str]:
    """The instructions of one layer by function."""
    found: Counter[str] = Counter()
    for site, count in profile.instructions.items():
        if of_file(site.file) == layer:
            found[site.function] += count
    return found
