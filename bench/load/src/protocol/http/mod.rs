// SPDX-License-Identifier: BSL-1.0
//! HTTP/1.1 (RFC 9112): requests for one page, and the check of every reply.
//!
//! A load generator that does not look at the replies measures also those that are wrong. Here each reply must have the status 200 and the
//! expected body. A GET expects a text, which is the preset's, or that of the first reply of the run. A POST may expect its own body: it is
//! JSON that differs from request to request, so a reply that belongs to another request is noticed, too.

mod body;
mod reply;

use super::{Decoded, Outcome, Reply};
use crate::distributions::Distribution;
use crate::workload::{Key, Mix, Popularity, Request};
use body::JsonBody;
use std::sync::OnceLock;

pub use body::{BODY_BYTES_MAX, BODY_BYTES_MIN};

/// `http`: a page whose reply is not known beforehand. The others are those of apps/webserver/scripts.
pub const PRESETS: [&str; 4] = ["http", "hello", "study", "json"];
/// The number of requests that the studies' run has.
pub const STUDY_REQUESTS: u64 = 100_000;
/// In the studies, the size of a whole reply, with its head.
const STUDY_REPLY_BYTES: usize = 148;
const JSON_BYTES: u32 = 1024;
/// The number of different bodies.
const ECHO_KEYS: u64 = 10_000;

/// The page that is requested, and the reply that is right.
#[derive(Debug)]
pub struct Page {
    /// The request: of a POST, without its body.
    head: Vec<u8>,
    body: Option<JsonBody>,
    expected: Expected,
    /// The size of a whole reply, if it is known.
    reply_bytes: Option<usize>,
}

#[derive(Debug)]
enum Expected {
    Text(&'static [u8]),
    /// The body of the request.
    Echo,
    /// The body of the run's first reply.
    First(OnceLock<Vec<u8>>),
}

/// The words of the command line that describe a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageWords {
    pub preset: Option<String>,
    pub path: Option<String>,
    pub body_bytes: Option<u32>,
}

impl Page {
    /// `host`: the server as the line `Host` names it. Err: a line that says which word is invalid.
    pub fn new(words: &PageWords, host: &str) -> Result<Self, String> {
        let preset = words.preset.as_deref().unwrap_or(PRESETS[0]);
        let path = words.path.as_deref().unwrap_or("/");
        if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("the path {path} does not begin with /, or it has characters that must be written as %XX"));
        }
        if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{host}: not a host"));
        }
        let (expected, reply_bytes) = match preset {
            "http" => (Expected::First(OnceLock::new()), None),
            "hello" => (Expected::Text(b"Hello World\n"), None),
            "study" => (Expected::Text(b"Hello from a server.\r\n"), Some(STUDY_REPLY_BYTES)),
            "json" => (Expected::Echo, None),
            _ => return Err(format!("{preset} is no preset of http; known are {}", PRESETS.join(", "))),
        };
        let default_bytes = (preset == "json").then_some(JSON_BYTES);
        let body = words.body_bytes.or(default_bytes).map(JsonBody::new).transpose()?;
        let head = match &body {
            None => format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Some(body) => format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.bytes()
            ),
        };
        Ok(Self { head: head.into_bytes(), body, expected, reply_bytes })
    }

    /// The requests: gets, or sets of the bodies that are posted. A key is the number in a body. Bodies differ only if the reply's follows
    /// from them.
    pub fn mix(&self) -> Mix {
        let fixed = |bytes: usize| Distribution::Fixed { value: bytes as f64 };
        let is_post = self.body.is_some();
        Mix {
            keys: if is_post && matches!(self.expected, Expected::Echo) { ECHO_KEYS } else { 1 },
            popularity: Popularity::Uniform,
            key_size: fixed(body::ID_BYTES),
            value_size: fixed(self.body.as_ref().map_or(0, JsonBody::bytes)),
            update_ratio: if is_post { 1.0 } else { 0.0 },
            expiry_s: 0,
        }
    }

    pub(super) fn encode(&self, request: &Request, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        if let Some(body) = &self.body {
            body.write(request.key.number, out);
        }
    }

    pub(super) fn decode(&self, input: &[u8], request: &Request) -> Decoded {
        let Some(reply) = reply::parse(input)? else { return Ok(None) };
        let outcome = match reply.status {
            200 => self.judge(&reply, request.key),
            500..=599 => Outcome::ServerError,
            _ => Outcome::WrongReply,
        };
        Ok(Some(Reply { bytes: reply.bytes, outcome, is_last: reply.is_last }))
    }

    fn judge(&self, reply: &reply::Whole, key: Key) -> Outcome {
        let found = &*reply.body;
        let (length, is_equal) = match &self.expected {
            Expected::Text(text) => (text.len(), *text == found),
            Expected::First(first) => {
                let first = first.get_or_init(|| found.to_vec());
                (first.len(), first == found)
            }
            Expected::Echo => match &self.body {
                Some(body) => (body.bytes(), body.matches(key.number, found)),
                None => (0, found.is_empty()),
            },
        };
        if length != found.len() || self.reply_bytes.is_some_and(|bytes| bytes != reply.bytes) {
            Outcome::WrongLength
        } else if is_equal {
            Outcome::Done
        } else {
            Outcome::WrongBytes
        }
    }
}

#[cfg(test)]
mod tests;
