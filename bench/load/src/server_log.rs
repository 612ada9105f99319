// SPDX-License-Identifier: BSL-1.0
//! The log of a Neap machine under load: when it starts and stops, and the marks that say which phase of the load begins.
//!
//! A log that runs during preload or warm-up has records that belong to no measurement. The marks divide them from the measured window,
//! on the machine's own clock. A machine of an older build refuses marks; then the load goes on without them.

use crate::neap_control::{ClockOffset, NeapControl};
use crate::worker::Environment;
use serde_json::{json, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// While a thread waits, it checks for a requested stop at this interval.
const CHECK_INTERVAL_NS: u64 = 10_000_000;

/// The phase with which the log starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFrom {
    Preload,
    WarmUp,
    Window,
    /// The log is neither started nor stopped. A run that is on gets the marks.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Preload,
    WarmUp,
    Window,
    Drain,
    End,
}

impl Phase {
    /// Returns the name that control accepts.
    fn name(self) -> &'static str {
        match self {
            Phase::Preload => "preload",
            Phase::WarmUp => "warm_up",
            Phase::Window => "window",
            Phase::Drain => "drain",
            Phase::End => "end",
        }
    }
}

#[derive(Clone, Debug, serde::Serialize)]
struct Mark {
    what: &'static str,
    /// Our wall clock before the mark was sent, in nanoseconds since 1970.
    unix_ns: u64,
    /// The machine's answer behind `ok`; empty: the mark is in the log.
    answer: String,
}

pub struct ServerLog {
    control: NeapControl,
    from: LogFrom,
    /// The answer to `start`; None: this program has started no run of the log.
    started: Option<String>,
    marks: Vec<Mark>,
    refuses_marks: bool,
}

/// The begins of warm-up, window and drain, in nanoseconds of our clock. Without a warm-up the first two are equal.
#[derive(Clone, Copy)]
pub struct Schedule {
    pub start_ns: u64,
    pub window_ns: u64,
    pub drain_ns: u64,
}

impl ServerLog {
    pub fn new(control: NeapControl, from: LogFrom) -> Self {
        Self { control, from, started: None, marks: Vec::new(), refuses_marks: false }
    }

    pub fn clock_offset(&mut self) -> Result<ClockOffset, String> {
        self.control.clock_offset()
    }

    /// MUST be called before a run of the load sends its first request. Starts the log if it has to be on from then on.
    pub fn prepare(&mut self, has_warm_up: bool) -> Result<(), String> {
        match self.from {
            LogFrom::Preload | LogFrom::WarmUp => self.start(),
            LogFrom::Window if !has_warm_up => self.start(),
            LogFrom::Window | LogFrom::Never => Ok(()),
        }
    }

    /// `phase` begins now: starts the log if it starts with this phase, and marks the phase.
    pub fn begin(&mut self, phase: Phase) -> Result<(), String> {
        match (self.from, phase) {
            (LogFrom::Preload, Phase::Preload) | (LogFrom::Window, Phase::Window) => self.start()?,
            _ => (),
        }
        if self.refuses_marks {
            return Ok(());
        }
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        match self.control.mark(phase.name())? {
            Ok(answer) => self.marks.push(Mark { what: phase.name(), unix_ns, answer }),
            Err(_) => self.refuses_marks = true,
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        if self.started.is_none() {
            self.started = Some(self.control.start()?);
        }
        Ok(())
    }

    /// Begins the phases of `schedule` at their times, until the stop of the program or, for times that are not reached yet, until
    /// `is_over`.
    pub fn follow(&mut self, schedule: Schedule, environment: &Environment, is_over: &AtomicBool) -> Result<(), String> {
        let phases = [(schedule.start_ns, Phase::WarmUp), (schedule.window_ns, Phase::Window), (schedule.drain_ns, Phase::Drain)];
        let has_warm_up = schedule.start_ns < schedule.window_ns;
        for (at_ns, phase) in phases.into_iter().filter(|(_, phase)| has_warm_up || *phase != Phase::WarmUp) {
            loop {
                if environment.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                match at_ns.saturating_sub(environment.clock.now_ns()) {
                    0 => break,
                    _ if is_over.load(Ordering::Relaxed) => return Ok(()),
                    left_ns => std::thread::sleep(Duration::from_nanos(left_ns.min(CHECK_INTERVAL_NS))),
                }
            }
            self.begin(phase)?;
        }
        Ok(())
    }

    /// The load is over: marks that, and stops the log if this program has started it. Returns the run's account for the JSON. If both
    /// fail, the error is that of the mark.
    pub fn end(&mut self, clock: Option<ClockOffset>) -> Result<Value, String> {
        let marked = self.begin(Phase::End);
        let started = self.started.take();
        let stopped = started.as_ref().map(|_| self.control.stop());
        let marks = std::mem::take(&mut self.marks);
        marked?;
        Ok(json!({"clock": clock, "started": started, "stopped": stopped.transpose()?, "marks": marks}))
    }
}
