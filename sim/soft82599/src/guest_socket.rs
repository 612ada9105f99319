// SPDX-License-Identifier: BSL-1.0
//! The socket over which guests come: a file that this program makes, or a descriptor that it has inherited.
//!
//! A management program may open the socket itself, because the card has no right to, or because the guest starts first. It passes a
//! listening socket, or a connected one. A connected socket has one guest. When this guest has disconnected, no other can come.

use crate::socket_file::SocketFile;
use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// The command line's choice of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestSource {
    Path(PathBuf),
    /// MUST be inherited: no other part of the program owns it.
    Descriptor(RawFd),
}

pub enum GuestSocket {
    File(SocketFile),
    /// The file of an inherited listener belongs to the program that has made it, and is not removed.
    Listener(UnixListener),
    /// None after the guest was accepted.
    Connected(Option<UnixStream>),
}

impl GuestSocket {
    /// Opens the socket. Fails if a path cannot be listened on, or if a descriptor is no UNIX stream socket that listens or is connected.
    pub fn open(source: &GuestSource) -> io::Result<Self> {
        match source {
            GuestSource::Path(path) => SocketFile::listen(path).map(Self::File),
            GuestSource::Descriptor(descriptor) => Self::inherit(*descriptor).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot use descriptor {descriptor} as the guest's socket: {error}"))
            }),
        }
    }

    fn inherit(descriptor: RawFd) -> io::Result<Self> {
        let (socket, listens) = sys::take_inherited_socket(descriptor)?;
        if listens {
            let listener = UnixListener::from(socket);
            listener.set_nonblocking(true)?;
            return Ok(Self::Listener(listener));
        }
        let stream = UnixStream::from(socket);
        stream.peer_addr()?;
        Ok(Self::Connected(Some(stream)))
    }

    /// Readable if `accept` may return a guest. A connected socket is readable when its guest has sent its first message or has closed. -1,
    /// which poll ignores, if no guest can come.
    pub fn descriptor(&self) -> RawFd {
        match self {
            Self::File(file) => file.descriptor(),
            Self::Listener(listener) => listener.as_raw_fd(),
            Self::Connected(stream) => stream.as_ref().map_or(-1, UnixStream::as_raw_fd),
        }
    }

    pub fn accept(&mut self) -> Option<UnixStream> {
        match self {
            Self::File(file) => file.accept(),
            Self::Listener(listener) => listener.accept().ok().map(|(stream, _)| stream),
            Self::Connected(stream) => stream.take(),
        }
    }

    /// True if no further guest can come.
    pub fn is_used_up(&self) -> bool {
        matches!(self, Self::Connected(None))
    }
}
