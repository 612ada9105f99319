#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
#
# The guest's first process. It makes the file system usable, then serves scripts to the host over the second serial port (ttyS1). The first
# serial port is the kernel's console.
#
# A request is one line:    SUM ID SECONDS BASE64             (run this script, at most that long)
# An answer is one line:    SUM result ID STATUS BASE64       (exit status, and its whole output)
#                  or:      again                             (the request was damaged)
# A serial port under a busy emulator sometimes loses a byte. SUM, the first 16 digits of the SHA-256 of the rest of the line, detects that.
# The script of a repeated request is not run again: only the lost answer is sent again.
# Base64 keeps control characters of scripts and output out of both lines. Status 143 or 137 means that the time ran out.

export PATH=/sbin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t debugfs debugfs /sys/kernel/debug
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
ip link set lo up
ulimit -c 0

# A word on the kernel's command line starts a shell on the console instead, for boots by hand.
if grep -qw guest.shell /proc/cmdline; then
  echo "guest: a shell on ttyS0; 'poweroff -f' ends the machine"
  while :; do setsid cttyhack sh; done
fi

stty -F /dev/ttyS1 raw -echo 115200
exec </dev/ttyS1 >/dev/ttyS1
echo "ready"
echo "ready"
answered=
while read -r sum request; do
  if [ "$(printf '%s' "$request" | sha256sum | cut -c1-16)" != "$sum" ]; then
    echo again
    continue
  fi
  id=${request%% *} seconds=${request#* } script=${request##* }
  seconds=${seconds%% *}
  if [ "$id" != "$answered" ]; then
    echo "$script" | base64 -d >/tmp/script
    timeout -k 5 "$seconds" sh /tmp/script </dev/null >/tmp/output 2>&1
    status=$?
    { printf 'result %s %s ' "$id" "$status"; base64 /tmp/output | tr -d '\n'; } >/tmp/answer
    answered=$id
  fi
  printf '%s ' "$(sha256sum </tmp/answer | cut -c1-16)"
  cat /tmp/answer
  echo
done
echo "guest: the host closed the script channel" >/dev/console
poweroff -f
