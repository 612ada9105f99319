// SPDX-License-Identifier: BSL-1.0
//! A control client of Neap on the modelled network (docs/control.md): settings before a run, start and stop of the log, and the logs.
//!
//! Settings over a real socket would take effect at a moment that depends on the host. This client is on the virtual wire like the load, so
//! a run with settings and a log repeats exactly. One command is under way at a time.

use crate::clients::Host;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use std::net::Ipv4Addr;

pub const CONTROL_PORT: u16 = 5002;
const RECEIVE_BYTES: usize = 64 << 10;
const SEND_BYTES: usize = 8 << 10;
const LINE_BYTES_MAX: usize = 64 << 10;
/// The log of one core.
const LOG_BYTES_MAX: usize = 2 << 30;
/// Time limit of a command that makes no progress.
const TIME_OUT_NS: u64 = 10_000_000_000;
/// The first bytes of a log (docs/log-format.md).
const LOG_MAGIC: &[u8] = b"NEAPLOG\n";

/// The last command.
enum Command {
    None,
    Line(String),
    /// `get,N`: the answer is a file, and the connection ends after it.
    Log(u64),
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The text after `ok`.
    Line(String),
    /// The whole line, which does not begin with `ok`.
    Refused(String),
    Log(Vec<u8>),
}

pub struct NeapControl {
    server: Ipv4Addr,
    socket: Option<SocketHandle>,
    command: Command,
    output: Vec<u8>,
    input: Vec<u8>,
    progress_ns: u64,
}

impl NeapControl {
    pub fn new(server: Ipv4Addr) -> Self {
        Self { server, socket: None, command: Command::None, output: Vec::new(), input: Vec::new(), progress_ns: 0 }
    }

    /// Sends a line. The previous command MUST have its answer.
    pub fn ask(&mut self, line: &str, now_ns: u64, host: &mut Host) -> Result<(), String> {
        self.begin(Command::Line(line.to_string()), line, now_ns, host)
    }

    /// Fetches the log of a core.
    pub fn fetch_log(&mut self, core: u64, now_ns: u64, host: &mut Host) -> Result<(), String> {
        self.begin(Command::Log(core), &format!("get,{core}"), now_ns, host)
    }

    fn begin(&mut self, command: Command, line: &str, now_ns: u64, host: &mut Host) -> Result<(), String> {
        if self.socket.is_none() {
            self.socket = Some(host.connect((self.server, CONTROL_PORT), RECEIVE_BYTES, SEND_BYTES)?);
        }
        self.command = command;
        self.input.clear();
        self.output = format!("{line}\n").into_bytes();
        self.progress_ns = now_ns;
        self.write(host);
        Ok(())
    }

    fn write(&mut self, host: &mut Host) {
        if let Some(socket) = self.socket.filter(|_| !self.output.is_empty()) {
            let written = host.write(socket, &self.output);
            self.output.drain(..written);
        }
    }

    fn name(&self) -> String {
        format!("control at {}:{CONTROL_PORT}", self.server)
    }

    /// The time at which a command without an answer fails.
    pub fn next_ns(&self) -> Option<u64> {
        (!matches!(self.command, Command::None)).then(|| self.progress_ns.saturating_add(TIME_OUT_NS))
    }

    /// Handles what has arrived. Ok(None): there is no answer yet. Err: one line that says what failed. A refusal is a failure.
    pub fn service(&mut self, now_ns: u64, host: &mut Host) -> Result<Option<Answer>, String> {
        let what = self.command_text();
        match self.service_any(now_ns, host)? {
            Some(Answer::Refused(line)) => Err(format!("{} answered {what} with {line:?}", self.name())),
            answer => Ok(answer),
        }
    }

    /// Ends the connection and the command under way.
    pub fn abandon(&mut self, host: &mut Host) {
        if let Some(socket) = self.socket.take() {
            host.retire(socket, true);
        }
        self.command = Command::None;
    }

    fn command_text(&self) -> String {
        match &self.command {
            Command::Line(line) => line.clone(),
            Command::Log(core) => format!("get,{core}"),
            Command::None => String::new(),
        }
    }

    /// Like `service`, but a refusal is an answer.
    pub fn service_any(&mut self, now_ns: u64, host: &mut Host) -> Result<Option<Answer>, String> {
        let Some(handle) = self.socket.filter(|_| !matches!(self.command, Command::None)) else { return Ok(None) };
        let what = self.command_text();
        if now_ns >= self.progress_ns.saturating_add(TIME_OUT_NS) {
            return Err(format!("{} did not answer {what} within {} s", self.name(), TIME_OUT_NS / 1_000_000_000));
        }
        self.write(host);
        if matches!(host.state(handle), tcp::State::SynSent | tcp::State::SynReceived) {
            return Ok(None);
        }
        if host.read(handle, &mut self.input) != 0 {
            self.progress_ns = now_ns;
        }
        let (ended, reset) = (!host.may_read(handle), host.state(handle) == tcp::State::Closed);
        let answer = self.take_answer(&what, ended, reset)?;
        if ended {
            host.retire(handle, false);
            self.socket = None;
            if answer.is_none() {
                return Err(format!("{} closed the connection before it answered {what}", self.name()));
            }
        }
        if answer.is_some() {
            self.command = Command::None;
        }
        Ok(answer)
    }

    fn take_answer(&mut self, what: &str, ended: bool, reset: bool) -> Result<Option<Answer>, String> {
        let log = matches!(self.command, Command::Log(_));
        let known = self.input.len().min(LOG_MAGIC.len());
        if log && self.input[..known] == LOG_MAGIC[..known] {
            if self.input.len() > LOG_BYTES_MAX {
                return Err(format!("{}: the log that answers {what} is longer than {LOG_BYTES_MAX} bytes", self.name()));
            }
            return Ok((ended && !reset && known == LOG_MAGIC.len()).then(|| Answer::Log(std::mem::take(&mut self.input))));
        }
        let Some(end) = self.input.iter().position(|&byte| byte == b'\n') else {
            if self.input.len() > LINE_BYTES_MAX {
                return Err(format!("{} answered {what} with a line that does not end", self.name()));
            }
            return Ok(None);
        };
        let line = String::from_utf8_lossy(&self.input[..end]).trim_end().to_string();
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("ok", text) if !log => Ok(Some(Answer::Line(text.to_string()))),
            _ => Ok(Some(Answer::Refused(line))),
        }
    }
}

/// The number in a field `name=N` of an answer.
pub fn number(answer: &str, name: &str) -> Option<u64> {
    answer.split(';').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(command: Command, input: &[u8]) -> NeapControl {
        NeapControl { command, input: input.to_vec(), ..NeapControl::new(Ipv4Addr::new(10, 0, 0, 2)) }
    }

    #[test]
    fn an_answer_is_taken_when_it_is_whole_and_a_refusal_is_an_error() {
        let line = || Command::Line("itr,8us".into());
        assert_eq!(with(line(), b"ok itr=8us gen").take_answer("itr,8us", false, false), Ok(None));
        let answer = with(line(), b"ok itr=8us cores=1\n").take_answer("itr,8us", false, false);
        assert_eq!(answer, Ok(Some(Answer::Line("itr=8us cores=1".into()))));
        let refused = with(line(), b"error: nothing like that\n").take_answer("itr,8us", false, false);
        assert_eq!(refused, Ok(Some(Answer::Refused("error: nothing like that".into()))));
        assert!(with(line(), &[b'x'; LINE_BYTES_MAX + 1]).take_answer("itr,8us", false, false).is_err());
    }

    #[test]
    fn a_log_ends_with_its_connection_and_never_by_a_reset() {
        let log = [LOG_MAGIC, &[1, 2, 3, b'\n']].concat();
        for (ended, reset, whole) in [(false, false, false), (true, false, true), (true, true, false)] {
            let answer = with(Command::Log(0), &log).take_answer("get,0", ended, reset).unwrap();
            assert_eq!(answer.is_some(), whole);
        }
        let refused = with(Command::Log(9), b"error: there is no core '9'\n").take_answer("get,9", true, false);
        assert!(matches!(refused, Ok(Some(Answer::Refused(_)))), "{refused:?}");
        assert_eq!(with(Command::Log(0), b"NEAP").take_answer("get,0", true, false), Ok(None));
    }

    #[test]
    fn numbers_are_found_by_their_names() {
        let answer = "application=memcached; version=1; cores=12; uptime_s=x";
        assert_eq!((number(answer, "cores"), number(answer, "uptime_s"), number(answer, "core")), (Some(12), None, None));
    }
}
