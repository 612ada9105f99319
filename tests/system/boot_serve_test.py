# SPDX-License-Identifier: BSL-1.0
"""`./neap pxe --serve`: real dnsmasq as proxy-DHCP on a private network, and machines that boot from it by their firmware's PXE.

There are two network namespaces. One has a laboratory's DHCP server, which gives addresses but no boot files. The other has a bridge with
our server, and the machines' taps. Both namespaces end with the test's processes.
"""

import contextlib
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from linux_guest.namespace import Network
from servers import DebianProgram

from tools import boot_machines, boot_tree, build, qemu
from tools.firmware import BIOS, UEFI, Start
from tools.machine import Machine
from tools.process import spawn, stop, wait_until

pytestmark = pytest.mark.image_only

NETWORK = "198.51.100"  # TEST-NET-2, RFC 5737
SERVER = f"{NETWORK}.1"
BOOT_SECONDS = 120
START_SECONDS = 30
FIRST_MAC, SECOND_MAC = "52:54:00:00:00:11", "52:54:00:00:00:12"
MACHINES = f"""
timeout_s = 0
[machines.first]
mac = "{FIRST_MAC}"
boot = "memcached"
words = "cores=1"
[machines.second]
mac = "{SECOND_MAC}"
boot = "hello"
words = "cores=2"
"""
# A bridge with our server, the machines' taps, and a cable to the laboratory.
SITE = f"""set -e
ip link add bridge type bridge
ip address add {SERVER}/24 dev bridge
ip link add uplink type veth peer name lab netns {{laboratory}}
for name in first second; do ip tuntap add $name mode tap; done
for name in uplink first second; do ip link set $name master bridge up; done
ip link set bridge up
"""


@dataclasses.dataclass
class Net:
    """The network and its server: `site` is the namespace with the bridge and the taps."""

    site: Network
    tree: Path
    log: Path


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="neap-serve-test-")))
        place.chmod(0o755)
        images = {name: build.image(name) for name in ("memcached", "hello")}
        boot_tree.write(place / "tree", boot_tree.Contents(images, boot_machines.parse(MACHINES, "test"), source="a test"))
        site = stack.enter_context(Network())
        laboratory = stack.enter_context(Network(site))
        site.run(SITE.format(laboratory=laboratory.pid))
        laboratory.run(f"ip address add {NETWORK}.2/24 dev lab && ip link set lab up")

        def start(network: Network, argv: list[str], log: Path, **options) -> subprocess.Popen:
            with open(log, "wb") as out:
                process = spawn(network.inside(argv), stdout=out, stderr=subprocess.STDOUT, **options)
            stack.callback(stop, process)
            return process

        programs = _dnsmasq_directory(place)
        dhcp = [str(programs / "dnsmasq"), "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root"]
        dhcp += ["--interface=lab", "--bind-interfaces", "--dhcp-leasefile=/dev/null", "--pid-file=", "--log-facility=-"]
        start(laboratory, [*dhcp, f"--dhcp-range={NETWORK}.50,{NETWORK}.99"], place / "laboratory.log")
        log = place / "serve.log"
        neap = [sys.executable, str(build.REPOSITORY / "neap"), "pxe", "--out", str(place / "tree"), "--serve", "bridge", "--http", "8080"]
        server = start(site, neap, log, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
        ready = wait_until(lambda: "TFTP root is" in log.read_text() or server.poll() is not None, START_SECONDS)
        assert ready and server.poll() is None, log.read_text() + (place / "laboratory.log").read_text()
        yield Net(site, place / "tree", log)


def _dnsmasq_directory(place: Path) -> Path:
    """Makes a directory for PATH with Debian's dnsmasq from the cache, so dnsmasq need not be installed."""
    directory = place / "programs"
    directory.mkdir()
    script = directory / "dnsmasq"
    words = " ".join(f"'{word}'" for word in DebianProgram("dnsmasq-base", "dnsmasq").argv)
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    return directory


def _booted(net: Net, name: str, mac: str, firmware: str = BIOS) -> str:
    """Boots a machine from the network on the tap `name`. Returns the line in which the image names itself."""
    start = Start(firmware=firmware, boot_card=True, boot_mac=mac, boot_netdev=f"tap,id=boot,ifname={name},script=no,downscript=no")
    with Machine(None, cores=2, memory="256M", card=False, start_from=start, qemu_command=net.site.inside(qemu.command())) as machine:
        return machine.wait_for_line(r"^neap: \w+ \(.*\) on ", BOOT_SECONDS)


def test_two_machines_each_boot_their_own_image_and_words(net: Net) -> None:
    """Both machines boot at the same time."""
    with ThreadPoolExecutor(2) as both:
        first, second = both.submit(_booted, net, "first", FIRST_MAC), both.submit(_booted, net, "second", SECOND_MAC)
        assert re.match(r"neap: memcached \(.*\) on 1 core$", first.result()), net.log.read_text()
        assert re.match(r"neap: hello \(.*\) on 2 cores$", second.result()), net.log.read_text()


def test_uefi_finds_its_own_boot_file(net: Net) -> None:
    assert re.match(r"neap: memcached \(.*\) on 1 core$", _booted(net, "first", FIRST_MAC, UEFI)), net.log.read_text()


def test_the_next_boot_is_changed_while_the_server_runs(net: Net) -> None:
    before = net.log.read_text().count("TFTP root is")
    boot_tree.choose_next(net.tree, "second", "memcached", "cores=1")
    assert re.match(r"neap: memcached \(.*\) on 1 core$", _booted(net, "second", SECOND_MAC)), net.log.read_text()
    assert net.log.read_text().count("TFTP root is") == before == 1


def test_http_serves_the_same_files(net: Net) -> None:
    address = f"http://{SERVER}:8080/images/hello.elf"
    script = f"import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen('{address}', timeout=20).read())"
    done = subprocess.run(net.site.inside([sys.executable, "-c", script]), capture_output=True, timeout=60)
    assert done.stdout == (net.tree / "images/hello.elf").read_bytes(), done.stderr
