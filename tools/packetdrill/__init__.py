# SPDX-License-Identifier: BSL-1.0
"""packetdrill's script language over libneap_network.so: `./neap packetdrill`."""
