// SPDX-License-Identifier: BSL-1.0
//! The JSON bodies of requests: an object with a text, numbers, truth values and nested objects.
//!
//! All bodies of a run have the same length and differ in one member, the number of the request's key. The text is in the form in which
//! JSON.stringify writes it, so that a server that parses a body and writes the value again answers with the same bytes.

/// The number of digits of the key in a body.
pub const ID_BYTES: usize = 12;
pub const BODY_BYTES_MIN: u32 = 64;
pub const BODY_BYTES_MAX: u32 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonBody {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl JsonBody {
    pub fn new(bytes: u32) -> Result<Self, String> {
        if !(BODY_BYTES_MIN..=BODY_BYTES_MAX).contains(&bytes) {
            return Err(format!("a body of {bytes} bytes: JSON bodies have {BODY_BYTES_MIN} to {BODY_BYTES_MAX}"));
        }
        let before = b"{\"id\":\"".to_vec();
        let (middle, end) = ("\",\"items\":[", "],\"note\":\"");
        let mut after = middle.as_bytes().to_vec();
        let room = |after: &Vec<u8>| bytes as usize - before.len() - ID_BYTES - end.len() - "\"}".len() - after.len();
        for number in 0.. {
            let comma = if number == 0 { "" } else { "," };
            let item = format!(
                "{comma}{{\"name\":\"item {number}\",\"count\":{},\"price\":{}.5,\"new\":{}}}",
                number * 7,
                number,
                number % 2 == 0
            );
            if item.len() > room(&after) {
                break;
            }
            after.extend_from_slice(item.as_bytes());
        }
        let rest = room(&after);
        after.extend_from_slice(end.as_bytes());
        after.resize(after.len() + rest, b'x');
        after.extend_from_slice(b"\"}");
        Ok(Self { before, after })
    }

    pub fn bytes(&self) -> usize {
        self.before.len() + ID_BYTES + self.after.len()
    }

    /// Appends the body of the request for the key with this number.
    pub fn write(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before);
        out.extend_from_slice(&id(number));
        out.extend_from_slice(&self.after);
    }

    pub fn matches(&self, number: u64, text: &[u8]) -> bool {
        let Some(rest) = text.strip_prefix(&*self.before) else { return false };
        rest.strip_prefix(&id(number)).is_some_and(|rest| rest == self.after)
    }
}

/// The last digits of the number.
fn id(number: u64) -> [u8; ID_BYTES] {
    let mut text = [b'0'; ID_BYTES];
    let mut rest = number;
    for digit in text.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    text
}
