// SPDX-License-Identifier: BSL-1.0
//! memcached's three languages: requests into bytes, bytes into checked replies.
//!
//! Replies come in the order of the requests, so a reply is read knowing what was asked: a wrong key, a length or bytes that do not belong
//! to it are told apart from a miss and from noise. After noise nobody knows where the next reply begins; the connection has to go.

mod binary;
mod meta;
mod text;
pub mod udp;

use crate::workload::Request;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Text,
    Meta,
    Binary,
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "meta" => Ok(Self::Meta),
            "binary" => Ok(Self::Binary),
            _ => Err(format!("{text}: not a protocol; known are text, meta, binary")),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Meta => "meta",
            Self::Binary => "binary",
        })
    }
}

/// What became of a request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A get that found the right value.
    Hit,
    /// A get or delete that found nothing.
    Miss,
    /// A set or delete that was done.
    Done,
    /// A set that the server declined (NOT_STORED).
    Declined,
    /// The server says that it could not, or that it did not understand.
    ServerError,
    WrongKey,
    WrongLength,
    WrongBytes,
    /// A reply in good form that does not answer this request.
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

    /// The request was served as a store should; its latency means something.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Hit | Self::Miss | Self::Done)
    }
}

/// The bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage;

/// How a reply is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Each byte of a value too, not only key and length.
    pub bytes: bool,
}

/// A complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of the input.
    pub bytes: usize,
    pub outcome: Outcome,
}

/// None: the reply has not come whole yet.
pub type Decoded = Result<Option<Reply>, Garbage>;

impl Protocol {
    /// Appends the request. `opaque` comes back with the reply where the language can do that.
    pub fn encode(self, request: &Request, opaque: u32, out: &mut Vec<u8>) {
        match self {
            Self::Text => text::encode(request, out),
            Self::Meta => meta::encode(request, opaque, out),
            Self::Binary => binary::encode(request, opaque, out),
        }
    }

    /// Reads the reply to a request from the beginning of the input.
    pub fn decode(self, input: &[u8], request: &Request, opaque: u32, checks: Checks) -> Decoded {
        match self {
            Self::Text => text::decode(input, request, checks),
            Self::Meta => meta::decode(input, request, opaque, checks),
            Self::Binary => binary::decode(input, request, opaque, checks),
        }
    }
}

/// Longer than any first line of a reply that a server sends: what goes on without an end of line is noise.
const LINE_BYTES_MAX: usize = 2048;

/// The first line without its end, and where the next begins.
fn first_line(input: &[u8]) -> Result<Option<(&[u8], usize)>, Garbage> {
    let searched = &input[..input.len().min(LINE_BYTES_MAX)];
    match memchr::memchr(b'\n', searched) {
        Some(end) if end > 0 && input[end - 1] == b'\r' => Ok(Some((&input[..end - 1], end + 1))),
        Some(_) => Err(Garbage),
        None if input.len() >= LINE_BYTES_MAX => Err(Garbage),
        None => Ok(None),
    }
}

/// A line that says what the server could not do, in the text and the meta language.
fn is_error_line(line: &[u8]) -> bool {
    line == b"ERROR" || line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR")
}

fn number(word: &[u8]) -> Result<usize, Garbage> {
    // No value is longer than nine digits say; more of them would overflow somewhere.
    if word.is_empty() || word.len() > 9 {
        return Err(Garbage);
    }
    word.iter().try_fold(0, |sum, &byte| if byte.is_ascii_digit() { Ok(sum * 10 + usize::from(byte - b'0')) } else { Err(Garbage) })
}

/// What a value that came back for a get is worth.
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
