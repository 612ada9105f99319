# SPDX-License-Identifier: BSL-1.0
"""`./neap ctl APP|HOST[:PORT] 'line' ...`: sends lines to a machine's control server and prints its answers in order, one per line.

If there are several lines, each is printed before its answer, after `> `.
"""

import json
import re
from collections.abc import Sequence

from tools import control_client
from tools.errors import EXIT_FAILURE, UsageError
from tools.foreign import shown_lines
from tools.machine_registry import find_control

# Maps commands with a binary answer to the command of `./neap` that reads the answer.
NOT_LINES = {"get": "./neap log fetch", "stream": "./neap log collect"}

# The lines that a machine with `dialect=ebbrt` answers as EbbRT does: without a line feed, or not at all (docs/control.md).
EBBRT_LINE = re.compile(
    r"\s*((start|stop|clear|rdtsc|print)\s*,\s*[0-9]+\s*$|(rx_usecs|dvfs|rapl|sleep_state|getcounters|ixgbe_switch_send)\s*(,|$))"
)
EBBRT_SILENCE = "(no answer, as in EbbRT: this machine was booted with dialect=ebbrt)"

# Commands whose answer line contains several lines of text.
TEXTS = ("dmesg", "last_panic")
# Largest number of answers for one text. The boot log is 64 KiB and an answer 8 KiB, but the log may grow meanwhile.
PIECES_MAX = 64


def ctl(target: str, lines: Sequence[str], *, pid: int | None, token_file: str | None, as_json: bool) -> int:
    """Sends the lines and prints the answers. Returns 1 if any answer is an error; later lines are sent nevertheless."""
    for line in lines:
        check_line(line)
    host, port = find_control(target, pid)
    token = control_client.read_token(token_file)
    answers = []
    with control_client.Control(host, port, token) as connection:
        in_ebbrts_dialect = any(EBBRT_LINE.match(line) for line in lines) and control_client.speaks_ebbrts_dialect(connection)
        for line in lines:
            shown = "token,..." if line.strip().lower().startswith("token") else line
            if len(lines) > 1 and not as_json:
                print(f"> {shown_lines(shown)}", flush=True)
            if in_ebbrts_dialect and EBBRT_LINE.match(line):
                answer = ask_in_ebbrts_dialect(host, port, token, line)
                answers.append({"line": shown, "ok": not answer.startswith("error:"), "answer": answer})
                if not as_json:
                    print("\n".join(shown_lines(part) for part in answer.splitlines()) or EBBRT_SILENCE, flush=True)
                continue
            answer = connection.ask(line)
            if not as_json and show_text(connection, line, answer):
                answers.append({"ok": True})
                continue
            answers.append({"line": shown, "ok": answer == "ok" or answer.startswith("ok "), "answer": answer})
            if not as_json:
                print(shown_lines(answer), flush=True)
    if as_json:
        print(json.dumps(answers, indent=2))
    return 0 if all(answer["ok"] for answer in answers) else EXIT_FAILURE


def ask_in_ebbrts_dialect(host: str, port: int, token: str | None, line: str) -> str:
    """Sends one line, closes this side, and returns everything that the machine sends until it closes the other side."""
    with control_client.Control(host, port, token) as connection:
        connection.send(line)
        connection.end_sending()
        data = connection.read(control_client.ANSWER_BYTES_MAX, control_client.ANSWER_SECONDS)
    return data.decode("utf-8", "replace")


def show_text(connection: control_client.Control, line: str, answer: str) -> bool:
    """Prints the text in an answer's last field as lines, and requests the rest of the text. Returns False if the answer has no text."""
    name = line.split(",")[0].strip().lower()
    if name not in TEXTS or control_client.text_of(answer) is None:
        return False
    for _ in range(PIECES_MAX):
        print(shown_lines(control_client.text_of(answer) or ""), end="", flush=True)
        following = control_client.next_piece(control_client.fields_of(answer))
        if following is None:
            break
        answer = connection.ask(f"{name},{following}")
        if control_client.text_of(answer) is None:
            raise control_client.Refused(f"{connection.name} broke off: {answer}")
    return True


def check_line(line: str) -> None:
    """Raises UsageError for text that is not one line of the protocol."""
    if not line.strip() or "\n" in line or "\r" in line:
        raise UsageError("ctl takes one command a word, in quotes", "./neap ctl memcached 'itr,8us' status")
    if len(line.encode(errors="surrogateescape")) >= control_client.LINE_BYTES_MAX:
        raise UsageError(f"a line has at most {control_client.LINE_BYTES_MAX - 1} bytes")
    name = line.split(",")[0].strip().lower()
    if name in NOT_LINES:
        raise UsageError(f"{name} answers with a log, not with a line", f"{NOT_LINES[name]} writes it to files")
