# SPDX-License-Identifier: BSL-1.0
"""Each query and each setting that Linux's driver offers through ethtool, and the driver's own test of the card."""

import re
import socket
import time
from collections.abc import Iterator

import pytest
from linux_guest.driver import (
    BRING_UP,
    LINK_UP,
    PATIENT_SECONDS,
    PING,
    SELF_TEST_PASSED,
    SERVE,
    TRAFFIC_PORT,
    complaints,
    fields,
    register,
    self_test,
    statistics,
    warnings,
)
from linux_guest.guest import LinuxGuest
from linux_guest.guest_image import GuestImage

from tools.machine import LOOPBACK

pytestmark = pytest.mark.names_the_82599

CORES = 4
ECHOES = 100
CONNECTIONS = 8
# By default the driver derives rules from the frames that it sends (ATR). These rules precede the RSS table; `ntuple on` prevents them.
NO_SAMPLING = "ethtool -K eth0 ntuple on\n" + BRING_UP
UP_AND_REACHED = BRING_UP + PING


@pytest.fixture
def linux(guest: LinuxGuest) -> Iterator[LinuxGuest]:
    """The guest with an address that reaches its network. The guest's kernel must have logged no complaint at the end."""
    guest.output_of(UP_AND_REACHED, seconds=PATIENT_SECONDS)
    yield guest
    assert complaints(guest) == []


def packets(guest: LinuxGuest, direction: str) -> list[int]:
    counters = statistics(guest)
    return [counters.get(f"{direction}_queue_{queue}_packets", 0) for queue in range(CORES)]


def queues_reached(guest: LinuxGuest) -> set[int]:
    """Returns the receive queues on which TCP connections from outside to TRAFFIC_PORT arrive."""
    guest.output_of(SERVE)
    before = packets(guest, "rx")
    for _ in range(CONNECTIONS):
        with socket.create_connection((LOOPBACK, guest.port(TRAFFIC_PORT)), timeout=20) as connection:
            connection.sendall(b"x")
    deadline = time.monotonic() + 60
    while sum(after := packets(guest, "rx")) - sum(before) < 3 * CONNECTIONS and time.monotonic() < deadline:
        pass
    # A few other frames (ARP, the end of earlier connections) may arrive in the same interval.
    total = sum(after) - sum(before)
    return {queue for queue in range(CORES) if after[queue] - before[queue] > total / 8}


@pytest.mark.parametrize("kind", ["online", "offline"])
def test_the_drivers_own_test_passes_every_line(linux: LinuxGuest, kind: str) -> None:
    assert self_test(linux, kind) == SELF_TEST_PASSED


def test_it_names_driver_firmware_and_address(linux: LinuxGuest) -> None:
    driver = fields(linux.output_of("ethtool -i eth0"))
    assert driver["driver"] == "ixgbe" and re.match(r"0x[0-9a-f]{8}", driver["firmware-version"])
    assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0", driver["bus-info"])
    permanent = linux.output_of("ethtool -P eth0").split()[-1]
    assert permanent == linux.output_of("cat /sys/class/net/eth0/address").strip()
    linux.output_of("ip link set eth0 address 02:00:00:00:00:77")
    assert linux.output_of("ethtool -P eth0").split()[-1] == permanent
    linux.output_of(PING, seconds=PATIENT_SECONDS)
    linux.output_of(f"ip link set eth0 address {permanent}")


@pytest.mark.parametrize("descriptors", [64, 2048, 512])
def test_ring_sizes(linux: LinuxGuest, descriptors: int) -> None:
    linux.output_of(f"ethtool -G eth0 rx {descriptors} tx {descriptors}")
    current = linux.output_of("ethtool -g eth0").partition("Current")[2]
    assert re.findall(r"^[RT]X:\s+(\d+)$", current, re.MULTILINE) == [str(descriptors)] * 2
    assert register(linux, "RDLEN00") == register(linux, "TDLEN00") == descriptors * 16
    linux.output_of(UP_AND_REACHED, seconds=PATIENT_SECONDS)


def test_a_ring_larger_than_the_cards_limit_is_refused(linux: LinuxGuest) -> None:
    # A ring has at most 8192 descriptors (datasheet 8.2.3.8.3). Drivers before about Linux 6.4 stop at 4096.
    assert not linux.run("ethtool -G eth0 rx 16384").ok


@pytest.mark.parametrize("microseconds", [10, 1000])
def test_interrupt_moderation_reaches_the_register(linux: LinuxGuest, microseconds: int) -> None:
    linux.output_of(f"ethtool -C eth0 rx-usecs {microseconds}")
    assert fields(linux.output_of("ethtool -c eth0"))["rx-usecs"] == str(microseconds)
    # EITR has the interval in bits 11:3, in units of 2 us (datasheet 8.2.3.5.12).
    assert (register(linux, "EITR0") >> 3 & 0x1FF) * 2 == microseconds
    linux.output_of("ethtool -C eth0 rx-usecs 1")


@pytest.mark.parametrize("count", [1, CORES])
def test_number_of_queues(linux: LinuxGuest, count: int) -> None:
    linux.output_of(f"ethtool -L eth0 combined {count}", seconds=60)
    assert re.search(rf"^Combined:\s+{count}$", linux.output_of("ethtool -l eth0").partition("Current")[2], re.MULTILINE)
    linux.output_of(UP_AND_REACHED, seconds=PATIENT_SECONDS)
    reached = queues_reached(linux)
    assert reached and reached <= set(range(count))


def test_the_redirection_table_steers(linux: LinuxGuest) -> None:
    queue = 3
    linux.output_of(NO_SAMPLING, seconds=PATIENT_SECONDS)
    weights = " ".join("1" if number == queue else "0" for number in range(CORES))
    linux.output_of(f"ethtool -X eth0 weight {weights}")
    table = re.findall(r"^\s+\d+:((?:\s+\d+)+)$", linux.output_of("ethtool -x eth0"), re.MULTILINE)
    assert {entry for row in table for entry in row.split()} == {str(queue)} and sum(len(row.split()) for row in table) == 128
    assert queues_reached(linux) == {queue}
    linux.output_of("ethtool -X eth0 default")


def test_the_hash_key_can_be_changed(linux: LinuxGuest) -> None:
    key = ":".join(f"{byte:02x}" for byte in range(1, 41))
    linux.output_of(f"ethtool -X eth0 hkey {key}")
    assert key in linux.output_of("ethtool -x eth0")


def test_a_rule_steers_a_flow_and_another_drops_it(linux: LinuxGuest) -> None:
    linux.output_of(NO_SAMPLING, seconds=PATIENT_SECONDS)

    def add(action: int) -> str:
        output = linux.output_of(f"ethtool -N eth0 flow-type tcp4 dst-port {TRAFFIC_PORT} action {action}")
        found = re.search(r"ID (\d+)", output)
        assert found, output
        return found[1]

    rule = add(2)
    assert "Action: Direct to queue 2" in linux.output_of("ethtool -n eth0")
    assert queues_reached(linux) == {2}
    assert statistics(linux)["fdir_match"] > 0
    linux.output_of(f"ethtool -N eth0 delete {rule}")
    rule = add(-1)
    assert "Action: Drop" in linux.output_of("ethtool -n eth0")
    before = packets(linux, "rx")
    # QEMU's user network answers the connect itself. The frames that it then sends to the guest are dropped.
    socket.create_connection((LOOPBACK, linux.port(TRAFFIC_PORT)), timeout=20).close()
    linux.output_of("ping -c 3 -i 0.2 -W 30 10.0.2.2", seconds=60)
    arrived = [now - then for now, then in zip(packets(linux, "rx"), before)]
    assert 3 <= sum(arrived) < 6, f"{arrived}: three answers to a ping, and perhaps ARP, but nothing of the connection"
    linux.output_of(f"ethtool -N eth0 delete {rule}")
    assert "Total 0 rules" in linux.output_of("ethtool -n eth0")


def test_flow_control_can_be_set(linux: LinuxGuest) -> None:
    for rx, tx in (("off", "off"), ("on", "on")):
        linux.output_of(f"ethtool -A eth0 rx {rx} tx {tx}", seconds=60)
        linux.output_of(LINK_UP + "sleep 0.5", seconds=PATIENT_SECONDS)
        pause = fields(linux.output_of("ethtool -a eth0"))
        assert (pause["RX"], pause["TX"]) == (rx, tx)
        assert (register(linux, "FCCFG") >> 3 & 1 == 1) == (tx == "on")


def test_the_register_dump_shows_a_working_card(linux: LinuxGuest) -> None:
    dump = linux.output_of("ethtool -d eth0", seconds=60)
    values = dict(re.findall(r"^0x[0-9A-F]+: (\w+)\s.*0x([0-9A-Fa-f]{8})\s*$", dump, re.MULTILINE))
    assert len(values) > 500 and "deadbeef" not in {value.lower() for value in values.values()}
    assert int(values["LINKS"], 16) >> 30 & 1
    assert "Link Speed:                                    10G" in dump
    assert int(values["FRTIMER"], 16) != register(linux, "FRTIMER"), "the free running timer stands still"


def test_statistics_count_each_frame_and_byte(linux: LinuxGuest) -> None:
    before = statistics(linux)
    linux.output_of(f"ping -c {ECHOES} -i 0.01 -s 200 -W 30 10.0.2.2", seconds=120)
    after = statistics(linux)
    for name, minimum in (("rx_pkts_nic", ECHOES), ("tx_pkts_nic", ECHOES), ("rx_bytes_nic", ECHOES * 242), ("tx_bytes_nic", ECHOES * 242)):
        counted = after[name] - before[name]
        assert minimum <= counted <= minimum * 1.3 + 2000, f"{name}: {counted}"
    bad = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors", "rx_length_errors", "rx_csum_offload_errors")
    assert {name: after[name] for name in bad if name in after and after[name] != before[name]} == {}


def test_the_eeprom_can_be_read_and_written(linux: LinuxGuest) -> None:
    def content(offset: int, length: int) -> bytes:
        dump = linux.output_of(f"ethtool -e eth0 offset {offset} length {length}", seconds=60)
        return bytes(int(byte, 16) for row in re.findall(r"^0x[0-9a-f]+:((?:\s+[0-9a-f]{2})+)", dump, re.MULTILINE) for byte in row.split())

    first = content(0, 128)
    assert len(first) == 128 and len(set(first)) > 4
    # Only software uses the word at this offset. The driver updates the checksum after a write, and refuses to load if the checksum is
    # wrong.
    offset = 0x60
    old = content(offset, 1)[0]
    linux.output_of(f"ethtool -E eth0 magic 0x10fb8086 offset {offset} value 0x5a", seconds=60)
    assert content(offset, 1) == b"\x5a"
    linux.output_of("modprobe -r ixgbe; " + BRING_UP, seconds=PATIENT_SECONDS)
    assert content(offset, 1) == b"\x5a"
    linux.output_of(f"ethtool -E eth0 magic 0x10fb8086 offset {offset} value {old}", seconds=60)
    assert content(0, 128) == first


def test_the_module_identifies_itself(linux: LinuxGuest) -> None:
    module = fields(linux.output_of("ethtool -m eth0", seconds=60))
    assert module["Identifier"].startswith("0x03 (SFP)") and module["Transceiver type"].startswith("10G Ethernet: 10G Base-SR")
    assert module["Encoding"].endswith("(64B/66B)") and module["Laser wavelength"] == "850nm" and module["Vendor PN"]


def test_the_led_blinks_and_returns_to_its_state(linux: LinuxGuest) -> None:
    before = register(linux, "LEDCTL")
    linux.machine.card_command("reset-counters")
    linux.output_of("ethtool -p eth0 1", seconds=30)
    assert linux.machine.card_counters()["writes"].get("LEDCTL", 0) >= 2
    assert register(linux, "LEDCTL") == before


def test_the_card_adds_no_warning_to_the_log(linux: LinuxGuest, linux_image: GuestImage) -> None:
    with LinuxGuest(linux_image, cores=CORES, card=None) as bare:
        bare.output_of("modprobe ixgbe")
        without = warnings(bare)
    assert warnings(linux) - without == set()
