// SPDX-License-Identifier: BSL-1.0
//! One connection to the server: it sends requests and matches each reply with its request.
//!
//! No function here blocks. If a socket would block, the caller tries again when the kernel reports that the socket is ready. A connection
//! holds at most `depth` requests and their bytes, so this program's memory stays bounded when a server stalls.

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

/// Settings that all connections of a run share.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    pub server: SocketAddr,
    pub transport: Transport,
    pub protocol: Protocol,
    pub checks: Checks,
    /// Largest number of requests in flight on one connection.
    pub depth: usize,
}

struct Outstanding {
    request: Request,
    opaque: u32,
    times: Times,
    /// With UDP, the parts of the reply that have arrived.
    parts: Reassembly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `retry_ns`: the earliest time of the next attempt.
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
    /// Number of bytes of `output` that were sent.
    sent_bytes: usize,
    input: Vec<u8>,
    outstanding: VecDeque<Outstanding>,
    next_opaque: u32,
    waits_to_write: bool,
}

/// A failed connection attempt with the error of the operating system.
#[derive(Debug)]
pub struct NotConnected(pub Errno);

/// Receives the outcome of each request.
pub trait Sink {
    /// Called when a read has returned bytes, before they are parsed. The sink reads the clock here, once for all replies in the bytes.
    fn read(&mut self);
    fn answered(&mut self, request: &Request, outcome: Outcome, times: Times);
    fn failed(&mut self, failure: Failure, times: Times);
}

/// Longer than any correct reply, which is a line and a value of at most VALUE_BYTES_MAX. A longer reply counts as `Garbage`.
const REPLY_BYTES_MAX: usize = 2 << 20;
/// Buffer capacity that an idle connection keeps after a long reply.
const KEPT_BYTES: usize = 64 << 10;
/// Largest number of datagrams read in one call, so that one connection cannot starve the others.
const DATAGRAMS_MAX: usize = 64;
/// Time from a failed or lost connection to the next connection attempt.
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
    pub fn has_room(&self, settings: &ConnectionSettings) -> bool {
        self.is_open() && self.outstanding.len() < settings.depth
    }
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Begins to connect. The poll's events carry `token`; `ready_to_write` completes the attempt.
    pub fn connect(&mut self, settings: &ConnectionSettings, poll: &OwnedFd, token: u64, now_ns: u64) -> Result<(), NotConnected> {
        let family = if settings.server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let kind = if settings.transport == Transport::Tcp { SocketType::STREAM } else { SocketType::DGRAM };
        let attempt = || -> Result<(OwnedFd, State), Errno> {
            let socket = net::socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
            if settings.transport == Transport::Tcp {
                net::sockopt::set_tcp_nodelay(&socket, true)?;
            }
            let state = match net::connect(&socket, &settings.server) {
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

    /// Handles a writable socket: ends the connection attempt, or sends waiting output.
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

    /// Gives up a connection attempt that has lasted longer than `time_out_ns`.
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
        // Closing removes the socket from the poll.
        self.socket = None;
        self.state = State::Closed { retry_ns: now_ns + RETRY_NS };
        self.output.clear();
        self.sent_bytes = 0;
        self.input.clear();
        self.waits_to_write = false;
    }

    /// With TCP, queues a request, which `flush` sends. With UDP, sends it. The connection MUST have room for a request.
    pub fn submit(&mut self, settings: &ConnectionSettings, request: Request, times: Times, sink: &mut impl Sink) {
        let opaque = self.next_opaque;
        self.next_opaque = self.next_opaque.wrapping_add(1);
        if settings.transport == Transport::Udp {
            self.output.clear();
            udp::write_header(opaque as u16, &mut self.output);
            settings.protocol.encode(&request, opaque, &mut self.output);
            if self.output.len() > udp::REQUEST_BYTES_MAX + udp::HEADER_BYTES {
                return sink.failed(Failure::TooLong, times);
            }
            if let Some(socket) = &self.socket {
                // If the kernel refuses the datagram, the request in it times out, as after a loss in the network.
                let _ = net::send(socket, &self.output, SendFlags::NOSIGNAL);
            }
            self.output.clear();
        } else {
            settings.protocol.encode(&request, opaque, &mut self.output);
        }
        self.outstanding.push_back(Outstanding { request, opaque, times, parts: Reassembly::default() });
    }

    /// Sends as much as the socket accepts. The poll reports when the socket accepts more.
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
            // The socket was added to the poll when it was created, so `modify` fails only for lack of memory. In that case the request's
            // time-out ends the wait.
            let _ = epoll::modify(poll, socket, epoll::EventData::new_u64(token), interest);
            self.waits_to_write = waits;
        }
    }

    /// Reads the available bytes and reports each reply to the sink. After an error the caller MUST close the connection by `lose`.
    pub fn receive(&mut self, settings: &ConnectionSettings, buffer: &mut [u8], sink: &mut impl Sink) -> Result<(), Failure> {
        for _ in 0..DATAGRAMS_MAX {
            let Some(socket) = &self.socket else { return Ok(()) };
            let bytes = match net::recv(socket.as_fd(), &mut *buffer, RecvFlags::empty()) {
                Ok((bytes, _)) => bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                // With UDP, an ICMP message said that the port is closed. The requests will time out.
                Err(Errno::CONNREFUSED) if settings.transport == Transport::Udp => return Ok(()),
                Err(_) => return Err(Failure::Reset),
            };
            sink.read();
            match settings.transport {
                Transport::Udp => self.take_datagram(settings, &buffer[..bytes], sink)?,
                Transport::Tcp if bytes == 0 => {
                    return Err(if self.input.is_empty() { Failure::Closed } else { Failure::HalfReply });
                }
                Transport::Tcp => {
                    self.take_bytes(settings, &buffer[..bytes], sink)?;
                    // The read returned fewer bytes than requested, so the socket is empty and needs no second read.
                    if bytes < buffer.len() {
                        return Ok(());
                    }
                }
            }
        }
        // If bytes remain in the socket, the poll reports the socket again.
        Ok(())
    }

    fn take_bytes(&mut self, settings: &ConnectionSettings, bytes: &[u8], sink: &mut impl Sink) -> Result<(), Failure> {
        if self.input.is_empty() {
            // In the common case complete replies are parsed in the read buffer, without a copy.
            let used = take_replies(&mut self.outstanding, settings, bytes, sink)?;
            self.input.extend_from_slice(&bytes[used..]);
        } else {
            self.input.extend_from_slice(bytes);
            let used = take_replies(&mut self.outstanding, settings, &self.input, sink)?;
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

    fn take_datagram(&mut self, settings: &ConnectionSettings, bytes: &[u8], sink: &mut impl Sink) -> Result<(), Failure> {
        let Some(datagram) = Datagram::parse(bytes) else { return Err(Failure::Garbage) };
        // A reply to a request that has already timed out is ignored.
        let Some(at) = self.outstanding.iter().position(|waiting| waiting.opaque as u16 == datagram.number) else { return Ok(()) };
        let Some(reply) = self.outstanding[at].parts.add(&datagram) else { return Ok(()) };
        let waiting = self.outstanding.remove(at).expect("it was found there");
        match settings.protocol.decode(&reply, &waiting.request, waiting.opaque, settings.checks) {
            Ok(Some(decoded)) if decoded.bytes == reply.len() => sink.answered(&waiting.request, decoded.outcome, waiting.times),
            _ => sink.failed(Failure::Garbage, waiting.times),
        }
        Ok(())
    }

    /// Reports requests that were sent more than `time_out_ns` before `seen_ns` as timed out. All bytes that arrived before `seen_ns` have
    /// been read, so a slow client causes no time-outs. After an error the caller MUST close the connection, because a late reply could be
    /// taken for the reply to the next request.
    pub fn expire(&mut self, settings: &ConnectionSettings, seen_ns: u64, time_out_ns: u64, sink: &mut impl Sink) -> Result<(), Failure> {
        while let Some(first) = self.outstanding.front() {
            if seen_ns.saturating_sub(first.times.sent_ns) <= time_out_ns {
                break;
            }
            if settings.transport == Transport::Tcp {
                return Err(Failure::TimedOut);
            }
            sink.failed(Failure::TimedOut, first.times);
            self.outstanding.pop_front();
        }
        Ok(())
    }

    /// Closes the connection. The requests in flight get the result `failure`. `HalfReply` and `Garbage` apply only to the first request;
    /// the other requests then get `Closed`.
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

/// Reports the complete replies at the beginning of the input. Returns their total length in bytes. After a reply that is the connection's
/// last, returns `Closed`: no further request is sent on it.
fn take_replies(
    outstanding: &mut VecDeque<Outstanding>,
    settings: &ConnectionSettings,
    input: &[u8],
    sink: &mut impl Sink,
) -> Result<usize, Failure> {
    let mut used = 0;
    while used < input.len() {
        // Bytes that arrive while no request is in flight are also `Garbage`.
        let waiting = outstanding.front().ok_or(Failure::Garbage)?;
        match settings.protocol.decode(&input[used..], &waiting.request, waiting.opaque, settings.checks) {
            Ok(Some(reply)) => {
                used += reply.bytes;
                sink.answered(&waiting.request, reply.outcome, waiting.times);
                outstanding.pop_front();
                if reply.is_last {
                    return Err(Failure::Closed);
                }
            }
            Ok(None) => break,
            Err(_) => return Err(Failure::Garbage),
        }
    }
    Ok(used)
}
