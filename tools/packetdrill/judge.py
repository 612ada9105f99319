# SPDX-License-Identifier: BSL-1.0
"""Runs scripts under Google's packetdrill, against the same object, and compares its verdicts with those of our interpreter."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.errors import Failure
from tools.packetdrill import runner

JUDGE_SECONDS = 60
# Words of our interpreter's additions, and code, which packetdrill runs with Linux's TCP_INFO.
OWN_WORDS = re.compile(
    r"%\{|TS val|\burg \d|,\.\.\.>|<[^>]*raw |\[[^\]]*\b(?:df|nodf|mf|badsum|from|to)\b|\d+>\d+ |"
    r"\bsendto\(|SOCK_DGRAM|udp|icmp echo"
)


PEERS_SYN = re.compile(r"< S\w* (\d+):")


def can_judge(script: Path) -> bool:
    """True if the script uses nothing that packetdrill does not have. packetdrill reads timestamps in another way, and has one connection
    for each pair of ports, whose first number is 0 if the numbers wrap."""
    events = [line for line in script.read_text().splitlines() if not line.startswith("//")]
    syns = {match[1] for line in events if (match := PEERS_SYN.search(line))}
    return len(syns) < 2 and syns <= {"0"} and not any(OWN_WORDS.search(line) for line in events)


def verdict(program: Path, library: Path, script: Path) -> str | None:
    """Returns the failure that packetdrill reports, or None."""
    argv = [str(program), f"--so_filename={library}", f"--local_ip={runner.LOCAL}", f"--remote_ip={runner.REMOTE}", "--ip_version=ipv4"]
    argv += ["--gateway_ip=192.168.0.2", "--netmask_ip=255.255.0.0", f"--tolerance_usecs={runner.TOLERANCE_US}"]
    argv += ["--tolerance_percent=0", str(script)]
    if "--so_flags" not in script.read_text():
        argv.insert(2, "--so_flags=seed=1")
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=JUDGE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no end within {JUDGE_SECONDS} s"
    except OSError as error:
        raise Failure(f"{program} does not start: {error}") from None
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit status {done.returncode}"


def compare(program: Path, library: Path, own: Sequence[tuple[Path, str | None]]) -> int:
    """Prints a line for each script on which the two differ. Returns the number of these scripts."""
    differ = judged = 0
    for script, failure in own:
        if not can_judge(script):
            continue
        judged += 1
        other = verdict(program, library, script)
        if (other is None) != (failure is None):
            differ += 1
            print(f"{script}:\n  packetdrill: {other or 'passed'}\n  here:        {failure or 'passed'}", flush=True)
    print(f"{judged} of {len(own)} scripts judged by {program.name}, {differ} verdicts differ")
    return differ
