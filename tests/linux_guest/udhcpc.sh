#!/bin/sh
# SPDX-License-Identifier: BSL-1.0
# What busybox's udhcpc calls when it learns something: here only address, route and name server are kept.
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
