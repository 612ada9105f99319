# SPDX-License-Identifier: BSL-1.0
"""`./neap log fetch`: copies each core's log over a separate connection, like `echo "get,3" | socat -t 10 - TCP4:HOST:5002 > core3.log`.

If a connection breaks, the log of the connection's core is discarded. `./neap log collect` resumes after a broken connection.
"""

import contextlib
import os
import time
from pathlib import Path

from tools import cache, control_client, progress
from tools.errors import Failure
from tools.log import layout
from tools.log.collect import SILENCE_SECONDS, control_name, report
from tools.log.folder import LIMIT_BYTES, Folder, Identity, describe_run, log_files


def fetch(address: tuple[str, int], out: Path, *, token: str | None, as_json: bool, limit_bytes: int = LIMIT_BYTES) -> int:
    """Fetches all cores into `out`. A file gets its final name when it is complete. `limit_bytes` limits the size of all logs in `out`."""
    start = time.monotonic()
    with Folder(out, limit_bytes) as folder:
        found = folder.finished() or folder.unfinished()
        if found and folder.finished() is None:
            raise Failure(
                f"{out} holds a collection that is not finished", "./neap log collect finishes it; or choose another folder: --out"
            )
        try:
            first = _fetch_core(address, token, folder, 0, None, found)
        except (control_client.Lost, layout.Damaged):
            _refuse_ebbrts_dialect(address, token)
            raise
        for core in range(1, first.cores):
            if progress.on_terminal():
                progress.show_status(f"neap: core {core} of {first.cores}")
            _fetch_core(address, token, folder, core, first, found)
        progress.show_status("")
        content = describe_run(log_files(out), **{"from": control_name(address), "mode": "get"})
        folder.finish(content)
    return report(content, out, sum(row["lines"] for row in content["files"]), time.monotonic() - start, as_json)


def _refuse_ebbrts_dialect(address: tuple[str, int], token: str | None) -> None:
    """Raises Failure if the machine speaks the dialect of EbbRT, in which `get,0` sends EbbRT's records."""
    with contextlib.suppress(control_client.Lost), control_client.Control(*address, token) as connection:
        if control_client.speaks_ebbrts_dialect(connection):
            raise Failure(
                f"{connection.name} was booted with dialect=ebbrt, so it sends EbbRT's records without a header",
                "./neap log collect brings Neap's log from such a machine",
            )


def _fetch_core(
    address: tuple[str, int], token: str | None, folder: Folder, core: int, like: layout.Header | None, found: dict | None
) -> layout.Header:
    with control_client.Control(*address, token) as connection:
        connection.send(f"get,{core}")
        raw = connection.read(layout.HEADER_BYTES_MIN, SILENCE_SECONDS)
        if raw.startswith(b"error"):
            answer = raw.split(b"\n")[0].decode("ascii", "replace")
            raise control_client.Refused(f"{connection.name} answered '{answer}' to get,{core}")
        name = f"what {connection.name} sent for core {core}"
        size = layout.HEADER_BYTES_MIN if len(raw) < layout.HEADER_BYTES_MIN else layout.header_bytes(raw, name)
        raw += connection.read(size - len(raw), SILENCE_SECONDS) if len(raw) < size else b""
        if len(raw) < size:
            raise control_client.Lost(f"{connection.name} ended the connection after {len(raw)} bytes of core {core}'s header")
        header = layout.parse_header(raw, name)
        identity = Identity(header.boot_id, header.run)
        if header.core != core:
            raise Failure(f"{connection.name} sent core {header.core} for core {core}")
        if like and identity != Identity(like.boot_id, like.run):
            raise Failure(f"{connection.name}: run {header.run} began while run {like.run} was fetched", "fetch again when it is over")
        if like and header.run_of != like.run_of:
            raise Failure(f"{connection.name}: the headers of cores {like.core} and {core} contradict each other")
        if found:
            folder.require_same(found, identity)
        with contextlib.suppress(FileNotFoundError):
            folder.claim(-folder.log_path(core).stat().st_size)  # the old file is replaced
        folder.claim(header.size + header.entries * layout.ENTRY_BYTES)
        making = folder.log_path(core).with_suffix(".log.new")
        try:
            with cache.disk_full_named(str(folder.log_path(core))), open(making, "wb") as file:
                file.write(raw)
                left = header.entries * layout.ENTRY_BYTES
                while left:
                    data = connection.read(min(left, 1 << 18), SILENCE_SECONDS)
                    if not data:
                        raise control_client.Lost(f"{connection.name} ended the connection {left} bytes before the end of core {core}")
                    file.write(data)
                    left -= len(data)
                if connection.read(1, SILENCE_SECONDS):
                    raise Failure(f"{connection.name} sent more than core {core}'s header says")
                file.flush()
                os.fsync(file.fileno())
            making.rename(folder.log_path(core))
        finally:
            making.unlink(missing_ok=True)
    return header
