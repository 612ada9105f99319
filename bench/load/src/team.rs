// SPDX-License-Identifier: BSL-1.0
//! Who carries a run out: threads of this program, and agents on other machines.
//!
//! Workers are threads that live as long as the program and keep their connections from one run to the next, so a scan over rates does not
//! measure connecting. One of them may be the measuring client: few connections at a low rate of their own, whose latency is not made by
//! waiting behind this program's own load. Agents stand beside the threads: they are told the same, and their books are added to ours.

use crate::agent::{PaceOrder, Remote, RemoteEnd};
use crate::arrivals::{Arrivals, Process};
use crate::connection::{Manner, Transport};
use crate::demand::{Demand, Open};
use crate::distributions::Rng;
use crate::recorder::{Interval, Measurement};
use crate::run::{Load, Outcomes, Pace, Run, Second};
use crate::worker::{ConnectionCounts, Plan, Surroundings, Worker};
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
    /// What was measured, by our clock.
    window: Range<u64>,
}

struct Handle {
    jobs: Sender<Job>,
    thread: Option<JoinHandle<()>>,
}

pub struct Team {
    load: Load,
    around: Surroundings,
    workers: Vec<Handle>,
    agents: Vec<Remote>,
    sizes: Arc<Sizes>,
    /// Each run draws other numbers.
    runs: u64,
}

/// Until the first request, so that all workers are there in time.
const START_NS: u64 = 20_000_000;
/// The same for agents, beside the way there.
const AGENTS_START_NS: u64 = 300_000_000;
/// An agent that has not ended by so much after all others should have is broken.
const LATE_NS: u64 = 5_000_000_000;
const PRELOAD_DEPTH: usize = 32;
/// The measuring client's place among the streams of random numbers: no loading worker has it.
const MEASURING_STREAM: u64 = 100_002;

impl Drop for Team {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // A worker without a sender of jobs ends.
            worker.jobs = channel().0;
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Team {
    /// Err: a line that says what this machine does not give.
    pub fn new(load: Load, around: Surroundings, agents: Vec<Remote>) -> Result<Self, String> {
        let threads = load.threads.min(load.connections);
        let sizes = Arc::new(Sizes::new(&load.mix));
        let mut team = Self { around, workers: Vec::new(), agents, sizes, runs: 0, load: Load { threads, ..load } };
        for thread in 0..threads {
            // What does not divide goes to the first ones.
            let connections = team.load.connections / threads + usize::from(thread < team.load.connections % threads);
            team.hire(team.load.manner, connections)?;
        }
        if let Some(measuring) = team.load.measuring {
            team.hire(Manner { depth: measuring.depth, ..team.load.manner }, measuring.connections)?;
        }
        Ok(team)
    }

    fn hire(&mut self, manner: Manner, connections: usize) -> Result<(), String> {
        let mut worker = Worker::new(manner, self.around.clone(), connections)?;
        let number = self.workers.len();
        let (jobs, inbox) = channel();
        let thread = std::thread::Builder::new().name(format!("load-{number}")).spawn(move || {
            for job in inbox {
                match job {
                    // Who asked may have gone: then nobody wants to know.
                    Job::Connect(reply) => drop(reply.send(worker.connect())),
                    Job::Run(plan, events) => {
                        let book = worker.run(*plan, |interval| drop(events.send((number, Event::Second(Box::new(interval))))));
                        let end = End { window: book.window(), measurement: book.measurement, counts: worker.counts.clone() };
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

    /// Opens all connections; gives how many are open and how many should be. Err: a worker has none at all.
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
        let theirs = each(&mut self.agents, Remote::connect)?;
        let mut open = theirs.iter().map(|(open, _)| open).sum::<usize>();
        for reply in replies {
            open += reply.recv().map_err(|_| "a worker ended")??;
        }
        let measuring = self.load.measuring.map_or(0, |measuring| measuring.connections);
        Ok((open, self.load.connections + measuring + theirs.iter().map(|(_, asked)| asked).sum::<usize>()))
    }

    /// Stores each key once, each member its share. Err: a line that says how many could not be stored.
    pub fn preload(&mut self) -> Result<u64, String> {
        let Self { load, around, agents, .. } = self;
        let (load, around) = (&*load, &*around);
        std::thread::scope(|scope| {
            let ours: Vec<_> = (0..load.threads).map(|thread| scope.spawn(move || preload_share(load, around, thread))).collect();
            let theirs = each(agents, Remote::preload)?.into_iter().sum::<u64>();
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

    /// When a run can begin that is asked for now, by our clock.
    pub fn next_start_ns(&self) -> u64 {
        let way_ns = self.agents.iter().map(|agent| agent.clock.rtt_ns).max().map_or(0, |rtt_ns| AGENTS_START_NS + 2 * rtt_ns);
        self.around.clock.now_ns() + START_NS + way_ns
    }

    /// One run; tells of each second when all have closed it. `order`: the same for the agents. Err: an agent is gone; the run is over
    /// then.
    pub fn run(&mut self, run: &Run, order: &PaceOrder, start_ns: u64, mut tell: impl FnMut(&Second)) -> Result<Outcomes, String> {
        let window_start_ns = start_ns + run.warm_up_ns;
        let end_ns = window_start_ns.saturating_add(run.measured_ns);
        let until_window = Duration::from_nanos(window_start_ns.saturating_sub(self.around.clock.now_ns()));
        let began = SystemTime::now() + until_window;
        let (events, inbox) = channel();
        for number in 0..self.workers.len() {
            let plan = Plan { start_ns, window: window_start_ns..end_ns, end_ns, demand: self.demand(run, number)?, strict: false };
            let _ = self.workers[number].jobs.send(Job::Run(Box::new(plan), events.clone()));
        }
        self.runs += 1;
        let Self { workers, agents, around, load, .. } = self;
        let gathering = Gathering { workers: workers.len(), measuring: load.measuring.is_some(), members: workers.len() + agents.len() };
        let outcomes = std::thread::scope(|scope| {
            for (index, agent) in agents.iter_mut().enumerate() {
                let (events, clock, number) = (events.clone(), around.clock, gathering.workers + index);
                let late_ns = end_ns.saturating_add(2 * around.time_out_ns).saturating_add(LATE_NS);
                scope.spawn(move || {
                    let tell = |interval| drop(events.send((number, Event::Second(Box::new(interval)))));
                    let end = agent.run(order, (start_ns, late_ns), &clock, tell);
                    let event = end.map_or_else(Event::Failed, |RemoteEnd { measurement, counts, measured_ns }| {
                        let window = window_start_ns..window_start_ns.saturating_add(measured_ns);
                        Event::End(Box::new(End { measurement, counts, window }))
                    });
                    let _ = events.send((number, event));
                });
            }
            drop(events);
            let outcomes = gathering.gather(&inbox, &mut tell);
            if outcomes.is_err() {
                // What has failed ends the run for all.
                around.stop.store(true, Ordering::Relaxed);
            }
            outcomes
        })?;
        Ok(Outcomes { began, ..outcomes })
    }

    fn demand(&self, run: &Run, worker: usize) -> Result<Demand, String> {
        let (share, shares) = self.load.share;
        let threads = self.load.threads;
        let measuring = self.load.measuring.filter(|_| worker == threads);
        // Streams of their own for each program, run and worker, two each: SplitMix64 inside makes unrelated states of neighbouring seeds.
        let place = if measuring.is_some() { MEASURING_STREAM } else { worker as u64 };
        let stream = ((share * 1_000_003 + self.runs) * 100_003 + place) * 2;
        let seed = self.load.seed.wrapping_add(stream.wrapping_mul(0x9E37_79B9_7F4A_7C15));
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

/// Asks all agents at the same time.
fn each<T: Send>(agents: &mut [Remote], ask: impl Fn(&mut Remote) -> Result<T, String> + Sync) -> Result<Vec<T>, String> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = agents.iter_mut().map(|agent| scope.spawn(|| ask(agent))).collect();
        asked.into_iter().map(|thread| thread.join().map_err(|_| "a thread ended".to_string())?).collect()
    })
}

fn preload_share(load: &Load, around: &Surroundings, thread: usize) -> Result<Measurement, String> {
    // Datagrams are too short for larger values and get lost: what is stored beforehand goes by TCP.
    let manner = Manner { transport: Transport::Tcp, depth: PRELOAD_DEPTH, ..load.manner };
    let mut worker = Worker::new(manner, around.clone(), 1)?;
    worker.connect()?;
    let (share, shares) = load.share;
    let threads = load.threads as u64;
    let mut requests = load.mix.clone().preload(share * threads + thread as u64, shares * threads);
    let demand = Demand::Closed(Box::new(move || requests.next()));
    let start_ns = around.clock.now_ns();
    Ok(worker.run(Plan { start_ns, window: start_ns..u64::MAX, end_ns: u64::MAX, demand, strict: true }, |_| {}).measurement)
}

/// What comes from the members of a run, in the order in which they happen to be heard.
struct Gathering {
    workers: usize,
    /// The last worker measures.
    measuring: bool,
    /// Workers, then agents.
    members: usize,
}

impl Gathering {
    fn gather(&self, inbox: &Receiver<(usize, Event)>, tell: &mut impl FnMut(&Second)) -> Result<Outcomes, String> {
        let mut outcomes = Outcomes::default();
        // Seconds that not all members have closed yet, the oldest first, and how many each has closed.
        let mut seconds: VecDeque<Second> = VecDeque::new();
        let mut closed = vec![0; self.members];
        let mut told = 0;
        for (number, event) in inbox {
            match event {
                Event::Second(interval) if interval.second == closed[number] => {
                    let at = (interval.second - told) as usize;
                    while seconds.len() <= at {
                        seconds.push_back(Second::new(told + seconds.len() as u64));
                    }
                    seconds[at].add(&interval);
                    closed[number] += 1;
                }
                Event::Second(_) => return Err("a second came out of its turn".into()),
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
            while !seconds.is_empty() && closed.iter().all(|&closed| closed > told) {
                seconds.pop_front().iter().for_each(&mut *tell);
                told += 1;
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

    fn gathered(events: Vec<(usize, Event)>) -> (Result<Outcomes, String>, Vec<u64>) {
        let (sender, inbox) = channel();
        events.into_iter().for_each(|event| sender.send(event).unwrap());
        drop(sender);
        let mut told = Vec::new();
        let gathering = Gathering { workers: 2, measuring: true, members: 2 };
        (gathering.gather(&inbox, &mut |second| told.push(second.number)), told)
    }

    // One that has ended must not stand for another one that has not closed its second yet.
    #[test]
    fn a_second_is_told_once_all_have_closed_it_or_ended() {
        let events = vec![(0, second(0)), (0, second(1)), (0, end()), (1, second(0)), (1, second(1)), (1, second(2)), (1, end())];
        let (outcomes, told) = gathered(events);
        assert_eq!(told, [0, 1, 2]);
        let outcomes = outcomes.unwrap();
        assert_eq!(outcomes.measured_ns, 7);
        assert!(outcomes.measuring.is_some());
    }

    #[test]
    fn a_member_that_fails_or_vanishes_ends_the_run() {
        assert_eq!(gathered(vec![(0, end()), (1, Event::Failed("gone".into()))]).0.err(), Some("gone".into()));
        assert!(gathered(vec![(0, end())]).0.is_err());
        assert!(gathered(vec![(0, second(5))]).0.is_err());
    }
}
