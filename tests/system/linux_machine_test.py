# SPDX-License-Identifier: BSL-1.0
"""The machine list on whole systems: Linux's is compared with ethtool and sysfs, Neap's with the settings and the card's registers, and
both lists of one machine with each other.

The guest's kernels are those of Debian 12 and 13. The program is added to the guest's initramfs.
"""

import json
import re
from collections.abc import Iterator

import pytest
from linux_guest import guest_image
from linux_guest.driver import LINK_UP, PATIENT_SECONDS, alarms, fields, register
from linux_guest.guest import LinuxGuest
from linux_guest.machine_list import LIST_SECONDS, list_of, with_program
from servers import CONTROL_PORT, NeapServer

from tools.machine import LOOPBACK, SOFT_CARD
from tools.machine_list import commands, differences
from tools.machine_list.schema import ABSENT, GROUPS, MEMBERS, Weight

pytestmark = pytest.mark.names_the_82599

CORES = 2
MEMORY = "512M"
SECRET = "hidden-from-lists"


@pytest.fixture(scope="module", params=[False, True], ids=["debian-12", "debian-13"])
def linux(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinuxGuest]:
    """The guest with the driver loaded and its link up. The kernel must have raised no alarm at the end."""
    if not SOFT_CARD.is_file():
        pytest.fail("the soft card is not built: ./neap test system builds it", pytrace=False)
    image = with_program(guest_image.build(debian_13_kernel=request.param), tmp_path_factory.mktemp("guest"))
    with LinuxGuest(image, cores=CORES, memory=MEMORY, kernel_words=[f"neap.token={SECRET}"]) as guest:
        guest.output_of(LINK_UP + "modprobe msr", seconds=PATIENT_SECONDS)
        yield guest
        # The driver also warns if the link goes while a frame waits, and these tests take the link down. So only alarms count.
        assert alarms(guest) == []


@pytest.fixture(scope="module")
def neap() -> Iterator[NeapServer]:
    with NeapServer(cores=CORES, memory=MEMORY, arguments=["control_token=" + SECRET]) as server:
        yield server


def list_of_neap(server: NeapServer) -> dict:
    return commands.ask(LOOPBACK, server.machine.port(CONTROL_PORT), SECRET)


def ask(server: NeapServer, *asked: str) -> list[str]:
    with server.control() as connection:
        answers = [connection.ask(line) for line in (f"token,{SECRET}", *asked)]
    assert all(answer.startswith("ok") for answer in answers), answers
    return answers[1:]


def test_the_list_has_the_guests_kernel_and_cores(linux: LinuxGuest) -> None:
    found = list_of(linux)
    assert set(found) <= set(MEMBERS)
    assert found["system_version"] == linux.output_of("uname -r").strip()
    assert (found["cpu_threads"], found["cpu_threads_present"]) == (CORES, CORES)
    assert found["clock"] == "TCGTCGTCGTCG"
    assert "mitigations=off" in found["command_line"] and "neap.token=***" in found["command_line"]
    assert SECRET not in json.dumps(found)
    source = linux.output_of("cat /sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
    assert found["clock_source"] == source
    vulnerable = dict(one.split(": ", 1) for one in found["mitigations"])
    assert vulnerable["spectre_v1"] == linux.output_of("cat /sys/devices/system/cpu/vulnerabilities/spectre_v1").strip()


def test_the_cards_members_are_those_of_ethtool(linux: LinuxGuest) -> None:
    found = list_of(linux)
    driver = fields(linux.output_of("ethtool -i eth0"))
    assert (found["card_interface"], found["card_driver"], found["card_firmware"]) == ("eth0", driver["driver"], driver["firmware-version"])
    assert (found["card_pci_id"], found["card_pci_revision"]) == ("8086:10fb", 1)
    assert (found["link_up"], found["link_mbps"], found["mtu_bytes"]) == (True, 10_000, 1500)
    features = fields(linux.output_of("ethtool -k eth0"))
    for member, feature in (
        ("rx_checksum", "rx-checksumming"), ("tx_checksum", "tx-checksumming"), ("tso", "tcp-segmentation-offload"),
        ("gso", "generic-segmentation-offload"), ("gro", "generic-receive-offload"), ("rsc", "large-receive-offload"),
        ("vlan_strip", "rx-vlan-offload"),
    ):  # fmt: skip
        assert found[member] == (features[feature].split()[0] == "on"), member
    rings = re.findall(r"^([RT]X):\s+(\d+)$", linux.output_of("ethtool -g eth0").partition("Current")[2], re.MULTILINE)
    assert rings == [("RX", str(found["rx_ring_descriptors"])), ("TX", str(found["tx_ring_descriptors"]))]
    assert re.search(rf"^Combined:\s+{found['queues']}$", linux.output_of("ethtool -l eth0").partition("Current")[2], re.MULTILINE)
    assert found["rss"] is True
    pause = fields(linux.output_of("ethtool -a eth0"))
    assert (found["pause_rx"], found["pause_tx"]) == (pause["RX"] == "on", pause["TX"] == "on")


def test_thresholds_are_those_of_the_registers(linux: LinuxGuest) -> None:
    found = list_of(linux)
    txdctl = register(linux, "TXDCTL00")
    assert found["pthresh_descriptors"] == txdctl & 0x7F
    assert found["hthresh_descriptors"] == txdctl >> 8 & 0x7F
    assert found["wthresh_descriptors"] == txdctl >> 16 & 0x7F
    assert found["pthresh_descriptors"] > 0, "a dump read at another place would rarely have thresholds there"
    assert found["head_write_back"] == bool(register(linux, "TDWBAL00") & 1)


def test_changed_settings_are_in_the_next_list(linux: LinuxGuest) -> None:
    adaptive = list_of(linux)
    assert adaptive["itr_adaptive"] is True and "itr_us" not in adaptive, "ixgbe's default"
    linux.output_of("ethtool -C eth0 rx-usecs 50; ethtool -G eth0 rx 1024 tx 256; ethtool -K eth0 tso off gro off", seconds=PATIENT_SECONDS)
    linux.output_of("ethtool -L eth0 combined 1; " + LINK_UP + "ethtool -A eth0 rx off tx off", seconds=PATIENT_SECONDS)
    linux.output_of(LINK_UP + "sleep 0.5", seconds=PATIENT_SECONDS)
    found = list_of(linux, "eth0")
    assert (found["itr_adaptive"], found["itr_us"]) == (False, 50)
    assert (found["rx_ring_descriptors"], found["tx_ring_descriptors"]) == (1024, 256)
    assert (found["tso"], found["gro"], found["pause_rx"], found["pause_tx"]) == (False, False, False, False)
    assert (found["queues"], found["rss"], len(found["queue_cores"])) == (1, False, 1)
    changed = {one.name for one in differences(adaptive, found)}
    assert changed >= {"itr_us", "itr_adaptive", "rx_ring_descriptors", "tso", "gro", "queues"}
    assert not changed & {name for name, member in MEMBERS.items() if member.weight is Weight.FORBIDS}
    linux.output_of("ethtool -C eth0 rx-usecs 1; ethtool -G eth0 rx 512 tx 512; ethtool -K eth0 tso on gro on", seconds=PATIENT_SECONDS)
    linux.output_of(f"ethtool -A eth0 rx on tx on; ethtool -L eth0 combined {CORES}", seconds=PATIENT_SECONDS)
    linux.output_of(LINK_UP, seconds=PATIENT_SECONDS)


def test_the_cores_of_queues_follow_the_affinity(linux: LinuxGuest) -> None:
    set_all = "for irq in $(grep eth0-TxRx /proc/interrupts | cut -d: -f1); do echo {0} > /proc/irq/$(echo $irq)/smp_affinity_list; done"
    for core in (1, 0):
        linux.output_of(set_all.format(core))
        # The kernel moves an interrupt when the next one arrives.
        linux.output_of("ip link set eth0 down; " + LINK_UP + set_all.format(core) + "; sleep 3", seconds=PATIENT_SECONDS)
        assert list_of(linux)["queue_cores"] == [str(core)] * CORES


def test_an_interface_that_is_down_or_missing_is_told(linux: LinuxGuest) -> None:
    missing = linux.run("machine_list eth7", seconds=LIST_SECONDS)
    assert missing.status == 1 and "there is no network interface 'eth7'" in missing.output
    linux.output_of("ip link set eth0 down")
    found = list_of(linux)
    assert found["link_up"] is False and "link_mbps" not in found
    linux.output_of(LINK_UP, seconds=PATIENT_SECONDS)


def test_neaps_list_has_the_settings_of_now_and_those_of_the_registers(neap: NeapServer) -> None:
    ask(neap, "itr,8us", "tx_interrupt,on", "pthresh,16", "hthresh,2", "wthresh,4", "rx_ring,1024", "flow_control,receive", "rsc,off")
    found = list_of_neap(neap)
    assert set(found) <= set(MEMBERS)
    policy = dict(re.findall(r"(\w+)=(\w+)", ask(neap, "policy")[0].rpartition("; card ")[2]))
    for member, setting in (
        ("rx_ring_descriptors", "rx_ring"), ("tx_ring_descriptors", "tx_ring"), ("pthresh_descriptors", "pthresh"),
        ("hthresh_descriptors", "hthresh"), ("wthresh_descriptors", "wthresh"),
    ):  # fmt: skip
        assert found[member] == int(policy[setting]), member
    assert (found["wthresh_descriptors"], found["rx_ring_descriptors"], found["itr_us"]) == (4, 1024, 8)
    assert (found["rsc"], found["pause_rx"], found["pause_tx"], found["head_write_back"]) == (False, True, False, False)
    txdctl = re.search(r"\bTXDCTL\[0\]\W+(0x[0-9a-f_]+)", state := neap.machine.card_command("state"))
    assert txdctl, state
    assert int(txdctl[1], 16) & 0x7F7F7F == 4 << 16 | 2 << 8 | 16
    assert (found["queues"], found["queue_cores"]) == (CORES, ["0", "1"])
    assert "control_token=***" in found["command_line"] and SECRET not in json.dumps(found)
    boot = dict(re.findall(r"(\w+)=([^;]*)", ask(neap, "boot")[0]))
    assert (found["system_version"], found["cpu_model"], str(found["tsc_hz"])) == (boot["version"], boot["cpu"], boot["tsc_hz"])
    ask(neap, "preset,default", "flow_control,off", "rx_ring,512")


def test_one_machine_has_equal_hardware_on_both_systems(linux: LinuxGuest, neap: NeapServer) -> None:
    lists = list_of_neap(neap), list_of(linux)
    found = differences(*lists)
    assert [one for one in found if one.forbids] == []
    # The comparison must not be empty because a list is.
    both = [name for name, member in MEMBERS.items() if member.weight is Weight.FORBIDS and name in lists[0] and name in lists[1]]
    assert len(both) >= 15, both
    hardware = {"cpu_model", "cpu_signature", "clock", "cpu_cores", "numa_nodes", "ram_bytes", "card_pci_id", "link_mbps", "mtu_bytes"}
    assert hardware <= set(both)


def test_another_machine_is_found_on_both_systems(linux: LinuxGuest) -> None:
    with NeapServer(cores=1, memory="1G") as other:
        found = differences(commands.ask(LOOPBACK, other.machine.port(CONTROL_PORT)), list_of(linux))
    assert {one.name for one in found if one.forbids} == {"cpu_cores", "cpu_threads", "cpu_threads_present", "ram_bytes"}


def test_every_member_is_seen_on_a_system_or_needs_a_real_machine(linux: LinuxGuest, neap: NeapServer) -> None:
    absent = set(MEMBERS) - set(list_of_neap(neap)) - set(list_of(linux))
    emulation = {member.name for member in (*GROUPS["idle"], *GROUPS["frequency and power"])} | {"card_pcie", "card_numa_node", "itr_us"}
    assert absent <= emulation | {"cpu_microcode", "tsc_hz"}, absent
    assert all(member.linux != ABSENT or member.neap != ABSENT for member in MEMBERS.values())
