// SPDX-License-Identifier: BSL-1.0
//! The binary protocol (memcached's wiki, "BinaryProtocolRevamped"): a header of 24 bytes, big-endian, then extras, key and value.
//!
//! A get is sent as GETK, whose reply contains the key.

use super::{judge, Checks, Decoded, Garbage, Outcome, Reply};
use crate::workload::{Operation, Request};

const HEADER_BYTES: usize = 24;
const REQUEST: u8 = 0x80;
const RESPONSE: u8 = 0x81;
const SET: u8 = 0x01;
const DELETE: u8 = 0x04;
const GETK: u8 = 0x0C;
/// Length of a set's extras, which are flags and expiry.
const SET_EXTRAS_BYTES: u8 = 8;
/// The body of a valid reply (value with key) is shorter than this. A greater length is `Garbage`.
const BODY_BYTES_MAX: usize = 16 << 20;

mod status {
    pub const DONE: u16 = 0;
    pub const KEY_NOT_FOUND: u16 = 1;
    pub const NOT_STORED: u16 = 5;
}

fn opcode(operation: Operation) -> u8 {
    match operation {
        Operation::Get => GETK,
        Operation::Set => SET,
        Operation::Delete => DELETE,
    }
}

pub fn encode(request: &Request, opaque: u32, out: &mut Vec<u8>) {
    let (extras, value) = match request.operation {
        Operation::Set => (SET_EXTRAS_BYTES, request.value_bytes.unwrap_or(0)),
        _ => (0, 0),
    };
    let body = u32::from(extras) + u32::from(request.key.bytes) + value;
    out.extend_from_slice(&[REQUEST, opcode(request.operation)]);
    out.extend_from_slice(&request.key.bytes.to_be_bytes());
    out.extend_from_slice(&[extras, 0, 0, 0]);
    out.extend_from_slice(&body.to_be_bytes());
    out.extend_from_slice(&opaque.to_be_bytes());
    out.extend_from_slice(&[0; 8]);
    if extras != 0 {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&request.expiry_s.to_be_bytes());
    }
    request.key.write(out);
    request.key.write_value(value, out);
}

pub fn decode(input: &[u8], request: &Request, opaque: u32, checks: Checks) -> Decoded {
    match input.first() {
        Some(&magic) if magic != RESPONSE => return Err(Garbage),
        _ => {}
    }
    let Some(header) = input.get(..HEADER_BYTES) else { return Ok(None) };
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let long = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (key_bytes, extras, status, body) = (usize::from(word(2)), usize::from(header[4]), word(6), long(8) as usize);
    if body > BODY_BYTES_MAX || extras + key_bytes > body {
        return Err(Garbage);
    }
    let Some(body) = input.get(HEADER_BYTES..HEADER_BYTES + body) else { return Ok(None) };
    let key = &body[extras..extras + key_bytes];
    let value = &body[extras + key_bytes..];
    let outcome = if header[1] != opcode(request.operation) || long(12) != opaque {
        Outcome::WrongReply
    } else {
        match (request.operation, status) {
            (Operation::Get, status::DONE) => judge(request, request.key.matches(key), value, checks),
            (Operation::Set | Operation::Delete, status::DONE) => Outcome::Done,
            (Operation::Get | Operation::Delete, status::KEY_NOT_FOUND) => Outcome::Miss,
            (Operation::Set, status::NOT_STORED) => Outcome::Declined,
            _ => Outcome::ServerError,
        }
    };
    Ok(Some(Reply::new(HEADER_BYTES + body.len(), outcome)))
}
