// SPDX-License-Identifier: BSL-1.0
//! The control socket. Each command is one line, and its answer is one line of JSON. The answer to `state` has several lines, ended by a
//! line with a dot. The commands are in commands.rs.

use crate::commands;
use crate::rig::Rig;
use crate::socket_file::SocketFile;
use crate::sys::{self, Interest};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

const CLIENTS_MAX: usize = 8;
const LINE_BYTES_MAX: usize = 4096;
/// Largest number of bytes of unread answers. A client with more unread bytes is disconnected.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

pub struct Control {
    listener: SocketFile,
    clients: Vec<Client>,
}

impl Control {
    pub fn listen(path: &Path) -> io::Result<Self> {
        Ok(Self { listener: SocketFile::listen(path)?, clients: Vec::new() })
    }

    pub fn interests(&self, out: &mut Vec<Interest>) {
        out.push(Interest { descriptor: self.listener.descriptor(), read: self.clients.len() < CLIENTS_MAX, write: false });
        for client in &self.clients {
            out.push(Interest { descriptor: client.stream.as_raw_fd(), read: true, write: !client.output.is_empty() });
        }
    }

    /// Serves all clients. All descriptors are non-blocking, so an idle client costs one failed call. Returns true after `quit`.
    pub fn service(&mut self, rig: &mut Rig) -> bool {
        let mut quit = false;
        while self.clients.len() < CLIENTS_MAX {
            let Some(stream) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client { stream, input: Vec::new(), output: Vec::new() });
            }
        }
        self.clients.retain_mut(|client| client.service(rig, &mut quit));
        quit
    }
}

impl Client {
    /// Returns false if the client is gone or must be disconnected.
    fn service(&mut self, rig: &mut Rig, quit: &mut bool) -> bool {
        let mut buffer = [0u8; 4096];
        let open = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break false,
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.input.len() > 64 * LINE_BYTES_MAX {
                break true;
            }
        };
        while let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let answer = if line.len() > LINE_BYTES_MAX {
                commands::error("line too long")
            } else {
                commands::run(String::from_utf8_lossy(&line).trim(), rig, quit)
            };
            self.output.extend(answer.bytes());
        }
        if self.input.len() > LINE_BYTES_MAX || self.output.len() > OUTPUT_BYTES_MAX {
            return false;
        }
        // Commands that the client sent before its end of stream are still answered, as far as the socket accepts the answers.
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
