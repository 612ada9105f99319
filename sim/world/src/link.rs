// SPDX-License-Identifier: BSL-1.0
//! The link to the program that runs the guest's CPUs and drives the clock: one UNIX stream and one shared page.
//!
//! The card must act at exact moments of the CPUs' time, and messages of its vectors must reach them at the moments at which it sends them.
//! So the driver of time sends each moment to advance to, 8 bytes, and waits for one byte: everything due has happened. Times and vectors
//! are in the page, because register accesses need them too and come by another socket.
//!
//! The page's fields are 64-bit numbers, little-endian, at the offsets below. Both sides access them atomically. The driver is trusted no
//! more than a guest: each of its numbers is only a time, and the time never decreases.

use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use soft82599::socket_file::SocketFile;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

pub const HELLO_MAGIC: &[u8; 8] = b"NEAPLINK";
pub const PAGE_MAGIC: &[u8; 8] = b"NEAPPAGE";
pub const VERSION: u64 = 1;
pub const PAGE_BYTES: usize = 4096;
pub const HELLO_BYTES: usize = 16;
/// `next_ns`: there is no next event.
pub const NEVER_NS: u64 = u64::MAX;
const ACKNOWLEDGEMENT: u8 = 0;

/// Offsets in the page.
#[derive(Clone, Copy, Debug)]
pub enum Field {
    Magic = 0x00,
    /// Written by the driver before each advance and each access to a register.
    Now = 0x08,
    /// The next time at which the card acts by itself.
    Next = 0x10,
    /// Bit n: the card has sent the message of vector n. The driver takes the bits by an exchange with 0.
    Vectors = 0x18,
    Phase = 0x20,
    /// 1: this program cannot go on.
    Failed = 0x28,
    /// Written by the driver before each advance: no CPU does anything before this time unless the card acts. The time of the advance if a
    /// CPU is awake.
    IdleUntil = 0x30,
    /// The number of the load under way, from 0. It changes with the phase, to set-up.
    Load = 0x38,
}

pub struct Page {
    file: OwnedFd,
    mapping: *mut u8,
}

impl Page {
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("neap-link", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, PAGE_BYTES as u64)?;
        let page = Self::map(file)?;
        page.store(Field::Magic, u64::from_le_bytes(*PAGE_MAGIC));
        page.store(Field::Next, NEVER_NS);
        Ok(page)
    }

    /// Maps the page of a link; `file` has at least PAGE_BYTES.
    pub fn map(file: OwnedFd) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses; it is unmapped only by drop.
        let mapping = unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)? };
        Ok(Self { file, mapping: mapping.cast() })
    }

    pub fn descriptor(&self) -> &OwnedFd {
        &self.file
    }

    fn field(&self, field: Field) -> &AtomicU64 {
        // SAFETY: the offset is a multiple of 8 inside the mapping, which lives as long as self. All accesses are atomic on both sides.
        unsafe { AtomicU64::from_ptr(self.mapping.add(field as usize).cast()) }
    }

    pub fn load(&self, field: Field) -> u64 {
        u64::from_le(self.field(field).load(Ordering::SeqCst))
    }
    pub fn store(&self, field: Field, value: u64) {
        self.field(field).store(value.to_le(), Ordering::SeqCst);
    }
    pub fn add_vectors(&self, vectors: u64) {
        if vectors != 0 {
            self.field(Field::Vectors).fetch_or(vectors.to_le(), Ordering::SeqCst);
        }
    }
    pub fn take_vectors(&self) -> u64 {
        u64::from_le(self.field(Field::Vectors).swap(0, Ordering::SeqCst))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping came from mmap with this length, and `field` lends no reference beyond self.
        let _ = unsafe { munmap(self.mapping.cast(), PAGE_BYTES) };
    }
}

/// A message of the driver of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Advance to this time, then `acknowledge`.
    Advance(u64),
    /// Not a whole message yet.
    Nothing,
    Closed,
}

enum Peer {
    Awaited(SocketFile),
    Connected(UnixStream),
}

pub struct Link {
    pub page: Page,
    peer: Peer,
    input: [u8; 8],
    filled: usize,
}

impl Link {
    pub fn listen(path: &Path) -> io::Result<Self> {
        Ok(Self { page: Page::new()?, peer: Peer::Awaited(SocketFile::listen(path)?), input: [0; 8], filled: 0 })
    }

    /// Readable if `service` has work.
    pub fn descriptor(&self) -> RawFd {
        match &self.peer {
            Peer::Awaited(listener) => listener.descriptor(),
            Peer::Connected(stream) => stream.as_raw_fd(),
        }
    }

    /// Accepts the one connection, or reads from it.
    pub fn service(&mut self) -> io::Result<Input> {
        self.accept_or_read().or_else(closed).map_err(|error| io::Error::new(error.kind(), format!("the link to the machine: {error}")))
    }

    fn accept_or_read(&mut self) -> io::Result<Input> {
        match &mut self.peer {
            Peer::Awaited(listener) => {
                if let Some(stream) = listener.accept() {
                    send_hello(&stream, &self.page)?;
                    stream.set_nonblocking(true)?;
                    self.peer = Peer::Connected(stream);
                }
                Ok(Input::Nothing)
            }
            Peer::Connected(stream) => match stream.read(&mut self.input[self.filled..]) {
                Ok(0) => Ok(Input::Closed),
                Ok(bytes) => {
                    self.filled += bytes;
                    if self.filled < self.input.len() {
                        return Ok(Input::Nothing);
                    }
                    self.filled = 0;
                    Ok(Input::Advance(u64::from_le_bytes(self.input)))
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(Input::Nothing),
                Err(error) => Err(error),
            },
        }
    }

    /// All that was due has happened. The driver waits for this, so its socket has room. If it has ended, `service` reports that.
    pub fn acknowledge(&mut self) {
        if let Peer::Connected(stream) = &mut self.peer {
            let _ = stream.write_all(&[ACKNOWLEDGEMENT]);
        }
    }
}

/// The driver has ended without reading everything: an end like others.
fn closed(error: io::Error) -> io::Result<Input> {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(Input::Closed),
        _ => Err(error),
    }
}

fn send_hello(stream: &UnixStream, page: &Page) -> io::Result<()> {
    let mut hello = HELLO_MAGIC.to_vec();
    hello.extend(VERSION.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [page.descriptor().as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS.into());
    }
    let sent = sendmsg(stream, &[IoSlice::new(&hello)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == hello.len() {
        Ok(())
    } else {
        Err(Errno::MSGSIZE.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// The other end, as the plugin has it.
    fn connect(path: &Path, link: &mut Link) -> (UnixStream, Page) {
        let mut stream = UnixStream::connect(path).unwrap();
        assert_eq!(link.service().unwrap(), Input::Nothing);
        let mut hello = [0; HELLO_BYTES];
        let mut descriptors = Vec::new();
        let bytes = soft82599::sys::receive_with_descriptors(stream.as_fd(), &mut hello, &mut descriptors).unwrap();
        assert_eq!((bytes, &hello[..8], u64::from_le_bytes(hello[8..].try_into().unwrap())), (16, &HELLO_MAGIC[..], VERSION));
        let page = Page::map(descriptors.pop().unwrap()).unwrap();
        stream.flush().unwrap();
        (stream, page)
    }

    #[test]
    fn a_driver_gets_the_page_and_advances_the_clock_step_by_step() {
        let path = std::env::temp_dir().join(format!("world-link-{}", std::process::id()));
        let mut link = Link::listen(&path).unwrap();
        let (mut stream, page) = connect(&path, &mut link);
        assert_eq!(page.load(Field::Magic), u64::from_le_bytes(*PAGE_MAGIC));
        assert_eq!((page.load(Field::Next), page.load(Field::Phase), page.load(Field::Failed)), (NEVER_NS, 0, 0));
        assert!(!path.exists(), "only one connection is possible");
        // A message in two parts.
        let message = 123_456u64.to_le_bytes();
        stream.write_all(&message[..3]).unwrap();
        assert_eq!(link.service().unwrap(), Input::Nothing);
        stream.write_all(&message[3..]).unwrap();
        assert_eq!(link.service().unwrap(), Input::Advance(123_456));
        link.page.add_vectors(0b101);
        link.page.add_vectors(0b1000);
        link.page.store(Field::Next, 200_000);
        link.acknowledge();
        let mut answer = [9];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!((answer, page.load(Field::Next), page.take_vectors(), page.take_vectors()), ([0], 200_000, 0b1101, 0));
        assert_eq!(link.service().unwrap(), Input::Nothing);
        drop(stream);
        assert_eq!(link.service().unwrap(), Input::Closed);
    }
}
