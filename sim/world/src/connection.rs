// SPDX-License-Identifier: BSL-1.0
//! One connection of a client to the server: it sends requests and matches each reply with its request.
//!
//! It never holds more requests than its depth, nor more bytes than these need. So memory stays bounded if the guest stalls, and a reply
//! without an end is noise.

use crate::clients::Host;
use load::protocol::{Checks, Outcome, Protocol};
use load::recorder::{Failure, Times};
use load::workload::Request;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// No reply is longer than the longest value and its first line.
const REPLY_BYTES_MAX: usize = 2 << 20;
const RECEIVE_BYTES: usize = 64 << 10;
const SEND_BYTES: usize = 32 << 10;

/// Settings that all connections share.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    pub server: (Ipv4Addr, u16),
    pub protocol: Protocol,
    pub checks: Checks,
    /// Requests that may be in flight on one connection.
    pub depth: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Outstanding {
    pub request: Request,
    pub times: Times,
    opaque: u32,
}

/// The end of a request.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    Answered(Request, Outcome, Times),
    Failed(Failure, Request, Times),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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
    /// The client that has it.
    pub host: usize,
    socket: Option<SocketHandle>,
    state: State,
    /// Encoded requests that the socket had no room for.
    output: Vec<u8>,
    input: Vec<u8>,
    outstanding: VecDeque<Outstanding>,
    next_opaque: u32,
}

impl Connection {
    pub fn new(host: usize) -> Self {
        let state = State::Closed { retry_ns: 0 };
        Self { host, socket: None, state, output: Vec::new(), input: Vec::new(), outstanding: VecDeque::new(), next_opaque: 0 }
    }

    pub fn state(&self) -> State {
        self.state
    }
    pub fn has_room(&self, settings: &ConnectionSettings) -> bool {
        self.state == State::Open && self.outstanding.len() < settings.depth
    }
    /// The request that was sent first.
    pub fn oldest(&self) -> Option<&Outstanding> {
        self.outstanding.front()
    }

    pub fn outstanding(&self) -> impl Iterator<Item = &Outstanding> {
        self.outstanding.iter()
    }

    pub fn connect(&mut self, settings: &ConnectionSettings, now_ns: u64, host: &mut Host) -> Result<(), String> {
        self.socket = Some(host.connect(settings.server, RECEIVE_BYTES, SEND_BYTES)?);
        self.state = State::Connecting { since_ns: now_ns };
        Ok(())
    }

    /// Ends the connection or the attempt by RST. `failure` is that of the first request. The others have the same one, unless it is a half
    /// reply or noise, which concerns only one request.
    pub fn lose(&mut self, failure: Failure, retry_ns: u64, host: &mut Host, endings: &mut Vec<Ending>) {
        self.end(true, failure, retry_ns, host, endings);
    }

    /// Like `lose`; if not `at_once`, by FIN.
    pub fn end(&mut self, at_once: bool, failure: Failure, retry_ns: u64, host: &mut Host, endings: &mut Vec<Ending>) {
        if let Some(socket) = self.socket.take() {
            host.retire(socket, at_once);
        }
        self.state = State::Closed { retry_ns };
        self.output.clear();
        self.input.clear();
        for (place, lost) in self.outstanding.drain(..).enumerate() {
            let failure = match failure {
                Failure::HalfReply | Failure::Garbage if place > 0 => Failure::Closed,
                failure => failure,
            };
            endings.push(Ending::Failed(failure, lost.request, lost.times));
        }
    }

    /// Sends a request. The connection MUST have room.
    pub fn submit(&mut self, settings: &ConnectionSettings, request: Request, times: Times, host: &mut Host) {
        let opaque = self.next_opaque;
        self.next_opaque = opaque.wrapping_add(1);
        settings.protocol.encode(&request, opaque, &mut self.output);
        self.outstanding.push_back(Outstanding { request, times, opaque });
        self.write(host);
    }

    fn write(&mut self, host: &mut Host) {
        if let Some(socket) = self.socket.filter(|_| !self.output.is_empty()) {
            let written = host.write(socket, &self.output);
            self.output.drain(..written);
        }
    }

    /// Handles all that has happened on the socket. Err: the connection is to be lost for this reason.
    pub fn service(&mut self, settings: &ConnectionSettings, host: &mut Host, endings: &mut Vec<Ending>) -> Result<(), Failure> {
        let Some(handle) = self.socket else { return Ok(()) };
        if let State::Connecting { .. } = self.state {
            match host.state(handle) {
                tcp::State::SynSent | tcp::State::SynReceived => return Ok(()),
                tcp::State::Closed => return Err(Failure::Reset),
                _ => self.state = State::Open,
            }
        }
        host.read(handle, &mut self.input);
        let (ended, reset) = (!host.may_read(handle), host.state(handle) == tcp::State::Closed);
        self.take_replies(settings, endings)?;
        if reset {
            return Err(Failure::Reset);
        }
        if ended {
            return Err(if self.input.is_empty() { Failure::Closed } else { Failure::HalfReply });
        }
        self.write(host);
        Ok(())
    }

    fn take_replies(&mut self, settings: &ConnectionSettings, endings: &mut Vec<Ending>) -> Result<(), Failure> {
        let mut used = 0;
        while used < self.input.len() {
            // Bytes without a request are noise.
            let Some(first) = self.outstanding.front() else { return Err(Failure::Garbage) };
            match settings.protocol.decode(&self.input[used..], &first.request, first.opaque, settings.checks) {
                Ok(Some(reply)) => {
                    used += reply.bytes;
                    endings.push(Ending::Answered(first.request, reply.outcome, first.times));
                    self.outstanding.pop_front();
                    if reply.is_last {
                        return Err(Failure::Closed);
                    }
                }
                Ok(None) if self.input.len() - used <= REPLY_BYTES_MAX => break,
                _ => return Err(Failure::Garbage),
            }
        }
        self.input.drain(..used);
        Ok(())
    }
}
