# SPDX-License-Identifier: BSL-1.0
"""TCP between Linux on the soft card and the host's kernel in a namespace: every byte is compared, with every offload, behind an IOMMU.

Nothing between the two ends may lose or reorder frames. Tap device, card and driver must count the same number of frames, and no errors. So
the card causes no retransmission. TCP itself still retransmits if a busy host stops one end for longer than its timers. The number of those
retransmissions is recorded and not checked.

`./neap soak` runs the first transfer for a minute, with Debian 13's kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from linux_guest.driver import LINK_LOST, LINK_UP, PATIENT_SECONDS, SERVE, SOAKING, TRAFFIC_PORT, complaints, reached, statistics
from linux_guest.guest import LinuxGuest
from linux_guest.guest_image import GuestImage
from linux_guest.namespace import TAP, Namespace

pytestmark = pytest.mark.names_the_82599

LONG_SECONDS = 60 if SOAKING else 4
SECONDS = 1
FLOWS = 4
GUEST, GUEST6, OURS = "10.0.3.2", "fd00:3::2", "10.0.3.1"
BRING_UP = (
    LINK_UP
    + f"""
ip addr show eth0 | grep -q 'inet {GUEST}' || ip addr add {GUEST}/24 dev eth0
ip addr show eth0 | grep -q 'inet6 {GUEST6}' || ip addr add {GUEST6}/64 dev eth0
for i in $(seq 50); do ip addr show eth0 | grep -q tentative || break; sleep 0.1; done
{reached(OURS)} && ethtool -C eth0 rx-usecs 20
"""
)
# The names of the offloads for `ethtool -K`.
OFFLOADS = ("rx", "tx", "sg", "tso", "gro", "lro", "rxhash", "rxvlan", "txvlan", "ntuple")
# ixgbe can use receive buffers for two frames, or those of `legacy-rx`. With the former, it reports a wrong size of joined segments to
# Linux, and Linux logs this message once. With the latter, it reports the card's size.
JOINED_WRONGLY = "TCP: ethN: Driver has suspect GRO implementation, TCP performance may be compromised."
KNOWN = LINK_LOST | {JOINED_WRONGLY}
JUMBO_BYTES = 9000
TAG = 5
BROADCASTS = 100
QUIET_TRIES = 20


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace(f"{OURS}/24", "fd00:3::1/64") as made:
        yield made


@pytest.fixture(scope="module")
def booted(linux_image: GuestImage, namespace: Namespace) -> Iterator[LinuxGuest]:
    with LinuxGuest(linux_image, cores=2, namespace=namespace, iommu=True) as guest:
        yield guest


@pytest.fixture
def linux(booted: LinuxGuest) -> Iterator[LinuxGuest]:
    """The guest with all its default offloads, and its traffic server."""
    booted.output_of(BRING_UP + "\n" + SERVE, seconds=PATIENT_SECONDS)
    set_offloads(booted, OFFLOADS)
    yield booted
    assert complaints(booted, KNOWN) == []


def set_offloads(guest: LinuxGuest, on: tuple[str, ...]) -> None:
    words = " ".join(f"{name} {'on' if name in on else 'off'}" for name in OFFLOADS)
    guest.output_of(f"ethtool -K eth0 {words} && {BRING_UP}", seconds=PATIENT_SECONDS)


class Flow:
    """Runs traffic from the namespace, and reads the counters of both ends before and after."""

    def __init__(self, guest: LinuxGuest, namespace: Namespace, image: GuestImage) -> None:
        self.guest, self.namespace, self.image = guest, namespace, image

    def transfer(self, way: str, seconds: float = SECONDS, host: str = GUEST, flows: int = FLOWS) -> int:
        """Sends to the guest (`up`) or from the guest (`down`), compares every byte, and returns the number of bytes."""
        argv = [str(self.image.traffic), way, host, str(TRAFFIC_PORT), str(seconds), str(flows)]
        output = self.namespace.run(" ".join(argv), seconds=seconds + 180)
        count = int(re.match(r"bytes (\d+) ms \d+", output)[1])
        assert count > 0, output
        return count


@pytest.fixture
def flow(linux: LinuxGuest, namespace: Namespace, linux_image: GuestImage) -> Flow:
    return Flow(linux, namespace, linux_image)


def tcp_counters(text: str) -> dict[str, int]:
    """Parses /proc/net/snmp and netstat, which have pairs of lines: names and numbers."""
    counters = {}
    for prefix, names, numbers in re.findall(r"^(Tcp|TcpExt): ([A-Za-z].*)\n\1: (.*)$", text, re.MULTILINE):
        counters.update({f"{prefix}{name}": int(number) for name, number in zip(names.split(), numbers.split())})
    return counters


@dataclass(frozen=True)
class Counts:
    """Counters at both ends of a frame's path (each TCP), and at two points between them (driver, tap device)."""

    linux: dict[str, int]  # the guest's TCP
    ours: dict[str, int]  # the host's TCP, in the namespace
    driver: dict[str, int]
    tap: dict[str, int]

    def since(self, before: Counts) -> Counts:
        pairs = zip((self.linux, self.ours, self.driver, self.tap), (before.linux, before.ours, before.driver, before.tap))
        return Counts(*({name: now[name] - was.get(name, 0) for name in now} for now, was in pairs))

    def on_their_way(self) -> dict[str, int]:
        """Returns, for each direction, the frames that the tap device or the card has sent and its peer has not counted: 0 unless frames
        are lost or in flight."""
        return {
            "to the guest": self.tap["tx_packets"] - self.driver["rx_pkts_nic"],
            "from the guest": self.driver["tx_pkts_nic"] - self.tap["rx_packets"],
        }


def counts(flow: Flow) -> Counts:
    """Returns all counters, read while no frame was in flight. If frames are in flight at each of QUIET_TRIES reads, returns the last
    values."""
    both = "cat /proc/net/snmp /proc/net/netstat"
    for _ in range(QUIET_TRIES):
        before = tap_counters(flow.namespace)
        linux, driver = tcp_counters(flow.guest.output_of(both)), statistics(flow.guest)
        if tap_counters(flow.namespace) == before:
            break
    return Counts(linux, tcp_counters(flow.namespace.run(both)), driver, before)


def tap_counters(namespace: Namespace) -> dict[str, int]:
    names = ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors")
    values = namespace.run(f"grep {TAP} /proc/net/dev").partition(":")[2].split()
    return dict(zip(names, (int(values[at]) for at in (1, 9, 3, 11, 2, 10))))


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("buffers", ["legacy", "of-two-frames"])
def test_every_byte_arrives_with_all_offloads_and_no_frame_is_lost(flow: Flow, buffers: str, way: str, record_property) -> None:
    guest = flow.guest
    legacy = buffers == "legacy"
    # All frames in the namespace belong to the guest, so one counter shows how many arrived.
    guest.output_of(
        f"ethtool --set-priv-flags eth0 legacy-rx {'on' if legacy else 'off'}\nip link set eth0 allmulticast on\n{BRING_UP}",
        seconds=PATIENT_SECONDS,
    )
    before = counts(flow)
    count = flow.transfer(way, LONG_SECONDS)
    seen = counts(flow).since(before)
    record_property("megabytes_per_second", round(count / LONG_SECONDS / 1e6, 1))
    lost = {name: value for name, value in seen.tap.items() if name.endswith(("dropped", "errors")) and value}
    lost |= {
        name: value
        for name, value in seen.driver.items()
        if re.search("error|missed|no_buffer|no_dma|dropped|csum_offload|alloc.*failed", name) and value
    }
    assert lost == {}
    assert seen.on_their_way() == {"to the guest": 0, "from the guest": 0}
    assert way == "down" or seen.driver["hw_rsc_aggregated"] > 0, "the card has joined no frames"
    sender, receiver = (seen.ours, seen.linux) if way == "up" else (seen.linux, seen.ours)
    pauses = seen.driver["tx_flow_control_xon"] + seen.driver["tx_flow_control_xoff"]
    record_property("sent_again", f"{sender['TcpRetransSegs']}, {pauses} pauses")
    assert receiver["TcpInErrs"] == receiver["TcpInCsumErrors"] == 0
    # A retransmission itself reorders segments. Segments that the receiver drops because its queues are full also change the order.
    if sender["TcpRetransSegs"] == receiver["TcpExtTCPBacklogDrop"] == receiver["TcpExtTCPRcvQDrop"] == 0:
        assert receiver["TcpExtTCPOFOQueue"] == 0, "segments changed their order"
    assert not legacy or complaints(guest) == []


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("on", [(), ("rx", "tx", "sg", "tso")], ids=lambda on: "+".join(on) or "none")
def test_every_byte_arrives_with_fewer_offloads(flow: Flow, on: tuple[str, ...], way: str) -> None:
    set_offloads(flow.guest, on)
    flow.transfer(way)


@pytest.mark.parametrize("way", ["up", "down"])
def test_every_byte_arrives_over_ipv6(flow: Flow, way: str) -> None:
    before = counts(flow)
    flow.transfer(way, host=GUEST6, flows=16)
    seen = counts(flow).since(before)
    assert seen.linux["TcpInCsumErrors"] == seen.ours["TcpInCsumErrors"] == seen.driver["rx_csum_offload_errors"] == 0
    assert seen.driver["hw_rsc_aggregated"] == 0, "the card joins segments over IPv4 only"
    queues = [value for name, value in seen.driver.items() if re.fullmatch(r"rx_queue_\d+_packets", name) and value > 30]
    assert way == "down" or len(queues) > 1, "RSS sent all connections to one queue"


@pytest.mark.parametrize("lro", [False, True], ids=["no-lro", "lro"])
def test_jumbo_frames(flow: Flow, lro: bool) -> None:
    guest, namespace = flow.guest, flow.namespace
    set_offloads(guest, tuple(name for name in OFFLOADS if lro or name != "lro"))
    namespace.run(f"ip link set {TAP} mtu {JUMBO_BYTES}")
    guest.output_of(f"ip link set eth0 mtu {JUMBO_BYTES}\n{BRING_UP}", seconds=PATIENT_SECONDS)
    try:
        guest.output_of(reached(OURS, f"-s {JUMBO_BYTES - 28}"), seconds=PATIENT_SECONDS)
        before = statistics(guest)
        count = flow.transfer("up") + flow.transfer("down")
        after = statistics(guest)
        frames = sum(after[name] - before[name] for name in ("rx_pkts_nic", "tx_pkts_nic"))
        assert after["rx_length_errors"] == before["rx_length_errors"]
        assert frames < 2 * count / 1500 + 2000, "the frames were no larger than usual"
    finally:
        namespace.run(f"ip link set {TAP} mtu 1500")
        guest.output_of(f"ip link set eth0 mtu 1500\n{BRING_UP}", seconds=PATIENT_SECONDS)


@pytest.mark.parametrize("by_card", [True, False], ids=["tagged-by-the-card", "tagged-by-linux"])
def test_vlans(flow: Flow, by_card: bool) -> None:
    guest, namespace = flow.guest, flow.namespace
    set_offloads(guest, tuple(name for name in OFFLOADS if by_card or "vlan" not in name))
    device, address = f"eth0.{TAG}", f"10.0.{TAG}.2"
    with namespace.tagged(TAG, f"10.0.{TAG}.1/24") as wanted, namespace.tagged(TAG + 1, "10.0.9.1/24") as other:
        guest.output_of(f"modprobe 8021q; ip link add link eth0 name {device} type vlan id {TAG} && ip addr add {address}/24 dev {device}")
        try:
            guest.output_of(f"ip link set {device} up || exit 1\n{reached(f'10.0.{TAG}.1')}", seconds=PATIENT_SECONDS)
            for way in ("up", "down"):
                flow.transfer(way, host=address)
            # The card's filter drops frames with a tag that was not configured. Broadcasts with the configured tag arrive.
            before = statistics(guest)["rx_packets"]
            namespace.run(f"ping -b -c {BROADCASTS} -i 0.01 -W 1 -I {other} 10.0.9.255 || true")
            guest.output_of(reached(f"10.0.{TAG}.1"), seconds=PATIENT_SECONDS)
            between = statistics(guest)["rx_packets"]
            namespace.run(f"ping -b -c {BROADCASTS} -i 0.01 -W 1 -I {wanted} 10.0.{TAG}.255 || true")
            guest.output_of(reached(f"10.0.{TAG}.1"), seconds=PATIENT_SECONDS)
            assert between - before < BROADCASTS <= statistics(guest)["rx_packets"] - between
        finally:
            guest.run(f"ip link del {device}")
    guest.output_of(reached(OURS), seconds=PATIENT_SECONDS)


@pytest.mark.parametrize("fault", ["drop both", "corrupt both", "reorder both"], ids=lambda fault: fault.split()[0])
def test_every_byte_arrives_though_one_frame_in_a_hundred_is_lost(flow: Flow, fault: str) -> None:
    machine = flow.guest.machine
    machine.card_command(f"fault {fault} chance 0.01")
    try:
        for way in ("up", "down"):
            flow.transfer(way)
    finally:
        machine.card_command("fault off")


def test_a_flapping_link_is_seen_and_survived(flow: Flow) -> None:
    guest = flow.guest
    losses = "dmesg | grep -c 'NIC Link is Down' || true"
    before = int(guest.output_of(losses))
    # A busy host may stop the guest for a second, so the link is down for longer: the driver looks at its state only after an interrupt.
    guest.machine.card_command("link flap 2000000000 2")
    guest.output_of(f"for i in $(seq 600); do [ $({losses}) -gt {before} ] && exit; sleep 0.1; done; exit 1", seconds=PATIENT_SECONDS)
    guest.output_of(BRING_UP, seconds=PATIENT_SECONDS)
    flow.transfer("up")


def test_down_and_up_under_load(flow: Flow) -> None:
    guest, namespace = flow.guest, flow.namespace
    sender = namespace.spawn([str(flow.image.traffic), "up", GUEST, str(TRAFFIC_PORT), "6", str(FLOWS)])
    for _ in range(2):
        guest.output_of(f"sleep 1; ip link set eth0 down; sleep 0.3; {BRING_UP}", seconds=PATIENT_SECONDS)
    output = sender.communicate(timeout=180)[0].decode()
    assert sender.returncode == 0 and re.match(r"bytes [1-9]", output), output
