// SPDX-License-Identifier: BSL-1.0
module neap/clients

go 1.18

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c
)
