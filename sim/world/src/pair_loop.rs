// SPDX-License-Identifier: BSL-1.0
//! One thread that serves two machines: the drivers of their clocks, and their guests' accesses to registers.
//!
//! An advance is answered when the machine may go on. That is at once within a span, and at the barrier when the other machine has come
//! there too (pair.rs). So each machine stands still while its card works, and neither passes the other.

use crate::event_loop::Outcome;
use crate::experiment::Phase;
use crate::guest::Guest;
use crate::link::{Field, Input, Link};
use crate::machine::CardMachine;
use crate::options::Options;
use crate::pair::{Impaired, Pair};
use serde_json::{json, Value};
use soft82599::control::Control;
use soft82599::log::Log;
use soft82599::options::Strict;
use soft82599::sys::{self, Interest, Readiness};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Printed violations without --strict.
const VIOLATIONS_PRINTED_MAX: u32 = 100;
const SIDES: usize = 2;
/// The place of each side's link and guest among the descriptors, after that of the signals.
const fn link_place(side: usize) -> usize {
    1 + 2 * side
}
const fn guest_place(side: usize) -> usize {
    2 + 2 * side
}

const CONTROL_PLACE: usize = 1 + 2 * SIDES;

struct End {
    link: Link,
    guest: Guest,
    gone: bool,
}

pub struct PairLoop {
    pair: Pair<CardMachine>,
    ends: [End; SIDES],
    /// Of the first machine's card.
    control: Option<Control>,
    signals: OwnedFd,
    log: Log,
    /// How strict the world is with each side's driver
    strict: [Strict; SIDES],
    seed: u64,
    limit_ns: u64,
    out: Option<PathBuf>,
    failed: bool,
    reported: bool,
    printed: u32,
}

impl PairLoop {
    /// `options` MUST have the sockets of the second machine.
    pub fn new(options: &Options, pair: Pair<CardMachine>) -> io::Result<Self> {
        let log = Log::new(options.log_level);
        let (Some(peer_driven), Some(peer_socket_path)) = (&options.peer_driven, &options.peer_socket_path) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the second machine has no sockets"));
        };
        let end = |driven, socket| Ok::<_, io::Error>(End { link: Link::listen(driven)?, guest: Guest::listen(socket, log)?, gone: false });
        Ok(Self {
            pair,
            ends: [end(&options.driven, &options.socket_path)?, end(peer_driven, peer_socket_path)?],
            control: options.control.as_deref().map(Control::listen).transpose()?,
            signals: sys::termination_signals()?,
            log,
            strict: [options.strict(), if options.peer_free { Strict::No } else { options.strict() }],
            seed: options.seed,
            limit_ns: options.set_up_limit,
            out: options.out.clone(),
            failed: false,
            reported: false,
            printed: 0,
        })
    }

    /// Serves until both machines have ended.
    pub fn run(&mut self) -> io::Result<Outcome> {
        for side in 0..SIDES {
            self.publish(side);
        }
        self.serve()?;
        let strict_sides: Vec<usize> = (0..SIDES).filter(|&side| self.strict[side] != Strict::No).collect();
        let total: u64 = strict_sides.iter().map(|&side| self.pair.machine(side).rig.card.violations()).sum();
        if !strict_sides.is_empty() {
            self.log.always(|| format!("strict: {total} violations"));
        }
        Ok(match (self.failed, total) {
            (true, _) => Outcome::Failed,
            (false, 0) => Outcome::Good,
            (false, _) => Outcome::RulesBroken,
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut interests = Vec::new();
        let mut ready: Vec<Readiness> = Vec::new();
        loop {
            interests.clear();
            interests.push(Interest { descriptor: self.signals.as_raw_fd(), read: true, write: false });
            for end in &self.ends {
                interests.push(Interest { descriptor: end.link.descriptor(), read: !end.gone, write: false });
                interests.push(Interest { descriptor: end.guest.descriptor(), read: !end.gone, write: false });
            }
            if let Some(control) = &self.control {
                control.interests(&mut interests);
            }
            sys::poll(&interests, None, &mut ready)?;
            if ready[0].read {
                self.fail("this program was told to end");
                return Ok(());
            }
            if ready[CONTROL_PLACE..].iter().any(|r| r.read || r.write) {
                let rig = &mut self.pair.machine(0).rig;
                if self.control.as_mut().is_some_and(|control| control.service(rig)) {
                    self.fail("this program was told to end");
                    return Ok(());
                }
            }
            for side in (0..SIDES).filter(|&side| ready[guest_place(side)].read) {
                self.serve_guest(side);
            }
            for side in (0..SIDES).filter(|&side| ready[link_place(side)].read) {
                match self.ends[side].link.service()? {
                    Input::Advance(to_ns) => self.advance(side, to_ns),
                    Input::Nothing => {}
                    Input::Closed => {
                        // A process closes its two sockets in any order. Here the guest's last messages and its end come first in any case.
                        while self.serve_guest(side) {}
                        self.ends[side].guest.end(&mut self.pair.machine(side).rig);
                        self.ends[side].gone = true;
                        let go_on = self.pair.leave(side);
                        self.release(go_on);
                        if self.pair.all_gone() {
                            self.report();
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    fn advance(&mut self, side: usize, to_ns: u64) {
        if to_ns > self.limit_ns {
            self.fail(&format!("the machines have not ended after {} ns of virtual time (--set-up-limit)", self.limit_ns));
        }
        let idle_until_ns = self.ends[side].link.page.load(Field::IdleUntil);
        let go_on = if self.failed { Ok([true; SIDES]) } else { self.pair.advance(side, to_ns, idle_until_ns) };
        self.release(go_on);
    }

    /// Lets machines go on. After a failure both do, and learn of it from their pages.
    fn release(&mut self, go_on: Result<[bool; SIDES], String>) {
        let go_on = go_on.unwrap_or_else(|why| {
            self.fail(&why);
            [true; SIDES]
        });
        for (side, goes_on) in go_on.into_iter().enumerate() {
            self.check_rules(side);
            if goes_on && !self.ends[side].gone {
                self.publish(side);
                self.ends[side].link.acknowledge();
            }
        }
    }

    /// Handles a guest's messages at its page's time. Returns false if there were none.
    fn serve_guest(&mut self, side: usize) -> bool {
        if !self.ends[side].guest.receive(&mut self.pair.machine(side).rig) {
            return false;
        }
        let now_ns = self.ends[side].link.page.load(Field::Now).min(self.limit_ns);
        self.act(side, now_ns);
        self.ends[side].guest.handle(&mut self.pair.machine(side).rig);
        self.act(side, now_ns);
        self.check_rules(side);
        self.publish(side);
        self.ends[side].guest.answer(&mut self.pair.machine(side).rig);
        true
    }

    fn act(&mut self, side: usize, now_ns: u64) {
        if !self.failed {
            if let Err(why) = self.pair.act(side, now_ns) {
                self.fail(&why);
            }
        }
    }

    fn publish(&mut self, side: usize) {
        let vectors = self.pair.machine(side).rig.host.eventfds.take_messages();
        let page = &self.ends[side].link.page;
        page.add_vectors(vectors);
        page.store(Field::Next, self.pair.next_ns(side));
        page.store(Field::Failed, u64::from(self.failed));
        page.store(Field::Phase, if self.pair.is_finished() { Phase::Finished } else { Phase::SetUp } as u64);
    }

    fn fail(&mut self, why: &str) {
        if !self.failed {
            eprintln!("neap-world: {why}");
        }
        self.failed = true;
    }

    fn check_rules(&mut self, side: usize) {
        while let Some(text) = self.pair.machine(side).rig.card.take_violation() {
            if self.strict[side] != Strict::No {
                self.log.always(|| format!("strict: machine {side}: {text}"));
            } else if self.printed < VIOLATIONS_PRINTED_MAX {
                self.printed += 1;
                self.log.warn(|| format!("machine {side}: {text}"));
            }
            if self.strict[side] == Strict::Stop {
                self.fail(&format!("the driver of machine {side} broke a rule, and --strict=stop ends the run: {text}"));
            }
        }
    }

    /// Writes the result.
    fn report(&mut self) {
        let Some(path) = self.out.clone().filter(|_| !self.reported && !self.failed) else { return };
        self.reported = true;
        let machine = |side: usize| -> Value {
            let machine = self.pair.side(side);
            let losses = machine.losses();
            let counts = machine.machine.rig.statistics().into_iter();
            let card: serde_json::Map<_, _> = counts.map(|(name, count)| (name, json!(count))).collect();
            json!({
                "frames": {"to_card": machine.counts().to_card, "from_card": machine.counts().from_card},
                "losses": {"chance": losses.lost, "queue_full": losses.queue_full, "unknown_address": losses.unknown_address},
                "card": card,
                "digest": machine.digest().text(),
            })
        };
        let impaired = |at_ns: u64, both: &Impaired| {
            let ways = both.map(|(losses, counts)| {
                json!({
                    "lost": losses.lost, "queue_full": losses.queue_full,
                    "duplicated": counts.duplicated, "corrupted": counts.corrupted, "reordered": counts.reordered,
                })
            });
            json!({"at_ns": at_ns, "impaired": ways})
        };
        // Counts of impaired frames, until each change and until the end.
        let changes: Vec<Value> = self.pair.changes().iter().map(|(at_ns, both)| impaired(*at_ns, both)).collect();
        let end_ns = (0..SIDES).map(|side| self.pair.side(side).now_ns()).max().unwrap_or(0);
        let end = impaired(end_ns, &self.pair.impaired());
        let text = json!({"version": 1, "seed": self.seed, "machines": [machine(0), machine(1)], "changes": changes, "end": end});
        if let Err(error) = std::fs::write(&path, format!("{text}\n")) {
            self.fail(&format!("cannot write {}: {error}", path.display()));
        }
    }
}
