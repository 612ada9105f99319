// SPDX-License-Identifier: BSL-1.0
//! The text protocol (memcached's doc/protocol.txt, "Storage commands", "Retrieval command", "Deletion").

use super::{first_line, is_error_line, judge, number, Checks, Decoded, Garbage, Outcome, Reply};
use crate::workload::{Operation, Request};
use std::io::Write as _;

const END: &[u8] = b"END\r\n";

pub fn encode(request: &Request, out: &mut Vec<u8>) {
    match request.operation {
        Operation::Get => {
            out.extend_from_slice(b"get ");
            request.key.write(out);
            out.extend_from_slice(b"\r\n");
        }
        Operation::Set => {
            let bytes = request.value_bytes.unwrap_or(0);
            out.extend_from_slice(b"set ");
            request.key.write(out);
            // Writing to a Vec cannot fail.
            let _ = write!(out, " 0 {} {bytes}\r\n", request.expiry_s);
            request.key.write_value(bytes, out);
            out.extend_from_slice(b"\r\n");
        }
        Operation::Delete => {
            out.extend_from_slice(b"delete ");
            request.key.write(out);
            out.extend_from_slice(b"\r\n");
        }
    }
}

pub fn decode(input: &[u8], request: &Request, checks: Checks) -> Decoded {
    let Some((line, after)) = first_line(input)? else { return Ok(None) };
    let whole = |outcome| Ok(Some(Reply::new(after, outcome)));
    match (request.operation, line) {
        (_, line) if is_error_line(line) => whole(Outcome::ServerError),
        (Operation::Get, b"END") | (Operation::Delete, b"NOT_FOUND") => whole(Outcome::Miss),
        (Operation::Set, b"STORED") | (Operation::Delete, b"DELETED") => whole(Outcome::Done),
        (Operation::Set, b"NOT_STORED") => whole(Outcome::Declined),
        (operation, line) if line.starts_with(b"VALUE ") => {
            let (key, length) = value_line(line)?;
            let end = after + length;
            let Some(tail) = input.get(end..end + 2 + END.len()) else { return Ok(None) };
            if &tail[..2] != b"\r\n" || &tail[2..] != END {
                return Err(Garbage);
            }
            let outcome = match operation {
                Operation::Get => judge(request, request.key.matches(key), &input[after..end], checks),
                _ => Outcome::WrongReply,
            };
            Ok(Some(Reply::new(end + 2 + END.len(), outcome)))
        }
        (_, b"END" | b"STORED" | b"NOT_STORED" | b"DELETED" | b"NOT_FOUND" | b"EXISTS") => whole(Outcome::WrongReply),
        _ => Err(Garbage),
    }
}

/// As `decode`, for a get whose value is the answer of a transaction. An answer MUST have a value, of any length.
pub fn decode_transaction(input: &[u8], request: &Request) -> Decoded {
    let unknown = Request { value_bytes: None, ..*request };
    let decoded = decode(input, &unknown, Checks { bytes: false })?;
    Ok(decoded.map(|reply| match reply.outcome {
        Outcome::Miss => Reply { outcome: Outcome::WrongReply, ..reply },
        _ => reply,
    }))
}

/// Parses `VALUE key flags bytes`. Returns the key and the number of bytes.
fn value_line(line: &[u8]) -> Result<(&[u8], usize), Garbage> {
    let mut words = line.split(|&byte| byte == b' ').skip(1);
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(key), Some(flags), Some(bytes), None) => {
            // Flags have 32 bits, so up to ten digits.
            if flags.is_empty() || flags.len() > 10 || !flags.iter().all(u8::is_ascii_digit) {
                return Err(Garbage);
            }
            Ok((key, number(bytes)?))
        }
        _ => Err(Garbage),
    }
}
