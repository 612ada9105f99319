# SPDX-License-Identifier: BSL-1.0
"""A Linux system that only serves memcached, on Debian's kernel. The boot of our images is compared with its boot.

Its first process loads the card's driver, uses DHCP, starts memcached and reports on the console that it listens.
"""

from pathlib import Path

from linux_guest import memcached
from linux_guest.guest import KERNEL_WORDS
from linux_guest.guest_image import GuestImage

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
    memcached.append_memcached(image.initramfs, initramfs, ("start-memcached", START))
