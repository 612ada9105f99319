# SPDX-License-Identifier: BSL-1.0
"""The ten commands of docs/experiments.md, taken from the page, with a shorter load. The last command's plots are shown in a browser."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import build
from tools.log.browser import Browser
from tools.machine import free_port
from tools.process import finished, wait_until

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]  # its moderation of interrupts

PAGE = build.REPOSITORY / "docs/experiments.md"
START_SECONDS = 300.0
COMMAND_SECONDS = 180.0
# The page uses longer times, but this test does not need them.
SHORTER = {"--seconds 20": "--seconds 12", "sleep 5": "sleep 3"}


def commands() -> tuple[str, list[str]]:
    """Returns the page's first command, and the commands for the second terminal."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (start,), rest = blocks[0].splitlines(), blocks[1].splitlines()
    assert [int(number) for number in re.findall(r"# (\d+)", "\n".join(blocks[:2]))] == list(range(1, 11)), "ten commands"
    return start.split("#")[0].strip(), rest


def test_the_first_experiment_goes_as_the_page_says(own_runs: None, tmp_path: Path) -> None:
    start, rest = commands()
    port = free_port()
    launcher = [sys.executable, str(build.REPOSITORY / "neap")]
    words = shlex.split(start)
    assert words[:3] == ["./neap", "run", "memcached"]
    console = tmp_path / "console"
    with open(console, "wb") as out:
        argv = [*launcher, "run", "memcached", "--forward", f"{port}:11211", *words[3:]]
        machine = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    try:
        answers = f"answers on 127.0.0.1:{port}".encode()
        assert wait_until(lambda: machine.poll() is not None or answers in console.read_bytes(), START_SECONDS, 0.1)
        assert machine.poll() is None, console.read_text()
        script = "set -e\n" + "\n".join(rest)
        for text, shorter in SHORTER.items():
            assert text in script
            script = script.replace(text, shorter)
        script = script.replace("./neap", shlex.join(launcher))
        began = time.monotonic()
        done = finished(["sh", "-c", script], COMMAND_SECONDS, cwd=tmp_path)
        seconds = time.monotonic() - began
        assert done.returncode == 0, done.stdout + done.stderr
        # The load's table may list errors, because a busy machine may not keep up with the load.
        assert not re.search(r"\berror:|^neap-load:", done.stdout + done.stderr, re.MULTILINE), done.stdout + done.stderr
        print(f"commands 2 to 10: {seconds:.0f} s")
    finally:
        machine.terminate()
        machine.wait(60)
    with Browser(tmp_path / "profile") as browser:
        browser.show((tmp_path / "first/report.html").as_uri())
        inside = browser.evaluate("shown.runs[0].panels.map(({title, grid}) => [title, grid.inside])")
        assert [title for title, _ in inside] == [f"core {core}" for core in range(4)] and all(points > 0 for _, points in inside)
        marks = browser.evaluate("page.runs[0].marks.map(mark => mark.text)")
        assert [text for text in marks if not text.startswith("load: ")] == ["itr=8us", "poll_budget=50us", "idle=poll"]
        parts = [text.removeprefix("load: ") for text in marks if text.startswith("load: ")]
        assert parts == ["preload", "warm_up", "window", "drain", "end"], marks
        assert browser.evaluate("page.runs[0].latency.windows.length") > 0, browser.evaluate("page.runs[0].latency.note")
        table = browser.evaluate("document.querySelector('details.tables[open] pre').textContent")
        for figure in ("requests/s", "interrupts/request", "asleep", "latency p50", "latency p99"):
            (row,) = re.findall(rf"^{re.escape(figure)}  +(.*)$", table, re.MULTILINE)
            values = re.split("  +", row)
            # On a busy host, the load's preparation may last into the second phase: then the first is not in the table or has no latency.
            known = values[1:] if len(values) == 4 else values
            assert len(known) == 3 and "not known" not in known, "each phase but the first has the figure: " + row
        assert "This CPU has no energy counter" in browser.evaluate("document.body.textContent")
