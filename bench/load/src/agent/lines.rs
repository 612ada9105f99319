// SPDX-License-Identifier: BSL-1.0
//! A TCP connection that carries a JSON object a line, each way, with bounds on length and patience.

use serde::de::DeserializeOwned;
use serde::Serialize;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A trace of some hundred thousand requests fits.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// Between looks at whether waiting is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// Err of all functions: what happened, to be put behind the peer's name.
pub struct Lines {
    reader: BufReader<TcpStream>,
    /// What has come of the next line.
    line: Vec<u8>,
}

impl Lines {
    /// `write_patience`: for a peer that does not read.
    pub fn new(stream: TcpStream, write_patience: Duration) -> Result<Self, String> {
        let set = |stream: &TcpStream| -> std::io::Result<()> {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LOOK))?;
            stream.set_write_timeout(Some(write_patience))
        };
        set(&stream).map_err(|error| error.to_string())?;
        // Who vanishes without a word, from the network or with its machine, is noticed by the kernel.
        rustix::net::sockopt::set_socket_keepalive(&stream, true)
            .and_then(|()| rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(10)))
            .and_then(|()| rustix::net::sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5)))
            .and_then(|()| rustix::net::sockopt::set_tcp_keepcnt(&stream, 3))
            .map_err(|error| error.to_string())?;
        Ok(Self { reader: BufReader::new(stream), line: Vec::new() })
    }

    /// A second hand on the same connection.
    pub fn try_clone(&self) -> Result<TcpStream, String> {
        self.reader.get_ref().try_clone().map_err(|error| error.to_string())
    }

    /// Waits for a line until `until`; `look` is called now and then meanwhile, and its Err ends the waiting.
    pub fn next<T: DeserializeOwned>(
        &mut self,
        until: Instant,
        mut look: impl FnMut(&mut TcpStream) -> Result<(), String>,
    ) -> Result<T, String> {
        loop {
            // One read at a time: a peer that sends a byte now and then must not keep this from looking at the clock.
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
                        return serde_json::from_slice(&line).map_err(|error| format!("a line that makes no sense: {error}"));
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.to_string()),
            }
            look(self.reader.get_mut())?;
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
        return Err(format!("{} bytes are more than a line may have ({LINE_BYTES_MAX})", line.len()));
    }
    stream.write_all(&line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Lines, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Lines::new(listener.accept().unwrap().0, Duration::from_secs(5)).unwrap(), far)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn lines_come_one_by_one_however_they_are_cut() {
        let (mut lines, mut far) = pair();
        let writer = std::thread::spawn(move || {
            for part in ["[1", ",2]\n[3]", "\n", "[4]\n[5"] {
                far.write_all(part.as_bytes()).unwrap();
                std::thread::sleep(LOOK * 2);
            }
        });
        let mut next = || lines.next::<Vec<u32>>(soon(), |_| Ok(()));
        assert_eq!((next(), next(), next()), (Ok(vec![1, 2]), Ok(vec![3]), Ok(vec![4])));
        writer.join().unwrap();
        // The last line has no end.
        assert_eq!(next(), Err("closed the connection".into()));
    }

    #[test]
    fn waiting_ends_with_patience_or_by_wish() {
        let (mut lines, _far) = pair();
        assert_eq!(lines.next::<u32>(Instant::now(), |_| Ok(())), Err("does not answer".into()));
        assert_eq!(lines.next::<u32>(soon(), |_| Err("enough".into())), Err("enough".into()));
    }

    #[test]
    fn a_peer_that_sends_a_byte_now_and_then_is_given_up_in_time() {
        let (mut lines, mut far) = pair();
        let writer = std::thread::spawn(move || {
            while far.write_all(b"1").is_ok() {
                std::thread::sleep(LOOK / 5);
            }
        });
        let start = Instant::now();
        assert_eq!(lines.next::<u32>(start + LOOK * 4, |_| Ok(())), Err("does not answer".into()));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        drop(lines);
        writer.join().unwrap();
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let (mut lines, mut far) = pair();
        let writer = std::thread::spawn(move || far.write_all(&vec![b' '; LINE_BYTES_MAX + 1]));
        assert_eq!(lines.next::<u32>(soon(), |_| Ok(())), Err("a line without an end".into()));
        drop(lines);
        let _ = writer.join();
    }
}
