// SPDX-License-Identifier: BSL-1.0
//! A recorded load, from a CSV file with time, operation, key size and value size in each line.
//!
//! Traces of production stores seldom contain keys, only the keys' sizes. So the file gives operation and sizes, and the workload's
//! popularity distribution chooses the key. The expected length of a get's value is then unknown, but the value's bytes are checked
//! (workload.rs).

use crate::workload::{Key, Operation, KEY_BYTES_MAX, VALUE_BYTES_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The time, relative to the first line's time.
    pub at_ns: u64,
    pub operation: Operation,
    pub key_bytes: u16,
    /// The size of the value to store; a get or delete does not use it.
    pub value_bytes: u32,
}

/// Parses lines of `seconds,operation,key bytes,value bytes` with rising times. A first line without a number is a heading; lines that
/// start with `#` are comments.
pub fn parse(input: impl std::io::Read) -> Result<Vec<Line>, String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).comment(Some(b'#')).trim(csv::Trim::All).from_reader(input);
    let mut lines: Vec<Line> = Vec::new();
    let mut first_ns = 0;
    for (index, record) in reader.records().enumerate() {
        let record = record.map_err(|error| error.to_string())?;
        let number = record.position().map_or(0, |position| position.line());
        let words: Vec<&str> = record.iter().collect();
        match line(&words) {
            Ok(mut line) => {
                if lines.is_empty() {
                    first_ns = line.at_ns;
                }
                line.at_ns = line
                    .at_ns
                    .checked_sub(first_ns)
                    .filter(|&at| lines.last().is_none_or(|last| at >= last.at_ns))
                    .ok_or_else(|| format!("line {number}: its time is before that of the line above"))?;
                lines.push(line);
            }
            // A heading does not begin with a number.
            Err(_) if index == 0 && words[0].parse::<f64>().is_err() => {}
            Err(why) => return Err(format!("line {number}: {why}")),
        }
    }
    if lines.is_empty() {
        return Err("contains no request".into());
    }
    Ok(lines)
}

fn line(words: &[&str]) -> Result<Line, String> {
    let &[time, operation, key, value] = words else {
        return Err("not four columns (seconds, operation, key bytes, value bytes)".into());
    };
    // The limit is about a hundred years, so that the time in nanoseconds fits into 64 bits.
    let seconds =
        time.parse().ok().filter(|seconds: &f64| (0.0..=3e9).contains(seconds)).ok_or(format!("{time} is not a time in seconds"))?;
    let key_bytes = key.parse().ok().filter(|bytes| (1..=KEY_BYTES_MAX).contains(bytes));
    let value_bytes = value.parse().ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX);
    Ok(Line {
        at_ns: (seconds * 1e9).round() as u64,
        operation: operation.parse()?,
        key_bytes: key_bytes.ok_or(format!("{key} is not a key size (1 to {KEY_BYTES_MAX} bytes)"))?,
        value_bytes: value_bytes.ok_or(format!("{value} is not a value size (0 to {VALUE_BYTES_MAX} bytes)"))?,
    })
}

impl Line {
    /// Returns the request of this line for key `number`.
    pub fn request(&self, number: u64, expiry_s: u32) -> crate::workload::Request {
        crate::workload::Request {
            operation: self.operation,
            key: Key::new(number, self.key_bytes),
            value_bytes: (self.operation == Operation::Set).then_some(self.value_bytes),
            expiry_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_and_comments_are_skipped_and_times_start_at_zero() {
        let text = "time,op,key,value\n# recorded somewhere\n5.5, get, 19, 2\n5.5,SET,30,1000\n 6,delete,250,0\n";
        let lines = parse(text.as_bytes()).unwrap();
        assert_eq!(lines.iter().map(|line| line.at_ns).collect::<Vec<_>>(), [0, 0, 500_000_000]);
        assert_eq!(lines[1], Line { at_ns: 0, operation: Operation::Set, key_bytes: 30, value_bytes: 1000 });
        assert_eq!(lines[0].request(4, 0).value_bytes, None);
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        for (text, named) in [
            ("", "no request"),
            ("time,op,key,value\n", "no request"),
            ("1,get,19,2\n0,get,19,2\n", "line 2"),
            ("1,get,19\n", "unequal"),
            ("1,get,19,2\n2,fetch,19,2\n", "fetch"),
            ("1,get,0,2\n", "key size"),
            ("1,get,251,2\n", "key size"),
            ("1,set,25,9999999\n", "value size"),
            ("1,get,19,2\nx,get,19,2\n", "line 2"),
            ("-1,get,19,2\n", "time"),
        ] {
            let message = parse(text.as_bytes()).unwrap_err();
            assert!(message.contains(named) || named == "unequal" && message.contains("four columns"), "{text:?}: {message}");
        }
    }
}
