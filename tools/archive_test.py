# SPDX-License-Identifier: BSL-1.0
from pathlib import Path

import pytest

from tools import archive, cache
from tools.errors import Failure
from tools.fake_mirror import FakeMirror


def test_a_package_is_fetched_and_unpacked_without_installing(mirror: FakeMirror, tmp_path: Path) -> None:
    mirror.add_package("thing", "1:2.0-1", {"usr/share/thing/file": "text\n"})
    apt = mirror.archive()
    assert (apt.candidate("thing"), apt.candidate("nothing")) == ("1:2.0-1", None)
    assert apt.closure("thing") == [("thing", "1:2.0-1")]
    (deb,) = apt.download([("thing", "1:2.0-1")], tmp_path / "packages")
    archive.unpack(deb, tmp_path / "tree")
    assert (tmp_path / "tree/usr/share/thing/file").read_text() == "text\n"


def test_the_newest_version_is_the_candidate_and_a_gone_one_is_named(mirror: FakeMirror, tmp_path: Path) -> None:
    for version in ("1.9", "1.10"):
        mirror.add_package("thing", version, {"file": version})
    apt = mirror.archive()
    assert (apt.candidate("thing"), apt.versions("thing")) == ("1.10", ["1.10", "1.9"])
    with pytest.raises(archive.VersionGone, match=r"has thing 1.8 no longer; it has 1.10, 1.9") as caught:
        apt.download([("thing", "1.8")], tmp_path)
    assert caught.value.available == ["1.10", "1.9"]
    assert "--accept-newer" in caught.value.hint


def test_lists_are_read_anew_before_a_version_is_called_gone(mirror: FakeMirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.add_package("thing", "1", {"file": "1"})
    apt = mirror.archive()
    assert apt.versions("thing") == ["1"]
    mirror.add_package("thing", "2", {"file": "2"})
    real = archive.time.time
    monkeypatch.setattr(archive.time, "time", lambda: real() + 60)
    assert [path.name for path in apt.download([("thing", "2")], tmp_path)] == ["thing_2_all.deb"]


def test_a_download_that_is_not_what_was_signed_is_refused(mirror: FakeMirror, tmp_path: Path) -> None:
    deb = mirror.add_package("thing", "1", {"file": "1"})
    deb.write_bytes(deb.read_bytes()[:-1] + b"x")
    with pytest.raises(Failure, match="downloading thing failed") as caught:
        mirror.archive().download([("thing", "1")], tmp_path / "packages")
    assert any("Hash Sum mismatch" in line for line in caught.value.details)


def test_lists_with_a_foreign_signature_are_refused(mirror: FakeMirror) -> None:
    mirror.add_package("thing", "1", {"file": "1"})
    mirror.new_key("foreign")
    mirror.publish()
    with pytest.raises(Failure, match="apt-get update failed") as caught:
        mirror.archive().candidate("thing")
    assert any("NO_PUBKEY" in line or "not signed" in line or "verif" in line.lower() for line in caught.value.details), (
        caught.value.details
    )


def test_old_lists_serve_while_the_mirror_is_away(mirror: FakeMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.add_package("thing", "1", {"file": "1"})
    apt = mirror.archive()
    assert apt.candidate("thing") == "1"
    cache.remove(mirror.directory / "dists")
    real = archive.time.time
    monkeypatch.setattr(archive.time, "time", lambda: real() + 2 * archive.LISTS_MAX_AGE_SECONDS)
    assert apt.candidate("thing") == "1"


def test_a_mirror_that_is_not_there_is_an_error(mirror: FakeMirror) -> None:
    with pytest.raises(Failure, match="apt-get update failed"):
        mirror.archive().candidate("thing")


def test_only_network_settings_are_copied_from_the_systems_apt(mirror: FakeMirror) -> None:
    assert archive.CARRIED_SETTINGS.match('Acquire::http::Proxy "http://proxy.example:3128";')
    assert archive.CARRIED_SETTINGS.match('Acquire::https::Verify-Peer "true";')
    assert not archive.CARRIED_SETTINGS.match('Acquire::AllowInsecureRepositories "1";')
    assert not archive.CARRIED_SETTINGS.match('Acquire::Languages "none";')


def test_a_mirror_without_a_network_to_it_is_named(mirror: FakeMirror) -> None:
    (mirror.system_root / "etc/apt/sources.list").write_text("deb http://mirror.invalid/debian bookworm main\n")
    with pytest.raises(Failure, match="Debian's mirror http://mirror.invalid/debian cannot be reached"):
        mirror.archive().candidate("thing")
