# SPDX-License-Identifier: BSL-1.0
"""The images on QEMU's virtio-net: over its user network, which offers only buffers, and over a tap device, whose kernel offers several
queues, checksums and long frames. `./neap test system --card virtio` runs the other tests on this card."""

import sys

import pytest
from linux_guest.namespace import TAP, Namespace
from mixed_load import run_mixed_load
from mtu_test import EXCHANGE
from servers import START_SECONDS, NeapServer

from tools import build, qemu
from tools.machine import Machine
from tools.process import output_of

pytestmark = pytest.mark.image_only

HOST, IMAGE = "10.0.3.1", "10.0.3.2"
VALUE_BYTES = 900_000
PATIENCE_SECONDS = 120
TAP_FEATURES = ("csum", "guest_csum", "tso4", "guest_tso4", "mrg_rxbuf", "indirect", "event_idx")


def counters(text: str) -> dict[str, int]:
    return {name: int(value) for name, _, value in (word.partition("=") for word in text.replace(";", " ").split()) if value.isdigit()}


@pytest.mark.parametrize("cores", [1, 4])
def test_the_user_network_of_any_qemu_serves_clients(cores: int) -> None:
    with NeapServer(cores=cores, memory="384M", arguments=["memory=192M"], card_kind="virtio") as server:
        server.machine.wait_for_line(r"virtio: network card, MAC .*, 1 of 1 queue pairs, one queue", 1)
        run_mixed_load(server, connections=20, operations=3000, large_values=20)
        with server.control() as control:
            found = counters(control.ask("stats"))
            assert control.ask("card").startswith("ok")
            assert control.ask("itr,16us").startswith("error: itr: this device does not moderate interrupts")
            assert control.ask("pthresh,1").startswith("error:")
            assert "promiscuous=on" in control.ask("promiscuous,on")
        assert found["virtio.rx.frames"] > 1000 and found["virtio.tx.frames"] > 1000
        assert found["virtio.pair.wrong_entries"] == found["virtio.card.failures"] == found["virtio.tx.lost"] == 0
        server.check()


def test_a_card_that_is_not_there_is_named() -> None:
    with Machine(build.image("memcached"), card_kind="virtio", arguments=["card=82599"]) as machine:
        machine.wait_for_line("no network card: there is no 82599, but a virtio-net: leave card= out, or card=virtio", START_SECONDS)
    with Machine(build.image("memcached"), card=False) as machine:
        machine.wait_for_line("no network card: there is neither an 82599 nor a virtio-net on the PCI buses", START_SECONDS)


@pytest.mark.parametrize(
    "properties", [[], ["rss=on"], ["csum=off", "guest_csum=off", "mrg_rxbuf=off", "event_idx=off", "indirect_desc=off"]]
)
def test_a_tap_device_gives_each_core_a_queue(properties: list[str]) -> None:
    plain = "csum=off" in properties
    with (
        Namespace(f"{HOST}/24", many_queues=True) as namespace,
        Machine(
            build.image("memcached"),
            cores=4,
            card_kind="virtio",
            card_queues=4,
            card_options=properties,
            net=f"tap:{TAP}",
            arguments=[f"ip={IMAGE}/24", "ip6=off", "memory=64M"],
            qemu_command=namespace.inside(qemu.plain_command()),
        ) as machine,
    ):
        line = machine.wait_for_line("virtio: network card", START_SECONDS)
        assert "4 of 4 queue pairs" in line and ("RSS" in line) == ("rss=on" in properties), line
        assert all((f" {name}" in line) != plain for name in TAP_FEATURES), line
        machine.wait_for_line("memcached: listening on", START_SECONDS)
        for _ in range(8):  # flows for several cores
            argv = namespace.inside([sys.executable, "-c", EXCHANGE, IMAGE, TAP, str(VALUE_BYTES)])
            _, _, longest_in, longest_out = (int(word) for word in output_of(argv, timeout_seconds=PATIENCE_SECONDS).split())
            # Frames are cut by the kernel, not by us: longer ones pass the tap device in both directions.
            assert (max(longest_in, longest_out) > 1514) != plain
        argv = [sys.executable, str(build.REPOSITORY / "neap"), "ctl", IMAGE, "stats"]
        found = counters(output_of(namespace.inside(argv), timeout_seconds=PATIENCE_SECONDS))
        assert found["virtio.pair.wrong_entries"] == found["virtio.card.failures"] == 0
        assert (found["virtio.rx.merged"] != 0) != plain
