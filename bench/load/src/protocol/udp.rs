// SPDX-License-Identifier: BSL-1.0
//! memcached over UDP: a frame header of 8 bytes in front of each datagram (doc/protocol.txt, "UDP protocol").
//!
//! A request is one datagram. A reply may have several datagrams, which arrive in any order or get lost. Datagrams of the same reply carry
//! the number of the request. A reply that never becomes complete is a lost request and times out.

pub const HEADER_BYTES: usize = 8;
/// Largest request that fits into one datagram. memcached cuts its replies into datagrams of this size, too.
pub const REQUEST_BYTES_MAX: usize = 1400 - HEADER_BYTES;
/// The largest value needs fewer datagrams than this. A datagram that announces more than this is invalid.
const PARTS_MAX: usize = 1024;

pub fn write_header(number: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_be_bytes());
    // Sequence number 0 of 1 datagram, then two reserved bytes.
    out.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
}

/// A reply of which some datagrams have arrived.
#[derive(Default)]
pub struct Reassembly {
    parts: Vec<Option<Vec<u8>>>,
    missing: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'d> {
    /// Number of the request that the datagram answers.
    pub number: u16,
    pub sequence: usize,
    pub parts: usize,
    pub payload: &'d [u8],
}

impl<'d> Datagram<'d> {
    /// Parses a datagram. None if it is invalid.
    pub fn parse(bytes: &'d [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_at_checked(HEADER_BYTES)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let datagram = Self { number: word(0), sequence: usize::from(word(2)), parts: usize::from(word(4)), payload };
        (datagram.sequence < datagram.parts && datagram.parts <= PARTS_MAX).then_some(datagram)
    }
}

impl Reassembly {
    /// Adds a part. Returns the reply when it is complete. Ignores duplicate parts. Also ignores a part whose number is too large for the
    /// number of parts in the first datagram.
    pub fn add(&mut self, datagram: &Datagram) -> Option<Vec<u8>> {
        if self.parts.is_empty() {
            self.parts.resize(datagram.parts, None);
            self.missing = datagram.parts;
        }
        let part = self.parts.get_mut(datagram.sequence).filter(|part| part.is_none())?;
        *part = Some(datagram.payload.to_vec());
        self.missing -= 1;
        (self.missing == 0).then(|| self.parts.drain(..).flatten().flatten().collect())
    }
}
