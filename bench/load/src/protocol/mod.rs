// SPDX-License-Identifier: BSL-1.0
//! memcached's three protocols, HTTP, and transactions asked for by memcached's gets: encodes requests and checks replies.
//!
//! Replies come in the order of the requests, so a reply is checked against its request. A reply with a wrong key, length or value is
//! distinguished from a miss and from bytes that are no reply (`Garbage`). After `Garbage` the start of the next reply is unknown, so the
//! connection must be closed.

mod binary;
pub mod http;
mod meta;
mod text;
pub mod udp;

use crate::workload::Request;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolName {
    Text,
    Meta,
    Binary,
    Http,
    Tpcc,
}

/// A protocol with all that it needs to know of the server.
#[derive(Clone, Debug)]
pub enum Protocol {
    Text,
    Meta,
    Binary,
    Http(Arc<http::Page>),
    /// Each get of the text protocol runs a transaction of TPC-C. The value is its answer, which is not known beforehand.
    Tpcc,
}

impl ProtocolName {
    /// None: the protocol is not memcached's.
    pub fn of_memcached(self) -> Option<Protocol> {
        match self {
            Self::Text => Some(Protocol::Text),
            Self::Meta => Some(Protocol::Meta),
            Self::Binary => Some(Protocol::Binary),
            Self::Tpcc => Some(Protocol::Tpcc),
            Self::Http => None,
        }
    }
}

impl FromStr for ProtocolName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "meta" => Ok(Self::Meta),
            "binary" => Ok(Self::Binary),
            "http" => Ok(Self::Http),
            "tpcc" => Ok(Self::Tpcc),
            _ => Err(format!("{text}: not a protocol; known are text, meta, binary, http, tpcc")),
        }
    }
}

impl fmt::Display for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Meta => "meta",
            Self::Binary => "binary",
            Self::Http => "http",
            Self::Tpcc => "tpcc",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A get returned the right value.
    Hit,
    /// A get or delete found no value.
    Miss,
    /// A set or delete succeeded, or the reply of an HTTP server is the expected one.
    Done,
    /// The server declined a set (NOT_STORED).
    Declined,
    ServerError,
    WrongKey,
    WrongLength,
    WrongBytes,
    /// A valid reply, but of a kind that this request cannot have.
    WrongReply,
}

impl Outcome {
    pub const ALL: [Self; 9] = [
        Self::Hit,
        Self::Miss,
        Self::Done,
        Self::Declined,
        Self::ServerError,
        Self::WrongKey,
        Self::WrongLength,
        Self::WrongBytes,
        Self::WrongReply,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Done => "done",
            Self::Declined => "declined",
            Self::ServerError => "server_error",
            Self::WrongKey => "wrong_key",
            Self::WrongLength => "wrong_length",
            Self::WrongBytes => "wrong_bytes",
            Self::WrongReply => "wrong_reply",
        }
    }

    /// True if the request was served correctly, so that its latency counts.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Hit | Self::Miss | Self::Done)
    }
}

/// The bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage;

/// The parts of a reply that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// True if each byte of a value is compared, not only key and length.
    pub bytes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Length of the reply in the input.
    pub bytes: usize,
    pub outcome: Outcome,
    /// True if the server closes the connection after this reply.
    pub is_last: bool,
}

impl Reply {
    pub fn new(bytes: usize, outcome: Outcome) -> Self {
        Self { bytes, outcome, is_last: false }
    }
}

/// Ok(None) if the reply is not complete.
pub type Decoded = Result<Option<Reply>, Garbage>;

impl Protocol {
    /// True if the server keeps values by their keys, so that they are stored before a run, and a get may miss.
    pub fn has_keys(&self) -> bool {
        !matches!(self, Self::Http(_) | Self::Tpcc)
    }

    /// Appends the request. The reply contains `opaque` if the protocol supports that.
    pub fn encode(&self, request: &Request, opaque: u32, out: &mut Vec<u8>) {
        match self {
            Self::Text | Self::Tpcc => text::encode(request, out),
            Self::Meta => meta::encode(request, opaque, out),
            Self::Binary => binary::encode(request, opaque, out),
            Self::Http(page) => page.encode(request, out),
        }
    }

    /// Parses the reply to a request at the beginning of the input.
    pub fn decode(&self, input: &[u8], request: &Request, opaque: u32, checks: Checks) -> Decoded {
        match self {
            Self::Text => text::decode(input, request, checks),
            Self::Tpcc => text::decode_transaction(input, request),
            Self::Meta => meta::decode(input, request, opaque, checks),
            Self::Binary => binary::decode(input, request, opaque, checks),
            Self::Http(page) => page.decode(input, request),
        }
    }
}

/// The first line of a valid reply is shorter than this. Longer input without a line end is `Garbage`.
const LINE_BYTES_MAX: usize = 2048;

/// Returns the first line without its line end, and the offset of the next line. Ok(None) if the line is not complete.
fn first_line(input: &[u8]) -> Result<Option<(&[u8], usize)>, Garbage> {
    let searched = &input[..input.len().min(LINE_BYTES_MAX)];
    match memchr::memchr(b'\n', searched) {
        Some(end) if end > 0 && input[end - 1] == b'\r' => Ok(Some((&input[..end - 1], end + 1))),
        Some(_) => Err(Garbage),
        None if input.len() >= LINE_BYTES_MAX => Err(Garbage),
        None => Ok(None),
    }
}

/// True if the line reports an error in the text or meta protocol.
fn is_error_line(line: &[u8]) -> bool {
    line == b"ERROR" || line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR")
}

fn number(word: &[u8]) -> Result<usize, Garbage> {
    // Valid lengths have at most nine digits. With this limit the sum cannot overflow.
    if word.is_empty() || word.len() > 9 {
        return Err(Garbage);
    }
    word.iter().try_fold(0, |sum, &byte| if byte.is_ascii_digit() { Ok(sum * 10 + usize::from(byte - b'0')) } else { Err(Garbage) })
}

/// Compares the returned value with the expected value. Returns the outcome of the get.
fn judge(request: &Request, key_is_right: bool, value: &[u8], checks: Checks) -> Outcome {
    if !key_is_right {
        Outcome::WrongKey
    } else if request.value_bytes.is_some_and(|bytes| bytes as usize != value.len()) {
        Outcome::WrongLength
    } else if checks.bytes && !request.key.matches_value(0, value) {
        Outcome::WrongBytes
    } else {
        Outcome::Hit
    }
}

#[cfg(test)]
mod tests;
