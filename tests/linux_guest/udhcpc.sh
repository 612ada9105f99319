#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
# busybox's udhcpc calls this for each event. It sets only address, route and name server.
case "$1" in
deconfig)
  ip addr flush dev "$interface"
  ip link set "$interface" up
  ;;
bound | renew)
  ip addr flush dev "$interface"
  ip addr add "$ip/$mask" dev "$interface"
  for one in $router; do ip route replace default via "$one" dev "$interface"; done
  for one in $dns; do echo "nameserver $one"; done >/etc/resolv.conf
  ;;
esac
