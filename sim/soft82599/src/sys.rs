// SPDX-License-Identifier: BSL-1.0
//! Safe wrappers of the few system calls that the standard library lacks: receiving descriptors over a socket, ppoll, signals as a
//! descriptor, an inherited socket, a tap device.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Largest number of descriptors in one message (SCM_MAX_FD is 253; vfio-user clients send up to 16).
const DESCRIPTORS_MAX: usize = 64;

/// Receives bytes and descriptors, and returns the number of bytes. Ok(0) is the end of the stream.
pub fn receive_with_descriptors(socket: BorrowedFd, into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // The buffer has words of 8 bytes, so that the control messages are aligned.
    let mut control = [0u64; 64];
    // SAFETY: an all-zero msghdr is valid; its pointers are set to live buffers below, with their true lengths.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = std::mem::size_of_val(&control) as _;
    // SAFETY: header describes live, writable buffers.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel filled header; the CMSG functions stay inside msg_controllen.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    while !message.is_null() {
        // SAFETY: message points to a control message inside `control`; an SCM_RIGHTS message holds whole ints up to cmsg_len; each
        // descriptor is new and has no other owner.
        unsafe {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let length = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                for i in 0..(length / std::mem::size_of::<RawFd>()).min(DESCRIPTORS_MAX) {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&header, message);
        }
    }
    Ok(bytes as usize)
}

/// A descriptor to poll, and the events to wait for.
pub struct Interest {
    pub descriptor: RawFd,
    pub read: bool,
    pub write: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Readiness {
    /// Also true on hang-up and error, so that the reader detects them.
    pub read: bool,
    pub write: bool,
    /// True if the other end has closed. ppoll reports this without a request, until the descriptor is no longer polled.
    pub hung: bool,
}

/// Waits until a descriptor is ready or `timeout` has passed (None: no limit). A signal ends the wait early.
pub fn poll(interests: &[Interest], timeout: Option<Duration>, ready: &mut Vec<Readiness>) -> io::Result<()> {
    let mut entries: Vec<libc::pollfd> = interests
        .iter()
        .map(|interest| libc::pollfd {
            fd: interest.descriptor,
            events: if interest.read { libc::POLLIN } else { 0 } | if interest.write { libc::POLLOUT } else { 0 },
            revents: 0,
        })
        .collect();
    let time = timeout.map(|t| libc::timespec { tv_sec: t.as_secs().min(3600) as _, tv_nsec: t.subsec_nanos() as _ });
    let time = time.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: entries is a live array of its length; time is null or points to a live timespec.
    let result = unsafe { libc::ppoll(entries.as_mut_ptr(), entries.len() as _, time, std::ptr::null()) };
    ready.clear();
    if result < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        ready.resize(interests.len(), Readiness::default());
        return Ok(());
    }
    let trouble = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
    ready.extend(entries.iter().zip(interests).map(|(entry, interest)| Readiness {
        read: entry.revents & libc::POLLIN != 0 || (interest.read && entry.revents & trouble != 0),
        write: entry.revents & libc::POLLOUT != 0,
        hung: entry.revents & trouble != 0,
    }));
    Ok(())
}

/// Blocks SIGINT and SIGTERM, and returns a descriptor from which they are read. The standard library already ignores SIGPIPE.
pub fn termination_signals() -> io::Result<OwnedFd> {
    // SAFETY: set is initialised by sigemptyset before use; the calls take pointers to it only while it lives.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        let result = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        let descriptor = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Takes a UNIX stream socket that the program has inherited. Returns it, and true if it listens. The descriptor MUST have no other owner.
pub fn take_inherited_socket(descriptor: RawFd) -> io::Result<(OwnedFd, bool)> {
    let option = |name| {
        let mut value: libc::c_int = 0;
        let mut bytes = std::mem::size_of_val(&value) as libc::socklen_t;
        // SAFETY: value and bytes live through the call, and bytes is the size of value. The call fails for a descriptor that is not open.
        let result = unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, name, (&raw mut value).cast(), &mut bytes) };
        if result == 0 {
            Ok(value)
        } else {
            Err(io::Error::last_os_error())
        }
    };
    if option(libc::SO_DOMAIN)? != libc::AF_UNIX || option(libc::SO_TYPE)? != libc::SOCK_STREAM {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a UNIX stream socket"));
    }
    let listens = option(libc::SO_ACCEPTCONN)? != 0;
    // SAFETY: the descriptor is an open socket, see above, and the caller guarantees that it has no other owner.
    Ok((unsafe { OwnedFd::from_raw_fd(descriptor) }, listens))
}

/// Returns the device and the inode of an open descriptor.
pub fn device_and_inode(descriptor: RawFd) -> io::Result<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: status is writable for one stat, which the call fills if it succeeds.
    unsafe {
        if libc::fstat(descriptor, status.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let status = status.assume_init();
        Ok((status.st_dev, status.st_ino))
    }
}

/// Sets the timer slack to 1 ns. The default is 50 us.
pub fn sharpen_timers() {
    // SAFETY: plain call with integer arguments.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Adds one to an eventfd's count. A failure (the count is at its maximum) is ignored, because the reader has an event already.
pub fn signal_eventfd(descriptor: BorrowedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: one is 8 readable bytes.
    unsafe { libc::write(descriptor.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Sends without blocking, and without a signal if the other end is closed.
pub fn send(socket: BorrowedFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: bytes is readable for its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(sent as usize)
}

/// Opens an existing tap device for frames without a header.
pub fn open_tap(name: &str) -> io::Result<std::fs::File> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an interface name"));
    }
    // TUNSETIFF creates a missing device, but here a missing device is an error.
    let c_name = std::ffi::CString::new(name).expect("no zero byte in it, see above");
    // SAFETY: c_name is a C string that lives through the call.
    if unsafe { libc::if_nametoindex(c_name.as_ptr()) } == 0 {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no such tap device; create it with `ip tuntap add NAME mode tap`"));
    }
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads an ifreq, which lives through the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}
