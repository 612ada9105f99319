# SPDX-License-Identifier: BSL-1.0
"""memcached answers on every common kind of machine: chipsets, CPU models, nodes, much memory. The machine's reports about itself are
right."""

import re

import pytest
from servers import NeapServer

from tools import build, ctl, run
from tools.control_client import fields_of

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]

SMALL = ["memory=64M", "log=1K"]


@pytest.mark.parametrize(
    "options",
    [
        {"cores": 16, "memory": "6G", "nodes": 2},
        {"cores": 1, "memory": "256M", "machine_type": "pc", "cpu": "SandyBridge"},
        {"cores": 4, "memory": "6G", "machine_type": "pc", "cpu": "EPYC"},
        {"cores": 4, "memory": "4G", "cpu": "Skylake-Server"},
        {"cores": 2, "cpu": "max,-x2apic"},
    ],
    ids=["q35-16-cores-6G-two-nodes", "pc-SandyBridge-256M", "pc-EPYC-6G", "Skylake-Server-4G", "xapic"],
)
def test_it_answers_on(options: dict) -> None:
    with NeapServer(arguments=SMALL, **options) as server:
        server.machine.wait_for_line(rf"^neap: memcached \(.+\) on {options['cores']} core", 1)
        server.check()


def test_a_slow_card_shows_its_moderation() -> None:
    # Without moderation, so many interrupts would take a small part of this time on the card's clock. A request that arrives before the
    # core sleeps again causes no interrupt, so their number is not that of the requests.
    enough, requests_at_once, requests_max, itr_us, slow = 25, 50, 20_000, 100, 100
    with NeapServer(arguments=[*SMALL, f"itr={itr_us}us"], card_options=run.slow_card(slow)) as server:
        vm = server.machine

        def card_ns() -> int:
            return vm.card_command("clock")["now"]

        def interrupts() -> int:
            return int(re.search(r" interrupts=(\d+)", control.ask("cores"))[1])

        with server.control() as control, server.connect() as wire:
            assert vm.card_command("clock")["scale"] == 1 / slow
            began_ns, before = card_ns(), interrupts()
            after = before
            for _ in range(requests_max // requests_at_once):
                for _ in range(requests_at_once):
                    assert wire.ask_line(b"version\r\n").startswith(b"VERSION ")
                after = interrupts()
                if after - before >= enough:
                    break
            ended_ns = card_ns()
    # The first interrupts after a pause come at once.
    assert enough <= after - before <= (ended_ns - began_ns) / (itr_us * 1000) + 5


def test_its_description_and_its_boot_log_can_be_fetched(capsys: pytest.CaptureFixture) -> None:
    with NeapServer(arguments=[*SMALL, "control_token=s3cret-s3cret", "panic=reboot"], restarts=True) as server:

        def ask(line: str) -> str:
            assert ctl.ctl(server.control_target, ["token,s3cret-s3cret", line], pid=None, token_file=None, as_json=False) == 0
            return capsys.readouterr().out.removeprefix(f"> token,...\nok\n> {line}\n")

        facts = fields_of(ask("boot"))
        assert facts["application"] == "memcached" and facts["build"].startswith("release, gcc ")
        # This is the commit of the build, which may differ from the checkout's present commit.
        assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?|unknown", facts["commit"])
        assert f'"{facts["commit"]}"' in (build.BUILD / "image/boot/commit.cpp").read_text()
        assert facts["words"] == "memory=64M log=1K control_token=*** panic=reboot"
        assert (facts["boot"], facts["panic_before"]) == ("1", "no")
        assert ask("last_panic") == ""
        lines = ask("dmesg").splitlines()
        assert lines == server.machine.lines[: len(lines)] and "memcached: listening on" in lines[-1]
        assert any(line.startswith("neap: command line: ") and line.endswith("control_token=*** panic=reboot") for line in lines)
        assert "s3cret" not in "\n".join(lines)

        lines = len(server.machine.lines)
        server.machine.qmp("inject-nmi")
        server.machine.wait_for_line("memcached: listening on", 60, lines)
        facts = fields_of(ask("boot"))
        assert (facts["boot"], facts["panic_before"]) == ("2", "yes")
        panic = ask("last_panic")
        assert "\npanic on core 0: NMI\n" in panic and "\nbacktrace of core 0:\n" in panic and "s3cret" not in panic
        server.check()
