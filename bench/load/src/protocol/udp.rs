// SPDX-License-Identifier: BSL-1.0
//! memcached over UDP: a frame header of 8 bytes in front of each datagram (doc/protocol.txt, "UDP protocol").
//!
//! A request is one datagram; a reply may be several, which arrive in any order or not at all. They are put together by the request's
//! number. One that never becomes whole is a lost request: whoever waits for it notices by the clock.

pub const HEADER_BYTES: usize = 8;
/// What fits into a datagram over Ethernet with its IPv4 and UDP headers, as memcached cuts its own replies.
pub const REQUEST_BYTES_MAX: usize = 1400 - HEADER_BYTES;
/// Datagrams of the largest value with room to spare; more is noise.
const PARTS_MAX: usize = 1024;

/// Appends the frame header of a request.
pub fn write_header(number: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_be_bytes());
    // Sequence 0 of 1 datagram, then two bytes that are reserved.
    out.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
}

/// A reply on its way.
#[derive(Default)]
pub struct Reassembly {
    parts: Vec<Option<Vec<u8>>>,
    missing: usize,
}

/// A datagram, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'d> {
    /// Of the request that it answers.
    pub number: u16,
    pub sequence: usize,
    pub parts: usize,
    pub payload: &'d [u8],
}

impl<'d> Datagram<'d> {
    /// None: noise.
    pub fn parse(bytes: &'d [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_at_checked(HEADER_BYTES)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let datagram = Self { number: word(0), sequence: usize::from(word(2)), parts: usize::from(word(4)), payload };
        (datagram.sequence < datagram.parts && datagram.parts <= PARTS_MAX).then_some(datagram)
    }
}

impl Reassembly {
    /// The whole reply, once its last part is there. A part that came twice, or disagrees on their number, is left out.
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
