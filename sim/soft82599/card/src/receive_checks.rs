// SPDX-License-Identifier: BSL-1.0
//! Receive checksum offload (datasheet 7.1.11).
//!
//! The IPv4 header's checksum, TCP's and UDP's (over IPv4 and IPv6) and SCTP's CRC are checked in every frame that reaches a ring. No
//! register disables these checks. Each descriptor contains their results. A UDP datagram without a checksum (the field is zero) counts as
//! not checked, also over IPv6, where it is not valid (RFC 8200, 8.1). Fragments, truncated frames, and transports that the parser does not
//! find behind IPv6 extension headers (parse.rs) are not checked either. For UDP fragments over IPv4 the card can report the sum of the
//! bytes, from which the host computes the datagram's checksum (RXCSUM.ip_payload_checksum).

use crate::checksum::{internet_checksum, pseudo_header, sctp_crc};
use crate::parse::{Network, Parsed, Transport};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    pub ip_checked: bool,
    pub ip_wrong: bool,
    pub l4_checked: bool,
    pub l4_wrong: bool,
}

impl Checks {
    pub fn of(frame: &[u8], parsed: &Parsed) -> Self {
        let mut checks = Self::default();
        if parsed.network == Network::Ipv4 {
            let at = parsed.network_offset;
            checks.ip_checked = true;
            checks.ip_wrong = internet_checksum(&frame[at..at + usize::from(frame[at] & 15) * 4]) != 0;
        }
        let (at, length) = (parsed.transport_offset, parsed.transport_length);
        let protocol = match parsed.transport {
            Transport::Tcp => 6,
            Transport::Udp if frame[at + 6..at + 8] != [0, 0] => 17,
            Transport::Udp | Transport::Other => return checks,
            Transport::Sctp => {
                checks.l4_checked = true;
                checks.l4_wrong = sctp_crc(&frame[at..at + length]) != frame[at + 8..at + 12];
                return checks;
            }
        };
        let mut sum = pseudo_header(parsed.addresses(frame), protocol, length);
        sum.add(&frame[at..at + length]);
        checks.l4_checked = true;
        checks.l4_wrong = sum.finish() != 0;
        checks
    }

    pub fn wrong(&self) -> bool {
        self.ip_wrong || self.l4_wrong
    }
}

/// Returns the sum, not complemented, over the IPv4 payload of a UDP fragment; None for any other frame.
pub fn fragment_sum(frame: &[u8], parsed: &Parsed) -> Option<u16> {
    let at = parsed.network_offset;
    let udp = parsed.network == Network::Ipv4 && parsed.fragment && frame[at + 9] == 17;
    udp.then(|| !internet_checksum(&frame[parsed.transport_offset..parsed.transport_offset + parsed.transport_length]))
}
