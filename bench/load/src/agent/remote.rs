// SPDX-License-Identifier: BSL-1.0
//! The master's side of an agent.

use super::lines::{self, Lines};
use super::{interval, Answer, Order, PaceOrder, SILENCE, VERSION};
use crate::reach;
use crate::recorder::{Interval, Measurement};
use crate::worker::{Clock, ConnectionCounts, Surroundings};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CLOCK_READINGS: usize = 8;
/// From the order to stop to the end of what the agent is doing. It says that it is alive meanwhile, but not for ever.
const STOP: Duration = Duration::from_secs(60);

/// An agent's clocks beside ours: the reading with the shortest way there and back.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct AgentClock {
    pub rtt_ns: u64,
    /// Its wall clock less ours; wrong by half the way there and back at most.
    pub wall_offset_ns: i64,
    /// Its clock of runs less ours.
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
    told_to_stop: Option<Instant>,
}

/// What an agent gives at a run's end.
pub struct RemoteEnd {
    pub measurement: Measurement,
    pub counts: ConnectionCounts,
    pub measured_ns: u64,
}

impl Remote {
    /// Finds an agent and reads its clocks. `arguments`: the load's; `share`: its place among those that load, and their number.
    /// Err, here and below: a line that names the agent and says what failed.
    pub fn hire(name: &str, arguments: Vec<String>, share: (u64, u64), around: &Surroundings) -> Result<Self, String> {
        let named = |why: String| format!("agent {name}: {why}");
        let lines = reach::connect(name, SILENCE).and_then(|stream| Lines::new(stream, SILENCE)).map_err(named)?;
        let clock = AgentClock { rtt_ns: u64::MAX, wall_offset_ns: 0, run_offset_ns: 0 };
        let mut remote = Self { name: name.into(), clock, lines, arguments, share, stop: around.stop.clone(), told_to_stop: None };
        match remote.ask(&Order::Hello { version: VERSION })? {
            Answer::Hello { version: VERSION } => {}
            Answer::Hello { version } => return Err(remote.wrong(&format!("speaks version {version}, not {VERSION}"))),
            _ => return Err(remote.wrong("answered something else than was asked")),
        }
        for _ in 0..CLOCK_READINGS {
            remote.read_clock(&around.clock)?;
        }
        Ok(remote)
    }

    fn read_clock(&mut self, clock: &Clock) -> Result<(), String> {
        let (asked_ns, wall) = (clock.now_ns(), SystemTime::now());
        let Answer::Clock { now_ns, unix_ns } = self.ask(&Order::Clock {})? else {
            return Err(self.wrong("answered something else than was asked"));
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

    fn wrong(&self, why: &str) -> String {
        format!("agent {}: {why}", self.name)
    }

    fn ask(&mut self, order: &Order) -> Result<Answer, String> {
        self.ask_until(order, &|| false)
    }

    fn ask_until(&mut self, order: &Order, is_late: &dyn Fn() -> bool) -> Result<Answer, String> {
        self.lines.send(order).map_err(|why| self.wrong(&why))?;
        self.answer(is_late)
    }

    /// The next word that says something. Ctrl-C meanwhile is handed on: the agent comes to its end and answers. An agent that only says
    /// that it is alive is given up when `is_late`, or STOP after it was told to stop.
    fn answer(&mut self, is_late: &dyn Fn() -> bool) -> Result<Answer, String> {
        loop {
            let (stop, told) = (&self.stop, &mut self.told_to_stop);
            let answer = self.lines.next(Instant::now() + SILENCE, |stream| {
                if stop.load(Ordering::Relaxed) && told.is_none() {
                    *told = Some(Instant::now());
                    lines::send(stream, &Order::Stop {})?;
                }
                Ok(())
            });
            match answer.map_err(|why| self.wrong(&why))? {
                Answer::Alive {} if is_late() => return Err(self.wrong("does not end its run")),
                Answer::Alive {} if self.told_to_stop.is_some_and(|told| told.elapsed() > STOP) => return Err(self.wrong("does not stop")),
                Answer::Alive {} => {}
                Answer::Refused { why } => return Err(self.wrong(&why)),
                answer => return Ok(answer),
            }
        }
    }

    /// Has it open its connections; how many are open and how many should be.
    pub fn connect(&mut self) -> Result<(usize, usize), String> {
        let order = Order::Load { arguments: self.arguments.clone(), share: self.share.0, shares: self.share.1 };
        match self.ask(&order)? {
            Answer::Connected { open, asked } => Ok((open, asked)),
            _ => Err(self.wrong("answered something else than was asked")),
        }
    }

    /// Has it store its share of the keys; gives how many.
    pub fn preload(&mut self) -> Result<u64, String> {
        match self.ask(&Order::Preload {})? {
            Answer::Stored { keys } => Ok(keys),
            _ => Err(self.wrong("answered something else than was asked")),
        }
    }

    /// One run from a moment of our clock on, which must have come to its end at another.
    pub fn run(
        &mut self,
        pace: &PaceOrder,
        (start_ns, late_ns): (u64, u64),
        clock: &Clock,
        mut tell: impl FnMut(Interval),
    ) -> Result<RemoteEnd, String> {
        let start_ns = start_ns.wrapping_add_signed(self.clock.run_offset_ns);
        let is_late = || clock.now_ns() > late_ns;
        let mut answer = self.ask_until(&Order::Run { pace: pace.clone(), start_ns }, &is_late)?;
        loop {
            match answer {
                Answer::Second { second, latency, tally, backlog } => {
                    tell(interval(second, &latency, *tally, backlog).map_err(|why| self.wrong(&why))?);
                }
                Answer::End { measurement, connections, measured_ns } => {
                    let measurement = measurement.measurement().map_err(|why| self.wrong(&why))?;
                    return Ok(RemoteEnd { measurement, counts: connections, measured_ns });
                }
                _ => return Err(self.wrong("answered something else than was asked")),
            }
            if is_late() {
                return Err(self.wrong("does not end its run"));
            }
            answer = self.answer(&is_late)?;
        }
    }
}
