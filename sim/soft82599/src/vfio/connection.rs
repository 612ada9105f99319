// SPDX-License-Identifier: BSL-1.0
//! One client's socket: splits a stream of bytes into whole messages with their descriptors.
//!
//! All available messages are read with one system call. The kernel ends a read after bytes to which descriptors are attached, and a client
//! attaches descriptors to a message's first byte. So the received descriptors belong to the last message that begins in these bytes.

use super::protocol::{Header, HEADER_BYTES};
use crate::sys;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const READ_BYTES: usize = 64 * 1024;
/// A client that does not accept replies for this long is disconnected.
const SEND_TIME_OUT: Duration = Duration::from_secs(5);

pub struct Connection {
    stream: UnixStream,
    /// The vector is longer than its contents, so that reading need not zero new space first.
    input: Vec<u8>,
    filled: usize,
    /// Number of handled bytes at the front of `input`.
    done: usize,
    /// Descriptors of messages, with the offset of their message in `input`.
    descriptors: VecDeque<(usize, Vec<OwnedFd>)>,
    pub output: Vec<u8>,
}

/// A whole message: its header, the range of its body (see `body`), and its descriptors.
pub struct Message {
    pub header: Header,
    pub range: std::ops::Range<usize>,
    pub descriptors: Vec<OwnedFd>,
}

pub enum Input {
    Some,
    Nothing,
    Closed,
}

impl Connection {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Vec::new(), filled: 0, done: 0, descriptors: VecDeque::new(), output: Vec::new() })
    }

    pub fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Reads the available bytes. An error ends the connection.
    pub fn fill(&mut self) -> io::Result<Input> {
        self.input.copy_within(self.done..self.filled, 0);
        self.filled -= self.done;
        for (at, _) in &mut self.descriptors {
            *at -= self.done;
        }
        self.done = 0;
        let have = self.filled;
        if self.input.len() < have + READ_BYTES {
            self.input.resize(have + READ_BYTES, 0);
        }
        let mut descriptors = Vec::new();
        let result = sys::receive_with_descriptors(self.stream.as_fd(), &mut self.input[have..], &mut descriptors);
        self.filled += *result.as_ref().unwrap_or(&0);
        match result {
            Ok(0) => Ok(Input::Closed),
            Ok(_) => {
                if !descriptors.is_empty() {
                    let start = self.last_start(have)?;
                    self.descriptors.push_back((start, descriptors));
                }
                Ok(Input::Some)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(Input::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Returns the start of the last message that begins at `from` or later.
    fn last_start(&self, from: usize) -> io::Result<usize> {
        let mut at = 0;
        let mut last = None;
        while at < self.filled {
            if at >= from {
                last = Some(at);
            }
            let Some(header) = Header::parse(&self.input[at..self.filled]) else { break };
            if !header.is_sane() {
                break;
            }
            at += header.bytes;
        }
        last.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "descriptors in the middle of a message"))
    }

    /// Returns the next whole message, if there is one.
    pub fn next(&mut self) -> io::Result<Option<Message>> {
        let at = self.done;
        let Some(header) = Header::parse(&self.input[at..self.filled]) else { return Ok(None) };
        if !header.is_sane() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("not a vfio-user command: {header:?}")));
        }
        if self.filled - at < header.bytes {
            return Ok(None);
        }
        let mut descriptors = Vec::new();
        while self.descriptors.front().is_some_and(|(start, _)| *start <= at) {
            let (start, with) = self.descriptors.pop_front().expect("the front was there");
            if start == at {
                descriptors.extend(with);
            }
        }
        self.done += header.bytes;
        Ok(Some(Message { header, range: at + HEADER_BYTES..at + header.bytes, descriptors }))
    }

    pub fn body(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.input[range]
    }

    /// Sends the replies gathered in `output`.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let mut since = None;
        while sent < self.output.len() {
            match sys::send(self.stream.as_fd(), &self.output[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let since = *since.get_or_insert_with(Instant::now);
                    if since.elapsed() > SEND_TIME_OUT {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not take replies"));
                    }
                    let interest = [sys::Interest { descriptor: self.descriptor(), read: false, write: true }];
                    sys::poll(&interest, Some(Duration::from_millis(100)), &mut Vec::new())?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        Ok(())
    }
}
