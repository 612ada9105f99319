// SPDX-License-Identifier: BSL-1.0
//! A UNIX stream of frames, each preceded by its length. The program or its peer may listen. If the peer disconnects, the link goes down.
//! The next peer brings it up.

use super::batch::{append_frame, Batch, FRAME_BYTES_MAX, LENGTH_BYTES};
use crate::socket_file::SocketFile;
use crate::sys::{self, Interest};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const READ_BYTES: usize = 256 * 1024;
/// Largest number of bytes that wait until the peer takes them; some hundred frames.
const ROOM_BYTES: usize = 512 * 1024;
const RETRY: Duration = Duration::from_millis(200);

enum Side {
    Listens(SocketFile),
    Connects(PathBuf, Instant),
}

pub struct Stream {
    side: Side,
    peer: Option<UnixStream>,
    pub input: Batch,
    output: Vec<u8>,
    sent: usize,
    /// Number of frames that were lost because there was no peer.
    pub lost: u64,
}

impl Stream {
    pub fn listen(path: &Path) -> io::Result<Self> {
        Ok(Self::new(Side::Listens(SocketFile::listen(path)?)))
    }
    /// Connects to `path`, at once or as soon as a peer listens there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let mut stream = Self::new(Side::Connects(path.to_path_buf(), Instant::now()));
        stream.seek_peer();
        Ok(stream)
    }
    fn new(side: Side) -> Self {
        Self { side, peer: None, input: Batch::default(), output: Vec::new(), sent: 0, lost: 0 }
    }

    pub fn is_connected(&self) -> bool {
        self.peer.is_some()
    }

    pub fn interest(&self, take: bool) -> Option<Interest> {
        match (&self.peer, &self.side) {
            (Some(peer), _) => Some(Interest { descriptor: peer.as_raw_fd(), read: take, write: self.sent < self.output.len() }),
            (None, Side::Listens(listener)) => Some(Interest { descriptor: listener.descriptor(), read: true, write: false }),
            (None, Side::Connects(..)) => None,
        }
    }

    pub fn retry_after(&self) -> Option<Duration> {
        match &self.side {
            Side::Connects(_, last) if self.peer.is_none() => Some(RETRY.saturating_sub(last.elapsed())),
            _ => None,
        }
    }

    fn seek_peer(&mut self) {
        let found = match &mut self.side {
            Side::Listens(listener) => listener.accept(),
            Side::Connects(path, last) => {
                *last = Instant::now();
                UnixStream::connect(&*path).ok()
            }
        };
        if let Some(peer) = found {
            if peer.set_nonblocking(true).is_ok() {
                self.input = Batch::default();
                self.output.clear();
                self.sent = 0;
                self.peer = Some(peer);
            }
        }
    }

    /// Reads the available bytes, or accepts the peer.
    pub fn fill(&mut self) {
        let Some(peer) = &mut self.peer else {
            if self.retry_after().is_none_or(|left| left.is_zero()) {
                self.seek_peer();
            }
            return;
        };
        if self.input.waiting() > FRAME_BYTES_MAX + LENGTH_BYTES {
            return; // Complete frames are waiting; the card must take them first.
        }
        let result = peer.read(self.input.room(READ_BYTES));
        self.input.add(*result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => self.disconnect(),
            Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => self.disconnect(),
            _ => {}
        }
    }

    pub fn disconnect(&mut self) {
        self.peer = None;
        self.input = Batch::default();
        self.output.clear();
        self.sent = 0;
    }

    pub fn has_room(&self) -> bool {
        self.output.len() - self.sent < ROOM_BYTES
    }

    pub fn send(&mut self, parts: &[&[u8]]) {
        if self.peer.is_some() {
            append_frame(&mut self.output, parts);
        } else {
            self.lost += 1;
        }
    }

    pub fn flush(&mut self) {
        let Some(peer) = &self.peer else { return };
        while self.sent < self.output.len() {
            match sys::send(peer.as_fd(), &self.output[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The limit applies only to unsent bytes. The sent bytes are removed here, so that the buffer stays bounded.
                    if self.sent > ROOM_BYTES {
                        self.output.drain(..self.sent);
                        self.sent = 0;
                    }
                    return;
                }
                Err(_) => return self.disconnect(),
            }
        }
        self.output.clear();
        self.sent = 0;
    }
}
