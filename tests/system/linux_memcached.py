# SPDX-License-Identifier: BSL-1.0
"""A Linux system that only serves memcached, on Debian's kernel. The boot of our images is compared with its boot.

A second archive is appended to the Linux guest's initramfs (the kernel unpacks both). It has Debian's memcached and a first process, which
loads the card's driver, uses DHCP, starts memcached and reports on the console that it listens.
"""

import gzip
import re
import shutil
from pathlib import Path

from linux_guest.cpio import CpioWriter
from linux_guest.guest import KERNEL_WORDS
from linux_guest.guest_image import GuestImage
from servers import DebianProgram

from tools.process import output_of

LINUX_WORDS = " ".join([*KERNEL_WORDS, "rdinit=/start-memcached"])
START = """\
#!/bin/sh
export PATH=/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
ip link set lo up
modprobe ixgbe
ip link set eth0 up
udhcpc -i eth0 -s /etc/udhcpc.script -q -n -t 20 -T 1 || poweroff -f
memcached -u root -p 11211 -U 0 &
for attempt in $(seq 500); do
  echo quit | nc 127.0.0.1 11211 2>/dev/null && break
  sleep 0.02
done
echo "memcached: listening on 0.0.0.0:11211" >/dev/console
while :; do sleep 1000; done
"""


def append_memcached(image: GuestImage, initramfs: Path) -> None:
    """Writes the guest's initramfs with memcached added."""
    program = DebianProgram("memcached", "memcached").argv
    loader, search, path = program[0], program[2], program[3]
    libraries = [Path(name) for name in re.findall(r"=> (\S+) \(", output_of([loader, "--library-path", search, "--list", path]))]
    shutil.copyfile(image.initramfs, initramfs)
    with initramfs.open("r+b") as stream:
        # An archive begins at a multiple of four bytes.
        stream.truncate((stream.seek(0, 2) + 3) // 4 * 4)
        stream.seek(0, 2)
        archive = CpioWriter(stream)
        archive.file("start-memcached", START.encode(), mode=0o755)
        # memcached looks up the user that it should become.
        archive.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        archive.file("bin/memcached", Path(path).read_bytes(), mode=0o755)
        for library in libraries:
            if not library.name.startswith("ld-linux"):
                archive.file(f"lib/x86_64-linux-gnu/{library.name}", library.read_bytes(), mode=0o755)
        archive.close()
    # Fast compression, as one would use it for loading over the network.
    initramfs.write_bytes(gzip.compress(initramfs.read_bytes(), 1))
