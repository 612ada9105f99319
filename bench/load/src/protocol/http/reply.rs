// SPDX-License-Identifier: BSL-1.0
//! Parses one reply: status line, head, and a body of a known length or in chunks.
//!
//! The connection stays open, so a reply whose end only the end of the connection would show is no reply here (`Garbage`). A reply in
//! parts is parsed again from its beginning when more bytes have arrived.

use super::super::Garbage;
use super::super::{first_line, number};
use std::borrow::Cow;

/// The head of a right reply is shorter than this.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Longer chunks and bodies are `Garbage`. The connection's own limit of a reply is lower.
const BODY_BYTES_MAX: usize = 64 << 20;
const VERSION: &[u8] = b"HTTP/1.";

pub struct Whole<'i> {
    pub status: u16,
    /// Borrowed from the input, unless it came in several chunks.
    pub body: Cow<'i, [u8]>,
    /// The length of the reply in the input.
    pub bytes: usize,
    /// The server closes the connection after it.
    pub is_last: bool,
}

struct Head {
    status: u16,
    length: Option<usize>,
    is_chunked: bool,
    is_last: bool,
    /// The length of the head, with the empty line.
    bytes: usize,
}

/// Parses the reply at the beginning of the input. Ok(None): it is not complete. Interim replies (1xx) before it belong to it.
pub fn parse(input: &[u8]) -> Result<Option<Whole<'_>>, Garbage> {
    let mut at = 0;
    loop {
        let Some(head) = parse_head(&input[at..])? else { return Ok(None) };
        at += head.bytes;
        if (100..200).contains(&head.status) {
            // A protocol that the connection changes to is none of ours.
            if head.status == 101 {
                return Err(Garbage);
            }
            continue;
        }
        let Some((body, bytes)) = parse_body(&input[at..], &head)? else { return Ok(None) };
        return Ok(Some(Whole { status: head.status, body, bytes: at + bytes, is_last: head.is_last }));
    }
}

fn parse_head(input: &[u8]) -> Result<Option<Head>, Garbage> {
    let known = input.len().min(VERSION.len());
    if input[..known] != VERSION[..known] {
        return Err(Garbage);
    }
    let searched = &input[..input.len().min(HEAD_BYTES_MAX)];
    let Some(end) = memchr::memmem::find(searched, b"\r\n\r\n") else {
        return if searched.len() < HEAD_BYTES_MAX { Ok(None) } else { Err(Garbage) };
    };
    // With the line end of the last line, and without the empty line.
    let mut lines = &input[..end + 2];
    let mut next_line = || -> Result<Option<&[u8]>, Garbage> {
        let Some((line, after)) = first_line(lines)? else { return Ok(None) };
        lines = &lines[after..];
        Ok(Some(line))
    };
    let status_line = next_line()?.ok_or(Garbage)?;
    let status = status_of(status_line)?;
    // Connections of HTTP/1.0 are kept only if the server says so (RFC 9112, 9.3).
    let mut is_last = status_line.starts_with(b"HTTP/1.0");
    let (mut length, mut is_chunked) = (None, false);
    while let Some(line) = next_line()? {
        let colon = memchr::memchr(b':', line).filter(|&at| at != 0).ok_or(Garbage)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !name.iter().all(|&byte| byte.is_ascii_graphic()) {
            return Err(Garbage);
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            let given = number(value)?;
            if length.is_some_and(|before| before != given) || given > BODY_BYTES_MAX {
                return Err(Garbage);
            }
            length = Some(given);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Garbage);
            }
            is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            for word in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                if word.eq_ignore_ascii_case(b"close") {
                    is_last = true;
                } else if word.eq_ignore_ascii_case(b"keep-alive") {
                    is_last = false;
                }
            }
        }
    }
    if is_chunked && length.is_some() {
        return Err(Garbage);
    }
    Ok(Some(Head { status, length, is_chunked, is_last, bytes: end + 4 }))
}

/// The status of `HTTP/1.1 200 OK`. The reason may be empty.
fn status_of(line: &[u8]) -> Result<u16, Garbage> {
    let rest = line.strip_prefix(VERSION).ok_or(Garbage)?;
    match rest {
        [minor, b' ', a @ b'1'..=b'9', b, c, tail @ ..]
            if minor.is_ascii_digit() && b.is_ascii_digit() && c.is_ascii_digit() && (tail.is_empty() || tail[0] == b' ') =>
        {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Ok(digit(a) * 100 + digit(b) * 10 + digit(c))
        }
        _ => Err(Garbage),
    }
}

/// The body at the beginning of the input, and its length there. Ok(None): it is not complete.
fn parse_body<'i>(input: &'i [u8], head: &Head) -> Result<Option<(Cow<'i, [u8]>, usize)>, Garbage> {
    if head.is_chunked {
        return parse_chunks(input);
    }
    // A reply to HEAD is not expected here.
    let length = match (head.status, head.length) {
        (204 | 304, _) => 0,
        (_, Some(length)) => length,
        (_, None) => return Err(Garbage),
    };
    Ok(input.get(..length).map(|body| (Cow::Borrowed(body), length)))
}

fn parse_chunks(input: &[u8]) -> Result<Option<(Cow<'_, [u8]>, usize)>, Garbage> {
    let mut body = Cow::Borrowed(&input[..0]);
    let mut at = 0;
    loop {
        let Some((line, after)) = first_line(&input[at..])? else { return Ok(None) };
        at += after;
        let length = chunk_length(line)?;
        if length == 0 {
            break;
        }
        let Some(chunk) = input.get(at..at + length + 2) else { return Ok(None) };
        let (chunk, end) = chunk.split_at(length);
        if end != b"\r\n" || body.len() + length > BODY_BYTES_MAX {
            return Err(Garbage);
        }
        if body.is_empty() {
            body = Cow::Borrowed(chunk);
        } else {
            body.to_mut().extend_from_slice(chunk);
        }
        at += length + 2;
    }
    let trailers = at;
    loop {
        let Some((line, after)) = first_line(&input[at..])? else { return Ok(None) };
        at += after;
        if line.is_empty() {
            return Ok(Some((body, at)));
        }
        if at - trailers > HEAD_BYTES_MAX {
            return Err(Garbage);
        }
    }
}

/// The length that `1f;name=value` says.
fn chunk_length(line: &[u8]) -> Result<usize, Garbage> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end();
    if digits.is_empty() || digits.len() > 8 {
        return Err(Garbage);
    }
    let length = digits.iter().try_fold(0, |sum: usize, &byte| {
        let digit = char::from(byte).to_digit(16).ok_or(Garbage)?;
        Ok(sum * 16 + digit as usize)
    })?;
    if length > BODY_BYTES_MAX {
        return Err(Garbage);
    }
    Ok(length)
}
