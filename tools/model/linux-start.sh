#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
#
# The first process of Linux on the model machine (tools/model/linux.py). It makes the settings of the command line, then starts
# memcached, Node or NetPIPE's NPtcp. One queue of the card, one interrupt and one worker thread for each core, all pinned. There is no
# irqbalance, and all files are in memory.
#
# Words of the kernel's command line:
#   neap.address=ADDRESS/BITS
#   neap.itr=MICROSECONDS|adaptive      the driver's interval between interrupts
#   neap.ratio=RATIO                    a fixed frequency by IA32_PERF_CTL, with no driver that would change it
#   neap.governor=NAME                  cpufreq's governor
#   neap.trace=on                       starts neap-trace, which records the log of a run
#   neap.mtu=BYTES                      of the card's interface
#   neap.congestion=NAME                the algorithm of TCP's congestion control
#   neap.run=web                        Node, in place of memcached
#   neap.script=NAME                    its script, which listens on port 8080
#   neap.run=receiver|transmitter       NPtcp in this role, in place of memcached
#   neap.run=server|client              transfers in this role (tests/linux_guest/transfer.c); the client's plan is the file /plan
#   neap.peer=ADDRESS                   of the receiver or server
#   neap.netpipe=WORD,WORD...           options of NPtcp
#
# The console has lines that the host reads: `linux: module` and `linux: map` for the profile (tools/model/linux_profile.py), and `machine:`
# with the machine's facts.

export PATH=/sbin:/bin
say() { echo "$*" >/dev/console; }
fail() {
  say "linux: $*"
  poweroff -f
  exit 1
}
word() { tr ' ' '\n' </proc/cmdline | sed -n "s|^neap\.$1=||p"; }
# Calls "$@" until it succeeds, for at most ten seconds.
await() {
  for attempt in $(seq 500); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.02
  done
  return 1
}
listens() { netstat -tln | grep -q ":$1 "; }
# The addresses of a process's code, for the profile.
say_maps() { sed -n 's/^\([0-9a-f]*-[0-9a-f]*\) r-xp \([0-9a-f]*\) .* \([^ ]*\)$/linux: map \1 \2 \3/p' "/proc/$1/maps" >/dev/console; }
# Answers to ARP are the last setting: no process starts after it, and the console's characters, 12 KB/s, have been sent (stty waits for
# that). So the clients' load meets a machine that has nothing else to do.
answer_arp() {
  stty -F /dev/console -echo
  ip link set eth0 arp on || fail "the card's interface does not answer ARP"
}
link_is_up() { grep -qx 1 /sys/class/net/eth0/carrier; }
wait_for_ever() {
  read -r _ <>/tmp/never
  fail "a read of an empty pipe ended"
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mkfifo /tmp/never
ip link set lo up
cores=$(grep -c '^processor' /proc/cpuinfo)
last_core=$((cores - 1))
modprobe ixgbe || fail "no driver for the card"

ratio=$(word ratio)
if [ -n "$ratio" ]; then
  modprobe msr || fail "no driver for the CPU's registers"
  for core in $(seq 0 $last_core); do
    wrmsr -p "$core" 0x199 $((ratio << 8)) || fail "core $core refused the ratio $ratio"
  done
fi
governor=$(word governor)
if [ -n "$governor" ]; then
  modprobe "cpufreq_$governor" 2>/dev/null # some governors are part of the kernel
  for core in $(seq 0 $last_core); do
    policy=/sys/devices/system/cpu/cpu$core/cpufreq
    [ -e "$policy/scaling_governor" ] || fail "the kernel has no driver for the frequency of core $core"
    echo "$governor" >"$policy/scaling_governor" || fail "the kernel has only the governors $(cat "$policy/scaling_available_governors")"
  done
fi

ethtool -L eth0 combined "$cores" 2>/dev/null || [ "$cores" = 1 ] || fail "the card has no $cores queues"
mtu=$(word mtu)
[ -z "$mtu" ] || ip link set eth0 mtu "$mtu" || fail "the card takes no MTU of $mtu bytes"
ip addr add "$(word address)" dev eth0 || fail "the card did not take its address"
ip link set eth0 arp off || fail "the card's interface answers ARP"
ip link set eth0 up || fail "the card does not start"
itr=$(word itr)
case $itr in
  '') ;;
  adaptive) ethtool -C eth0 rx-usecs 1 || fail "the driver refused adaptive interrupt moderation" ;;
  *) ethtool -C eth0 rx-usecs "$itr" || fail "the driver refused an interval of $itr us" ;;
esac
for core in $(seq 0 $last_core); do
  irq=$(sed -n "s/^ *\([0-9]*\):.*eth0-TxRx-$core\$/\1/p" /proc/interrupts)
  [ -n "$irq" ] || fail "queue $core of the card has no interrupt"
  echo "$core" >"/proc/irq/$irq/smp_affinity_list" || fail "the interrupt of queue $core cannot be moved"
done
sed 's/^\([^ ]*\) \([^ ]*\) .* \(0x[^ ]*\).*/linux: module \1 \2 \3/' /proc/modules >/dev/console

[ "$(word trace)" != on ] || [ -x /bin/neap-trace ] || fail "trace=on needs an image with neap-trace"
if [ -x /bin/neap-trace ]; then
  await link_is_up || fail "the card has no link"
  say "machine: $(neap-trace machine)"
  if [ "$(word trace)" = on ]; then
    for module in /lib/trace/*.ko; do
      insmod "$module" || fail "the kernel refused ${module##*/}, which neap-trace's counters need"
    done
    neap-trace --listen 0.0.0.0:5002 >/dev/console 2>&1 &
    await listens 5002 || fail "neap-trace does not listen"
  fi
fi
# The server's libraries are files of its own. QEMU translates a page of code once, with the addresses of the process that executes it
# first.
cp -r /lib/x86_64-linux-gnu /tmp/lib || fail "the libraries cannot be copied"
settings="itr ${itr:-of the driver}${ratio:+, ratio $ratio}${governor:+, governor $governor}"

serve_memcached() {
  # Values have up to 1 MiB, as in our memcached; an item's limit includes the key and a header.
  memory_mib=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 2048))
  LD_LIBRARY_PATH=/tmp/lib memcached -u root -p 11211 -U 0 -t "$cores" -c 8192 -m "$memory_mib" -I 2m &
  server=$!
  await listens 11211 || fail "memcached does not listen"
  core=0
  for task in /proc/$server/task/*; do
    [ "$(cat "$task/comm")" = mc-worker ] || continue
    taskset -cp "$core" "${task##*/}" >/dev/null || fail "worker $core cannot be pinned"
    core=$((core + 1))
  done
  [ "$core" = "$cores" ] || fail "memcached has $core worker threads, not $cores"
  say_maps "$server"
  say "linux: memcached listens, $cores threads, $settings"
  # A thread of memcached looks for work every millisecond at first, and less often while it finds none.
  sleep 2
  answer_arp
  wait_for_ever
}

serve_web() {
  script=$(word script)
  /node/ld-linux-x86-64.so.2 --library-path /node/lib /node/node "/scripts/$script.js" >/dev/console 2>&1 &
  server=$!
  await listens 8080 || fail "Node does not listen"
  [ "$cores" = 1 ] || fail "Node serves on one core, not on $cores"
  say_maps "$server"
  say "linux: Node listens, script $script, $settings"
  sleep 2
  answer_arp
  wait_for_ever
}

# A transfer begins with what TCP knows by itself, and not with what it kept from the transfer before.
set_transfers() {
  congestion=$(word congestion)
  echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save || fail "TCP keeps metrics"
  [ -z "$congestion" ] || echo "$congestion" >/proc/sys/net/ipv4/tcp_congestion_control || fail "the kernel has no $congestion"
  say "linux: congestion control $(cat /proc/sys/net/ipv4/tcp_congestion_control), MTU $(cat /sys/class/net/eth0/mtu), $settings"
}
transfer_port=5005
serve_transfers() {
  set_transfers
  transfer serve $transfer_port &
  await listens $transfer_port || fail "transfer does not listen"
  answer_arp
  wait_for_ever
}
run_transfers() {
  set_transfers
  answer_arp
  await_peer
  transfer run "$peer" $transfer_port eth0 /plan >/dev/console 2>&1 || fail "transfer ended with status $?"
  say "linux: all transfers have ended"
  stty -F /dev/console -echo
  poweroff -f
}
await_peer() {
  peer=$(word peer)
  for attempt in $(seq 60); do
    ping -c 1 -W 1 "$peer" >/dev/null && break
    [ "$attempt" = 60 ] && fail "there is no answer from $peer"
  done
}

# NPtcp's options, beside those of the command line. Its buffers and sockets have its own defaults.
nptcp() { LD_LIBRARY_PATH=/tmp/lib taskset -c 0 NPtcp -P "$netpipe_port" -o /tmp/np.out "$@" $(word netpipe | tr ',' ' '); }
netpipe_port=5003
# NPtcp looks up the number of its protocol.
echo "tcp 6 TCP" >/etc/protocols
receive_netpipe() {
  nptcp >/dev/null 2>&1 &
  await listens $netpipe_port || fail "NPtcp does not listen"
  say_maps "$(pidof NPtcp)"
  say "linux: NPtcp listens, $settings"
  answer_arp
  wait_for_ever
}
transmit_netpipe() {
  # The console's characters would be part of the measurement. Without random addresses another process has the same ones.
  nptcp >/dev/null 2>&1 &
  await listens $netpipe_port || fail "NPtcp does not listen"
  server=$(pidof NPtcp)
  say_maps "$server"
  kill "$server"
  answer_arp
  # NPtcp does not try again, and a connection to its port would be a measurement.
  await_peer
  nptcp -h "$peer" >/dev/null 2>/dev/console || fail "NPtcp ended with status $?"
  say "linux: NPtcp has finished"
  stty -F /dev/console -echo
  poweroff -f
}

case $(word run) in
  receiver) receive_netpipe ;;
  transmitter) transmit_netpipe ;;
  web) serve_web ;;
  server) serve_transfers ;;
  client) run_transfers ;;
  '') serve_memcached ;;
  *) fail "there is no run '$(word run)'" ;;
esac
