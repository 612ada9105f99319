// SPDX-License-Identifier: BSL-1.0
//! Parses requests and builds answers, right or wrong.

use super::Fault;
use load::workload::{Key, Mix};

/// The server's action on a connection after an answer was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    GoOn,
    Close,
    Reset,
    Stall,
}

/// Length of the answer with the fault `Endless`: more than neap-load accepts as one reply.
pub const ENDLESS_BYTES: usize = 4 << 20;

/// Returns the length of the input's first request and, for a get, its key. None if that request is not complete.
pub fn request(input: &[u8]) -> Option<(usize, Option<&[u8]>)> {
    let end = input.windows(2).position(|pair| pair == b"\r\n")?;
    let mut words = input[..end].split(|&byte| byte == b' ');
    match words.next()? {
        b"get" => Some((end + 2, words.next())),
        b"set" => {
            let bytes: usize = std::str::from_utf8(words.next_back()?).ok()?.parse().ok()?;
            let whole = end + 2 + bytes + 2;
            (input.len() >= whole).then_some((whole, None))
        }
        _ => Some((end + 2, None)),
    }
}

/// Returns the answer and the action after it. Without a `fault` the answer is correct; otherwise it has that fault.
pub fn answer(mix: &Mix, key: Option<&[u8]>, fault: Option<Fault>) -> (Vec<u8>, After) {
    let number = key.and_then(|key| std::str::from_utf8(key).ok()?.parse::<u64>().ok());
    let (Some(text), Some(number)) = (key, number) else { return (b"STORED\r\n".to_vec(), After::GoOn) };
    let key = Key::new(number, text.len() as u16);
    let mut value = Vec::new();
    key.write_value(mix.value_bytes(number) + u32::from(fault == Some(Fault::WrongLength)), &mut value);
    let mut text = text.to_vec();
    match fault {
        Some(Fault::WrongKey) => *text.last_mut().expect("a number has a digit") ^= 1,
        Some(Fault::WrongBytes) => *value.last_mut().expect("values here are not empty") ^= 1,
        _ => {}
    }
    let whole = [b"VALUE ", text.as_slice(), format!(" 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\nEND\r\n"].concat();
    match fault {
        Some(Fault::ServerError) => (b"SERVER_ERROR out of memory\r\n".to_vec(), After::GoOn),
        Some(Fault::Miss) => (b"END\r\n".to_vec(), After::GoOn),
        Some(Fault::Endless) => {
            let mut endless = [b"VALUE ", text.as_slice(), b" 0 999999999\r\n"].concat();
            endless.resize(endless.len() + ENDLESS_BYTES, b'x');
            (endless, After::GoOn)
        }
        _ => damaged(whole, fault),
    }
}

/// Returns the answer and the action after it, for the faults that do not depend on the protocol.
pub fn damaged(mut whole: Vec<u8>, fault: Option<Fault>) -> (Vec<u8>, After) {
    let half = whole.len() / 2;
    match fault {
        Some(Fault::Close) => (Vec::new(), After::Close),
        Some(Fault::Reset) => (Vec::new(), After::Reset),
        Some(Fault::Stall) => (Vec::new(), After::Stall),
        Some(Fault::Garbage) => (b"\x00\xffnoise\r\n".to_vec(), After::GoOn),
        Some(Fault::Half) => {
            whole.truncate(half);
            (whole, After::Close)
        }
        _ => (whole, After::GoOn),
    }
}
