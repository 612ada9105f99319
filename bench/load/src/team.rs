// SPDX-License-Identifier: BSL-1.0
//! The members of a run: threads of this program, and agents on other machines.
//!
//! Workers are threads that run until the program ends. They keep their connections between runs, so a scan over rates does not measure the
//! setup of connections. One worker may be the measuring client. It has few connections and a low rate, so its requests do not queue behind
//! this program's own load. Agents perform the same runs as the threads, and the agents' measurements are added.

use crate::agent::{PaceOrder, Remote, RemoteEnd};
use crate::arrivals::{Arrivals, Process};
use crate::connection::{ConnectionSettings, Transport};
use crate::demand::{stream_seed, Demand, Open};
use crate::distributions::Rng;
use crate::recorder::{Interval, Measurement};
use crate::run::{Load, Outcomes, Pace, Run, Second};
use crate::worker::{ConnectionCounts, Environment, Plan, Worker};
use crate::workload::{Requests, Sizes};
use rand::SeedableRng as _;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

enum Job {
    Connect(Sender<Result<usize, String>>),
    Run(Box<Plan>, Sender<(usize, Event)>),
}

enum Event {
    Second(Box<Interval>),
    End(Box<End>),
    Failed(String),
}

struct End {
    measurement: Measurement,
    counts: ConnectionCounts,
    /// The measured window, in the time of our clock.
    window: Range<u64>,
}

struct Handle {
    jobs: Sender<Job>,
    thread: Option<JoinHandle<()>>,
}

pub struct Team {
    load: Load,
    environment: Environment,
    workers: Vec<Handle>,
    agents: Vec<Remote>,
    sizes: Arc<Sizes>,
    /// The number of runs so far. The random seed depends on it, so each run draws different numbers.
    runs: u64,
}

/// Delay before the first request, so that all workers are ready in time.
const START_DELAY_NS: u64 = 20_000_000;
/// With agents, the delay is longer by this time and by two round trips.
const AGENTS_START_DELAY_NS: u64 = 300_000_000;
/// An agent is considered broken if it ends its run later than this after the last possible time-out.
const END_DELAY_NS_MAX: u64 = 5_000_000_000;
const PRELOAD_DEPTH: usize = 32;
/// The measuring client's index among the random streams. No loading worker has this index.
const MEASURING_STREAM: u64 = 100_002;

impl Drop for Team {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // The assignment closes the worker's job channel, which ends the worker.
            worker.jobs = channel().0;
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Team {
    /// An error is a line that says which resource of this machine is missing.
    pub fn new(load: Load, environment: Environment, agents: Vec<Remote>) -> Result<Self, String> {
        let threads = load.threads.min(load.connections);
        let sizes = Arc::new(Sizes::new(&load.mix));
        let mut team = Self { environment, workers: Vec::new(), agents, sizes, runs: 0, load: Load { threads, ..load } };
        for thread in 0..threads {
            // The division's remainder is spread over the first threads.
            let connections = team.load.connections / threads + usize::from(thread < team.load.connections % threads);
            team.start_worker(team.load.settings.clone(), connections)?;
        }
        if let Some(measuring) = team.load.measuring {
            team.start_worker(ConnectionSettings { depth: measuring.depth, ..team.load.settings.clone() }, measuring.connections)?;
        }
        Ok(team)
    }

    fn start_worker(&mut self, settings: ConnectionSettings, connections: usize) -> Result<(), String> {
        let mut worker = Worker::new(settings, self.environment.clone(), connections)?;
        let number = self.workers.len();
        let (jobs, inbox) = channel();
        let thread = std::thread::Builder::new().name(format!("load-{number}")).spawn(move || {
            for job in inbox {
                match job {
                    // If the receiver is gone, the reply is not needed.
                    Job::Connect(reply) => drop(reply.send(worker.connect())),
                    Job::Run(plan, events) => {
                        let recorder = worker.run(*plan, |interval| drop(events.send((number, Event::Second(Box::new(interval))))));
                        let end = End { window: recorder.window(), measurement: recorder.measurement, counts: worker.counts.clone() };
                        let _ = events.send((number, Event::End(Box::new(end))));
                    }
                }
            }
        });
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        self.workers.push(Handle { jobs, thread: Some(thread) });
        Ok(())
    }

    pub fn agents(&self) -> &[Remote] {
        &self.agents
    }

    /// Opens all connections. Returns the numbers of open and of requested connections. Fails if a worker could open none.
    pub fn connect(&mut self) -> Result<(usize, usize), String> {
        let replies: Vec<Receiver<_>> = self
            .workers
            .iter()
            .map(|worker| {
                let (reply, answer) = channel();
                let _ = worker.jobs.send(Job::Connect(reply));
                answer
            })
            .collect();
        let theirs = ask_all(&mut self.agents, Remote::connect)?;
        let mut open = theirs.iter().map(|(open, _)| open).sum::<usize>();
        for reply in replies {
            open += reply.recv().map_err(|_| "a worker ended")??;
        }
        let measuring = self.load.measuring.map_or(0, |measuring| measuring.connections);
        Ok((open, self.load.connections + measuring + theirs.iter().map(|(_, asked)| asked).sum::<usize>()))
    }

    /// Stores each key once; each member stores its share. An error is a line that says how many keys were stored.
    pub fn preload(&mut self) -> Result<u64, String> {
        let Self { load, environment, agents, .. } = self;
        let (load, environment) = (&*load, &*environment);
        std::thread::scope(|scope| {
            let ours: Vec<_> = (0..load.threads).map(|thread| scope.spawn(move || preload_share(load, environment, thread))).collect();
            let theirs = ask_all(agents, Remote::preload)?.into_iter().sum::<u64>();
            let mut sum = Measurement::default();
            for thread in ours {
                sum.add(&thread.join().map_err(|_| "a preloading thread ended")??);
            }
            let stored = sum.tally.of(crate::protocol::Outcome::Done);
            if sum.tally.errors() != 0 {
                return Err(format!("storing keys beforehand failed after {stored}: {}", crate::report::errors(&sum.tally)));
            }
            Ok(stored + theirs)
        })
    }

    /// Returns the earliest start, in the time of our clock, of a run that is requested now.
    pub fn next_start_ns(&self) -> u64 {
        let round_trip_ns = self.agents.iter().map(|agent| agent.clock.rtt_ns).max().map_or(0, |rtt_ns| AGENTS_START_DELAY_NS + 2 * rtt_ns);
        self.environment.clock.now_ns() + START_DELAY_NS + round_trip_ns
    }

    /// Performs one run. Reports each second when all members have sent that second's figures. `order`: the pace for the agents. If an
    /// agent fails, the run ends and this function fails.
    pub fn run(&mut self, run: &Run, order: &PaceOrder, start_ns: u64, mut report: impl FnMut(&Second)) -> Result<Outcomes, String> {
        let window_start_ns = start_ns + run.warm_up_ns;
        let end_ns = window_start_ns.saturating_add(run.measured_ns);
        let until_window = Duration::from_nanos(window_start_ns.saturating_sub(self.environment.clock.now_ns()));
        let began = SystemTime::now() + until_window;
        let (events, inbox) = channel();
        for number in 0..self.workers.len() {
            let (window, requests_max) = (window_start_ns..end_ns, self.requests_max(run, number));
            let plan = Plan { start_ns, window, end_ns, requests_max, demand: self.demand(run, number)?, strict: false };
            let _ = self.workers[number].jobs.send(Job::Run(Box::new(plan), events.clone()));
        }
        self.runs += 1;
        let Self { workers, agents, environment, load, .. } = self;
        let collector = Collector { workers: workers.len(), measuring: load.measuring.is_some(), members: workers.len() + agents.len() };
        let outcomes = std::thread::scope(|scope| {
            for (index, agent) in agents.iter_mut().enumerate() {
                let (events, clock, number) = (events.clone(), environment.clock, collector.workers + index);
                let late_ns = end_ns.saturating_add(2 * environment.time_out_ns).saturating_add(END_DELAY_NS_MAX);
                scope.spawn(move || {
                    let report = |interval| drop(events.send((number, Event::Second(Box::new(interval)))));
                    let end = agent.run(order, (start_ns, late_ns), &clock, report);
                    let event = end.map_or_else(Event::Failed, |RemoteEnd { measurement, counts, measured_ns }| {
                        let window = window_start_ns..window_start_ns.saturating_add(measured_ns);
                        Event::End(Box::new(End { measurement, counts, window }))
                    });
                    let _ = events.send((number, event));
                });
            }
            drop(events);
            let outcomes = collector.collect(&inbox, &mut report);
            if outcomes.is_err() {
                // A failure of one member ends the run for all members.
                environment.stop.store(true, Ordering::Relaxed);
            }
            outcomes
        })?;
        Ok(Outcomes { began, ..outcomes })
    }

    /// The worker's part of the requests of the window.
    fn requests_max(&self, run: &Run, worker: usize) -> u64 {
        let Some(all) = run.requests else { return u64::MAX };
        let (share, shares) = self.load.share;
        let (place, places) = (share * self.load.threads as u64 + worker as u64, shares * self.load.threads as u64);
        all / places + u64::from(place < all % places)
    }

    fn demand(&self, run: &Run, worker: usize) -> Result<Demand, String> {
        let (share, shares) = self.load.share;
        let threads = self.load.threads;
        let measuring = self.load.measuring.filter(|_| worker == threads);
        let place = if measuring.is_some() { MEASURING_STREAM } else { worker as u64 };
        let seed = stream_seed(self.load.seed, share, self.runs, place);
        let mut requests = Requests::new(self.load.mix.clone(), self.sizes.clone(), Rng::seed_from_u64(seed))?;
        let rng = Rng::seed_from_u64(seed.wrapping_add(1));
        if let Some(measuring) = measuring {
            return Ok(Demand::Open(Box::new(Open::process(Arrivals::new(&Process::Exponential, measuring.rate, rng), requests))));
        }
        let parts = (threads as u64 * shares) as f64;
        Ok(match &run.pace {
            Pace::Rate(process, rate) => Demand::Open(Box::new(Open::process(Arrivals::new(process, rate / parts, rng), requests))),
            Pace::Course(course) => Demand::Open(Box::new(Open::process(Arrivals::over(course.clone(), 1.0 / parts, rng), requests))),
            Pace::Trace(lines) => {
                let (place, places) = (share as usize * threads + worker, shares as usize * threads);
                Demand::Open(Box::new(Open::trace(lines.clone(), requests, place, places)))
            }
            Pace::Closed => Demand::Closed(Box::new(move || Some(requests.next_request()))),
        })
    }
}

/// Calls `ask` for all agents at the same time.
fn ask_all<T: Send>(agents: &mut [Remote], ask: impl Fn(&mut Remote) -> Result<T, String> + Sync) -> Result<Vec<T>, String> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = agents.iter_mut().map(|agent| scope.spawn(|| ask(agent))).collect();
        asked.into_iter().map(|thread| thread.join().map_err(|_| "a thread ended".to_string())?).collect()
    })
}

fn preload_share(load: &Load, environment: &Environment, thread: usize) -> Result<Measurement, String> {
    // Preloading always uses TCP, because large values do not fit into a datagram, and datagrams get lost.
    let settings = ConnectionSettings { transport: Transport::Tcp, depth: PRELOAD_DEPTH, ..load.settings.clone() };
    let mut worker = Worker::new(settings, environment.clone(), 1)?;
    worker.connect()?;
    let (share, shares) = load.share;
    let threads = load.threads as u64;
    let mut requests = load.mix.clone().preload(share * threads + thread as u64, shares * threads);
    let demand = Demand::Closed(Box::new(move || requests.next()));
    let start_ns = environment.clock.now_ns();
    let plan = Plan { start_ns, window: start_ns..u64::MAX, end_ns: u64::MAX, requests_max: u64::MAX, demand, strict: true };
    Ok(worker.run(plan, |_| {}).measurement)
}

/// Collects the events of a run's members, in order of arrival.
struct Collector {
    workers: usize,
    /// True if the last worker is the measuring client.
    measuring: bool,
    /// Number of workers and agents; workers have the first indices.
    members: usize,
}

impl Collector {
    fn collect(&self, inbox: &Receiver<(usize, Event)>, report: &mut impl FnMut(&Second)) -> Result<Outcomes, String> {
        let mut outcomes = Outcomes::default();
        // `seconds`: the seconds whose figures are incomplete, the oldest first. `closed`: the number of seconds that each member reported.
        let mut seconds: VecDeque<Second> = VecDeque::new();
        let mut closed = vec![0; self.members];
        let mut reported = 0;
        for (number, event) in inbox {
            match event {
                Event::Second(interval) if interval.second == closed[number] => {
                    let at = (interval.second - reported) as usize;
                    while seconds.len() <= at {
                        seconds.push_back(Second::new(reported + seconds.len() as u64));
                    }
                    seconds[at].add(&interval);
                    closed[number] += 1;
                }
                Event::Second(_) => return Err("a second came out of order".into()),
                Event::End(end) => {
                    closed[number] = u64::MAX;
                    outcomes.connections.add(&end.counts);
                    outcomes.measured_ns = outcomes.measured_ns.max(end.window.end.saturating_sub(end.window.start));
                    if self.measuring && number == self.workers - 1 {
                        outcomes.measuring = Some(end.measurement);
                    } else {
                        outcomes.loading.add(&end.measurement);
                    }
                }
                Event::Failed(why) => return Err(why),
            }
            while !seconds.is_empty() && closed.iter().all(|&closed| closed > reported) {
                seconds.pop_front().iter().for_each(&mut *report);
                reported += 1;
            }
        }
        if closed.iter().any(|&closed| closed != u64::MAX) {
            return Err("a worker ended before its run".into());
        }
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    fn second(number: u64) -> Event {
        let mut recorder = Recorder::new(0, 0..1);
        (0..number).for_each(|_| drop(recorder.close_second()));
        Event::Second(Box::new(recorder.close_second()))
    }

    fn end() -> Event {
        Event::End(Box::new(End { measurement: Measurement::default(), counts: ConnectionCounts::default(), window: 0..7 }))
    }

    fn gather_all(events: Vec<(usize, Event)>) -> (Result<Outcomes, String>, Vec<u64>) {
        let (sender, inbox) = channel();
        events.into_iter().for_each(|event| sender.send(event).unwrap());
        drop(sender);
        let mut reported = Vec::new();
        let collector = Collector { workers: 2, measuring: true, members: 2 };
        (collector.collect(&inbox, &mut |second| reported.push(second.number)), reported)
    }

    // A member that has ended must not be mistaken for a member that has not reported its second yet.
    #[test]
    fn a_second_is_reported_when_all_members_have_closed_it_or_ended() {
        let events = vec![(0, second(0)), (0, second(1)), (0, end()), (1, second(0)), (1, second(1)), (1, second(2)), (1, end())];
        let (outcomes, reported) = gather_all(events);
        assert_eq!(reported, [0, 1, 2]);
        let outcomes = outcomes.unwrap();
        assert_eq!(outcomes.measured_ns, 7);
        assert!(outcomes.measuring.is_some());
    }

    #[test]
    fn a_member_that_fails_or_disappears_ends_the_run() {
        assert_eq!(gather_all(vec![(0, end()), (1, Event::Failed("gone".into()))]).0.err(), Some("gone".into()));
        assert!(gather_all(vec![(0, end())]).0.is_err());
        assert!(gather_all(vec![(0, second(5))]).0.is_err());
    }
}
