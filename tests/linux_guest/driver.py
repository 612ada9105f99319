# SPDX-License-Identifier: BSL-1.0
"""Steps for tests of Linux's driver in the guest: bring it up, read its counters, check for complaints."""

import os
import re

from .guest import LinuxGuest

# `./neap soak` runs the same tests for longer, on Debian 13's kernel.
SOAKING = "NEAP_SOAK_SECONDS" in os.environ

# A script that loads the driver and brings the link up, from any initial state. Every test starts with it. If there is no link, its output
# tells which side did not notice: the card (LINKS), its interrupt (EICR, EIMS, lsc_int), or the driver's task.
LINK_UP = """
modprobe ixgbe && ip link set eth0 up || exit 1
for i in $(seq 900); do [ "$(cat /sys/class/net/eth0/carrier)" = 1 ] && break; sleep 0.1; done
[ "$(cat /sys/class/net/eth0/carrier)" = 1 ] || {
  echo "no link after 90 s"
  dmesg | tail -n 30
  ethtool -d eth0 | grep -E "^0x.*(LINKS|EICR|EIMS|EIAC|EIAM|GPIE|ESDP|AUTOC|STATUS) "
  ethtool -S eth0 | grep -E "lsc_int|tx_timeout"
  grep -E "CPU|eth0" /proc/interrupts
  for task in /proc/[0-9]*; do grep -q ixgbe $task/stack && cat $task/comm $task/stack; done 2>/dev/null
  exit 1
}
"""
# The limit for scripts that bring the driver up or wait for an answer. A busy host repeatedly stops a guest for seconds.
PATIENT_SECONDS = 240


def reached(host: str, options: str = "") -> str:
    """Returns a script that succeeds as soon as `host` answers a ping, within about a minute. A single request may be lost, because ARP
    resolution times out if a machine stops for seconds."""
    tries = f"for i in $(seq 30); do ping -c 1 -W 2 {options} {host} >/tmp/ping && break; done"
    return f"rm -f /tmp/ping; {tries}; grep ' 0% packet loss' /tmp/ping"


BRING_UP = (
    LINK_UP
    + """
ip addr show eth0 | grep -q 'inet 10.0.2.15' || udhcpc -n -q -t 10 -T 3 -s /etc/udhcpc.script -i eth0
ip addr show eth0 | grep -q 'inet 10.0.2.15'
"""
)
PING = reached("10.0.2.2")
LISTEN_PORT = 5001
TRAFFIC_PORT = 5010
SERVE = f"pidof traffic >/dev/null || {{ setsid traffic serve {TRAFFIC_PORT} >/tmp/traffic.log 2>&1 & sleep 0.3; }}"

# Messages of a kernel with a serious problem, whatever its cause.
ALARMS = re.compile("BUG:|WARNING:|Call Trace|Oops:|NETDEV WATCHDOG|nobody cared|self-detected stall|soft lockup|Tx Unit Hang|DMAR:.*fault")
# Complaints about an emulated machine on a busy host. They vary from boot to boot, with and without a card.
BUSY_HOST = re.compile(
    "tsc|TSC|clocksource|Unstable clock|trace_clock|local clock|hrtimer|hpet|calibrat|perf: interrupt took|workqueue:|^( *#[0-9]+)+$"
)
WARNING = 4
# ixgbe resets the card if the link goes down while frames wait in its rings. It logs the reason for the reset, and the reset. Any other
# cause of a reset has another message. For `known` of `complaints`.
LINK_LOST = frozenset({"ixgbe N:N:N.N ethN: initiating reset to clear Tx work after link loss", "ixgbe N:N:N.N ethN: Reset adapter"})


def complaints(guest: LinuxGuest, known: frozenset[str] = frozenset()) -> list[str]:
    """Returns all alarms in the kernel's log, and the warnings and worse messages about the driver or its device. Leaves out `known`."""
    found = []
    for severity, line in _log(guest):
        about_card = severity <= WARNING and re.search("ixgbe|eth0|0000:00:0[12]", line)
        if (ALARMS.search(line) or about_card) and comparable(line) not in known:
            found.append(line)
    return found


def alarms(guest: LinuxGuest) -> list[str]:
    return [line for _, line in _log(guest) if ALARMS.search(line)]


def warnings(guest: LinuxGuest) -> frozenset[str]:
    """Returns all warnings and worse messages of the kernel, in a form that can be compared with another boot."""
    return frozenset(comparable(line) for severity, line in _log(guest) if severity <= WARNING and not BUSY_HOST.search(line))


def comparable(line: str) -> str:
    """Returns a line of the kernel's log without the parts that differ from boot to boot."""
    return re.sub(r"\d+", "N", line).strip()


def _log(guest: LinuxGuest) -> list[tuple[int, str]]:
    """Returns (severity, text) of each line of the kernel's log."""
    rows = re.findall(r"^<(\d+)>\[[^\]]*\] ?(.*)$", guest.output_of("dmesg -r", seconds=60), re.MULTILINE)
    return [(int(level) & 7, text) for level, text in rows]


def fields(text: str) -> dict[str, str]:
    """Returns 'name: value' lines as a dictionary."""
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def statistics(guest: LinuxGuest) -> dict[str, int]:
    return {name: int(value) for name, value in fields(guest.output_of("ethtool -S eth0")).items() if value.isdigit()}


def register(guest: LinuxGuest, name: str) -> int:
    dump = guest.output_of(f"ethtool -d eth0 | grep -w {name}")
    match = re.search(r"0x([0-9A-Fa-f]{8})\s*$", dump.splitlines()[0])
    assert match, dump
    return int(match[1], 16)


def self_test(guest: LinuxGuest, kind: str) -> dict[str, int]:
    """Runs the driver's own test of the card (`online` or `offline`), which must pass. Returns the result of each line, 0 for passed."""
    output = guest.output_of(f"ethtool -t eth0 {kind}", seconds=120)
    assert "The test result is PASS" in output, output
    return {name: int(value) for name, value in re.findall(r"^(\w+) test\s+\([^)]*\)\s+(\d+)$", output, re.MULTILINE)}


SELF_TEST_PASSED = dict.fromkeys(("Register", "Eeprom", "Interrupt", "Loopback", "Link"), 0)


def start_listening(guest: LinuxGuest, port: int, command: str) -> int:
    """Starts an `nc` in the guest's background, waits until it listens, and returns its process id."""
    script = f"{command} & pid=$!; for i in $(seq 100); do netstat -ltn | grep -q ':{port} ' && break; sleep 0.1; done; echo $pid"
    return int(guest.output_of(script).splitlines()[-1])
