// SPDX-License-Identifier: BSL-1.0
//! The meta protocol (memcached's doc/protocol.txt, "Meta Commands"). Each request asks the server to copy the request's opaque number into
//! the reply. A get also asks for the key.

use super::{first_line, is_error_line, judge, number, Checks, Decoded, Garbage, Outcome, Reply};
use crate::workload::{Operation, Request};
use std::io::Write as _;

pub fn encode(request: &Request, opaque: u32, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    match request.operation {
        Operation::Get => {
            out.extend_from_slice(b"mg ");
            request.key.write(out);
            let _ = write!(out, " v k O{opaque}\r\n");
        }
        Operation::Set => {
            let bytes = request.value_bytes.unwrap_or(0);
            out.extend_from_slice(b"ms ");
            request.key.write(out);
            let _ = write!(out, " {bytes} T{} O{opaque}\r\n", request.expiry_s);
            request.key.write_value(bytes, out);
            out.extend_from_slice(b"\r\n");
        }
        Operation::Delete => {
            out.extend_from_slice(b"md ");
            request.key.write(out);
            let _ = write!(out, " O{opaque}\r\n");
        }
    }
}

pub fn decode(input: &[u8], request: &Request, opaque: u32, checks: Checks) -> Decoded {
    let Some((line, after)) = first_line(input)? else { return Ok(None) };
    if is_error_line(line) {
        return Ok(Some(Reply::new(after, Outcome::ServerError)));
    }
    let mut words = line.split(|&byte| byte == b' ');
    let code = words.next().unwrap_or_default();
    let length = if code == b"VA" { Some(number(words.next().ok_or(Garbage)?)?) } else { None };
    let (mut key_is_right, mut opaque_is_right) = (true, true);
    for flag in words {
        match flag.split_first() {
            Some((b'k', key)) => key_is_right = request.key.matches(key),
            Some((b'O', text)) => opaque_is_right = text == opaque.to_string().as_bytes(),
            _ => {}
        }
    }
    let (bytes, outcome) = match (request.operation, code, length) {
        (operation, _, Some(length)) => {
            let end = after + length;
            let Some(tail) = input.get(end..end + 2) else { return Ok(None) };
            if tail != b"\r\n" {
                return Err(Garbage);
            }
            let outcome = match operation {
                Operation::Get => judge(request, key_is_right, &input[after..end], checks),
                _ => Outcome::WrongReply,
            };
            (end + 2, outcome)
        }
        // A miss is `EN` (get) or `NF` (delete).
        (Operation::Get, b"EN", None) | (Operation::Delete, b"NF", None) => (after, Outcome::Miss),
        (Operation::Set | Operation::Delete, b"HD", None) => (after, Outcome::Done),
        (Operation::Set, b"NS", None) => (after, Outcome::Declined),
        (_, b"EN" | b"HD" | b"NF" | b"NS" | b"EX", None) => (after, Outcome::WrongReply),
        _ => return Err(Garbage),
    };
    Ok(Some(Reply::new(bytes, if opaque_is_right { outcome } else { Outcome::WrongReply })))
}
