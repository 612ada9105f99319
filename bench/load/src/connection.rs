// SPDX-License-Identifier: BSL-1.0
//! One connection to the server: requests out, replies in, each with what was asked.
//!
//! Nothing here waits: a socket that would block is left until the kernel says that it is ready. A connection never holds more requests
//! than its depth, and never more bytes than these need, so a server that stalls cannot make this program grow.

use crate::protocol::udp::{self, Datagram, Reassembly};
use crate::protocol::{Checks, Outcome, Protocol};
use crate::recorder::{Failure, Times};
use crate::workload::Request;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Udp,
}

/// How all connections of a run talk.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub server: SocketAddr,
    pub transport: Transport,
    pub protocol: Protocol,
    pub checks: Checks,
    /// Requests that may be out on one connection.
    pub depth: usize,
}

struct Outstanding {
    request: Request,
    opaque: u32,
    times: Times,
    /// UDP: the parts of its reply that are there.
    parts: Reassembly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `retry_ns`: not before.
    Closed {
        retry_ns: u64,
    },
    Connecting {
        since_ns: u64,
    },
    Open,
}

pub struct Connection {
    socket: Option<OwnedFd>,
    state: State,
    output: Vec<u8>,
    /// Of `output`.
    sent_bytes: usize,
    input: Vec<u8>,
    outstanding: VecDeque<Outstanding>,
    next_opaque: u32,
    waits_to_write: bool,
}

/// A connection attempt that failed, as text of the operating system.
#[derive(Debug)]
pub struct NotConnected(pub Errno);

/// Told of each request's end.
pub trait Sink {
    /// The kernel has handed over bytes: the replies in them have come by now, not by the moment at which it was asked for them.
    fn read(&mut self);
    fn answered(&mut self, request: &Request, outcome: Outcome, times: Times);
    fn failed(&mut self, failure: Failure, times: Times);
}

/// More than any reply to what this program asks: the longest value with its line around it. What goes on beyond is noise.
const REPLY_BYTES_MAX: usize = 2 << 20;
/// What an idle connection may keep of the memory that a long reply needed.
const KEPT_BYTES: usize = 64 << 10;
/// Read at a time, so that one connection cannot keep the others from being read.
const DATAGRAMS_MAX: usize = 64;
/// After a failure, before the next attempt.
const RETRY_NS: u64 = 100_000_000;

impl Default for Connection {
    fn default() -> Self {
        Self {
            socket: None,
            state: State::Closed { retry_ns: 0 },
            output: Vec::new(),
            sent_bytes: 0,
            input: Vec::new(),
            outstanding: VecDeque::new(),
            next_opaque: 0,
            waits_to_write: false,
        }
    }
}

impl Connection {
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }
    pub fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting { .. })
    }
    pub fn may_retry(&self, now_ns: u64) -> bool {
        matches!(self.state, State::Closed { retry_ns } if now_ns >= retry_ns)
    }
    pub fn has_room(&self, manner: &Manner) -> bool {
        self.is_open() && self.outstanding.len() < manner.depth
    }
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }
    /// Something is to be sent still.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Begins to connect; `token` comes back with the poll's events. Once it is connected, `ready_to_write` says so.
    pub fn connect(&mut self, manner: &Manner, poll: &OwnedFd, token: u64, now_ns: u64) -> Result<(), NotConnected> {
        let family = if manner.server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let kind = if manner.transport == Transport::Tcp { SocketType::STREAM } else { SocketType::DGRAM };
        let attempt = || -> Result<(OwnedFd, State), Errno> {
            let socket = net::socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
            if manner.transport == Transport::Tcp {
                net::sockopt::set_tcp_nodelay(&socket, true)?;
            }
            let state = match net::connect(&socket, &manner.server) {
                Ok(()) => State::Open,
                Err(Errno::INPROGRESS) => State::Connecting { since_ns: now_ns },
                Err(error) => return Err(error),
            };
            let interest = if state == State::Open { epoll::EventFlags::IN } else { epoll::EventFlags::IN | epoll::EventFlags::OUT };
            epoll::add(poll, &socket, epoll::EventData::new_u64(token), interest)?;
            Ok((socket, state))
        };
        match attempt() {
            Ok((socket, state)) => {
                self.waits_to_write = state != State::Open;
                self.socket = Some(socket);
                self.state = state;
                Ok(())
            }
            Err(error) => {
                self.state = State::Closed { retry_ns: now_ns + RETRY_NS };
                Err(NotConnected(error))
            }
        }
    }

    /// The poll says that the socket can be written: a connection attempt has ended, or waiting output can go.
    pub fn ready_to_write(&mut self, poll: &OwnedFd, token: u64, now_ns: u64) -> Result<(), NotConnected> {
        if let (State::Connecting { .. }, Some(socket)) = (self.state, &self.socket) {
            let result = net::sockopt::socket_error(socket).and_then(|error| error);
            match result {
                Ok(()) => self.state = State::Open,
                Err(error) => {
                    self.close(now_ns);
                    return Err(NotConnected(error));
                }
            }
        }
        self.watch(poll, token);
        Ok(())
    }

    /// An attempt that has lasted too long is given up.
    pub fn expire_attempt(&mut self, seen_ns: u64, time_out_ns: u64) -> Result<(), NotConnected> {
        match self.state {
            State::Connecting { since_ns } if seen_ns.saturating_sub(since_ns) > time_out_ns => {
                self.close(seen_ns);
                Err(NotConnected(Errno::TIMEDOUT))
            }
            _ => Ok(()),
        }
    }

    fn close(&mut self, now_ns: u64) {
        // Closing takes the socket out of the poll.
        self.socket = None;
        self.state = State::Closed { retry_ns: now_ns + RETRY_NS };
        self.output.clear();
        self.sent_bytes = 0;
        self.input.clear();
        self.waits_to_write = false;
    }

    /// Takes a request; `flush` sends it. Needs room.
    pub fn submit(&mut self, manner: &Manner, request: Request, times: Times, sink: &mut impl Sink) {
        let opaque = self.next_opaque;
        self.next_opaque = self.next_opaque.wrapping_add(1);
        if manner.transport == Transport::Udp {
            self.output.clear();
            udp::write_header(opaque as u16, &mut self.output);
            manner.protocol.encode(&request, opaque, &mut self.output);
            if self.output.len() > udp::REQUEST_BYTES_MAX + udp::HEADER_BYTES {
                return sink.failed(Failure::TooLong, times);
            }
            if let Some(socket) = &self.socket {
                // A datagram that the kernel does not take is lost as one that the network loses: its time-out tells.
                let _ = net::send(socket, &self.output, SendFlags::NOSIGNAL);
            }
            self.output.clear();
        } else {
            manner.protocol.encode(&request, opaque, &mut self.output);
        }
        self.outstanding.push_back(Outstanding { request, opaque, times, parts: Reassembly::default() });
    }

    /// Sends what the socket takes, and has the poll tell when it takes the rest.
    pub fn flush(&mut self, poll: &OwnedFd, token: u64) -> Result<(), Failure> {
        let Some(socket) = &self.socket else { return Ok(()) };
        while self.sent_bytes < self.output.len() {
            match net::send(socket, &self.output[self.sent_bytes..], SendFlags::NOSIGNAL) {
                Ok(bytes) => self.sent_bytes += bytes,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Failure::Reset),
            }
        }
        if self.sent_bytes == self.output.len() {
            self.output.clear();
            self.output.shrink_to(KEPT_BYTES);
            self.sent_bytes = 0;
        }
        self.watch(poll, token);
        Ok(())
    }

    fn watch(&mut self, poll: &OwnedFd, token: u64) {
        let waits = !self.output.is_empty();
        if let Some(socket) = self.socket.as_ref().filter(|_| waits != self.waits_to_write) {
            let interest = if waits { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            // The socket is in the poll since it was made: this cannot fail but for memory, and then the time-out ends the wait.
            let _ = epoll::modify(poll, socket, epoll::EventData::new_u64(token), interest);
            self.waits_to_write = waits;
        }
    }

    /// Reads what is there and hands on each reply. Err: the connection must go, see `lose`.
    pub fn receive(&mut self, manner: &Manner, buffer: &mut [u8], sink: &mut impl Sink) -> Result<(), Failure> {
        for _ in 0..DATAGRAMS_MAX {
            let Some(socket) = &self.socket else { return Ok(()) };
            let bytes = match net::recv(socket.as_fd(), &mut *buffer, RecvFlags::empty()) {
                Ok((bytes, _)) => bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                // UDP: nobody listens there, which ICMP told; the requests time out.
                Err(Errno::CONNREFUSED) if manner.transport == Transport::Udp => return Ok(()),
                Err(_) => return Err(Failure::Reset),
            };
            sink.read();
            match manner.transport {
                Transport::Udp => self.take_datagram(manner, &buffer[..bytes], sink)?,
                Transport::Tcp if bytes == 0 => {
                    return Err(if self.input.is_empty() { Failure::Closed } else { Failure::HalfReply });
                }
                Transport::Tcp => {
                    self.take_bytes(manner, &buffer[..bytes], sink)?;
                    // A short read has emptied the socket: no need to hear that from the kernel once more.
                    if bytes < buffer.len() {
                        return Ok(());
                    }
                }
            }
        }
        // The poll tells again of what is left.
        Ok(())
    }

    fn take_bytes(&mut self, manner: &Manner, bytes: &[u8], sink: &mut impl Sink) -> Result<(), Failure> {
        if self.input.is_empty() {
            // The common case: whole replies, read where they are.
            let used = take_replies(&mut self.outstanding, manner, bytes, sink)?;
            self.input.extend_from_slice(&bytes[used..]);
        } else {
            self.input.extend_from_slice(bytes);
            let used = take_replies(&mut self.outstanding, manner, &self.input, sink)?;
            self.input.drain(..used);
            if self.input.is_empty() {
                self.input.shrink_to(KEPT_BYTES);
            }
        }
        if self.input.len() > REPLY_BYTES_MAX {
            return Err(Failure::Garbage);
        }
        Ok(())
    }

    fn take_datagram(&mut self, manner: &Manner, bytes: &[u8], sink: &mut impl Sink) -> Result<(), Failure> {
        let Some(datagram) = Datagram::parse(bytes) else { return Err(Failure::Garbage) };
        // A reply to a request that has timed out meanwhile finds nobody, which is right.
        let Some(at) = self.outstanding.iter().position(|waiting| waiting.opaque as u16 == datagram.number) else { return Ok(()) };
        let Some(reply) = self.outstanding[at].parts.add(&datagram) else { return Ok(()) };
        let waiting = self.outstanding.remove(at).expect("it was found there");
        match manner.protocol.decode(&reply, &waiting.request, waiting.opaque, manner.checks) {
            Ok(Some(decoded)) if decoded.bytes == reply.len() => sink.answered(&waiting.request, decoded.outcome, waiting.times),
            _ => sink.failed(Failure::Garbage, waiting.times),
        }
        Ok(())
    }

    /// Ends requests that have waited too long. Err: the connection must go, since replies come in order. `seen_ns`: until when all that
    /// has come was read. A request is not late because this program was.
    pub fn expire(&mut self, manner: &Manner, seen_ns: u64, time_out_ns: u64, sink: &mut impl Sink) -> Result<(), Failure> {
        while let Some(first) = self.outstanding.front() {
            if seen_ns.saturating_sub(first.times.sent_ns) <= time_out_ns {
                break;
            }
            if manner.transport == Transport::Tcp {
                return Err(Failure::TimedOut);
            }
            sink.failed(Failure::TimedOut, first.times);
            self.outstanding.pop_front();
        }
        Ok(())
    }

    /// Closes the connection. The request whose reply had begun, or that was first in line, failed for this reason; those behind it as
    /// well, but for a half reply or noise, which only one can have had.
    pub fn lose(&mut self, failure: Failure, now_ns: u64, sink: &mut impl Sink) {
        for (place, waiting) in self.outstanding.drain(..).enumerate() {
            let why = match failure {
                Failure::HalfReply | Failure::Garbage if place > 0 => Failure::Closed,
                why => why,
            };
            sink.failed(why, waiting.times);
        }
        self.close(now_ns);
    }
}

/// Hands on the replies that stand whole at the beginning of the input; gives how many bytes they have.
fn take_replies(outstanding: &mut VecDeque<Outstanding>, manner: &Manner, input: &[u8], sink: &mut impl Sink) -> Result<usize, Failure> {
    let mut used = 0;
    while used < input.len() {
        // A reply to nothing is noise too.
        let waiting = outstanding.front().ok_or(Failure::Garbage)?;
        match manner.protocol.decode(&input[used..], &waiting.request, waiting.opaque, manner.checks) {
            Ok(Some(reply)) => {
                used += reply.bytes;
                sink.answered(&waiting.request, reply.outcome, waiting.times);
                outstanding.pop_front();
            }
            Ok(None) => break,
            Err(_) => return Err(Failure::Garbage),
        }
    }
    Ok(used)
}
