// SPDX-License-Identifier: BSL-1.0
//! A TCP connection that carries one JSON object per line in each direction. Line length and waiting time are bounded.

use serde::de::DeserializeOwned;
use serde::Serialize;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Largest length of a line; enough for a trace of some hundred thousand requests.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// Interval at which `Lines::next` calls `check` while it waits.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A connection, with the part of the next line that has arrived. Errors do not name the peer; callers add its name.
pub struct Lines {
    reader: BufReader<TcpStream>,
    line: Vec<u8>,
}

impl Lines {
    /// `write_time_out`: the time for which a send may wait for a peer that does not read.
    pub fn new(stream: TcpStream, write_time_out: Duration) -> Result<Self, String> {
        let set = |stream: &TcpStream| -> std::io::Result<()> {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(CHECK_INTERVAL))?;
            stream.set_write_timeout(Some(write_time_out))
        };
        set(&stream).map_err(|error| error.to_string())?;
        // Keep-alive detects a peer that disappears without closing the connection.
        rustix::net::sockopt::set_socket_keepalive(&stream, true)
            .and_then(|()| rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(10)))
            .and_then(|()| rustix::net::sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5)))
            .and_then(|()| rustix::net::sockopt::set_tcp_keepcnt(&stream, 3))
            .map_err(|error| error.to_string())?;
        Ok(Self { reader: BufReader::new(stream), line: Vec::new() })
    }

    pub fn try_clone(&self) -> Result<TcpStream, String> {
        self.reader.get_ref().try_clone().map_err(|error| error.to_string())
    }

    /// Waits for a line, at most until `until`. Calls `check` regularly during the wait; an error of `check` ends the wait.
    pub fn next<T: DeserializeOwned>(
        &mut self,
        until: Instant,
        mut check: impl FnMut(&mut TcpStream) -> Result<(), String>,
    ) -> Result<T, String> {
        loop {
            // The loop checks the time after each read, so a peer that sends single bytes cannot extend the wait.
            match self.reader.fill_buf() {
                Ok([]) => return Err("closed the connection".into()),
                Ok(bytes) => {
                    let end = bytes.iter().position(|&byte| byte == b'\n');
                    let taken = end.map_or(bytes.len(), |end| end + 1);
                    self.line.extend_from_slice(&bytes[..taken]);
                    self.reader.consume(taken);
                    if self.line.len() > LINE_BYTES_MAX || (end.is_none() && self.line.len() == LINE_BYTES_MAX) {
                        return Err("a line without an end".into());
                    }
                    if end.is_some() {
                        let line = std::mem::take(&mut self.line);
                        return serde_json::from_slice(&line).map_err(|error| format!("an invalid line: {error}"));
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.to_string()),
            }
            check(self.reader.get_mut())?;
            if Instant::now() >= until {
                return Err("does not answer".into());
            }
        }
    }

    pub fn send(&mut self, message: &impl Serialize) -> Result<(), String> {
        send(self.reader.get_mut(), message)
    }
}

pub fn send(stream: &mut TcpStream, message: &impl Serialize) -> Result<(), String> {
    let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    line.push(b'\n');
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("{} bytes exceed the bound on a line ({LINE_BYTES_MAX})", line.len()));
    }
    stream.write_all(&line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Lines, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Lines::new(listener.accept().unwrap().0, Duration::from_secs(5)).unwrap(), remote)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn lines_are_separated_wherever_the_writes_are_cut() {
        let (mut lines, mut remote) = pair();
        let writer = std::thread::spawn(move || {
            for part in ["[1", ",2]\n[3]", "\n", "[4]\n[5"] {
                remote.write_all(part.as_bytes()).unwrap();
                std::thread::sleep(CHECK_INTERVAL * 2);
            }
        });
        let mut next = || lines.next::<Vec<u32>>(soon(), |_| Ok(()));
        assert_eq!((next(), next(), next()), (Ok(vec![1, 2]), Ok(vec![3]), Ok(vec![4])));
        writer.join().unwrap();
        // The last line ends without a line feed, so it is not returned.
        assert_eq!(next(), Err("closed the connection".into()));
    }

    #[test]
    fn waiting_ends_at_the_deadline_or_when_the_check_fails() {
        let (mut lines, _far) = pair();
        assert_eq!(lines.next::<u32>(Instant::now(), |_| Ok(())), Err("does not answer".into()));
        assert_eq!(lines.next::<u32>(soon(), |_| Err("enough".into())), Err("enough".into()));
    }

    #[test]
    fn a_peer_that_sends_single_bytes_does_not_extend_the_deadline() {
        let (mut lines, mut remote) = pair();
        let writer = std::thread::spawn(move || {
            while remote.write_all(b"1").is_ok() {
                std::thread::sleep(CHECK_INTERVAL / 5);
            }
        });
        let start = Instant::now();
        assert_eq!(lines.next::<u32>(start + CHECK_INTERVAL * 4, |_| Ok(())), Err("does not answer".into()));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        drop(lines);
        writer.join().unwrap();
    }

    #[test]
    fn a_line_without_an_end_is_an_error() {
        let (mut lines, mut remote) = pair();
        let writer = std::thread::spawn(move || remote.write_all(&vec![b' '; LINE_BYTES_MAX + 1]));
        assert_eq!(lines.next::<u32>(soon(), |_| Ok(())), Err("a line without an end".into()));
        drop(lines);
        let _ = writer.join();
    }
}
