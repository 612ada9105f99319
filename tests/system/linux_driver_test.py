# SPDX-License-Identifier: BSL-1.0
"""Linux's own ixgbe driver on the soft card, as an independent test of the card."""

import concurrent.futures
import hashlib
import random
import re
import socket
import time

import pytest
from linux_guest.driver import BRING_UP, LISTEN_PORT, PATIENT_SECONDS, PING, SOAKING, complaints, fields, start_listening, statistics
from linux_guest.guest import LinuxGuest

from tools.machine import LOOPBACK

pytestmark = pytest.mark.names_the_82599

CORES = 4
REPEATS = 100 if SOAKING else 3
TRANSFER_BYTES = 24 << 20
TRANSFER_SECONDS = 120
FLOWS = 48
FLOWS_AT_ONCE = 3
SEND_PORT = 5002


@pytest.fixture
def linux(guest: LinuxGuest):
    """The guest with an address on the soft card. The guest's kernel must have logged no complaint at the end."""
    guest.output_of(BRING_UP, seconds=PATIENT_SECONDS)
    yield guest
    assert complaints(guest) == []


def test_the_driver_probes_and_complains_of_nothing(linux: LinuxGuest) -> None:
    log = linux.output_of("dmesg | grep ixgbe")
    assert f"Multiqueue Enabled: Rx Queue count = {CORES}, Tx Queue count = {CORES}" in log
    assert re.search(r"MAC: 2, PHY: \d+, SFP\+: \d+", log), log
    assert "Intel(R) 10 Gigabit Network Connection" in log
    address = linux.output_of("cat /sys/class/net/eth0/address").strip()
    assert re.fullmatch(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}", address) and address != "00:00:00:00:00:00"


def test_the_link_is_up_at_10_gigabits(linux: LinuxGuest) -> None:
    link = fields(linux.output_of("ethtool eth0"))
    assert (link["Speed"], link["Duplex"], link["Link detected"]) == ("10000Mb/s", "Full", "yes")


@pytest.mark.parametrize("size", [0, 56, 1000, 1472])
def test_ping(linux: LinuxGuest, size: int) -> None:
    linux.output_of(PING, seconds=PATIENT_SECONDS)
    output = linux.output_of(f"ping -c 3 -i 0.2 -W 30 -s {size} 10.0.2.2", seconds=60)
    assert "3 packets transmitted, 3 packets received, 0% packet loss" in output


def test_the_default_offloads_are_on(linux: LinuxGuest) -> None:
    features = fields(linux.output_of("ethtool -k eth0"))
    wanted = ("rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload", "receive-hashing")
    assert {name: features[name].split()[0] for name in wanted} == dict.fromkeys(wanted, "on")


def test_tcp_into_the_guest_arrives_whole(linux: LinuxGuest, record_property) -> None:
    data = random.Random(1).randbytes(TRANSFER_BYTES)
    pid = start_listening(linux, LISTEN_PORT, f"nc -l -p {LISTEN_PORT} >/tmp/in")
    start = time.monotonic()
    with socket.create_connection((LOOPBACK, linux.port(LISTEN_PORT)), timeout=TRANSFER_SECONDS) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        linux.output_of(f"while kill -0 {pid} 2>/dev/null; do sleep 0.1; done", seconds=TRANSFER_SECONDS)
    record_property("megabytes_per_second", round(len(data) / (time.monotonic() - start) / 1e6, 1))
    assert linux.output_of("sha256sum /tmp/in; rm /tmp/in", seconds=60).split()[0] == hashlib.sha256(data).hexdigest()
    counters = statistics(linux)
    assert (counters["rx_csum_offload_errors"], counters["rx_crc_errors"], counters["rx_errors"]) == (0, 0, 0)


def test_tcp_out_of_the_guest_arrives_whole(linux: LinuxGuest, record_property) -> None:
    digest = linux.output_of(f"head -c {TRANSFER_BYTES} /dev/urandom >/tmp/out && sha256sum /tmp/out", seconds=120).split()[0]
    before = statistics(linux)["tx_pkts_nic"]
    start_listening(linux, SEND_PORT, f"nc -l -p {SEND_PORT} </tmp/out")
    start = time.monotonic()
    received = hashlib.sha256()
    size = 0
    with socket.create_connection((LOOPBACK, linux.port(SEND_PORT)), timeout=TRANSFER_SECONDS) as connection:
        while size < TRANSFER_BYTES and (data := connection.recv(1 << 18)):
            received.update(data)
            size += len(data)
    record_property("megabytes_per_second", round(size / (time.monotonic() - start) / 1e6, 1))
    assert (size, received.hexdigest()) == (TRANSFER_BYTES, digest)
    # This is the card's own count of frames. The driver's count is far lower, because it counts a frame before the card segments it (TSO).
    sent = statistics(linux)["tx_pkts_nic"] - before
    assert sent >= TRANSFER_BYTES // 1460, f"{sent} frames are fewer than these bytes need"
    linux.output_of("rm /tmp/out")


def test_many_flows_use_all_queues(linux: LinuxGuest) -> None:
    assert re.search(rf"^Current hardware settings:.*^Combined:\s+{CORES}$", linux.output_of("ethtool -l eth0"), re.DOTALL | re.MULTILINE)
    pid = start_listening(linux, LISTEN_PORT, f"nc -ll -p {LISTEN_PORT} -e cat")
    before = statistics(linux)

    def echo(number: int) -> bool:
        data = random.Random(number).randbytes(30_000)
        with socket.create_connection((LOOPBACK, linux.port(LISTEN_PORT)), timeout=TRANSFER_SECONDS) as connection:
            connection.sendall(data)
            got = b""
            while len(got) < len(data) and (piece := connection.recv(1 << 16)):
                got += piece
            return got == data

    # Few flows run at a time, because busybox's nc listens with a backlog of two. Each flow has its own port, so RSS spreads the flows.
    with concurrent.futures.ThreadPoolExecutor(FLOWS_AT_ONCE) as pool:
        outcomes = list(pool.map(echo, range(FLOWS), timeout=TRANSFER_SECONDS))
    linux.run(f"kill {pid}")
    assert all(outcomes)
    after = statistics(linux)
    for direction in ("rx", "tx"):
        used = [after[f"{direction}_queue_{queue}_packets"] - before[f"{direction}_queue_{queue}_packets"] for queue in range(CORES)]
        assert min(used) > 0, f"{direction} packets by queue: {used}"
    interrupts = re.findall(r"^\s*\d+:((?:\s+\d+)+)\s.*eth0-TxRx-(\d)", linux.output_of("cat /proc/interrupts"), re.MULTILINE)
    assert sorted(queue for _, queue in interrupts) == [str(queue) for queue in range(CORES)]
    assert all(sum(map(int, counts.split())) > 0 for counts, _ in interrupts)


@pytest.mark.timeout(60 * REPEATS + 600)
def test_down_and_up(linux: LinuxGuest) -> None:
    for _ in range(REPEATS):
        linux.output_of("ip link set eth0 down; sleep 0.2; [ $(cat /sys/class/net/eth0/operstate) = down ]")
        linux.output_of(BRING_UP + PING, seconds=PATIENT_SECONDS)


@pytest.mark.timeout(60 * REPEATS + 600)
def test_unloading_and_loading_the_driver(linux: LinuxGuest) -> None:
    for _ in range(REPEATS):
        linux.output_of("modprobe -r ixgbe && [ ! -e /sys/class/net/eth0 ]", seconds=60)
        linux.output_of(BRING_UP + PING, seconds=PATIENT_SECONDS)


def test_the_card_is_removed_from_the_bus_and_added_again(linux: LinuxGuest) -> None:
    linux.output_of(
        "dev=$(readlink -f /sys/class/net/eth0/device); echo 1 >$dev/remove; [ ! -e $dev ] && echo 1 >/sys/bus/pci/rescan", seconds=60
    )
    linux.output_of("for i in $(seq 50); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done")
    linux.output_of(BRING_UP + PING, seconds=PATIENT_SECONDS)
