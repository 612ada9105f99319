// SPDX-License-Identifier: BSL-1.0
//! A small vfio-user client for tests of the program. It sends the same messages as QEMU.

#![allow(dead_code)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const TIME_OUT: Duration = Duration::from_secs(20);
pub const BAR0: u32 = 0;
pub const CONFIG: u32 = 7;
pub const MSIX: u32 = 2;

/// The program under test in its own directory. Dropping a `Server` ends the program and removes the directory.
pub struct Server {
    pub directory: PathBuf,
    pub child: Child,
}

impl Server {
    /// Starts the program and waits until it reports that it is ready. DIR in `arguments` is replaced by the directory's path.
    pub fn start(name: &str, arguments: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("soft82599-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self::start_in(directory, arguments)
    }

    pub fn start_in(directory: PathBuf, arguments: &str) -> Self {
        let arguments = format!("--socket-path=DIR/card.sock --control DIR/control.sock {arguments}");
        let mut child = program(&arguments.replace("DIR", directory.to_str().unwrap())).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "soft82599: ready\n");
        Self { directory, child }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn connect(&self) -> Client {
        Client::connect(&self.path("card.sock"))
    }

    /// Connects to the server's stream of frames, `--net listen:DIR/net.sock`.
    pub fn join_net(&self) -> UnixStream {
        let peer = UnixStream::connect(self.path("net.sock")).unwrap();
        peer.set_read_timeout(Some(TIME_OUT)).unwrap();
        peer
    }

    /// Sends one command to the control socket and returns the line of its answer (for `state` the lines up to the dot).
    pub fn control(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.path("control.sock")).unwrap();
        stream.set_read_timeout(Some(TIME_OUT)).unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if command != "state" || line == ".\n" || line.is_empty() {
                return answer + &line;
            }
            answer += &line;
        }
    }

    /// Waits for the program's end and returns its status.
    pub fn wait(&mut self) -> i32 {
        let until = Instant::now() + TIME_OUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < until, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn program(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soft82599"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// Memory that can be shared by its descriptor.
pub struct Memory {
    pub file: File,
}

impl Memory {
    pub fn new(bytes: u64) -> Self {
        // SAFETY: the name is a C string; the result is checked and has no other owner.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC);
            assert!(descriptor >= 0);
            File::from_raw_fd(descriptor)
        };
        file.set_len(bytes).unwrap();
        Self { file }
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

/// An eventfd whose count is read with a time-out.
pub struct Event {
    file: File,
}

impl Event {
    pub fn new() -> Self {
        // SAFETY: plain call; the result is checked and has no other owner.
        let file = unsafe {
            let descriptor = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            assert!(descriptor >= 0);
            File::from_raw_fd(descriptor)
        };
        Self { file }
    }
    pub fn raw(&self) -> RawFd {
        self.file.as_raw_fd()
    }
    /// True if the eventfd was signalled within the time.
    pub fn fired(&mut self, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            if self.file.read_exact(&mut [0; 8]).is_ok() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub struct Client {
    pub stream: UnixStream,
    next: u16,
}

impl Client {
    /// Connects and negotiates a version.
    pub fn connect(path: &Path) -> Self {
        Self::on(UnixStream::connect(path).unwrap())
    }

    /// Negotiates a version over a connection.
    pub fn on(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(TIME_OUT)).unwrap();
        let mut client = Self { stream, next: 0 };
        let mut body = vec![0, 0, 0, 0];
        body.extend(b"{\"capabilities\":{\"max_msg_fds\":8}}\0");
        let answer = client.call(1, &body, &[]).unwrap();
        assert_eq!(answer[..4], [0, 0, 0, 0], "the lower minor version is used");
        assert_eq!(answer.last(), Some(&0));
        client
    }

    pub fn message(&mut self, command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
        self.next += 1;
        let mut message = Vec::new();
        message.extend(self.next.to_le_bytes());
        message.extend(command.to_le_bytes());
        message.extend(((16 + body.len()) as u32).to_le_bytes());
        message.extend(flags.to_le_bytes());
        message.extend(0u32.to_le_bytes());
        message.extend(body);
        message
    }

    pub fn answer(&mut self) -> Result<Vec<u8>, i32> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut body).unwrap();
        assert_eq!(word(8) & 0xF, 1, "a reply");
        if word(8) & 0x20 != 0 {
            return Err(word(12) as i32);
        }
        Ok(body)
    }

    /// Sends a command and returns its reply; an error reply gives its errno.
    pub fn call(&mut self, command: u16, body: &[u8], descriptors: &[RawFd]) -> Result<Vec<u8>, i32> {
        let message = self.message(command, 0, body);
        send_with_descriptors(&self.stream, &message, descriptors);
        self.answer()
    }

    pub fn map(&mut self, address: u64, bytes: u64, memory: &Memory, offset: u64) -> Result<Vec<u8>, i32> {
        let mut body = Vec::new();
        body.extend(32u32.to_le_bytes());
        body.extend(3u32.to_le_bytes());
        body.extend([offset, address, bytes].iter().flat_map(|value| value.to_le_bytes()));
        self.call(2, &body, &[memory.file.as_raw_fd()])
    }

    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>, i32> {
        let mut body = Vec::new();
        body.extend(24u32.to_le_bytes());
        body.extend(0u32.to_le_bytes());
        body.extend([address, bytes].iter().flat_map(|value| value.to_le_bytes()));
        self.call(3, &body, &[])
    }

    pub fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, i32> {
        let mut body = Vec::new();
        body.extend(offset.to_le_bytes());
        body.extend(region.to_le_bytes());
        body.extend(count.to_le_bytes());
        Ok(self.call(9, &body, &[])?.split_off(16))
    }

    pub fn write_body(region: u32, offset: u64, data: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(offset.to_le_bytes());
        body.extend(region.to_le_bytes());
        body.extend((data.len() as u32).to_le_bytes());
        body.extend(data);
        body
    }

    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<Vec<u8>, i32> {
        self.call(10, &Self::write_body(region, offset, data), &[])
    }

    pub fn register(&mut self, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(BAR0, offset, 4).unwrap().try_into().unwrap())
    }

    /// Sends a posted write, as QEMU does.
    pub fn set_register(&mut self, offset: u64, value: u32) {
        let message = self.message(10, 0x10, &Self::write_body(BAR0, offset, &value.to_le_bytes()));
        self.stream.write_all(&message).unwrap();
    }

    pub fn set_eventfd(&mut self, index: u32, number: u32, event: &Event) {
        let words = [20u32, 32 | 4, index, number, 1];
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.call(8, &body, &[event.raw()]).unwrap();
    }
}

pub fn send_with_descriptors(stream: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    let mut control = [0u64; 16];
    let length = std::mem::size_of_val(descriptors);
    // SAFETY: header and control message point to live buffers of the lengths given; CMSG_SPACE(length) fits into control.
    let sent = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut vector;
        header.msg_iovlen = 1;
        if !descriptors.is_empty() {
            assert!(libc::CMSG_SPACE(length as u32) as usize <= std::mem::size_of_val(&control));
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(length as u32) as _;
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(length as u32) as _;
            std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), libc::CMSG_DATA(message), length);
        }
        libc::sendmsg(stream.as_raw_fd(), &header, 0)
    };
    assert_eq!(sent as usize, bytes.len());
}
