// SPDX-License-Identifier: BSL-1.0
//! The control socket: one command a line, one line of JSON back (`state`: lines, ended by one with a dot).
//!
//! The interrupt trace (the card's interrupt_trace.rs) is read in pieces, each taken off: `trace read` again until `left` is 0. A message
//! is `{"at", "vector", "held", "receive", "transmit", "software", "other"}`, a write to EITR `{"at", "vector", "interval", "counter"}`;
//! times are the card's nanoseconds, and `now` is its clock at the moment of the answer.

use crate::socket_file::SocketFile;
use crate::sys::{self, Interest};
use card::{Card, Entry, Event, Nanoseconds};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

const MOST_CLIENTS: usize = 8;
const LONGEST_LINE: usize = 4096;
/// Answers that a client has not taken yet; one that lets more pile up is cut off.
const MOST_OUTPUT: usize = 4 << 20;
const TRACE_ENTRIES: usize = 1 << 16;
/// 48 bytes each.
const MOST_TRACE_ENTRIES: usize = 1 << 22;
/// In one answer: some 2 MB of text.
const TRACE_PIECE: usize = 1 << 14;

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

pub struct Control {
    listener: SocketFile,
    clients: Vec<Client>,
}

/// What a command wants from the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Link(bool),
    Quit,
}

impl Control {
    pub fn listen(path: &Path) -> io::Result<Self> {
        Ok(Self { listener: SocketFile::listen(path)?, clients: Vec::new() })
    }

    pub fn interests(&self, out: &mut Vec<Interest>) {
        out.push(Interest { descriptor: self.listener.descriptor(), read: self.clients.len() < MOST_CLIENTS, write: false });
        for client in &self.clients {
            out.push(Interest { descriptor: client.stream.as_raw_fd(), read: true, write: !client.output.is_empty() });
        }
    }

    /// Serves whoever has something to say; all descriptors are non-blocking, so it need not be known who.
    pub fn service(&mut self, card: &mut Card, now: Nanoseconds, requests: &mut Vec<Request>) {
        while self.clients.len() < MOST_CLIENTS {
            let Some(stream) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client { stream, input: Vec::new(), output: Vec::new() });
            }
        }
        self.clients.retain_mut(|client| client.service(card, now, requests));
    }
}

impl Client {
    /// False when it is gone or has to go.
    fn service(&mut self, card: &mut Card, now: Nanoseconds, requests: &mut Vec<Request>) -> bool {
        let mut buffer = [0u8; 4096];
        let open = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break false,
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.input.len() > 64 * LONGEST_LINE {
                break true;
            }
        };
        while let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let answer = if line.len() > LONGEST_LINE {
                error("line too long")
            } else {
                run(String::from_utf8_lossy(&line).trim(), card, now, requests)
            };
            self.output.extend(answer.bytes());
        }
        if self.input.len() > LONGEST_LINE || self.output.len() > MOST_OUTPUT {
            return false;
        }
        // What a client asked before it closed its side is still answered, as far as the socket takes it.
        self.flush() && open
    }

    fn flush(&mut self) -> bool {
        while !self.output.is_empty() {
            match sys::send(self.stream.as_fd(), &self.output) {
                Ok(bytes) => drop(self.output.drain(..bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

fn run(line: &str, card: &mut Card, now: Nanoseconds, requests: &mut Vec<Request>) -> String {
    const OK: &str = "{\"ok\": true}\n";
    if let Some(words) = line.strip_prefix("trace ") {
        return trace(words.trim(), card, now)
            .unwrap_or_else(|| error(&format!("trace takes start [ENTRIES, 1 to {MOST_TRACE_ENTRIES}], stop or read")));
    }
    match line {
        "counters" => {
            let accesses = card.access_counters();
            format!("{{\"reads\": {}, \"writes\": {}}}\n", object(accesses.reads()), object(accesses.writes()))
        }
        "reset-counters" => {
            card.clear_access_counters();
            OK.into()
        }
        "statistics" => object(card.statistics().into_iter()) + "\n",
        "state" => card.describe() + ".\n",
        "link up" => {
            requests.push(Request::Link(true));
            OK.into()
        }
        "link down" => {
            requests.push(Request::Link(false));
            OK.into()
        }
        "quit" => {
            requests.push(Request::Quit);
            OK.into()
        }
        _ => error(
            "unknown command; known are counters, reset-counters, statistics, state, trace start [ENTRIES], trace stop, trace read, \
             link up, link down, quit",
        ),
    }
}

/// None if the words make no sense.
fn trace(words: &str, card: &mut Card, now: Nanoseconds) -> Option<String> {
    match words.split_once(char::is_whitespace).unwrap_or((words, "")) {
        ("start", entries) => {
            let most = if entries.is_empty() { TRACE_ENTRIES } else { entries.trim().parse().ok()? };
            if !(1..=MOST_TRACE_ENTRIES).contains(&most) {
                return None;
            }
            card.start_interrupt_trace(now, most);
        }
        ("stop", "") => card.interrupt_trace().stop(),
        ("read", "") => {
            let trace = card.interrupt_trace();
            let entries: Vec<String> = trace.take(TRACE_PIECE).map(|entry| entry_as_json(&entry)).collect();
            let (on, lost, left) = (trace.is_on(), trace.lost(), trace.waiting());
            let entries = entries.join(", ");
            return Some(format!("{{\"on\": {on}, \"lost\": {lost}, \"left\": {left}, \"now\": {now}, \"entries\": [{entries}]}}\n"));
        }
        _ => return None,
    }
    Some("{\"ok\": true}\n".into())
}

fn entry_as_json(entry: &Entry) -> String {
    let Entry { at, vector, event } = entry;
    match event {
        Event::Message { causes, held } => format!(
            "{{\"at\": {at}, \"vector\": {vector}, \"held\": {held}, \"receive\": {}, \"transmit\": {}, \"software\": {}, \"other\": {}}}",
            causes.receive, causes.transmit, causes.software, causes.other
        ),
        Event::Interval { interval, counter } => {
            let counter = counter.map_or("null".into(), |counter| counter.to_string());
            format!("{{\"at\": {at}, \"vector\": {vector}, \"interval\": {interval}, \"counter\": {counter}}}")
        }
    }
}

/// Texts in answers are ours and hold nothing that JSON would want escaped.
fn error(text: &str) -> String {
    format!("{{\"error\": \"{text}\"}}\n")
}

fn object(entries: impl Iterator<Item = (String, u64)>) -> String {
    let inner: Vec<String> = entries.map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", inner.join(", "))
}
