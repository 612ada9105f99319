// SPDX-License-Identifier: BSL-1.0
//! The control connection to a Neap machine, over which its log is started, marked and stopped.
//!
//! Control answers each line with one line (docs/control.md). Before a run the machine's clock is read several times. The
//! reading with the shortest round trip is kept, because half the round trip bounds the offset's error.

use crate::reach;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const TIME_OUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 64 << 10;
const CLOCK_READINGS: usize = 8;

pub struct NeapControl {
    name: String,
    lines: BufReader<TcpStream>,
}

/// One reading of the machine's clock, and our clock at that moment.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ClockOffset {
    pub tsc: u64,
    pub tsc_hz: u64,
    /// Our wall clock at the moment of the reading, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The largest error of `unix_ns`, in nanoseconds.
    pub uncertainty_ns: u64,
}

impl NeapControl {
    /// An error is a line that says what failed.
    pub fn connect(name: &str, token: Option<&str>) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("control at {name}: {error}");
        let stream = reach::connect(name, TIME_OUT).map_err(|why| format!("control at {name}: {why}"))?;
        stream.set_write_timeout(Some(TIME_OUT)).map_err(wrong)?;
        stream.set_nodelay(true).map_err(wrong)?;
        let mut control = Self { name: name.to_string(), lines: BufReader::new(stream) };
        if let Some(token) = token {
            control.ask(&format!("token,{token}")).map_err(|_| format!("control at {name}: the token is not accepted"))?;
        }
        Ok(control)
    }

    /// Sends a line. Returns the text behind `ok` in the answer.
    fn ask(&mut self, line: &str) -> Result<String, String> {
        let command = line.split(',').next().unwrap_or_default();
        self.exchange(line)?.map_err(|why| format!("control at {} refused {command}: {why}", self.name))
    }

    /// Sends a line. Returns the text behind `ok` in the answer or, as inner error, the reason of a refusal.
    fn exchange(&mut self, line: &str) -> Result<Result<String, String>, String> {
        let name = &self.name.clone();
        let wrong = |error: std::io::Error| format!("control at {name}: {error}");
        self.lines.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(wrong)?;
        let answer = self.read_answer().map_err(wrong)?;
        let command = line.split(',').next().unwrap_or_default();
        match answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), "")) {
            ("ok", text) => Ok(Ok(text.to_string())),
            ("error:", text) => Ok(Err(text.to_string())),
            _ if answer.is_empty() => Err(format!("control at {name} closed the connection")),
            _ => Err(format!("control at {name} answered {command} with {answer:?}")),
        }
    }

    /// Reads one line within TIME_OUT. The line is empty if the connection ended.
    fn read_answer(&mut self) -> std::io::Result<String> {
        let until = Instant::now() + TIME_OUT;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n") && answer.len() < ANSWER_BYTES_MAX {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.lines.get_ref().set_read_timeout(Some(left))?;
            let bytes = match self.lines.fill_buf() {
                Ok([]) => break,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let taken = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
            answer.extend_from_slice(&bytes[..taken]);
            self.lines.consume(taken);
        }
        String::from_utf8(answer).map_err(|_| ErrorKind::InvalidData.into())
    }

    /// Starts a run of the log. Returns the answer (`run=1 …`).
    pub fn start(&mut self) -> Result<String, String> {
        self.ask("start")
    }
    pub fn stop(&mut self) -> Result<String, String> {
        self.ask("stop")
    }

    /// Marks in the log that phase `what` of the load begins. Returns the text behind `ok`, which is empty if the mark was written. The
    /// inner error is a refusal: builds before this command have no marks.
    pub fn mark(&mut self, what: &str) -> Result<Result<String, String>, String> {
        self.exchange(&format!("mark,{what}"))
    }

    pub fn clock_offset(&mut self) -> Result<ClockOffset, String> {
        let mut best: Option<ClockOffset> = None;
        for _ in 0..CLOCK_READINGS {
            let asked = Instant::now();
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let answer = self.ask("rdtsc")?;
            let half = asked.elapsed() / 2;
            let reading = ClockOffset {
                tsc: field(&answer, "tsc").ok_or_else(|| format!("control at {}: no tsc in {answer:?}", self.name))?,
                tsc_hz: field(&answer, "tsc_hz").ok_or_else(|| format!("control at {}: no tsc_hz in {answer:?}", self.name))?,
                unix_ns: (wall + half).as_nanos() as u64,
                uncertainty_ns: half.as_nanos() as u64,
            };
            if best.as_ref().is_none_or(|best| reading.uncertainty_ns < best.uncertainty_ns) {
                best = Some(reading);
            }
        }
        best.ok_or_else(|| format!("control at {}: no answer", self.name))
    }
}

fn field(answer: &str, name: &str) -> Option<u64> {
    answer.split([' ', ';']).find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Starts a server that answers each line with the next of `answers`.
    fn server(answers: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut writer = stream.try_clone().unwrap();
            let mut lines = BufReader::new(stream).lines();
            for answer in answers {
                lines.next().unwrap().unwrap();
                writer.write_all(answer.as_bytes()).unwrap();
            }
        });
        name
    }

    #[test]
    fn the_clock_is_read_and_the_log_started_and_stopped() {
        const RDTSC: &str = "ok tsc=5129440191 tsc_hz=1000000000 now_ns=5129440260 core=0\n";
        let name =
            server(&["ok\n", RDTSC, RDTSC, RDTSC, RDTSC, RDTSC, RDTSC, RDTSC, RDTSC, "ok run=3\n", "ok run=3 lines=9 unwritten=0\n"]);
        let mut control = NeapControl::connect(&name, Some("secret")).unwrap();
        let offset = control.clock_offset().unwrap();
        assert_eq!((offset.tsc, offset.tsc_hz), (5129440191, 1000000000));
        assert_eq!(control.start().unwrap(), "run=3");
        assert_eq!(control.stop().unwrap(), "run=3 lines=9 unwritten=0");
    }

    #[test]
    fn a_machine_that_sends_single_bytes_does_not_extend_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let writer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b"o").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let start = Instant::now();
        assert!(NeapControl::connect(&name, None).unwrap().start().is_err());
        assert!(start.elapsed() < TIME_OUT * 3, "{:?}", start.elapsed());
        writer.join().unwrap();
    }

    #[test]
    fn an_error_is_one_line_without_the_token() {
        let name = server(&["error: wrong token\n"]);
        let message = NeapControl::connect(&name, Some("secret")).err().unwrap();
        assert!(message.contains("token") && !message.contains("secret"), "{message}");
        let name = server(&["error: a run is on\n"]);
        let message = NeapControl::connect(&name, None).unwrap().start().unwrap_err();
        assert!(message.contains("refused start: a run is on"), "{message}");
        let name = server(&["\n"]);
        assert!(NeapControl::connect(&name, None).unwrap().start().unwrap_err().contains("answered start"));
        let name = server(&[]);
        assert!(NeapControl::connect(&name, None).unwrap().stop().is_err());
        assert!(NeapControl::connect("127.0.0.1:1", None).is_err());
    }
}
