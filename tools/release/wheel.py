# SPDX-License-Identifier: BSL-1.0
"""Writes the wheel: the archive that `pip install` unpacks, with Neap's tree and all programs (the binary distribution format of PyPA).

The archive is written here and not by a build tool, because equal input MUST give equal bytes. Names are sorted, times are the commit's,
rights are 0644 or 0755. pip keeps the executable bit, but knows no links, so a link becomes a copy of its target.
"""

import base64
import hashlib
import json
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools import cache, exchange, toolchain
from tools.errors import Failure
from tools.release.stage import Stage

TAG = "py3-none-manylinux2014_x86_64"
TREE = "neap/tree"
RELEASE_FORMAT = 1
# The oldest time that a zip archive can hold.
ZIP_EPOCH_MIN = 315532800
SUMMARY = "A library operating system to see and steer the trade between speed and power"

INIT = '''# SPDX-License-Identifier: BSL-1.0
"""Neap, installed from a wheel. All of it is in the folder tree/, which has the same layout as a checkout that was built."""

__version__ = "{version}"
'''

MAIN = '''# SPDX-License-Identifier: BSL-1.0
"""The command `neap`: starts the launcher of the installed tree."""

import signal
import sys
from pathlib import Path


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the launcher has its own handlers: ends without a traceback
    sys.path.insert(0, str(Path(__file__).resolve().parent / "tree"))
    from tools import cli

    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
'''

METADATA = """\
Metadata-Version: 2.1
Name: neap
Version: {version}
Summary: {summary}
License: BSL-1.0
Requires-Python: >=3.11
Classifier: License :: OSI Approved :: Boost Software License 1.0 (BSL-1.0)
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
License-File: LICENSE
License-File: THIRD-PARTY-LICENCES.txt
Description-Content-Type: text/markdown

{description}"""

WHEEL = f"""\
Wheel-Version: 1.0
Generator: neap release
Root-Is-Purelib: false
Tag: {TAG}
"""


def name(stage: Stage) -> str:
    return f"neap-{stage.wheel_version}-{TAG}.whl"


def write(stage: Stage, out: Path, products: Mapping[str, Path], documents: Mapping[str, bytes], archive: Path | None) -> Path:
    """Writes the wheel into the folder `out`. Returns its path. `products`: built files, by their path in the tree. `documents`: the files
    of the release that the metadata folder repeats. `archive`: the toolchain's archive, if the release has one."""
    made = out / name(stage)
    metadata = f"neap-{stage.wheel_version}.dist-info"
    moment = time.gmtime(max(stage.epoch, ZIP_EPOCH_MIN))[:6]
    rows = []
    try:
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
            for path, data, executable in _ordered(stage, products, documents, archive, metadata):
                _add(wheel, path, data, executable, moment)
                rows.append(f"{path},sha256={_record_digest(data)},{len(data)}\n")
            record = f"{metadata}/RECORD"
            _add(wheel, record, "".join([*rows, f"{record},,\n"]).encode(), False, moment)
    except FileNotFoundError as error:
        raise Failure(f"the wheel lacks {error.filename}", "build it, or make the release from a tag: ./neap release") from None
    return made


def _ordered(
    stage: Stage, products: Mapping[str, Path], documents, archive: Path | None, metadata: str
) -> Iterator[tuple[str, bytes, bool]]:
    """Yields (name, content, executable) of each member. The metadata folder comes last, as the format recommends."""
    yield "neap/__init__.py", INIT.format(version=stage.wheel_version).encode(), False
    yield "neap/__main__.py", MAIN.encode(), False
    tree: dict[str, tuple[Path | None, bytes | None]] = {source: (None, None) for source in stage.source_names()}
    tree |= {product: (path, None) for product, path in products.items()}
    tree["release.json"] = (None, release_json(stage, archive))
    for path, (file, data) in sorted(tree.items()):
        if data is None:
            data = file.read_bytes() if file else stage.source(path)
        place = file or stage.tree / path
        yield f"{TREE}/{path}", data, place.is_file() and bool(place.stat().st_mode & 0o100)
    description = stage.source("README.md").decode()
    yield f"{metadata}/METADATA", METADATA.format(version=stage.wheel_version, summary=SUMMARY, description=description).encode(), False
    yield f"{metadata}/WHEEL", WHEEL.encode(), False
    yield f"{metadata}/entry_points.txt", b"[console_scripts]\nneap = neap.__main__:main\n", False
    yield f"{metadata}/licenses/LICENSE", stage.source("LICENSE"), False
    for document, data in sorted(documents.items()):
        folder = "sboms" if document.endswith(".spdx.json") else "licenses"
        yield f"{metadata}/{folder}/{document}", data, False


def release_json(stage: Stage, archive: Path | None) -> bytes:
    """Returns the file by which an installed Neap recognises itself (tools/installed.py)."""
    key = toolchain.Recipe().key()
    record = {
        "format": RELEASE_FORMAT,
        "version": stage.wheel_version,
        "commit": stage.commit,
        "epoch": stage.epoch,
        "toolchain": {"key": key, "file": toolchain_archive_name(), "sha256": cache.file_sha256(archive) if archive else None},
    }
    return (json.dumps(record, indent=2) + "\n").encode()


def toolchain_archive_name() -> str:
    return exchange.archive_name(toolchain.Recipe().key())


def _add(wheel: zipfile.ZipFile, path: str, data: bytes, executable: bool, moment) -> None:
    member = zipfile.ZipInfo(path, moment)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system = 3  # Unix: the upper half of external_attr is a file mode
    member.external_attr = (0o100755 if executable else 0o100644) << 16
    wheel.writestr(member, data)


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
