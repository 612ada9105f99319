# SPDX-License-Identifier: BSL-1.0
"""The archive has the files that a script needs, in the format that the image reads (apps/webserver/engine/archive.hpp)."""

import struct
from pathlib import Path

import pytest

from tools import web_archive
from tools.errors import Failure, UsageError


def unpacked(block: bytes) -> tuple[str, dict[str, bytes]]:
    """Returns the entry and the files of an archive, read by its description."""
    assert block[:8] == b"NEAPARC1"
    count, entry = struct.unpack_from("<II", block, 8)
    names, files = [], {}
    for index in range(count):
        path, path_bytes, content, content_bytes = struct.unpack_from("<IIII", block, 16 + 16 * index)
        names.append(block[path : path + path_bytes])
        assert block[content + content_bytes] == 0
        files[names[-1].decode()] = block[content : content + content_bytes]
    assert names == sorted(set(names))
    return names[entry].decode(), files


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_script_alone_is_packed_with_the_files_that_it_names(tmp_path: Path) -> None:
    write(tmp_path, **{"server.js": "const a = require('./lib/a'); import('./b.mjs'); require('./none')"})
    write(
        tmp_path,
        **{"lib/a.js": "module.exports = require('../data.json')", "b.mjs": 'import x from "./c.mjs"', "c.mjs": "", "data.json": "1"},
    )
    write(tmp_path, **{"other.js": "", "lib/other.js": ""})
    entry, files = unpacked(web_archive.of(tmp_path / "server.js"))
    assert entry == "server.js" and sorted(files) == ["b.mjs", "c.mjs", "data.json", "lib/a.js", "server.js"]
    assert files["data.json"] == b"1"


def test_files_outside_of_the_scripts_folder_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, **{"secret.js": "", "app/server.js": "require('../secret')"})
    assert list(unpacked(web_archive.of(tmp_path / "app/server.js"))[1]) == ["server.js"]


def test_a_package_is_packed_whole(tmp_path: Path) -> None:
    write(tmp_path, **{"package.json": '{"main": "src/main"}', "src/main.js": "", "node_modules/x/index.js": "", ".git/config": ""})
    (tmp_path / "node_modules/.bin").mkdir()
    (tmp_path / "node_modules/y").symlink_to(tmp_path / "node_modules/x")
    (tmp_path / "node_modules/out").symlink_to("/usr")
    (tmp_path / "node_modules/x/loop").symlink_to(tmp_path)
    for given in (tmp_path, tmp_path / "src/main.js"):
        entry, files = unpacked(web_archive.of(given))
        assert entry == "src/main.js"
        assert sorted(files) == ["node_modules/x/index.js", "node_modules/y/index.js", "package.json", "src/main.js"]


def test_a_folder_without_package_has_a_usual_entry(tmp_path: Path) -> None:
    write(tmp_path, **{"server.mjs": "", "z.js": ""})
    assert unpacked(web_archive.of(tmp_path))[0] == "server.mjs"


def test_wrong_paths_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file or folder"):
        web_archive.of(tmp_path / "none.js")
    with pytest.raises(UsageError, match="has no entry script"):
        web_archive.of(tmp_path)
    (tmp_path / "a\\b.js").write_text("")
    write(tmp_path, **{"index.js": ""})
    with pytest.raises(Failure, match="cannot be packed"):
        web_archive.of(tmp_path)


def test_bounds_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, **{"index.js": "x" * 100, "b.js": "y" * 100})
    monkeypatch.setattr(web_archive, "BLOCK_BYTES_MAX", 150)
    with pytest.raises(Failure, match="too many for a boot module"):
        web_archive.of(tmp_path)
    monkeypatch.setattr(web_archive, "BLOCK_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(web_archive, "FILES_MAX", 1)
    with pytest.raises(Failure, match="too many"):
        web_archive.of(tmp_path)
