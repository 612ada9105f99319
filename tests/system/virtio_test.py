# SPDX-License-Identifier: BSL-1.0
"""The images on QEMU's virtio-net: over its user network, which offers only buffers, and over a tap device, whose kernel offers several
queues, checksums and long frames. Both are tested with the newest QEMU and with that of the machine's distribution, which is 7.2 on Debian
12. `./neap test system --card virtio` runs the other tests on this card."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import distribution_qemu
import pytest
from launcher_test import Run, ask
from linux_guest.namespace import TAP, Namespace
from mixed_load import run_mixed_load
from mtu_test import EXCHANGE
from servers import START_SECONDS, NeapServer

from tools import build, qemu
from tools.machine import LOOPBACK, Machine, free_port
from tools.process import output_of

pytestmark = pytest.mark.image_only

HOST, IMAGE = "10.0.3.1", "10.0.3.2"
VALUE_BYTES = 900_000
PATIENCE_SECONDS = 120
PLAIN = ["csum=off", "guest_csum=off", "mrg_rxbuf=off", "event_idx=off", "indirect_desc=off"]
TAP_FEATURES = ("csum", "guest_csum", "tso4", "guest_tso4", "mrg_rxbuf", "indirect", "event_idx")


def counters(text: str) -> dict[str, int]:
    return {name: int(value) for name, _, value in (word.partition("=") for word in text.replace(";", " ").split()) if value.isdigit()}


@pytest.fixture
def any_qemu(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property) -> Iterator[tuple[str, ...]]:
    """The QEMU of machines with a virtio card."""
    command = qemu.command() if request.param == "newest" else (str(distribution_qemu.program(tmp_path)),)
    record_property("qemu", qemu.version_of(command))
    monkeypatch.setattr(qemu, "plain_command", lambda: command)
    yield command


@pytest.mark.parametrize("cores", [1, 4])
def test_the_launcher_runs_the_image_on_the_distributions_own_qemu(cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = qemu.version_of((str(distribution_qemu.program(tmp_path)),))
    assert version, "the distribution's QEMU does not start"
    monkeypatch.delenv("NEAP_QEMU", raising=False)
    port = free_port()
    words = ["--card", "virtio", "--cores", str(cores), "--forward", f"{port}:11211"]
    with Run("memcached", *words, PATH=f"{tmp_path}:{os.environ['PATH']}") as run:
        run.wait_for(f"neap: answers on {LOOPBACK}:{port}")
        assert f"neap: QEMU {version}\n" in run.text()
        assert f" on {cores} core" in run.text() and "virtio: network card" in run.text()
        ask(port)


@pytest.mark.parametrize("any_qemu", ["newest", "distribution"], indirect=True)
@pytest.mark.parametrize("cores", [1, 4])
def test_the_user_network_of_any_qemu_serves_clients(cores: int, any_qemu: tuple[str, ...]) -> None:
    with NeapServer(cores=cores, memory="384M", arguments=["memory=192M"], card_kind="virtio", card_queues=1) as server:
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


def test_each_core_has_a_queue_behind_the_user_network_of_a_new_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "plain_command", qemu.command)
    with NeapServer(cores=4, memory="384M", arguments=["memory=192M"], card_kind="virtio") as server:
        server.machine.wait_for_line(r"virtio: network card, MAC .*, 4 of 4 queue pairs, the device steers", 1)
        run_mixed_load(server, connections=40, operations=3000, large_values=20)
        with server.control() as control:
            accepted = [counters(control.ask(f"stats,{core}"))["net.connections_accepted"] for core in range(4)]
        assert min(accepted) > 0, accepted
        server.check()


def test_a_card_that_is_not_there_is_named() -> None:
    with Machine(build.image("memcached"), card_kind="virtio", arguments=["card=82599"]) as machine:
        machine.wait_for_line("no network card: there is no 82599, but a virtio-net: leave card= out, or card=virtio", START_SECONDS)
    with Machine(build.image("memcached"), card=False) as machine:
        machine.wait_for_line(r"no network card: there is neither an 82599 \(or X540, X550\) nor a virtio-net on the PCI", START_SECONDS)


@pytest.mark.parametrize(
    ("any_qemu", "properties"),
    [(program, properties) for program in ("newest", "distribution") for properties in ([], ["rss=on"], PLAIN)],
    indirect=["any_qemu"],
)
def test_a_tap_device_gives_each_core_a_queue(properties: list[str], any_qemu: tuple[str, ...]) -> None:
    plain = properties == PLAIN
    with (
        Namespace(f"{HOST}/24", many_queues=True) as namespace,
        Machine(
            build.image("memcached"),
            cores=4,
            card_kind="virtio",
            card_queues=4,
            # QEMU 7.2's emulator has a race between cores in threads of their own (docs/virtio.md).
            one_thread=any_qemu != qemu.command(),
            card_options=properties,
            net=f"tap:{TAP}",
            arguments=[f"ip={IMAGE}/24", "ip6=off", "memory=64M"],
            qemu_command=namespace.inside(any_qemu),
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
