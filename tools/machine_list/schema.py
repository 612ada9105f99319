# SPDX-License-Identifier: BSL-1.0
"""The members of a machine list: the facts that decide whether two measurements may be compared.

Two machines with equal settings may still differ: in microcode, in the C-states that firmware allows, in the threads that are on. Neap and
Linux report these facts in different places and in different words. So both write one list, with the names of this table. A member that a
system does not know is absent. Neap's list is written by `observe/machine_list.cpp`, Linux's by `tools/linux_log/machine_list.c`;
docs/machine-list.md has this table for readers, and a test compares it.

A list is a flat JSON object. Units are in the names. A member that differs between cores is a list with one element for each core.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Weight(enum.Enum):
    """The effect of a difference between two lists."""

    FORBIDS = "forbids"  # the machines differ: figures of the two runs must not be compared
    SETTING = "setting"  # the settings differ: figures may be compared only as an effect of this setting
    SYSTEM = "system"  # the value differs between systems by nature


@dataclass(frozen=True)
class Member:
    """One row. `kind` is the JSON type: text, number, flag, or list (of texts). `tolerance` is the relative difference of two numbers
    that counts as equal. `why` is the reason why a difference matters."""

    name: str
    kind: str
    weight: Weight
    meaning: str
    linux: str
    neap: str
    why: str
    tolerance: float = 0.0


FORBIDS, SETTING, SYSTEM = Weight.FORBIDS, Weight.SETTING, Weight.SYSTEM
ABSENT = "-"

GROUPS: dict[str, tuple[Member, ...]] = {
    "system": (
        Member("system", "text", SYSTEM, "`neap` or `linux`", "constant", "constant", "two systems are compared"),
        Member("system_version", "text", SYSTEM, "version", "uname, release", "version of the image", "another kernel is another program"),
        Member("system_build", "text", SYSTEM, "commit, kind of build, compiler", "uname, version", "commit and build of the image",
               "another build is another program"),
        Member("command_line", "text", SYSTEM, "command line, secrets as `***`", "`/proc/cmdline`", "words of the boot loader",
               "its words set limits and policies"),
        Member("clock", "text", FORBIDS, "`metal`, `modelled`, or the hypervisor's name", "CPUID 1, 40000000h, 4e656170h",
               "the same leaves",
               "time and power of a modelled or emulated machine are not those of metal"),
    ),
    "cpu": (
        Member("cpu_model", "text", FORBIDS, "brand string", "CPUID 80000002h", "CPUID 80000002h", "another CPU"),
        Member("cpu_signature", "text", FORBIDS, "family-model-stepping, hexadecimal", "CPUID 1", "CPUID 1", "another CPU"),
        Member("cpu_microcode", "text", FORBIDS, "revision of the microcode", "`/proc/cpuinfo`", "IA32_BIOS_SIGN_ID",
               "microcode changes errata, mitigations and frequency limits"),
        Member("cpu_packages", "number", FORBIDS, "packages with running threads", "sysfs `topology/`", "ACPI and CPUID",
               "each package has its own power limit and caches"),
        Member("cpu_cores", "number", FORBIDS, "physical cores with a running thread", "sysfs `topology/`", "ACPI and CPUID",
               "the work is spread over another number of cores"),
        Member("cpu_threads", "number", FORBIDS, "running threads", "sysfs `cpu/online`", "running cores",
               "the work is spread over another number of threads"),
        Member("cpu_threads_present", "number", FORBIDS, "threads that firmware reports", "sysfs `cpu/present`", "ACPI",
               "firmware has switched cores or threads off"),
        Member("smt", "flag", FORBIDS, "two running threads share a core", "sysfs `topology/`", "ACPI and CPUID",
               "sibling threads share a core's execution units"),
        Member("numa_nodes", "number", FORBIDS, "NUMA nodes", "sysfs `node/online`", "ACPI", "memory may be far from its core"),
        Member("ram_bytes", "number", FORBIDS, "RAM above 1 MiB in firmware's map", "`/sys/firmware/memmap`", "the boot loader's map",
               "another population of memory channels", tolerance=0.01),
        Member("mitigations", "list", SYSTEM, "`VULNERABILITY: state`", "sysfs `cpu/vulnerabilities`", ABSENT,
               "mitigations cost instructions at each system call and interrupt"),
    ),
    "idle": (
        Member("mwait_sub_states", "text", FORBIDS, "the C-states that MWAIT offers", "CPUID 5, EDX", "CPUID 5, EDX",
               "firmware or hypervisor offers other C-states"),
        Member("c_state_limit", "text", FORBIDS, "the deepest C-state that firmware allows the package", "MSR_PKG_CST_CONFIG_CONTROL",
               "the same register at boot", "packages sleep to another depth"),
        Member("c_state_limit_locked", "flag", FORBIDS, "firmware has locked this limit", "the same register", "the same register",
               "the limit can be changed on one of the machines"),
        Member("c_states", "list", SETTING, "the C-states that the system can request", "sysfs `cpuidle/`", "the MWAIT hints in use",
               "a core can sleep in other states"),
        Member("c_state_deepest", "text", SETTING, "the deepest state that is allowed now", "sysfs `cpuidle/`, not disabled",
               "setting `idle`, with `monitor` `monitor_state`", "cores sleep to another depth"),
        Member("c_state_driver_max", "number", SETTING, "the driver's `max_cstate`, which the command line can lower",
               "parameter of intel_idle or processor", ABSENT, "cores sleep to another depth"),
        Member("idle_driver", "text", SYSTEM, "the driver of C-states", "sysfs `cpuidle/current_driver`", "`mwait` or `halt`",
               "another driver offers other states"),
        Member("idle_governor", "text", SYSTEM, "the rule that chooses a state", "sysfs `cpuidle/current_governor`", "setting `idle`",
               "other sleeps are chosen"),
        Member("busy_poll_us", "number", SETTING, "polling before a sleep", "sysctl `net.core.busy_poll`", "setting `poll_budget`",
               "polling exchanges power for latency"),
    ),
    "frequency and power": (
        Member("frequency_min_mhz", "number", FORBIDS, "lowest ratio", "MSR_PLATFORM_INFO, else cpufreq", "MSR_PLATFORM_INFO",
               "another CPU or limit"),
        Member("frequency_base_mhz", "number", FORBIDS, "highest ratio without turbo", "MSR_PLATFORM_INFO, else cpufreq",
               "MSR_PLATFORM_INFO", "another CPU or limit"),
        Member("frequency_max_mhz", "number", FORBIDS, "highest turbo ratio", "MSR_TURBO_RATIO_LIMIT, else cpufreq",
               "MSR_TURBO_RATIO_LIMIT", "another CPU or limit"),
        Member("frequency_limit_min_mhz", "number", SETTING, "lowest frequency that may be requested", "cpufreq `scaling_min_freq`",
               "setting `pstate`", "cores run at other frequencies"),
        Member("frequency_limit_max_mhz", "number", SETTING, "highest frequency that may be requested", "cpufreq `scaling_max_freq`",
               "setting `pstate`", "cores run at other frequencies"),
        Member("pstate_driver", "text", SYSTEM, "the driver of P-states", "cpufreq `scaling_driver`", "`hwp` or `perf_ctl`",
               "frequencies are requested in another way"),
        Member("pstate_governor", "text", SYSTEM, "the rule that chooses a frequency", "cpufreq `scaling_governor`",
               "setting `pstate`: `fixed` or `firmware`", "frequencies follow the load in another way"),
        Member("hwp", "flag", SETTING, "the CPU chooses frequencies (HWP is on)", "IA32_PM_ENABLE", "IA32_PM_ENABLE",
               "the CPU or the system chooses frequencies"),
        Member("epp", "text", SETTING, "HWP's preference, 0 to 255 or a name", "cpufreq `energy_performance_preference`", "setting `epp`",
               "HWP prefers speed or saving"),
        Member("turbo", "flag", SETTING, "turbo is allowed", "intel_pstate `no_turbo`, cpufreq `boost`, else IA32_MISC_ENABLE",
               "setting `turbo`, else IA32_MISC_ENABLE", "frequency depends on temperature and on the other cores"),
        Member("power_limit_1_mw", "number", SETTING, "sustained limit of the package", "powercap, else MSR_PKG_POWER_LIMIT",
               "setting `power_limit`, else the register", "frequency falls at another power"),
        Member("power_limit_2_mw", "number", SETTING, "short-term limit of the package", "powercap, else MSR_PKG_POWER_LIMIT",
               "MSR_PKG_POWER_LIMIT at boot", "frequency falls at another power"),
    ),
    "time": (
        Member("tsc_hz", "number", FORBIDS, "rate of the TSC", "perf's time page", "CPUID, MSR or measured", "times have another unit",
               tolerance=0.001),
        Member("tsc_invariant", "flag", FORBIDS, "the TSC runs at one rate in all states", "CPUID 80000007h", "CPUID 80000007h",
               "times are wrong after sleeps or changes of frequency"),
        Member("clock_source", "text", SYSTEM, "the source of the time", "sysfs `clocksource0`", "`tsc`",
               "reading the time costs another number of instructions"),
        Member("timer_device", "text", SYSTEM, "the source of timer interrupts", "sysfs `clockevent0`", ABSENT,
               "setting a timer costs another number of instructions"),
    ),
    "card": (
        Member("card_interface", "text", SYSTEM, "name of the interface", "the interface's name", ABSENT, "another name"),
        Member("card_pci_id", "text", FORBIDS, "vendor:device", "sysfs `vendor`, `device`", "the driver", "another card"),
        Member("card_pci_revision", "number", FORBIDS, "revision", "sysfs `revision`", "the driver", "another stepping of the card"),
        Member("card_pcie", "text", FORBIDS, "speed and width of the PCIe link", "sysfs `current_link_speed`, `_width`", ABSENT,
               "transfers take another time"),
        Member("card_driver", "text", SYSTEM, "the driver's name", "ETHTOOL_GDRVINFO", "`neap`", "another driver"),
        Member("card_firmware", "text", FORBIDS, "version of the card's firmware", "ETHTOOL_GDRVINFO", ABSENT,
               "firmware sets defaults of the card"),
        Member("card_numa_node", "number", FORBIDS, "NUMA node of the slot", "sysfs `numa_node`", ABSENT,
               "the card may be far from a core"),
        Member("link_up", "flag", FORBIDS, "the link is up", "sysfs `carrier`", "the driver", "one of the machines has no network"),
        Member("link_mbps", "number", FORBIDS, "speed of the link", "sysfs `speed`", "the driver", "frames take another time on the wire"),
        Member("mtu_bytes", "number", FORBIDS, "largest IP packet", "sysfs `mtu`", "the driver's largest frame",
               "the same bytes are another number of frames"),
        Member("queues", "number", SETTING, "receive queues", "ETHTOOL_GCHANNELS", "the driver",
               "interrupts go to another number of cores"),
        Member("rss", "flag", SETTING, "RSS spreads frames over queues", "ETHTOOL_GRXFHINDIR", "the driver",
               "frames go to one core or to several"),
        Member("queue_cores", "list", SETTING, "for each queue, the core that takes its interrupts", "`/proc/irq`, effective affinity",
               "the driver", "interrupts and the work that they start are on other cores"),
        Member("rx_ring_descriptors", "number", SETTING, "receive ring", "ETHTOOL_GRINGPARAM", "setting `rx_ring`",
               "bursts are dropped at another length"),
        Member("tx_ring_descriptors", "number", SETTING, "transmit ring", "ETHTOOL_GRINGPARAM", "setting `tx_ring`",
               "back-pressure begins elsewhere"),
        Member("itr_us", "number", SETTING, "interrupt moderation, if it is fixed", "ETHTOOL_GCOALESCE", "setting `itr`",
               "latency and interrupts per request follow from it"),
        Member("itr_adaptive", "flag", SETTING, "the driver adapts interrupt moderation", "ETHTOOL_GCOALESCE (`rx-usecs 1` of ixgbe)",
               "never", "latency and interrupts per request vary with the load"),
        Member("pthresh_descriptors", "number", SETTING, "TXDCTL.PTHRESH", "ETHTOOL_GREGS", "setting `pthresh`",
               "descriptors are fetched in other batches"),
        Member("hthresh_descriptors", "number", SETTING, "TXDCTL.HTHRESH", "ETHTOOL_GREGS", "setting `hthresh`",
               "descriptors are fetched in other batches"),
        Member("wthresh_descriptors", "number", SETTING, "TXDCTL.WTHRESH", "ETHTOOL_GREGS", "setting `wthresh`",
               "TX completions are written in other batches"),
        Member("head_write_back", "flag", SETTING, "TX completions by head write-back", "ETHTOOL_GREGS, TDWBAL",
               "setting `head_write_back`", "TX completions are written in another way"),
        Member("rx_checksum", "flag", SETTING, "the card checks checksums", "ETHTOOL_GRXCSUM", "the driver",
               "checksums cost instructions"),
        Member("tx_checksum", "flag", SETTING, "the card computes checksums", "ETHTOOL_GTXCSUM", "the driver",
               "checksums cost instructions"),
        Member("tso", "flag", SETTING, "the card cuts large segments", "ETHTOOL_GTSO", "setting `tso`",
               "long replies cost other instructions"),
        Member("gso", "flag", SYSTEM, "software cuts large segments", "ETHTOOL_GGSO", ABSENT, "long replies cost other instructions"),
        Member("gro", "flag", SYSTEM, "software joins received segments", "ETHTOOL_GGRO", ABSENT,
               "received bursts cost other instructions"),
        Member("rsc", "flag", SETTING, "the card joins received segments (RSC, LRO)", "ETHTOOL_GFLAGS", "setting `rsc`",
               "received bursts cost other instructions"),
        Member("vlan_strip", "flag", SYSTEM, "the card removes VLAN tags", "ETHTOOL_GFLAGS", "setting `vlan`",
               "frames with tags are treated in another way"),
        Member("pause_rx", "flag", SETTING, "the card obeys pause frames", "ETHTOOL_GPAUSEPARAM", "setting `flow_control`",
               "the peer can stop the card"),
        Member("pause_tx", "flag", SETTING, "the card sends pause frames", "ETHTOOL_GPAUSEPARAM", "setting `flow_control`",
               "the card stops its peer, and drops no frame"),
        Member("dca", "flag", SETTING, "the card hints at a cache", "ETHTOOL_GREGS, DCA_RXCTRL", "setting `dca`",
               "received bytes are in the cache or in memory"),
    ),
}  # fmt: skip

MEMBERS: dict[str, Member] = {member.name: member for members in GROUPS.values() for member in members}
