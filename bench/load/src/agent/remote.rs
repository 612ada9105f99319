// SPDX-License-Identifier: BSL-1.0
//! The master's connection to an agent.

use super::lines::{self, Lines};
use super::{interval, Answer, Order, PaceOrder, SILENCE_MAX, VERSION};
use crate::reach;
use crate::recorder::{Interval, Measurement};
use crate::worker::{Clock, ConnectionCounts, Environment};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CLOCK_READINGS: usize = 8;
/// After an order to stop, an agent MUST answer within this time, even if it sends keep-alives.
const STOP_TIME_OUT: Duration = Duration::from_secs(60);

/// An agent's clocks relative to ours, from the reading with the shortest round trip.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct AgentClock {
    pub rtt_ns: u64,
    /// The agent's wall clock minus ours. The error is at most half the round trip.
    pub wall_offset_ns: i64,
    /// The agent's `Clock` minus ours. `Clock` (worker.rs) is the clock for the times of a run.
    #[serde(skip)]
    run_offset_ns: i64,
}

pub struct Remote {
    pub name: String,
    pub clock: AgentClock,
    lines: Lines,
    arguments: Vec<String>,
    share: (u64, u64),
    stop: Arc<AtomicBool>,
    stop_sent_at: Option<Instant>,
}

/// The result of a run on an agent.
pub struct RemoteEnd {
    pub measurement: Measurement,
    pub counts: ConnectionCounts,
    pub measured_ns: u64,
}

impl Remote {
    /// Connects to an agent and reads its clocks. `arguments`: the arguments of the load. `share`: the agent's index among the programs
    /// that generate load, and the number of these programs. The errors of this type's functions are lines that name the agent and the
    /// failure.
    pub fn attach(name: &str, arguments: Vec<String>, share: (u64, u64), environment: &Environment) -> Result<Self, String> {
        let named = |why: String| format!("agent {name}: {why}");
        let lines = reach::connect(name, SILENCE_MAX).and_then(|stream| Lines::new(stream, SILENCE_MAX)).map_err(named)?;
        let clock = AgentClock { rtt_ns: u64::MAX, wall_offset_ns: 0, run_offset_ns: 0 };
        let mut remote = Self { name: name.into(), clock, lines, arguments, share, stop: environment.stop.clone(), stop_sent_at: None };
        match remote.ask(&Order::Hello { version: VERSION })? {
            Answer::Hello { version: VERSION } => {}
            Answer::Hello { version } => return Err(remote.error(&format!("speaks version {version}, not {VERSION}"))),
            _ => return Err(remote.error("answered something else than was asked")),
        }
        for _ in 0..CLOCK_READINGS {
            remote.read_clock(&environment.clock)?;
        }
        Ok(remote)
    }

    fn read_clock(&mut self, clock: &Clock) -> Result<(), String> {
        let (asked_ns, wall) = (clock.now_ns(), SystemTime::now());
        let Answer::Clock { now_ns, unix_ns } = self.ask(&Order::Clock {})? else {
            return Err(self.error("answered something else than was asked"));
        };
        let rtt_ns = clock.now_ns() - asked_ns;
        if rtt_ns < self.clock.rtt_ns {
            let wall_ns = wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64 + rtt_ns / 2;
            let offset = |theirs: u64, ours: u64| theirs.wrapping_sub(ours) as i64;
            self.clock =
                AgentClock { rtt_ns, wall_offset_ns: offset(unix_ns, wall_ns), run_offset_ns: offset(now_ns, asked_ns + rtt_ns / 2) };
        }
        Ok(())
    }

    fn error(&self, why: &str) -> String {
        format!("agent {}: {why}", self.name)
    }

    fn ask(&mut self, order: &Order) -> Result<Answer, String> {
        self.ask_until(order, &|| false)
    }

    fn ask_until(&mut self, order: &Order, is_late: &dyn Fn() -> bool) -> Result<Answer, String> {
        self.lines.send(order).map_err(|why| self.error(&why))?;
        self.answer(is_late)
    }

    /// Returns the next answer that is not a keep-alive. Ctrl-C during the wait is forwarded as an order to stop, so that the agent ends
    /// its current order and answers. If an agent sends only keep-alives, the wait ends with an error when `is_late` returns true, or
    /// STOP_TIME_OUT after the order to stop.
    fn answer(&mut self, is_late: &dyn Fn() -> bool) -> Result<Answer, String> {
        loop {
            let (stop, stop_sent_at) = (&self.stop, &mut self.stop_sent_at);
            let answer = self.lines.next(Instant::now() + SILENCE_MAX, |stream| {
                if stop.load(Ordering::Relaxed) && stop_sent_at.is_none() {
                    *stop_sent_at = Some(Instant::now());
                    lines::send(stream, &Order::Stop {})?;
                }
                Ok(())
            });
            match answer.map_err(|why| self.error(&why))? {
                Answer::Alive {} if is_late() => return Err(self.error("does not end its run")),
                Answer::Alive {} if self.stop_sent_at.is_some_and(|at| at.elapsed() > STOP_TIME_OUT) => {
                    return Err(self.error("does not stop"))
                }
                Answer::Alive {} => {}
                Answer::Refused { why } => return Err(self.error(&why)),
                answer => return Ok(answer),
            }
        }
    }

    /// Orders the agent to open its connections. Returns the numbers of open and of requested connections.
    pub fn connect(&mut self) -> Result<(usize, usize), String> {
        let order = Order::Load { arguments: self.arguments.clone(), share: self.share.0, shares: self.share.1 };
        match self.ask(&order)? {
            Answer::Connected { open, asked } => Ok((open, asked)),
            _ => Err(self.error("answered something else than was asked")),
        }
    }

    /// Orders the agent to store its share of the keys. Returns the number of stored keys.
    pub fn preload(&mut self) -> Result<u64, String> {
        match self.ask(&Order::Preload {})? {
            Answer::Stored { keys } => Ok(keys),
            _ => Err(self.error("answered something else than was asked")),
        }
    }

    /// Orders the agent to perform one run, which starts at `start_ns` on our clock. A run that has not ended at `late_ns` is an error.
    pub fn run(
        &mut self,
        pace: &PaceOrder,
        (start_ns, late_ns): (u64, u64),
        clock: &Clock,
        mut report: impl FnMut(Interval),
    ) -> Result<RemoteEnd, String> {
        let start_ns = start_ns.wrapping_add_signed(self.clock.run_offset_ns);
        let is_late = || clock.now_ns() > late_ns;
        let mut answer = self.ask_until(&Order::Run { pace: pace.clone(), start_ns }, &is_late)?;
        loop {
            match answer {
                Answer::Second { second, latency, tally, backlog } => {
                    report(interval(second, &latency, *tally, backlog).map_err(|why| self.error(&why))?);
                }
                Answer::End { measurement, connections, measured_ns } => {
                    let measurement = measurement.measurement().map_err(|why| self.error(&why))?;
                    return Ok(RemoteEnd { measurement, counts: connections, measured_ns });
                }
                _ => return Err(self.error("answered something else than was asked")),
            }
            if is_late() {
                return Err(self.error("does not end its run"));
            }
            answer = self.answer(&is_late)?;
        }
    }
}
