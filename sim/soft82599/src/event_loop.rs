// SPDX-License-Identifier: BSL-1.0
//! One thread that waits for everything: the guest, the wire, the control socket, the card's own timers, signals.
//!
//! A turn takes all messages that the guest has sent, all frames that have come, lets timers fire, and then sends replies and frames in one
//! piece each. A guest's doorbell is thus served in the turn in which it arrives, without waking another thread.

use crate::clock::Clock;
use crate::control::{Control, Request};
use crate::log::Log;
use crate::net::Wire;
use crate::options::Options;
use crate::socket_file::SocketFile;
use crate::sys::{self, Interest};
use crate::vfio::connection::{Connection, Input};
use crate::vfio::server::{handle, Command};
use crate::world::World;
use card::{Card, Configuration};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Complaints about a driver that are printed in a second; the rest is only counted.
const COMPLAINTS_A_SECOND: u32 = 20;

pub struct EventLoop {
    card: Card,
    world: World,
    clock: Clock,
    log: Log,
    listener: SocketFile,
    guest: Option<Connection>,
    control: Option<Control>,
    signals: OwnedFd,
    once: bool,
    /// The control socket has pulled the cable.
    unplugged: bool,
    complaints: Complaints,
}

struct Complaints {
    second: Instant,
    left: u32,
}

impl EventLoop {
    pub fn new(options: &Options) -> io::Result<Self> {
        sys::sharpen_timers();
        let log = Log::new(options.level);
        let signals = sys::termination_signals()?;
        let wire = Wire::open(&options.net).map_err(|error| io::Error::new(error.kind(), format!("--net: {error}")))?;
        let control = options.control.as_deref().map(Control::listen).transpose()?;
        let listener = SocketFile::listen(&options.socket)?;
        let clock = Clock::new(options.time_scale);
        let configuration = Configuration { mac: options.mac, link: wire.is_connected() };
        let mut world = World { memory: Default::default(), eventfds: Default::default(), wire, log };
        let card = Card::new(&configuration, &mut world, clock.now());
        Ok(Self {
            card,
            world,
            clock,
            log,
            listener,
            guest: None,
            control,
            signals,
            once: options.once,
            unplugged: false,
            complaints: Complaints { second: Instant::now(), left: COMPLAINTS_A_SECOND },
        })
    }

    /// Serves until told to end.
    pub fn run(&mut self) -> io::Result<()> {
        let mut interests = Vec::new();
        let mut ready = Vec::new();
        loop {
            // Interests in a fixed order: signals, guest or its listener, wire if any, control.
            let take = !self.card.asks_for_pause();
            interests.clear();
            interests.push(Interest { descriptor: self.signals.as_raw_fd(), read: true, write: false });
            let guest = self.guest.as_ref().map_or(self.listener.descriptor(), Connection::descriptor);
            interests.push(Interest { descriptor: guest, read: true, write: false });
            let wire = self.world.wire.interest(take).map(|interest| {
                interests.push(interest);
                interests.len() - 1
            });
            if let Some(control) = &self.control {
                control.interests(&mut interests);
            }
            let control_from = wire.map_or(2, |_| 3);
            sys::poll(&interests, self.patience(take), &mut ready)?;

            if ready[0].read {
                self.log.info(|| "told to end".into());
                return Ok(());
            }
            if ready[1].read && !self.serve_guest() && self.once {
                return Ok(());
            }
            let wire_ready = wire.is_some_and(|at| ready[at].read || ready[at].write);
            if wire.is_some_and(|at| ready[at].hung && (!take || !matches!(self.world.wire, Wire::Stream(_)))) {
                // A stream's last bytes are read first, unless the card wants none; then waiting for them would be a busy loop.
                self.world.wire.disconnect();
            }
            if wire_ready || self.world.wire.due_after(take).is_some_and(|left| left.is_zero()) {
                self.serve_wire(wire.is_none_or(|at| ready[at].read));
            }
            self.card.tick(&mut self.world, self.clock.now());
            if self.card.has_transmit_work() && self.world.wire.has_room() {
                self.card.wire_ready(&mut self.world, self.clock.now());
            }
            self.world.wire.flush();
            self.follow_link();
            if ready[control_from..].iter().any(|r| r.read || r.write) && self.serve_control() {
                return Ok(());
            }
            self.complain();
        }
    }

    /// How long nothing needs to be done unless a descriptor becomes ready.
    fn patience(&self, take: bool) -> Option<Duration> {
        if self.card.has_transmit_work() && self.world.wire.has_room() {
            return Some(Duration::ZERO);
        }
        let timer = self.card.next_deadline().map(|at| self.clock.until(at));
        let batch = self.world.wire.due_after(take);
        timer.into_iter().chain(batch).min()
    }

    /// Takes a new guest, or what the present one has sent. False when a guest has gone.
    fn serve_guest(&mut self) -> bool {
        let Some(guest) = &mut self.guest else {
            if let Some(stream) = self.listener.accept() {
                self.log.info(|| "a guest has come".into());
                self.guest = Connection::new(stream).ok();
            }
            return true;
        };
        let result = match guest.fill() {
            Ok(Input::Closed) => Err(None),
            Ok(_) => {
                Self::messages(guest, &mut self.card, &mut self.world, &self.clock, &self.log).and_then(|()| guest.flush()).map_err(Some)
            }
            Err(error) => Err(Some(error)),
        };
        let Err(error) = result else { return true };
        match error {
            Some(error) => self.log.warn(|| format!("the guest's connection ends: {error}")),
            None => self.log.info(|| "the guest has gone".into()),
        }
        self.guest = None;
        // First the memory, so that nothing of the reset reaches a guest that is no more.
        self.world.forget_guest();
        self.card.function_reset(&mut self.world, self.clock.now());
        false
    }

    fn messages(guest: &mut Connection, card: &mut Card, world: &mut World, clock: &Clock, log: &Log) -> io::Result<()> {
        let mut output = std::mem::take(&mut guest.output);
        while let Some(message) = guest.next()? {
            let command = Command { header: message.header, body: guest.body(message.range), descriptors: message.descriptors };
            handle(card, world, clock.now(), log, command, &mut output);
        }
        guest.output = output;
        Ok(())
    }

    fn serve_wire(&mut self, fill: bool) {
        if fill {
            self.world.wire.fill();
        }
        let mut batch = self.world.wire.take_batch();
        while !self.card.asks_for_pause() {
            match batch.next_frame() {
                Ok(Some(range)) => self.card.receive(&mut self.world, self.clock.now(), batch.frame(range)),
                Ok(None) => break,
                Err(error) => {
                    self.log.warn(|| format!("wire: {error}"));
                    self.world.wire.disconnect();
                    return;
                }
            }
        }
        self.world.wire.give_back(batch);
    }

    /// The link is up while somebody is at the other end and nobody has pulled the cable.
    fn follow_link(&mut self) {
        let peer = self.world.wire.is_connected() && !self.unplugged;
        if peer != self.card.has_peer() {
            self.log.info(|| format!("link partner {}", if peer { "there" } else { "gone" }));
            self.card.set_link(&mut self.world, self.clock.now(), peer);
        }
    }

    /// True when told to quit.
    fn serve_control(&mut self) -> bool {
        let mut requests = Vec::new();
        if let Some(control) = &mut self.control {
            control.service(&mut self.card, self.clock.now(), &mut requests);
        }
        for request in requests {
            match request {
                Request::Link(up) => {
                    self.unplugged = !up;
                    self.follow_link();
                }
                Request::Quit => return true,
            }
        }
        false
    }

    fn complain(&mut self) {
        while let Some(text) = self.card.take_complaint() {
            if self.complaints.second.elapsed() > Duration::from_secs(1) {
                self.complaints = Complaints { second: Instant::now(), left: COMPLAINTS_A_SECOND };
            }
            if self.complaints.left != 0 {
                self.complaints.left -= 1;
                self.log.warn(|| text);
            }
        }
    }
}
