// SPDX-License-Identifier: BSL-1.0
//! Socket activation, readiness and priorities, as systemd offers them to a service.
//!
//! A service manager passes sockets to the program that it starts, waits until the program is ready, and files each line by its priority.
//! These protocols need variables of the environment and one datagram, so no library of systemd is linked: sd_listen_fds(3), sd_notify(3),
//! sd-daemon(3), and JOURNAL_STREAM in systemd.exec(5). Without the variables, nothing here has an effect.

use crate::sys;
use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The first passed descriptor (SD_LISTEN_FDS_START).
const FIRST_PASSED: RawFd = 3;

/// Returns the descriptor of the passed socket. None if no socket was passed to the process `own_id`. An error is one line.
pub fn passed_socket(variable: impl Fn(&str) -> Option<OsString>, own_id: u32) -> Result<Option<RawFd>, String> {
    let text = |name| variable(name).and_then(|value| value.into_string().ok());
    // A child inherits the variables but not the sockets. LISTEN_PID tells the two apart.
    if text("LISTEN_PID").and_then(|id| id.parse().ok()) != Some(own_id) {
        return Ok(None);
    }
    match text("LISTEN_FDS").as_deref() {
        None | Some("0") => Ok(None),
        Some("1") => Ok(Some(FIRST_PASSED)),
        Some(count) => Err(format!("LISTEN_FDS is {count}, but a card has one socket for its guest")),
    }
}

/// Sends a state such as `READY=1` to the service manager, if it waits for one.
pub fn notify(state: &str) -> io::Result<()> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(&name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

/// Returns true if stderr is a stream of the journal, which takes a line's priority from its prefix. A redirected stderr is none.
pub fn stderr_is_journal() -> bool {
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else { return false };
    sys::device_and_inode(libc::STDERR_FILENO).is_ok_and(|(device, inode)| stream.as_bytes() == format!("{device}:{inode}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(id: Option<&str>, count: Option<&str>) -> Result<Option<RawFd>, String> {
        let variables = [("LISTEN_PID", id), ("LISTEN_FDS", count)];
        passed_socket(|name| variables.iter().find(|(known, _)| *known == name).and_then(|(_, value)| value.map(OsString::from)), 17)
    }

    #[test]
    fn a_socket_is_taken_only_if_it_was_passed_to_this_process() {
        assert_eq!(passed(Some("17"), Some("1")), Ok(Some(3)));
        for (id, count) in [(None, Some("1")), (Some("16"), Some("1")), (Some("x"), Some("1")), (Some("17"), None), (Some("17"), Some("0"))]
        {
            assert_eq!(passed(id, count), Ok(None), "{id:?} {count:?}");
        }
        assert!(passed(Some("17"), Some("2")).unwrap_err().contains("LISTEN_FDS is 2"));
    }
}
