// SPDX-License-Identifier: BSL-1.0
//! What a run is, and what came of it.
//!
//! A run has a warm-up, whose requests count for nothing, a measured window, and a drain in which replies that are still out may come. The
//! threads that carry it out are in team.rs.

use crate::arrivals::{Course, Process};
use crate::connection::Manner;
use crate::recorder::{Interval, Measurement, SECOND_NS};
use crate::trace::Line;
use crate::worker::ConnectionCounts;
use crate::workload::Mix;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// When the loading workers ask.
#[derive(Clone)]
pub enum Pace {
    /// Requests a second, all workers together.
    Rate(Process, f64),
    Course(Arc<Course>),
    Trace(Arc<Vec<Line>>),
    /// As fast as replies come.
    Closed,
}

/// The measuring client.
#[derive(Clone, Copy, Debug)]
pub struct Measuring {
    pub connections: usize,
    /// Requests a second, exponential gaps.
    pub rate: f64,
    pub depth: usize,
}

/// What stays the same over all runs of a program.
#[derive(Clone)]
pub struct Load {
    pub manner: Manner,
    pub mix: Mix,
    pub threads: usize,
    /// Over all threads; none: this program does not load itself.
    pub connections: usize,
    pub measuring: Option<Measuring>,
    pub seed: u64,
    /// This program's place among those that load, and their number: rates and preloading are shared.
    pub share: (u64, u64),
}

/// One run.
#[derive(Clone)]
pub struct Run {
    pub pace: Pace,
    pub warm_up_ns: u64,
    pub measured_ns: u64,
}

impl Run {
    /// By how much one that loads may begin later than the others. In an open loop what was due meanwhile keeps its moments, leaves late,
    /// and is counted as behind schedule. A closed loop has no moments, so it has to be under way when the window begins.
    pub fn late_start_max_ns(&self) -> u64 {
        match self.pace {
            Pace::Closed => self.warm_up_ns,
            Pace::Rate(..) | Pace::Course(_) | Pace::Trace(_) => self.warm_up_ns.saturating_add(self.measured_ns),
        }
    }
}

#[derive(Clone)]
pub struct Outcomes {
    pub loading: Measurement,
    pub measuring: Option<Measurement>,
    pub connections: ConnectionCounts,
    /// How long the window really was.
    pub measured_ns: u64,
    /// When it began.
    pub began: SystemTime,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self {
            loading: Measurement::default(),
            measuring: None,
            connections: ConnectionCounts::default(),
            measured_ns: 0,
            began: SystemTime::UNIX_EPOCH,
        }
    }
}

/// A second of all workers together.
pub struct Second {
    pub number: u64,
    pub latency: hdrhistogram::Histogram<u64>,
    pub tally: crate::recorder::Tally,
    pub backlog: u64,
}

impl Second {
    pub fn new(number: u64) -> Self {
        Self { number, latency: crate::recorder::new_histogram(), tally: crate::recorder::Tally::default(), backlog: 0 }
    }

    pub fn add(&mut self, interval: &Interval) {
        // Equal bounds: adding cannot fail.
        self.latency.add(&interval.latency).expect("equal bounds");
        self.tally.add(&interval.tally);
        self.backlog += interval.backlog;
    }
}

impl Outcomes {
    /// The latencies that count: the measuring client's if there is one.
    pub fn counted(&self) -> &Measurement {
        self.measuring.as_ref().unwrap_or(&self.loading)
    }

    /// Good answers a second within the window, all workers together.
    pub fn achieved_rate(&self) -> f64 {
        self.rate(|measurement| measurement.answered_in_window)
    }

    /// Requests a second that were meant for the window. Random arrivals scatter around what was asked.
    pub fn intended_rate(&self) -> f64 {
        self.rate(|measurement| measurement.intended)
    }

    fn rate(&self, count: impl Fn(&Measurement) -> u64) -> f64 {
        let sum = count(&self.loading) + self.measuring.as_ref().map_or(0, count);
        sum as f64 * SECOND_NS as f64 / self.measured_ns.max(1) as f64
    }

    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.measured_ns)
    }
}
