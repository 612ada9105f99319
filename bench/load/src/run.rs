// SPDX-License-Identifier: BSL-1.0
//! A run from its first connection to its last reply: connect, preload, warm up, measure, drain.
//!
//! Workers are threads that live as long as the program and keep their connections from one run to the next, so a scan over rates does not
//! measure connecting. One of them may be the measuring client: few connections at a low rate of their own, whose latency is not made by
//! waiting behind this program's own load.

use crate::arrivals::{Arrivals, Course, Process};
use crate::connection::{Manner, Transport};
use crate::demand::{Demand, Open};
use crate::distributions::Rng;
use crate::recorder::{Interval, Measurement, SECOND_NS};
use crate::trace::Line;
use crate::worker::{ConnectionCounts, Plan, Surroundings, Worker};
use crate::workload::{Mix, Request, Requests};
use rand::SeedableRng as _;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

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
    /// Over all threads; at least one a thread.
    pub connections: usize,
    pub measuring: Option<Measuring>,
    pub seed: u64,
    /// This program's place among the agents, and their number: rates and preloading are shared.
    pub share: (u64, u64),
}

/// One run.
#[derive(Clone)]
pub struct Run {
    pub pace: Pace,
    pub warm_up_ns: u64,
    /// u64::MAX: until the pace ends by itself.
    pub measured_ns: u64,
}

#[derive(Clone, Default)]
pub struct Outcomes {
    pub loading: Measurement,
    pub measuring: Option<Measurement>,
    pub connections: ConnectionCounts,
    /// How long the window really was.
    pub measured_ns: u64,
    /// When it began, by the clock of all workers.
    pub window_start_ns: u64,
}

enum Job {
    Connect(Sender<Result<usize, String>>),
    Run(Plan, Sender<(usize, Event)>),
}

enum Event {
    Second(Interval),
    End(Box<Measurement>, ConnectionCounts),
}

struct Handle {
    jobs: Sender<Job>,
    thread: Option<JoinHandle<()>>,
}

pub struct Team {
    load: Load,
    around: Surroundings,
    workers: Vec<Handle>,
    /// Each run draws other numbers.
    runs: u64,
}

/// A second of all workers together.
pub struct Second {
    pub number: u64,
    pub latency: hdrhistogram::Histogram<u64>,
    pub tally: crate::recorder::Tally,
    pub backlog: u64,
}

/// Until the first request, so that all workers are there in time.
const START_NS: u64 = 20_000_000;
const PRELOAD_DEPTH: usize = 32;

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
    pub fn new(load: Load, around: Surroundings) -> Result<Self, String> {
        let threads = load.threads.clamp(1, load.connections.max(1));
        let mut team = Self { around, workers: Vec::new(), runs: 0, load: Load { threads, ..load } };
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
                        let measurement = worker.run(plan, |interval| drop(events.send((number, Event::Second(interval)))));
                        let _ = events.send((number, Event::End(Box::new(measurement), worker.counts.clone())));
                    }
                }
            }
        });
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        self.workers.push(Handle { jobs, thread: Some(thread) });
        Ok(())
    }

    /// Opens all connections; gives how many are open and how many should be. Err: a worker has none at all.
    pub fn connect(&self) -> Result<(usize, usize), String> {
        let replies: Vec<Receiver<_>> = self
            .workers
            .iter()
            .map(|worker| {
                let (reply, answer) = channel();
                let _ = worker.jobs.send(Job::Connect(reply));
                answer
            })
            .collect();
        let mut open = 0;
        for reply in replies {
            open += reply.recv().map_err(|_| "a worker ended")??;
        }
        Ok((open, self.load.connections + self.load.measuring.map_or(0, |measuring| measuring.connections)))
    }

    /// Stores each key once. Err: a line that says how many could not be stored.
    pub fn preload(&self) -> Result<u64, String> {
        let threads = self.load.threads as u64;
        let (share, shares) = self.load.share;
        // Datagrams are too short for larger values and get lost: what is stored beforehand goes by TCP.
        let manner = Manner { transport: Transport::Tcp, depth: PRELOAD_DEPTH, ..self.load.manner };
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let (around, mix) = (self.around.clone(), self.load.mix.clone());
                std::thread::spawn(move || {
                    let mut worker = Worker::new(manner, around.clone(), 1)?;
                    worker.connect()?;
                    let (first, stride) = (share * threads + thread, shares * threads);
                    let mut next = first;
                    let demand = Demand::Closed(Box::new(move || -> Option<Request> {
                        let number = next;
                        next = next.checked_add(stride)?;
                        (number < mix.keys).then(|| mix.request(crate::workload::Operation::Set, number))
                    }));
                    let start_ns = around.clock.now_ns();
                    let plan = Plan { start_ns, window: start_ns..u64::MAX, end_ns: u64::MAX, demand };
                    Ok::<_, String>(worker.run(plan, |_| {}))
                })
            })
            .collect();
        let mut sum = Measurement::default();
        for thread in threads {
            sum.add(&thread.join().map_err(|_| "a preloading thread ended")??);
        }
        let stored = sum.tally.of(crate::protocol::Outcome::Done);
        match sum.intended - stored {
            0 => Ok(stored),
            lacking => {
                Err(format!("{lacking} of {} keys could not be stored beforehand: {}", sum.intended, crate::report::errors(&sum.tally)))
            }
        }
    }

    /// One run; tells of each second when all workers have closed it.
    pub fn run(&mut self, run: &Run, mut tell: impl FnMut(&Second)) -> Result<Outcomes, String> {
        let start_ns = self.around.clock.now_ns() + START_NS;
        let window_start_ns = start_ns + run.warm_up_ns;
        let end_ns = window_start_ns.saturating_add(run.measured_ns);
        let (events, inbox) = channel();
        for number in 0..self.workers.len() {
            let demand = self.demand(run, number)?;
            let plan = Plan { start_ns, window: window_start_ns..end_ns, end_ns, demand };
            let _ = self.workers[number].jobs.send(Job::Run(plan, events.clone()));
        }
        drop(events);
        self.runs += 1;
        let outcomes = self.gather(&inbox, &mut tell)?;
        let ended_ns = end_ns.min(self.around.clock.now_ns());
        Ok(Outcomes { measured_ns: ended_ns.saturating_sub(window_start_ns), window_start_ns, ..outcomes })
    }

    fn gather(&self, inbox: &Receiver<(usize, Event)>, tell: &mut impl FnMut(&Second)) -> Result<Outcomes, String> {
        let mut outcomes = Outcomes::default();
        // Seconds that not all workers have closed yet, the oldest first, each with how many have.
        let mut seconds: Vec<(Second, usize)> = Vec::new();
        let mut told = 0;
        let mut ended = 0;
        for (number, event) in inbox {
            match event {
                Event::Second(interval) => {
                    let at = (interval.second - told) as usize;
                    while seconds.len() <= at {
                        seconds.push((Second::new(told + seconds.len() as u64), 0));
                    }
                    seconds[at].0.add(&interval);
                    seconds[at].1 += 1;
                }
                Event::End(measurement, counts) => {
                    ended += 1;
                    outcomes.connections.add(&counts);
                    if self.load.measuring.is_some() && number == self.workers.len() - 1 {
                        outcomes.measuring = Some(*measurement);
                    } else {
                        outcomes.loading.add(&measurement);
                    }
                }
            }
            while seconds.first().is_some_and(|(_, workers)| workers + ended >= self.workers.len()) {
                tell(&seconds.remove(0).0);
                told += 1;
            }
        }
        if ended < self.workers.len() {
            return Err("a worker ended before its run".into());
        }
        Ok(outcomes)
    }

    fn demand(&self, run: &Run, worker: usize) -> Result<Demand, String> {
        let (share, shares) = self.load.share;
        let threads = self.load.threads;
        // Streams of their own for each agent, run and worker, two each: SplitMix64 inside makes unrelated states of neighbouring seeds.
        let stream = ((share * 1_000_003 + self.runs) * 100_003 + worker as u64) * 2;
        let seed = self.load.seed.wrapping_add(stream.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut requests = Requests::new(self.load.mix.clone(), Rng::seed_from_u64(seed))?;
        let rng = Rng::seed_from_u64(seed.wrapping_add(1));
        if let Some(measuring) = self.load.measuring.filter(|_| worker == threads) {
            return Ok(Demand::Open(Open::process(Arrivals::new(&Process::Exponential, measuring.rate, rng), requests)));
        }
        let parts = (threads as u64 * shares) as f64;
        Ok(match &run.pace {
            Pace::Rate(process, rate) => Demand::Open(Open::process(Arrivals::new(process, rate / parts, rng), requests)),
            Pace::Course(course) => Demand::Open(Open::process(Arrivals::over(course.clone(), 1.0 / parts, rng), requests)),
            Pace::Trace(lines) => {
                let (place, places) = (share as usize * threads + worker, shares as usize * threads);
                Demand::Open(Open::trace(lines.clone(), requests, place, places))
            }
            Pace::Closed => Demand::Closed(Box::new(move || Some(requests.next_request()))),
        })
    }
}

impl Second {
    fn new(number: u64) -> Self {
        Self { number, latency: crate::recorder::new_histogram(), tally: crate::recorder::Tally::default(), backlog: 0 }
    }

    fn add(&mut self, interval: &Interval) {
        // Equal bounds: adding cannot fail.
        self.latency.add(&interval.latency).expect("equal bounds");
        self.tally.add(&interval.tally);
        self.backlog += interval.backlog;
    }
}

impl Outcomes {
    /// The latencies that count: the measuring client's if there is one.
    pub fn measured(&self) -> &Measurement {
        self.measuring.as_ref().unwrap_or(&self.loading)
    }

    /// Good answers a second, all workers together.
    pub fn achieved_rate(&self) -> f64 {
        let answered = |measurement: &Measurement| measurement.latency.iter().map(|part| part.len()).sum::<u64>();
        let sum = answered(&self.loading) + self.measuring.as_ref().map_or(0, answered);
        sum as f64 * SECOND_NS as f64 / self.measured_ns.max(1) as f64
    }
}
