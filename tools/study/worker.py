# SPDX-License-Identifier: BSL-1.0
"""A worker of a sweep: a process that runs units, one at a time. It needs a checkout, and no network: the sweep speaks to it through
standard input and output, here or by a program such as ssh (docs/study.md, "Rigs").

Each message is one line of JSON. An answer is `{"error": {"message": ..., "hint": ...}}` if the request failed.

    -> {"prepare": {"systems": ["neap"], "load": false}}     what is built; load: the load generator for real machines
    <- {"programs": {"model": {"QEMU": "11.1.3", ...}, "neap": {"neap image": HASH}}}
    -> {"reach": {"machine": NAME, "address": ADDRESS}}      does this real machine answer?
    <- {}
    -> {"run": {...}}                      plan.order_of
    <- {"results": [{"figures": {...}, "histogram": [[us, count], ...], "log": BASE64 of a tar archive, or null}, ...]}

When its input ends, the worker ends at once, and so do the machines that it runs. So no run goes on after the sweep was killed. It ends,
too, if a build replaces what it boots.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import queue
import sys
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tools.errors import Failure
from tools.foreign import parse_json


def serve(requests: IO[bytes], answers: IO[bytes]) -> int:
    """Answers all requests. Returns at the end of input."""
    lines: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        for line in requests:
            lines.put(line)
        # The main thread may wait for a machine. Its children end with this process (tools/process.py).
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        answer = _answer(lines.get())
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _answer(line: bytes) -> dict[str, Any]:
    try:
        request = parse_json(line)
        if not isinstance(request, dict):
            raise Failure("a request that is no object of JSON")
        if "prepare" in request:
            return {"programs": _prepare(request["prepare"])}
        if "reach" in request:
            from tools.study import real

            real.reach(request["reach"]["machine"], request["reach"]["address"])
            return {}
        return {"results": _run(request["run"])}
    except Failure as failure:
        return {"error": {"message": failure.message, "hint": failure.hint, "details": failure.details}}
    except OSError as error:
        return {"error": {"message": f"{error.filename or ''} {error.strerror or error}".strip(), "hint": None, "details": []}}


def _prepare(wanted: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    from tools import build, run
    from tools.study import modelled

    run.require_build_packages()
    if wanted["load"]:
        build.build_load()
    return modelled.prepare(wanted["systems"]) if wanted["systems"] else {}


def _run(order: Mapping[str, Any]) -> list[dict[str, Any]]:
    from tools.study import modelled, real

    with tempfile.TemporaryDirectory(prefix="neap-study-") as scratch:
        runner = real.run if order["machine"] else modelled.run
        found = [{**each, "log": each["log"] and _packed(Path(each["log"]))} for each in runner(order, Path(scratch))]
    if path := modelled.rebuilt():
        # The sweep starts this worker again, and compares the new programs with those of the other runs.
        sys.exit(f"neap: {path} was built anew during a run, which therefore does not count")
    return found


def _packed(folder: Path) -> str:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=".")
    return base64.b64encode(data.getvalue()).decode()


def main() -> int:
    # All other output of this process and of its children goes to standard error, so that answers are the only lines of standard output.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(KeyboardInterrupt):
        return serve(sys.stdin.buffer, answers)
    return 1


if __name__ == "__main__":
    sys.exit(main())
