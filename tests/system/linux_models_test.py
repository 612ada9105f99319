# SPDX-License-Identifier: BSL-1.0
"""Linux's own driver on the soft card's models X540 and X550: one boot for each, with the parts in which they differ from the 82599.

Those parts are the way to a link (a 10GBASE-T PHY), the semaphores, the words of the EEPROM or flash, and the size of the RSS table. Rings,
filters and offloads are the same code for all models; the other tests of Linux's driver cover them.
"""

from __future__ import annotations

import hashlib
import random
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from linux_guest.driver import (
    BRING_UP,
    LINK_LOST,
    LINK_UP,
    LISTEN_PORT,
    PATIENT_SECONDS,
    PING,
    SELF_TEST_PASSED,
    complaints,
    fields,
    self_test,
    start_listening,
    statistics,
)
from linux_guest.guest import LinuxGuest
from linux_guest.guest_image import GuestImage

from tools.machine import LOOPBACK

pytestmark = pytest.mark.names_the_82599

SEND_PORT = 5002
TRANSFER_BYTES = 2 << 20
TRANSFER_SECONDS = 120
ADVERTISE_1G, ADVERTISE_ALL = 0x20, 0x1028  # ethtool's bits of 1000baseT/Full, and with it those of 10000baseT/Full and 100baseT/Full
# Rules that Linux's driver keeps on these models, and whose violation would mean that a model is wrong.
KEPT = {"semaphore_not_held", "host_command", "receive_buffer_size", "unknown_register", "crc_strip_differs"}


@dataclass(frozen=True)
class Model:
    """mac: the driver's number of the model. rss_entries: of the RSS table."""

    name: str
    pci_id: str
    mac: int
    rss_entries: int


MODELS = [Model("x540", "8086:1528", 3, 128), Model("x550", "8086:1563", 4, 512)]


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: model.name)
def model(request: pytest.FixtureRequest) -> Model:
    return request.param


@pytest.fixture(scope="module")
def booted(linux_image: GuestImage, model: Model) -> Iterator[LinuxGuest]:
    with LinuxGuest(linux_image, cores=2, forward_ports=[LISTEN_PORT, SEND_PORT], card_options=["--model", model.name]) as guest:
        yield guest


@pytest.fixture
def linux(booted: LinuxGuest) -> Iterator[LinuxGuest]:
    booted.output_of(BRING_UP, seconds=PATIENT_SECONDS)
    yield booted
    assert complaints(booted, LINK_LOST) == []


def test_the_driver_probes_and_finds_the_phy(linux: LinuxGuest, model: Model) -> None:
    log = linux.output_of("dmesg | grep ixgbe")
    assert re.search(rf"MAC: {model.mac}, PHY: \d+, PBA No: N{model.name.upper()}T-S00", log), log
    assert "Intel(R) 10 Gigabit Network Connection" in log
    vendor, device = model.pci_id.split(":")
    ids = "cd /sys/class/net/eth0/device && cat vendor device"
    assert linux.output_of(ids).split() == [f"0x{vendor}", f"0x{device}"]
    link = fields(linux.output_of("ethtool eth0"))
    assert (link["Speed"], link["Duplex"], link["Port"], link["Link detected"]) == ("10000Mb/s", "Full", "Twisted Pair", "yes")


def test_the_drivers_self_test_passes(linux: LinuxGuest) -> None:
    assert self_test(linux, "offline") == SELF_TEST_PASSED
    linux.output_of(BRING_UP + PING, seconds=PATIENT_SECONDS)


def test_bytes_arrive_whole_in_both_directions(linux: LinuxGuest) -> None:
    data = random.Random(1).randbytes(TRANSFER_BYTES)
    pid = start_listening(linux, LISTEN_PORT, f"nc -l -p {LISTEN_PORT} >/tmp/data")
    with socket.create_connection((LOOPBACK, linux.port(LISTEN_PORT)), timeout=TRANSFER_SECONDS) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        linux.output_of(f"while kill -0 {pid} 2>/dev/null; do sleep 0.1; done", seconds=TRANSFER_SECONDS)
    assert linux.output_of("sha256sum /tmp/data", seconds=60).split()[0] == hashlib.sha256(data).hexdigest()
    start_listening(linux, SEND_PORT, f"nc -l -p {SEND_PORT} </tmp/data")
    received = b""
    with socket.create_connection((LOOPBACK, linux.port(SEND_PORT)), timeout=TRANSFER_SECONDS) as connection:
        while len(received) < len(data) and (piece := connection.recv(1 << 18)):
            received += piece
    assert received == data
    counters = statistics(linux)
    assert (counters["rx_csum_offload_errors"], counters["rx_errors"], counters["tx_errors"]) == (0, 0, 0)


def test_the_phy_negotiates_the_speed_that_the_driver_advertises(linux: LinuxGuest) -> None:
    for advertised, speed in ((ADVERTISE_1G, "1000Mb/s"), (ADVERTISE_ALL, "10000Mb/s")):
        linux.output_of(f"ethtool -s eth0 advertise {advertised:#x} autoneg on", seconds=60)
        wait = f"for i in $(seq 300); do ethtool eth0 | grep -q 'Speed: {speed}' && break; sleep 0.1; done; ethtool eth0"
        assert fields(linux.output_of(LINK_UP + wait, seconds=PATIENT_SECONDS))["Speed"] == speed
        linux.output_of(PING, seconds=PATIENT_SECONDS)


def test_the_link_comes_back_after_down_and_up_and_after_a_flap(linux: LinuxGuest) -> None:
    # The driver turns the PHY off while the interface is down.
    linux.output_of("ip link set eth0 down")
    assert "low power 1" in linux.machine.card_command("state")
    linux.output_of(BRING_UP + PING, seconds=PATIENT_SECONDS)
    assert "low power 0" in linux.machine.card_command("state")
    before = int(linux.output_of("cat /sys/class/net/eth0/carrier_changes"))
    linux.machine.card_command("link flap 500000000 2")
    changed = f"for i in $(seq 300); do [ $(cat /sys/class/net/eth0/carrier_changes) -ge {before + 2} ] && break; sleep 0.1; done"
    linux.output_of(changed, seconds=60)
    linux.output_of(BRING_UP + PING, seconds=PATIENT_SECONDS)


def test_the_rss_table_has_the_models_size(linux: LinuxGuest, model: Model) -> None:
    table = linux.output_of("ethtool -x eth0")
    entries = re.findall(r"^\s+\d+:((?:\s+\d+)+)$", table, re.MULTILINE)
    assert sum(len(row.split()) for row in entries) == model.rss_entries, table


def test_a_word_of_the_eeprom_is_written_and_read_back(linux: LinuxGuest, model: Model) -> None:
    offset = 0x700 * 2
    vendor, device = model.pci_id.split(":")
    read = f"ethtool -e eth0 offset {offset} length 1 raw on | od -An -tx1"
    old = linux.output_of(read, seconds=60).strip()
    for value in ("5a", old):
        linux.output_of(f"ethtool -E eth0 magic 0x{device}{vendor} offset {offset} value 0x{value}", seconds=60)
        assert linux.output_of(read, seconds=60).strip() == value
    assert self_test(linux, "online")["Link"] == 0


def test_a_corrupt_word_is_noticed(linux: LinuxGuest) -> None:
    linux.machine.card_command("fault eeprom")
    result = linux.run("ethtool -t eth0 offline", seconds=120)
    linux.machine.card_command("fault eeprom")
    assert re.search(r"^Eeprom test +\(offline\)\s+1$", result.output, re.MULTILINE), result.output


def test_the_driver_breaks_no_rule_of_the_models(linux: LinuxGuest) -> None:
    broken = linux.machine.card_command("violations")
    assert not KEPT & broken["counts"].keys(), broken["recent"]
