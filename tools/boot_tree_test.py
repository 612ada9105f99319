# SPDX-License-Identifier: BSL-1.0
"""A boot tree is complete or absent, each machine gets its own entry, and images are built only from committed sources."""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import boot_loaders, boot_machines, boot_programs, boot_serve, boot_tree, build, outside, pxe
from tools.boot_tree import Contents
from tools.errors import Failure, UsageError
from tools.process import finished

MACHINES = """
boot = "two"
timeout_s = 0
[words]
one = "a=1 b=2"
[machines.first]
mac = "52:54:00:00:00:01"
serial = "S1"
[machines.second]
mac = "52:54:00:00:00:02"
boot = "one"
[machines.third]
serial = "S3"
boot = "one"
words = "c=3"
"""


@pytest.fixture(scope="session", autouse=True)
def programs() -> boot_programs.BootPrograms:
    """The boot programs. They are looked up here, because tests use empty caches."""
    return boot_programs.require()


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    images = {}
    for name in ("one", "two"):
        images[name] = tmp_path / f"{name}.elf"
        images[name].write_text(f"image {name}")
    (tmp_path / "vmlinuz").write_text("kernel")
    (tmp_path / "initramfs").write_text("first files")
    return Contents(images, boot_machines.parse(MACHINES, "machines"), tmp_path / "vmlinuz", tmp_path / "initramfs", "one, two of a test")


def _files(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in sorted(tree.rglob("*")) if path.is_file()}


def test_an_applications_module_is_loaded_beside_it(tmp_path: Path, contents: Contents) -> None:
    tree = tmp_path / "tree"
    boot_tree.write(tree, dataclasses.replace(contents, modules={"two": b"files"}))
    assert (tree / "images/two.module").read_bytes() == b"files" and not (tree / "images/one.module").exists()
    menu, script = (tree / "grub/grub.cfg").read_text(), (tree / "ipxe/boot.ipxe").read_text()
    assert "multiboot2 /images/two.elf\n  module2 /images/two.module images/two.module\n" in menu
    assert "kernel /images/two.elf\ninitrd /images/two.module images/two.module\nboot" in script
    assert menu.count("module2") == 1 and "module2 /images/two.module" in (tree / "grub/machines/52-54-00-00-00-01.cfg").read_text()


def test_a_tree_holds_what_each_firmware_asks_for(tmp_path: Path, contents: Contents) -> None:
    tree = tmp_path / "tree"
    boot_tree.write(tree, contents)
    there = set(_files(tree))
    wanted = ["README", "dnsmasq.conf", "tree.json", "grub/bios.0", "grub/x86_64.efi", "grub/grub.cfg", "ipxe/boot.ipxe", "ipxe/ipxe.efi"]
    wanted += ["images/one.elf", "images/two.elf", "linux/vmlinuz", "linux/initrd", "ipxe/undionly.kpxe", "ipxe/ipxe.lkrn"]
    wanted += [f"grub/machines/{name}.cfg" for name in ("52-54-00-00-00-01", "52-54-00-00-00-02", "serial-S1", "serial-S3")]
    wanted += [f"ipxe/machines/{name}.ipxe" for name in ("52-54-00-00-00-01", "52-54-00-00-00-02", "serial-S1", "serial-S3")]
    assert there == set(wanted)
    # A TFTP server that has given up root's rights must be able to read everything.
    assert all(path.stat().st_mode & 0o004 for path in tree.rglob("*"))
    assert tree.stat().st_mode & 0o777 == 0o755


def test_a_tree_gives_its_place_in_a_form_for_shells_and_servers(tmp_path: Path, contents: Contents) -> None:
    (tmp_path / "a place").mkdir()
    boot_tree.write(tmp_path / "a place/../a place/tree", contents)
    place = tmp_path / "a place/tree"
    assert f"tftp-root={place}\n" in (place / "dnsmasq.conf").read_text()
    assert f"./neap pxe --out '{place}' --serve" in (place / "README").read_text()


def test_each_machine_gets_its_own_image_and_words(tmp_path: Path, contents: Contents) -> None:
    boot_tree.write(tmp_path / "tree", contents)
    grub = {path.stem: path.read_text() for path in (tmp_path / "tree/grub/machines").iterdir()}
    assert "multiboot2 /images/two.elf\n" in grub["52-54-00-00-00-01"] and grub["52-54-00-00-00-01"] == grub["serial-S1"]
    assert "multiboot2 /images/one.elf 'a=1' 'b=2'\n" in grub["52-54-00-00-00-02"]
    assert "multiboot2 /images/one.elf 'c=3'\n" in grub["serial-S3"]
    ipxe = (tmp_path / "tree/ipxe/machines/serial-S3.ipxe").read_text().splitlines()
    assert ipxe[0] == "#!ipxe" and ipxe[2:] == ["kernel /images/one.elf c=3", "boot"]
    menu = (tmp_path / "tree/grub/grub.cfg").read_text()
    assert "set default='two'" in menu and "linux /linux/vmlinuz\n  initrd /linux/initrd" in menu


def test_a_tree_made_again_takes_the_place_of_the_old_one_in_one_step(tmp_path: Path, contents: Contents) -> None:
    """While a tree is rebuilt repeatedly, every reader finds a complete tree."""
    tree = tmp_path / "tree"
    boot_tree.write(tree, contents)
    torn: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            torn.extend(name for name in ("tree.json", "grub/bios.0", "images/two.elf") if not (tree / name).is_file())

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for _ in range(3):
            boot_tree.write(tree, dataclasses.replace(contents, source="again"))
    finally:
        over.set()
        looker.join()
    assert torn == []
    assert json.loads((tree / "tree.json").read_text())["source"] == "again"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_failure_leaves_the_old_tree_and_nothing_beside_it(tmp_path: Path, contents: Contents, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    boot_tree.write(tree, contents)
    before, beside = _files(tree), sorted(path.name for path in tmp_path.iterdir())

    def fail(*_arguments: object) -> None:
        raise Failure("GRUB does not start")

    monkeypatch.setattr(boot_loaders, "efi_network", fail)
    for place in (tree, tmp_path / "new"):
        with pytest.raises(Failure, match="GRUB does not start"):
            boot_tree.write(place, contents)
    monkeypatch.undo()
    contents.images["two"].unlink()
    with pytest.raises(Failure, match="there is no file .*two.elf"):
        boot_tree.write(tree, contents)
    beside.remove("two.elf")
    assert _files(tree) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == beside


def test_nothing_but_a_boot_tree_is_replaced(tmp_path: Path, contents: Contents) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("precious")
    for place in (tmp_path / "precious", tmp_path / "precious/file"):
        with pytest.raises(Failure, match="no boot tree|no directory"):
            boot_tree.write(place, contents)
    assert (tmp_path / "precious/file").read_text() == "precious"


def test_the_next_boot_of_a_machine_is_changed_and_nothing_else(tmp_path: Path, contents: Contents) -> None:
    tree = tmp_path / "tree"
    boot_tree.write(tree, contents)
    before = _files(tree)
    boot_tree.choose_next(tree, "third", "two", "d=4")
    boot_tree.choose_next(tree, "52-54-00-00-00-AA", "linux", None)
    after = _files(tree)
    changed = {name for name in after if after[name] != before.get(name)}
    names = [f"{folder}/machines/{name}.{suffix}" for folder, suffix in (("grub", "cfg"), ("ipxe", "ipxe"))
             for name in ("serial-S3", "52-54-00-00-00-aa")]  # fmt: skip
    assert changed == {"tree.json", *names}
    assert b"multiboot2 /images/two.elf 'd=4'" in after["grub/machines/serial-S3.cfg"]
    assert b"linux /linux/vmlinuz" in after["grub/machines/52-54-00-00-00-aa.cfg"]
    # A MAC with dashes names the machine that the file lists with colons, and creates no second machine.
    boot_tree.choose_next(tree, "52-54-00-00-00-02", "two", None)
    assert [machine["mac"] for machine in json.loads((tree / "tree.json").read_text())["machines"]].count("52:54:00:00:00:02") == 1
    # The command line of an earlier choice does not apply to another image.
    boot_tree.choose_next(tree, "third", "one", None)
    assert b"multiboot2 /images/one.elf 'a=1' 'b=2'" in _files(tree)["grub/machines/serial-S3.cfg"]


def test_a_choice_that_cannot_be_made_changes_nothing(tmp_path: Path, contents: Contents) -> None:
    tree = tmp_path / "tree"
    with pytest.raises(Failure, match="is no boot tree"):
        boot_tree.choose_next(tree, "first", "one", None)
    boot_tree.write(tree, contents)
    before = _files(tree)
    for name, boot, words, expected in (
        ("first", "seven", None, "this tree has no 'seven' \\(it has: one, two, linux\\)"),
        ("unknown", "one", None, "no machine 'unknown'"),
        ("first", "one", "a=$(reboot)", "the character"),
    ):
        with pytest.raises(Failure, match=expected):
            boot_tree.choose_next(tree, name, boot, words)
    assert _files(tree) == before


def test_a_management_processor_is_in_no_file_of_the_tree(tmp_path: Path, contents: Contents) -> None:
    text = MACHINES + "[machines.third.bmc]\naddress='bmc.example'\nuser='bmc-user'\npassword_file='/secret/place'\n"
    boot_tree.write(tmp_path / "tree", dataclasses.replace(contents, machines=boot_machines.parse(text, "machines")))
    everything = b"".join(_files(tmp_path / "tree").values())
    assert not any(word in everything for word in (b"bmc.example", b"bmc-user", b"/secret/place"))


def test_a_disc_is_the_same_each_time(tmp_path: Path, contents: Contents) -> None:
    for name in ("a.iso", "b.iso"):
        pxe.write_disc(tmp_path / name, "one", contents.images["one"], "x=1", "a test")
    first = (tmp_path / "a.iso").read_bytes()
    assert first == (tmp_path / "b.iso").read_bytes()
    assert first[510:512] == b"\x55\xaa" and first[0x8001:0x8006] == b"CD001"


def git(place: Path, *words: str) -> str:
    return finished(["git", "-C", str(place), "-c", "user.name=n", "-c", "user.email=e@example.org", *words], check=True).stdout


def commit_all(place: Path) -> None:
    git(place, "add", ".")
    git(place, "commit", "-q", "-m", "first")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of one commit with a built application."""
    place = tmp_path / "checkout"
    (place / "apps/hello").mkdir(parents=True)
    (place / "apps/hello/main.cpp").write_text("// hello\n")
    (place / ".gitignore").write_text("build/\n")
    git(place, "init", "-q")
    commit_all(place)
    monkeypatch.setattr(build, "REPOSITORY", place)
    monkeypatch.setattr(build, "BUILD", place / "build")
    monkeypatch.setattr(build, "build_locked", lambda preset, targets: None)
    return place


def _image(checkout: Path) -> None:
    image = checkout / "build/image/apps/hello/hello.elf"
    image.parent.mkdir(parents=True)
    image.write_text("hello")


def test_only_what_is_built_and_of_a_commit_goes_out(tmp_path: Path, checkout: Path) -> None:
    out = tmp_path / "out"
    wanted = pxe.Options(applications=["hello"], out=str(out))
    with pytest.raises(Failure, match=r"hello is not built \(./neap build hello\)"):
        pxe.pxe(wanted)
    _image(checkout)
    (checkout / "apps/hello/main.cpp").write_text("// changed\n")
    (checkout / "apps/hello/new.hpp").write_text("x")
    with pytest.raises(Failure, match="uncommitted changes: apps/hello/main.cpp and 1 more"):
        pxe.pxe(wanted)
    with pytest.raises(UsageError, match="there is no application 'unknown'"):
        pxe.pxe(dataclasses.replace(wanted, applications=["unknown"]))
    assert not out.exists()
    pxe.pxe(dataclasses.replace(wanted, dirty=True))
    assert "with changes of its own" in (out / "README").read_text()
    git(checkout, "stash", "-q", "--include-untracked")
    # Untracked files at the top of the checkout, such as a disc image or a log, are in no boot image, so they are allowed.
    (checkout / "hello.iso").touch()
    (checkout / "run1").mkdir()
    (checkout / "run1/core0.log").touch()
    pxe.pxe(wanted)
    assert f"hello of commit {git(checkout, 'rev-parse', 'HEAD').strip()}\n" in (out / "README").read_text()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An application outside the checkout. Its build is simulated."""
    folder = tmp_path / "my folder"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text("find_package(Neap)\n")

    @contextlib.contextmanager
    def built(path: Path, preset: str) -> Iterator[outside.Application]:
        assert (path, preset) == (folder, "image")
        (tmp_path / "mine.elf").write_text("mine")
        yield outside.Application("mine", tmp_path / "mine.elf")

    monkeypatch.setattr(outside, "built_locked", built)
    return folder


def test_an_application_elsewhere_goes_into_a_tree_and_on_a_disc(tmp_path: Path, checkout: Path, elsewhere: Path) -> None:
    _image(checkout)
    wanted = pxe.Options(applications=[str(elsewhere), "hello"], out=str(tmp_path / "out"))
    pxe.pxe(wanted)
    assert (tmp_path / "out/images/mine.elf").read_text() == "mine" and (tmp_path / "out/images/hello.elf").read_text() == "hello"
    assert "my folder of a copy without history\n" in (tmp_path / "out/README").read_text()
    assert "set default='mine'" in (tmp_path / "out/grub/grub.cfg").read_text()
    assert pxe.iso(str(elsewhere), str(tmp_path / "mine.iso"), False, ["x=1"]) == 0
    assert (tmp_path / "mine.iso").stat().st_size > 1_000_000
    # The sources of an application outside the checkout must be committed, too.
    git(elsewhere, "init", "-q")
    with pytest.raises(Failure, match="my folder has uncommitted changes: CMakeLists.txt"):
        pxe.pxe(wanted)  # there is no commit at all yet
    (elsewhere / ".git/HEAD").rename(elsewhere / ".git/no-head")
    with pytest.raises(Failure, match="git does not say what .*my folder is: fatal: "):
        pxe.pxe(wanted)
    (elsewhere / ".git/no-head").rename(elsewhere / ".git/HEAD")
    commit_all(elsewhere)
    (elsewhere / "main.cpp").write_text("// new\n")
    with pytest.raises(Failure, match="my folder has uncommitted changes: main.cpp"):
        pxe.pxe(wanted)
    (checkout / "apps/mine").mkdir()
    (checkout / "apps/mine/main.cpp").touch()
    (checkout / "build/image/apps/mine").mkdir()
    (checkout / "build/image/apps/mine/mine.elf").touch()
    with pytest.raises(Failure, match="two applications are named mine"):
        pxe.pxe(dataclasses.replace(wanted, applications=[str(elsewhere), "mine"], dirty=True))


def test_a_bad_file_of_machines_makes_no_tree(tmp_path: Path, checkout: Path) -> None:
    _image(checkout)
    (tmp_path / "machines.toml").write_text("[machines.a]\nserial = 's'\nboot = 'memcached'\n")
    wanted = pxe.Options(applications=["hello"], out=str(tmp_path / "out"), machines=str(tmp_path / "machines.toml"))
    with pytest.raises(Failure, match="machines.toml: machines.a.boot names 'memcached', which this tree does not have"):
        pxe.pxe(wanted)
    with pytest.raises(Failure, match="there is no file .*kernel"):
        pxe.pxe(dataclasses.replace(wanted, machines=None, linux=str(tmp_path / "kernel")))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (pxe.Options(out="x"), "name the applications"),
        (pxe.Options(out="x", serve="lo", machines="m"), "belong to a tree that is made"),
        (pxe.Options(["hello"], "x", initrd="i"), "--initrd is for --linux"),
        (pxe.Options(["hello"], "x", script="s.js"), "--script is for webserver"),
        (pxe.Options(["hello"], "x", words=["a=1"]), "words after -- are for --next"),
        (pxe.Options(out="x", serve="lo", http_port=70000), "--http takes a port"),
        (pxe.Options(["hello", "hello"], "x"), "named twice"),
        (pxe.Options(out="x", next="machine"), "--next takes MACHINE=IMAGE"),
    ],
)
def test_words_that_do_not_belong_together_are_refused(options: pxe.Options, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        pxe.pxe(options)


def test_what_cannot_be_served_is_refused_before_anything_listens(tmp_path: Path, contents: Contents) -> None:
    with pytest.raises(Failure, match="is no boot tree"):
        boot_serve.serve(tmp_path / "tree", "lo", 0)
    boot_tree.write(tmp_path / "tree", contents)
    with pytest.raises(Failure, match="there is no network card 'nosuchcard0'"):
        boot_serve.serve(tmp_path / "tree", "nosuchcard0", 0)
    (tmp_path / "tree").chmod(0o700)
    with pytest.raises(Failure, match="cannot be entered by everybody"):
        boot_serve.serve(tmp_path / "tree", "lo", 0)
    (tmp_path / "tree").chmod(0o755)
    with boot_serve._alone_on("lo"), pytest.raises(Failure, match="another neap serves on lo already"), boot_serve._alone_on("lo"):
        pass
    assert str(boot_serve.address_of("lo")) == "127.0.0.1/8"
