// SPDX-License-Identifier: BSL-1.0
//! One thread that serves the driver of time, the guest's register accesses, and the card's control socket.
//!
//! Before each access everything up to its moment is done, and after it everything that follows at once. Then the page is brought up to
//! date, and only then is the access or the advance answered. So the guest's CPUs stand still whenever the card works.

use crate::experiment::Phase;
use crate::guest::Guest;
use crate::link::{Field, Input, Link, NEVER_NS};
use crate::machine::CardMachine;
use crate::options::Options;
use crate::report::{report, Figures};
use crate::world::World;
use soft82599::commands::entry_as_json;
use soft82599::control::Control;
use soft82599::log::Log;
use soft82599::options::Strict;
use soft82599::sys::{self, Interest, Readiness};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Printed violations without --strict. Further ones are only counted.
const VIOLATIONS_PRINTED_MAX: u32 = 100;
/// Later times are mistakes: 146 years.
const NOW_NS_MAX: u64 = 1 << 62;

/// The end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Good,
    Failed,
    RulesBroken,
}

pub struct EventLoop {
    world: World<CardMachine>,
    link: Link,
    guest: Guest,
    control: Option<Control>,
    signals: OwnedFd,
    log: Log,
    strict: Strict,
    seed: u64,
    out: Option<PathBuf>,
    interrupt_trace: Option<PathBuf>,
    reported: bool,
    failed: bool,
    printed: u32,
    advances: u64,
    /// Reads of the guest's socket: one for each access to a register, or a few more.
    guest_inputs: u64,
}

impl EventLoop {
    pub fn new(options: &Options, world: World<CardMachine>) -> io::Result<Self> {
        let link = Link::listen(&options.driven)?;
        Ok(Self {
            link,
            guest: Guest::listen(&options.socket_path, Log::new(options.log_level))?,
            control: options.control.as_deref().map(Control::listen).transpose()?,
            signals: sys::termination_signals()?,
            log: Log::new(options.log_level),
            strict: options.strict(),
            seed: options.seed,
            out: options.out.clone(),
            interrupt_trace: options.interrupts.clone(),
            reported: false,
            failed: false,
            printed: 0,
            advances: 0,
            guest_inputs: 0,
            world,
        })
    }

    /// Serves until the machine has ended.
    pub fn run(&mut self) -> io::Result<Outcome> {
        self.publish();
        let result = self.serve();
        self.world.machine.rig.host.flush();
        self.log.info(|| format!("{} advances, {} inputs of the guest", self.advances, self.guest_inputs));
        let total = self.world.machine.rig.card.violations();
        if self.strict != Strict::No {
            self.log.always(|| format!("strict: {total} violations"));
        }
        result?;
        Ok(match (self.failed, self.strict) {
            (true, _) => Outcome::Failed,
            (false, Strict::Report | Strict::Stop) if total != 0 => Outcome::RulesBroken,
            (false, _) => Outcome::Good,
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut interests = Vec::new();
        let mut ready: Vec<Readiness> = Vec::new();
        loop {
            interests.clear();
            interests.push(Interest { descriptor: self.signals.as_raw_fd(), read: true, write: false });
            interests.push(Interest { descriptor: self.link.descriptor(), read: true, write: false });
            interests.push(Interest { descriptor: self.guest.descriptor(), read: true, write: false });
            if let Some(control) = &self.control {
                control.interests(&mut interests);
            }
            sys::poll(&interests, None, &mut ready)?;
            if ready[0].read {
                self.end_of_machine("this program was told to end");
                return Ok(());
            }
            if ready[2].read {
                self.serve_guest();
            }
            if ready[1].read {
                match self.link.service()? {
                    Input::Advance(to_ns) => {
                        self.advances += 1;
                        self.advance(to_ns);
                        self.publish();
                        self.link.acknowledge();
                    }
                    Input::Nothing => {}
                    Input::Closed => {
                        self.end_of_machine("the machine ended");
                        return Ok(());
                    }
                }
            }
            if ready[3..].iter().any(|r| r.read || r.write) {
                let rig = &mut self.world.machine.rig;
                if self.control.as_mut().is_some_and(|control| control.service(rig)) {
                    self.end_of_machine("this program was told to end");
                    return Ok(());
                }
                self.publish();
            }
        }
    }

    /// The end before the end of a run is a failure.
    fn end_of_machine(&mut self, what: &str) {
        if self.world.experiment().is_under_way() && !self.failed {
            let phase = match self.world.experiment().phase() {
                Phase::SetUp => "set-up",
                Phase::WarmUp => "warm-up",
                Phase::Window => "the window",
                Phase::Drain | Phase::Finished => "the drain",
            };
            let load = Some(self.world.experiment().of_load()).filter(|load| !load.is_empty()).unwrap_or(" of the load".into());
            self.fail(&format!("{what} during {phase}{load}, at {} ns of virtual time", self.world.now_ns()));
        }
    }

    fn fail(&mut self, why: &str) {
        if !self.failed {
            eprintln!("neap-world: {why}");
        }
        self.failed = true;
    }

    fn advance(&mut self, to_ns: u64) {
        if to_ns > NOW_NS_MAX {
            self.fail(&format!("the machine's time of {to_ns} ns is not a time"));
        }
        if self.failed {
            return;
        }
        if let Err(why) = self.world.advance(to_ns) {
            self.fail(&why);
        }
        self.check_rules();
    }

    /// Accepts a guest, or handles its messages at the page's time.
    fn serve_guest(&mut self) {
        if !self.guest.receive(&mut self.world.machine.rig) {
            return;
        }
        self.guest_inputs += 1;
        self.advance(self.link.page.load(Field::Now));
        self.guest.handle(&mut self.world.machine.rig);
        if !self.failed {
            if let Err(why) = self.world.settle() {
                self.fail(&why);
            }
        }
        self.check_rules();
        self.publish();
        self.guest.answer(&mut self.world.machine.rig);
    }

    /// Brings the page up to date, and writes the result of a finished run.
    fn publish(&mut self) {
        let phase = self.world.experiment().phase();
        if phase == Phase::Finished && !self.reported && !self.failed {
            self.reported = true;
            if let Err(why) = self.write_report().and_then(|()| self.write_interrupt_trace()) {
                self.fail(&why);
            }
        }
        let page = &self.link.page;
        page.add_vectors(self.world.machine.rig.host.eventfds.take_messages());
        let next_ns = if self.failed { None } else { self.world.next_ns() };
        self.log.debug(|| format!("{:>12} done, next {next_ns:?}, phase {}", self.world.now_ns(), phase as u64));
        page.store(Field::Next, next_ns.unwrap_or(NEVER_NS));
        page.store(Field::Failed, u64::from(self.failed));
        page.store(Field::Load, self.world.experiment().place() as u64);
        page.store(Field::Phase, phase as u64);
    }

    fn write_report(&self) -> Result<(), String> {
        let (Some(path), Some(figures)) = (&self.out, Figures::of(&self.world, self.seed)) else { return Ok(()) };
        std::fs::write(path, format!("{}\n", report(&figures))).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    fn write_interrupt_trace(&mut self) -> Result<(), String> {
        let Some(path) = &self.interrupt_trace else { return Ok(()) };
        let trace = self.world.machine.rig.card.interrupt_trace();
        if trace.lost() != 0 {
            return Err(format!("{} interrupts more than the trace can hold", trace.lost()));
        }
        let lines: String = trace.take(usize::MAX).map(|entry| entry_as_json(&entry) + "\n").collect();
        std::fs::write(path, lines).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Prints the driver's violations: all of them with --strict, otherwise a limited number.
    fn check_rules(&mut self) {
        while let Some(text) = self.world.machine.rig.card.take_violation() {
            if self.strict != Strict::No {
                self.log.always(|| format!("strict: {text}"));
            } else if self.printed < VIOLATIONS_PRINTED_MAX {
                self.printed += 1;
                self.log.warn(|| text.clone());
            }
            if self.strict == Strict::Stop {
                self.fail(&format!("the driver broke a rule, and --strict=stop ends the run: {text}"));
            }
        }
    }
}
