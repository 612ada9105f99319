// SPDX-License-Identifier: BSL-1.0
//! One thread that waits for the guest, the wire, the control socket, the card's timers, and signals.
//!
//! Each iteration handles all commands from the guest, all received frames, and due timers. Then it sends the replies in one batch, and the
//! frames in another. So a guest's doorbell is served in the iteration in which it arrives, without waking another thread.

use crate::cable::Cable;
use crate::card_host::CardHost;
use crate::clock::Clock;
use crate::control::Control;
use crate::guest_socket::GuestSocket;
use crate::log::Log;
use crate::net::pcap::Recording;
use crate::net::Wire;
use crate::options::{Options, Strict};
use crate::rig::Rig;
use crate::sys::{self, Interest};
use crate::vfio::connection::{Connection, Input};
use crate::vfio::server::{handle, Command};
use card::{Card, Configuration};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Largest number of violations printed per second. Further violations are only counted.
const VIOLATIONS_PER_SECOND_MAX: u32 = 20;

pub struct EventLoop {
    rig: Rig,
    log: Log,
    socket: GuestSocket,
    guest: Option<Connection>,
    control: Option<Control>,
    signals: OwnedFd,
    once: bool,
    strict: Strict,
    print_budget: PrintBudget,
}

struct PrintBudget {
    second: Instant,
    left: u32,
}

impl EventLoop {
    pub fn new(options: &Options) -> io::Result<Self> {
        sys::sharpen_timers();
        let log = Log::new(options.level);
        let signals = sys::termination_signals()?;
        // An inherited socket is taken before others are opened, so that no number which the user named by mistake is one of theirs.
        let socket = GuestSocket::open(&options.socket)?;
        let wire = Wire::open(&options.net).map_err(|error| io::Error::new(error.kind(), format!("--net: {error}")))?;
        let control = options.control.as_deref().map(Control::listen).transpose()?;
        let recording = options.pcap.as_deref().map(|path| Recording::create(path, options.pcap_limit)).transpose()?;
        let configuration = Configuration { model: options.model, mac: options.mac, link: wire.is_connected() };
        let mut host = CardHost {
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
        let now = host.clock.now();
        let mut card = Card::new(&configuration, &mut host, now);
        let mut cable = Cable::new();
        for fault in &options.faults {
            fault.apply(&mut card, &mut host, &mut cable);
        }
        Ok(Self {
            rig: Rig { card, host, cable },
            log,
            socket,
            guest: None,
            control,
            signals,
            once: options.once,
            strict: options.strict,
            print_budget: PrintBudget { second: Instant::now(), left: VIOLATIONS_PER_SECOND_MAX },
        })
    }

    /// Serves until the program is to end. Returns false if the driver broke a rule and --strict is set.
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
            // `interests` has a fixed order: signals, the guest or its listener, the wire if it has a descriptor, the control socket.
            let take = !self.rig.host.partner.is_held();
            interests.clear();
            interests.push(Interest { descriptor: self.signals.as_raw_fd(), read: true, write: false });
            let guest = self.guest.as_ref().map_or(self.socket.descriptor(), Connection::descriptor);
            interests.push(Interest { descriptor: guest, read: true, write: false });
            let wire = self.rig.host.wire.interest(take).map(|interest| {
                interests.push(interest);
                interests.len() - 1
            });
            if let Some(control) = &self.control {
                control.interests(&mut interests);
            }
            let control_from = wire.map_or(2, |_| 3);
            sys::poll(&interests, self.time_to_deadline(take), &mut ready)?;

            if ready[0].read {
                self.log.info(|| "told to end".into());
                return Ok(());
            }
            if ready[1].read && !self.serve_guest() && (self.once || self.socket.is_used_up()) {
                return Ok(());
            }
            let wire_ready = wire.is_some_and(|at| ready[at].read || ready[at].write);
            if wire.is_some_and(|at| ready[at].hung && (!take || !matches!(self.rig.host.wire, Wire::Stream(_)))) {
                // The peer has closed. The remaining bytes of a stream are read before the stream is disconnected, unless the card accepts
                // no frames. Then the stream is disconnected at once, because poll would report the closed peer again and again.
                self.rig.host.wire.disconnect();
            }
            // If this thread wakes late, a pause frame may be due. It is sent here, before frames are received.
            self.rig.time_passes();
            if wire_ready || self.rig.host.wire.due_after(take).is_some_and(|left| left.is_zero()) {
                self.serve_wire(wire.is_none_or(|at| ready[at].read));
            }
            if self.rig.card.has_transmit_work() && self.rig.host.wire.has_room() {
                let now = self.rig.now();
                self.rig.card.wire_ready(&mut self.rig.host, now);
            }
            self.rig.host.flush();
            if self.rig.follow_cable() {
                self.log.info(|| format!("link partner {}", if self.rig.card.has_peer() { "there" } else { "gone" }));
            }
            let asked = ready[control_from..].iter().any(|r| r.read || r.write);
            if asked && self.control.as_mut().is_some_and(|control| control.service(&mut self.rig)) {
                return Ok(());
            }
            if self.report_violations() && self.strict == Strict::Stop {
                return Ok(());
            }
        }
    }

    /// Returns the time until the next deadline.
    fn time_to_deadline(&self, take: bool) -> Option<Duration> {
        if self.rig.card.has_transmit_work() && self.rig.host.wire.has_room() {
            return Some(Duration::ZERO);
        }
        let timer = self.rig.next_deadline().and_then(|at| self.rig.host.clock.until(at));
        let batch = self.rig.host.wire.due_after(take);
        timer.into_iter().chain(batch).min()
    }

    /// Accepts a new guest, or handles the messages of the current guest. Returns false if a guest has disconnected.
    fn serve_guest(&mut self) -> bool {
        let Some(guest) = &mut self.guest else {
            let Some(stream) = self.socket.accept() else { return true };
            self.log.info(|| "a guest has connected".into());
            self.guest = Connection::new(stream).ok();
            return self.guest.is_some();
        };
        let result = match guest.fill() {
            Ok(Input::Closed) => Err(None),
            Ok(_) => Self::messages(guest, &mut self.rig, &self.log).and_then(|()| guest.flush()).map_err(Some),
            Err(error) => Err(Some(error)),
        };
        let Err(error) = result else { return true };
        match error {
            Some(error) => self.log.warn(|| format!("the guest's connection ended: {error}")),
            None => self.log.info(|| "the guest has disconnected".into()),
        }
        self.guest = None;
        // The memory is unmapped first, so that the reset does not access the memory of a guest that has ended.
        self.rig.host.remove_guest();
        let now = self.rig.now();
        self.rig.card.function_reset(&mut self.rig.host, now);
        false
    }

    fn messages(guest: &mut Connection, rig: &mut Rig, log: &Log) -> io::Result<()> {
        let mut output = std::mem::take(&mut guest.output);
        while let Some(message) = guest.next()? {
            let command = Command { header: message.header, body: guest.body(message.range), descriptors: message.descriptors };
            let now = rig.now();
            handle(&mut rig.card, &mut rig.host, now, log, command, &mut output);
        }
        guest.output = output;
        Ok(())
    }

    fn serve_wire(&mut self, fill: bool) {
        let Rig { card, host, .. } = &mut self.rig;
        if fill {
            host.wire.fill();
        }
        let mut batch = host.wire.take_batch();
        while !host.partner.is_held() {
            match batch.next_frame() {
                Ok(Some(range)) => host.deliver(card, batch.frame(range)),
                Ok(None) => break,
                Err(error) => {
                    self.log.warn(|| format!("wire: {error}"));
                    host.wire.disconnect();
                    return;
                }
            }
        }
        host.wire.return_batch(batch);
    }

    /// Prints the rules that the driver broke: all of them with --strict, otherwise a limited number per second. Returns true if the driver
    /// broke a rule.
    fn report_violations(&mut self) -> bool {
        let mut some = false;
        while let Some(text) = self.rig.card.take_violation() {
            some = true;
            if self.strict != Strict::No {
                self.log.always(|| format!("strict: {text}"));
                continue;
            }
            if self.print_budget.second.elapsed() > Duration::from_secs(1) {
                self.print_budget = PrintBudget { second: Instant::now(), left: VIOLATIONS_PER_SECOND_MAX };
            }
            if self.print_budget.left != 0 {
                self.print_budget.left -= 1;
                self.log.warn(|| text);
            }
        }
        some
    }
}
