// SPDX-License-Identifier: BSL-1.0
//! One thread that waits for everything: the guest, the wire, the control socket, the card's own timers, signals.
//!
//! A turn takes all messages that the guest has sent, all frames that have come, lets timers fire, and then sends replies and frames in one
//! piece each. A guest's doorbell is thus served in the turn in which it arrives, without waking another thread.

use crate::cable::Cable;
use crate::clock::Clock;
use crate::control::Control;
use crate::log::Log;
use crate::net::pcap::Recording;
use crate::net::Wire;
use crate::options::{Options, Strict};
use crate::rig::Rig;
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
    rig: Rig,
    log: Log,
    listener: SocketFile,
    guest: Option<Connection>,
    control: Option<Control>,
    signals: OwnedFd,
    once: bool,
    strict: Strict,
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
        let recording = options.pcap.as_deref().map(|path| Recording::create(path, options.pcap_limit)).transpose()?;
        let configuration = Configuration { mac: options.mac, link: wire.is_connected() };
        let mut world = World {
            memory: Default::default(),
            eventfds: Default::default(),
            wire,
            partner: Default::default(),
            clock: Clock::new(options.time_scale, options.stopped),
            recording,
            receive_faults: Default::default(),
            transmit_faults: Default::default(),
            log,
        };
        let now = world.clock.now();
        let mut card = Card::new(&configuration, &mut world, now);
        let mut cable = Cable::new();
        for fault in &options.faults {
            fault.apply(&mut card, &mut world, &mut cable);
        }
        Ok(Self {
            rig: Rig { card, world, cable },
            log,
            listener,
            guest: None,
            control,
            signals,
            once: options.once,
            strict: options.strict,
            complaints: Complaints { second: Instant::now(), left: COMPLAINTS_A_SECOND },
        })
    }

    /// Serves until told to end. False if the driver broke a rule and that matters.
    pub fn run(&mut self) -> io::Result<bool> {
        let result = self.serve();
        if self.strict == Strict::No {
            return result.map(|()| true);
        }
        let total = self.rig.card.violations();
        let counts: Vec<String> = self.rig.card.violations_by_kind().map(|(name, count)| format!("{name} {count}")).collect();
        self.log.always(|| format!("strict: {total} violations{}{}", if counts.is_empty() { "" } else { ": " }, counts.join(", ")));
        result.map(|()| total == 0)
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut interests = Vec::new();
        let mut ready = Vec::new();
        loop {
            // Interests in a fixed order: signals, guest or its listener, wire if any, control.
            let take = !self.rig.world.partner.is_held();
            interests.clear();
            interests.push(Interest { descriptor: self.signals.as_raw_fd(), read: true, write: false });
            let guest = self.guest.as_ref().map_or(self.listener.descriptor(), Connection::descriptor);
            interests.push(Interest { descriptor: guest, read: true, write: false });
            let wire = self.rig.world.wire.interest(take).map(|interest| {
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
            if wire.is_some_and(|at| ready[at].hung && (!take || !matches!(self.rig.world.wire, Wire::Stream(_)))) {
                // A stream's last bytes are read first, unless the card wants none; then waiting for them would be a busy loop.
                self.rig.world.wire.disconnect();
            }
            // Before frames come in: if we were late, the card prolongs its pause first.
            self.rig.time_passes();
            if wire_ready || self.rig.world.wire.due_after(take).is_some_and(|left| left.is_zero()) {
                self.serve_wire(wire.is_none_or(|at| ready[at].read));
            }
            if self.rig.card.has_transmit_work() && self.rig.world.wire.has_room() {
                let now = self.rig.now();
                self.rig.card.wire_ready(&mut self.rig.world, now);
            }
            self.rig.world.flush();
            if self.rig.follow_cable() {
                self.log.info(|| format!("link partner {}", if self.rig.card.has_peer() { "there" } else { "gone" }));
            }
            let asked = ready[control_from..].iter().any(|r| r.read || r.write);
            if asked && self.control.as_mut().is_some_and(|control| control.service(&mut self.rig)) {
                return Ok(());
            }
            if self.complain() && self.strict == Strict::Stop {
                return Ok(());
            }
        }
    }

    /// How long nothing needs to be done unless a descriptor becomes ready.
    fn patience(&self, take: bool) -> Option<Duration> {
        if self.rig.card.has_transmit_work() && self.rig.world.wire.has_room() {
            return Some(Duration::ZERO);
        }
        let timer = self.rig.next_deadline().and_then(|at| self.rig.world.clock.until(at));
        let batch = self.rig.world.wire.due_after(take);
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
            Ok(_) => Self::messages(guest, &mut self.rig, &self.log).and_then(|()| guest.flush()).map_err(Some),
            Err(error) => Err(Some(error)),
        };
        let Err(error) = result else { return true };
        match error {
            Some(error) => self.log.warn(|| format!("the guest's connection ends: {error}")),
            None => self.log.info(|| "the guest has gone".into()),
        }
        self.guest = None;
        // First the memory, so that nothing of the reset reaches a guest that is no more.
        self.rig.world.forget_guest();
        let now = self.rig.now();
        self.rig.card.function_reset(&mut self.rig.world, now);
        false
    }

    fn messages(guest: &mut Connection, rig: &mut Rig, log: &Log) -> io::Result<()> {
        let mut output = std::mem::take(&mut guest.output);
        while let Some(message) = guest.next()? {
            let command = Command { header: message.header, body: guest.body(message.range), descriptors: message.descriptors };
            let now = rig.now();
            handle(&mut rig.card, &mut rig.world, now, log, command, &mut output);
        }
        guest.output = output;
        Ok(())
    }

    fn serve_wire(&mut self, fill: bool) {
        let Rig { card, world, .. } = &mut self.rig;
        if fill {
            world.wire.fill();
        }
        let mut batch = world.wire.take_batch();
        while !world.partner.is_held() {
            match batch.next_frame() {
                Ok(Some(range)) => world.give(card, batch.frame(range)),
                Ok(None) => break,
                Err(error) => {
                    self.log.warn(|| format!("wire: {error}"));
                    world.wire.disconnect();
                    return;
                }
            }
        }
        world.wire.give_back(batch);
    }

    /// Prints what the driver did wrong: every line of it if that is what is wanted, else so many a second. True if there was something.
    fn complain(&mut self) -> bool {
        let mut some = false;
        while let Some(text) = self.rig.card.take_complaint() {
            some = true;
            if self.strict != Strict::No {
                self.log.always(|| format!("strict: {text}"));
                continue;
            }
            if self.complaints.second.elapsed() > Duration::from_secs(1) {
                self.complaints = Complaints { second: Instant::now(), left: COMPLAINTS_A_SECOND };
            }
            if self.complaints.left != 0 {
                self.complaints.left -= 1;
                self.log.warn(|| text);
            }
        }
        some
    }
}
