#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
#
# The first process of Linux on the model machine (tools/model/linux.py). It makes the static settings of the published studies, then starts
# memcached: one queue of the card, one interrupt and one worker thread for each core, all pinned; a fixed interval between interrupts; a
# fixed frequency by IA32_PERF_CTL, with no driver that would change it. There is no irqbalance, and all files are in memory.
#
# Words of the kernel's command line: neap.itr=MICROSECONDS neap.ratio=RATIO neap.address=ADDRESS/BITS

export PATH=/sbin:/bin
fail() {
  echo "linux: $*" >/dev/console
  poweroff -f
  exit 1
}
word() { tr ' ' '\n' </proc/cmdline | sed -n "s|^neap\.$1=||p"; }

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
ip link set lo up
cores=$(grep -c '^processor' /proc/cpuinfo)
modprobe ixgbe || fail "no driver for the card"

ratio=$(word ratio)
if [ -n "$ratio" ]; then
  modprobe msr || fail "no driver for the CPU's registers"
  for core in $(seq 0 $((cores - 1))); do
    wrmsr -p "$core" 0x199 $((ratio << 8)) || fail "core $core refused the ratio $ratio"
  done
fi

ethtool -L eth0 combined "$cores" 2>/dev/null || [ "$cores" = 1 ] || fail "the card has no $cores queues"
ip addr add "$(word address)" dev eth0 || fail "the card did not take its address"
ip link set eth0 up || fail "the card does not start"
itr=$(word itr)
if [ -n "$itr" ]; then
  ethtool -C eth0 rx-usecs "$itr" || fail "the driver refused an interval of $itr us"
fi
for core in $(seq 0 $((cores - 1))); do
  irq=$(sed -n "s/^ *\([0-9]*\):.*eth0-TxRx-$core\$/\1/p" /proc/interrupts)
  [ -n "$irq" ] || fail "queue $core of the card has no interrupt"
  echo "$core" >"/proc/irq/$irq/smp_affinity_list" || fail "the interrupt of queue $core cannot be moved"
done

memcached -u root -p 11211 -U 0 -t "$cores" -c 8192 -m 64 &
server=$!
for attempt in $(seq 500); do
  echo quit | nc 127.0.0.1 11211 >/dev/null 2>&1 && break
  [ "$attempt" = 500 ] && fail "memcached does not listen"
  sleep 0.02
done
core=0
for task in /proc/$server/task/*; do
  [ "$(cat "$task/comm")" = mc-worker ] || continue
  taskset -cp "$core" "${task##*/}" >/dev/null || fail "worker $core cannot be pinned"
  core=$((core + 1))
done
[ "$core" = "$cores" ] || fail "memcached has $core worker threads, not $cores"
echo "linux: memcached listens, $cores threads, itr ${itr:-of the driver} us, ratio ${ratio:-of the firmware}" >/dev/console
while :; do sleep 1000; done
