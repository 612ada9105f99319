// SPDX-License-Identifier: BSL-1.0
//! The plugin's and QEMU's side of the sockets: the link, and register accesses by vfio-user.

use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use world::link::{Field, Page, HELLO_BYTES, HELLO_MAGIC};

const TIME_OUT: Duration = Duration::from_secs(60);
const BAR0: u32 = 0;
pub const CONFIG: u32 = 7;
const MSIX: u32 = 2;
const SET_IRQS: u16 = 8;
const DMA_MAP: u16 = 2;
const READ: u16 = 9;
const WRITE: u16 = 10;

pub struct Link {
    stream: UnixStream,
    pub page: Page,
}

impl Link {
    pub fn connect(path: &Path) -> Self {
        let stream = connect(path);
        let mut hello = [0; HELLO_BYTES];
        let mut descriptors = Vec::new();
        let until = Instant::now() + TIME_OUT;
        while soft82599::sys::receive_with_descriptors(stream.as_fd(), &mut hello, &mut descriptors).is_err() {
            assert!(Instant::now() < until, "no hello");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(hello[..8], HELLO_MAGIC[..]);
        Self { stream, page: Page::map(descriptors.pop().unwrap()).unwrap() }
    }

    pub fn advance(&mut self, to_ns: u64) {
        self.page.store(Field::Now, to_ns);
        self.stream.write_all(&to_ns.to_le_bytes()).unwrap();
        let mut answer = [1];
        self.stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0]);
    }
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(TIME_OUT)).unwrap();
    stream
}

pub struct Memory {
    file: File,
}

impl Memory {
    pub fn new(bytes: u64) -> Self {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        Self { file: File::from(file) }
    }
    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }
    pub fn read(&self, at: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }
    pub fn u64_at(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.read(at, 8).try_into().unwrap())
    }
}

pub struct Bus {
    stream: UnixStream,
    next: u16,
}

impl Bus {
    pub fn connect(path: &Path) -> Self {
        let mut bus = Self { stream: connect(path), next: 0 };
        bus.call(1, b"\0\0\0\0{\"capabilities\":{}}\0", None);
        bus
    }

    fn call(&mut self, command: u16, body: &[u8], descriptor: Option<BorrowedFd>) -> Vec<u8> {
        self.next = self.next.wrapping_add(1);
        let mut message = Vec::new();
        message.extend(self.next.to_le_bytes());
        message.extend(command.to_le_bytes());
        message.extend(((16 + body.len()) as u32).to_le_bytes());
        message.extend([0; 8]);
        message.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        assert_eq!(sendmsg(&self.stream, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL), Ok(message.len()));
        let mut header = [0; 16];
        self.stream.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut answer = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut answer).unwrap();
        assert_eq!(word(8) & 0x21, 1, "a reply without an error to command {command}");
        answer
    }

    pub fn map(&mut self, bytes: u64, memory: &Memory) {
        let mut body = Vec::new();
        body.extend([32u32, 3].iter().flat_map(|word| word.to_le_bytes()));
        body.extend([0, 0, bytes].iter().flat_map(|word| word.to_le_bytes()));
        self.call(DMA_MAP, &body, Some(memory.file.as_fd()));
    }

    /// Enables MSI-X as QEMU does. The eventfd is never signalled.
    pub fn enable_messages(&mut self) {
        let body: Vec<u8> = [20u32, 32 | 4, MSIX, 0, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
        let unused: OwnedFd = File::open("/dev/null").unwrap().into();
        self.call(SET_IRQS, &body, Some(unused.as_fd()));
    }

    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let mut body = access(region, offset, data.len());
        body.extend(data);
        self.call(WRITE, &body, None);
    }
    pub fn set_register(&mut self, offset: u64, value: u32) {
        self.write(BAR0, offset, &value.to_le_bytes());
    }
    pub fn register(&mut self, offset: u64) -> u32 {
        let answer = self.call(READ, &access(BAR0, offset, 4), None);
        u32::from_le_bytes(answer[16..20].try_into().unwrap())
    }
}

fn access(region: u32, offset: u64, count: usize) -> Vec<u8> {
    let mut body = offset.to_le_bytes().to_vec();
    body.extend([region, count as u32].iter().flat_map(|word| word.to_le_bytes()));
    body
}
