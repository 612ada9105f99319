// SPDX-License-Identifier: BSL-1.0
//! A run and its outcomes.
//!
//! A run has a warm-up, whose requests are not measured, a measured window, and a drain for replies that are still in flight. team.rs has
//! the threads that perform a run.

use crate::arrivals::{Course, Process};
use crate::connection::ConnectionSettings;
use crate::recorder::{Interval, Measurement, SECOND_NS};
use crate::trace::Line;
use crate::worker::ConnectionCounts;
use crate::workload::Mix;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The pace of the workers (threads) that generate load. The measuring client has its own rate.
#[derive(Clone)]
pub enum Pace {
    /// An arrival process, and the requests a second of all workers together.
    Rate(Process, f64),
    Course(Arc<Course>),
    Trace(Arc<Vec<Line>>),
    /// A closed loop: requests are sent as fast as replies arrive.
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub struct Measuring {
    pub connections: usize,
    /// Requests a second, with exponential gaps.
    pub rate: f64,
    pub depth: usize,
}

/// This program's settings that are the same in all its runs.
#[derive(Clone)]
pub struct Load {
    pub settings: ConnectionSettings,
    pub mix: Mix,
    pub threads: usize,
    /// Number of connections over all threads. With 0 this program generates no load.
    pub connections: usize,
    pub measuring: Option<Measuring>,
    pub seed: u64,
    /// This program's index among the programs that generate load, and the number of these programs. These programs share the rate and the
    /// preloading.
    pub share: (u64, u64),
}

#[derive(Clone)]
pub struct Run {
    pub pace: Pace,
    pub warm_up_ns: u64,
    /// The longest window.
    pub measured_ns: u64,
    /// The window ends after this number of requests.
    pub requests: Option<u64>,
}

impl Run {
    /// Returns the largest delay with which an agent may begin the run. In an open loop the requests due during the delay are sent late and
    /// count as behind schedule. A closed loop has no intended times that would show a delay, so it MUST be running when the window begins.
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
    /// The real length of the window.
    pub measured_ns: u64,
    /// The start of the window.
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

/// The figures of all workers for one second.
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
        self.latency.add(&interval.latency).expect("equal bounds");
        self.tally.add(&interval.tally);
        self.backlog += interval.backlog;
    }
}

impl Outcomes {
    /// Returns the measurement whose latencies are the result: the measuring client's, if there is one, otherwise the loading workers'.
    pub fn counted(&self) -> &Measurement {
        self.measuring.as_ref().unwrap_or(&self.loading)
    }

    /// Returns the number of good answers a second within the window, of all workers together.
    pub fn achieved_rate(&self) -> f64 {
        self.rate(|measurement| measurement.answered_in_window)
    }

    /// Returns the rate of requests with intended times in the window. With random arrivals it differs a little from the requested rate.
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
