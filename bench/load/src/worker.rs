// SPDX-License-Identifier: BSL-1.0
//! One thread of load: its connections, and the loop that serves them.
//!
//! The loop sends what is due, waits until the next moment or the next reply, and reads. It never waits for one connection: a request whose
//! moment has come goes to a connection with room, the one that has waited longest; if none has, it queues, and its latency counts from
//! its moment all the same. The queue has a bound, and what it turns away is counted.

use crate::connection::{Connection, Manner, NotConnected, Sink};
use crate::demand::Demand;
use crate::protocol::Outcome;
use crate::recorder::{Failure, Interval, Recorder, Times};
use crate::workload::Request;
use rustix::event::{epoll, Timespec};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// Nanoseconds since the program's beginning, the same for all workers.
#[derive(Clone, Copy)]
pub struct Clock {
    epoch: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { epoch: Instant::now() }
    }
}

impl Clock {
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What all workers of a run share.
#[derive(Clone)]
pub struct Surroundings {
    pub clock: Clock,
    /// Set by Ctrl-C: the run ends, what there is gets printed.
    pub stop: Arc<AtomicBool>,
    /// A request or a connection attempt that takes longer has failed. At the end, what waits for a connection is still sent for so long,
    /// and what is out may be answered: what the server still serves must not be missing here and stand in its log.
    pub time_out_ns: u64,
    /// The worker asks the kernel again and again rather than sleeping: exact moments for a whole core.
    pub busy: bool,
}

/// One run of one worker, in the clock's nanoseconds.
pub struct Plan {
    pub start_ns: u64,
    /// Moments that are measured.
    pub window: Range<u64>,
    /// No request is meant for later.
    pub end_ns: u64,
    pub demand: Demand,
    /// Ends with the first failure or lost connection, where going on would have no point.
    pub strict: bool,
}

/// What became of connections, from the worker's beginning on.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ConnectionCounts {
    pub opened: u64,
    /// Attempts that failed.
    pub refused: u64,
    /// Open ones that ended, for any reason.
    pub lost: u64,
}

impl ConnectionCounts {
    pub fn add(&mut self, other: &Self) {
        self.opened += other.opened;
        self.refused += other.refused;
        self.lost += other.lost;
    }
}

const QUEUE_MAX: usize = 1 << 20;
const READ_BYTES: usize = 256 << 10;
const EVENTS: usize = 512;
/// Requests handed out at a time: after these they are sent, and replies are read.
const BATCH: usize = 64;
/// Between looks at what has timed out or should be connected again.
const HOUSEKEEPING_NS: u64 = 10_000_000;
/// Connections looked at each time: ten thousand at once would hold up what is due by a good part of a millisecond.
const HOUSEKEEPING_CONNECTIONS: usize = 1024;
/// Attempts under way at once: a server's backlog is no longer than this, as a rule.
const ATTEMPTS_MAX: usize = 64;
/// Until housekeeping has noticed the last time-out.
const DRAIN_NS: u64 = 100_000_000;
/// Ctrl-C: so long for replies that are still out.
const HURRY_NS: u64 = 200_000_000;

pub struct Worker {
    manner: Manner,
    around: Surroundings,
    connections: Vec<Connection>,
    poll: OwnedFd,
    /// Connections with room, each once, the longest waiting first.
    ready: VecDeque<usize>,
    is_ready: Vec<bool>,
    /// Those that are neither open nor connecting, each once, the longest closed first.
    closed: VecDeque<usize>,
    /// Where the next round of housekeeping begins.
    housekeeping_next: usize,
    /// Have output that is not sent yet.
    unflushed: Vec<usize>,
    queue: VecDeque<(u64, Request)>,
    /// The demand has come to its end.
    exhausted: bool,
    attempts: usize,
    last_error: Option<Errno>,
    housekeeping_ns: u64,
    /// What had come by this moment has been read.
    seen_ns: u64,
    /// The present round through what the poll has to tell: when it began, and how much was told.
    round_ns: u64,
    round_events: usize,
    buffer: Vec<u8>,
    pub counts: ConnectionCounts,
}

struct Book<'r> {
    recorder: &'r mut Recorder,
    clock: Clock,
    now_ns: u64,
}

impl Sink for Book<'_> {
    fn read(&mut self) {
        self.now_ns = self.clock.now_ns();
    }
    fn answered(&mut self, request: &Request, outcome: Outcome, times: Times) {
        self.recorder.answer(request.operation, outcome, times, self.now_ns);
    }
    fn failed(&mut self, failure: Failure, times: Times) {
        self.recorder.fail(failure, times.intended_ns);
    }
}

impl Worker {
    pub fn new(manner: Manner, around: Surroundings, connections: usize) -> Result<Self, String> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("cannot make an epoll: {error}"))?;
        // Once here, so that it need not be expected to fail later: a kernel or a container may not know epoll_pwait2(2).
        epoll::wait(&poll, &mut [MaybeUninit::uninit(); 1], Some(&Timespec::default()))
            .map_err(|error| format!("cannot wait for a part of a millisecond (epoll_pwait2, Linux 5.11): {error}"))?;
        Ok(Self {
            manner,
            around,
            connections: std::iter::repeat_with(Connection::default).take(connections).collect(),
            poll,
            ready: VecDeque::new(),
            is_ready: vec![false; connections],
            closed: (0..connections).collect(),
            housekeeping_next: 0,
            unflushed: Vec::new(),
            queue: VecDeque::new(),
            exhausted: false,
            attempts: 0,
            last_error: None,
            housekeeping_ns: 0,
            seen_ns: 0,
            round_ns: 0,
            round_events: 0,
            buffer: vec![0; READ_BYTES],
            counts: ConnectionCounts::default(),
        })
    }

    /// Opens all connections, or as many as can be within the time-out. Err: not one; a line that says why.
    pub fn connect(&mut self) -> Result<usize, String> {
        // Waiting in the kernel is late by 50 us as long as nobody asks for better (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let now_ns = self.around.clock.now_ns();
        let mut recorder = Recorder::new(now_ns, 0..0);
        let give_up_ns = now_ns + self.around.time_out_ns;
        let mut demand = Demand::Closed(Box::new(|| None));
        loop {
            let now_ns = self.around.clock.now_ns();
            let open = self.connections.iter().filter(|connection| connection.is_open()).count();
            if open == self.connections.len() || self.seen_ns >= give_up_ns || self.is_stopped() {
                break;
            }
            self.keep_house(&mut recorder, &mut demand, now_ns, true);
            self.wait(now_ns, now_ns + 1_000_000, &mut recorder, &mut demand, false);
        }
        let open = self.connections.iter().filter(|connection| connection.is_open()).count();
        if open == 0 {
            let why = self.last_error.map_or("no answer".to_string(), |error| error.to_string());
            return Err(format!("cannot connect to {}: {why}", self.manner.server));
        }
        Ok(open)
    }

    fn is_stopped(&self) -> bool {
        self.around.stop.load(Ordering::Relaxed)
    }

    /// Offers the demand of the plan; tells of each second as it ends.
    pub fn run(&mut self, mut plan: Plan, mut tell: impl FnMut(Interval)) -> Recorder {
        let mut recorder = Recorder::new(plan.start_ns, plan.window.clone());
        let lost_before = self.counts.lost;
        // So long after the end what waits is still sent, and then has its own time-out, which housekeeping notices a little later.
        let (mut wait_ns, mut drain_ns) = (self.around.time_out_ns, 2 * self.around.time_out_ns + DRAIN_NS);
        self.exhausted = false;
        self.is_ready.fill(false);
        self.ready.clear();
        while self.around.clock.now_ns() < plan.start_ns && !self.is_stopped() {
            let now_ns = self.around.clock.now_ns();
            self.wait(now_ns, plan.start_ns.min(now_ns + HOUSEKEEPING_NS), &mut recorder, &mut plan.demand, false);
        }
        for index in 0..self.connections.len() {
            self.offer(index, &mut recorder, &mut plan.demand, true);
        }
        loop {
            let now_ns = self.around.clock.now_ns();
            let failed = plan.strict && (self.counts.lost != lost_before || recorder.measurement.tally.errors() != 0);
            if plan.end_ns > now_ns && (self.exhausted || failed || self.is_stopped()) {
                plan.end_ns = now_ns;
                recorder.end_early(now_ns);
            }
            if self.is_stopped() {
                (wait_ns, drain_ns) = (wait_ns.min(HURRY_NS), drain_ns.min(HURRY_NS));
            }
            let next_ns = self.issue(&mut recorder, &mut plan, now_ns);
            // What was meant for a moment before the end is sent, even if this thread comes late to it.
            let running = now_ns < plan.end_ns || next_ns.is_some();
            self.flush_all(&mut recorder);
            while now_ns >= recorder.second_ends_ns() {
                tell(recorder.close_second());
            }
            let (waited_ns, drained_ns) = (plan.end_ns.saturating_add(wait_ns), plan.end_ns.saturating_add(drain_ns));
            if !running && self.seen_ns >= waited_ns {
                self.give_up_waiting(&mut recorder);
            }
            if !running && (recorder.backlog() == 0 || self.seen_ns >= drained_ns) {
                break;
            }
            if now_ns >= self.housekeeping_ns {
                self.keep_house(&mut recorder, &mut plan.demand, now_ns, running);
            }
            let end_ns = [plan.end_ns, waited_ns].into_iter().find(|&moment_ns| now_ns < moment_ns).unwrap_or(drained_ns);
            let until_ns = next_ns.unwrap_or(end_ns).min(end_ns).min(recorder.second_ends_ns()).min(self.housekeeping_ns);
            self.wait(now_ns, until_ns, &mut recorder, &mut plan.demand, running);
        }
        self.end(&mut recorder);
        recorder
    }

    /// Sends what is due, a batch at most; gives the moment of what comes next before the end.
    fn issue(&mut self, recorder: &mut Recorder, plan: &mut Plan, now_ns: u64) -> Option<u64> {
        let Demand::Open(open) = &mut plan.demand else { return None };
        // An end before the start: stopped before it began.
        let end_ns = plan.end_ns.checked_sub(plan.start_ns).filter(|&length| length != 0)?;
        let until_ns = now_ns.saturating_sub(plan.start_ns).min(end_ns - 1);
        for _ in 0..BATCH {
            let Some((at_ns, request)) = open.take_due(until_ns) else { break };
            let intended_ns = plan.start_ns + at_ns;
            recorder.intend(intended_ns);
            match self.take_ready() {
                Some(index) => {
                    self.submit(index, request, Times { intended_ns, sent_ns: now_ns, waited: false }, recorder);
                    self.list(index);
                }
                None if self.queue.len() < QUEUE_MAX => self.queue.push_back((intended_ns, request)),
                None => recorder.fail(Failure::QueueFull, intended_ns),
            }
        }
        open.next_ns().filter(|&at_ns| at_ns < end_ns).map(|at_ns| plan.start_ns + at_ns)
    }

    fn take_ready(&mut self) -> Option<usize> {
        while let Some(index) = self.ready.pop_front() {
            self.is_ready[index] = false;
            // One that was lost meanwhile is listed still.
            if self.connections[index].has_room(&self.manner) {
                return Some(index);
            }
        }
        None
    }

    fn list(&mut self, index: usize) {
        if !self.is_ready[index] && self.connections[index].has_room(&self.manner) {
            self.is_ready[index] = true;
            self.ready.push_back(index);
        }
    }

    fn submit(&mut self, index: usize, request: Request, times: Times, recorder: &mut Recorder) {
        let mut book = Book { recorder, clock: self.around.clock, now_ns: times.sent_ns };
        let connection = &mut self.connections[index];
        // One with output is listed, or waits until its socket takes it.
        let is_listed = connection.has_output();
        connection.submit(&self.manner, request, times, &mut book);
        if !is_listed && connection.has_output() {
            self.unflushed.push(index);
        }
    }

    /// A connection may have room: gives it what waits, or in a closed loop what is next.
    fn offer(&mut self, index: usize, recorder: &mut Recorder, demand: &mut Demand, running: bool) {
        if (self.queue.is_empty() && !(running && matches!(demand, Demand::Closed(_)))) || !self.connections[index].has_room(&self.manner) {
            return self.list(index);
        }
        let now_ns = self.around.clock.now_ns();
        // A request that fails at once leaves its room: no more attempts than there is room for, housekeeping comes back to it.
        for _ in self.connections[index].outstanding()..self.manner.depth {
            if let Some((intended_ns, request)) = self.queue.pop_front() {
                self.submit(index, request, Times { intended_ns, sent_ns: now_ns, waited: true }, recorder);
                continue;
            }
            match demand {
                Demand::Closed(next) if running => {
                    let Some(request) = next() else {
                        self.exhausted = true;
                        break;
                    };
                    recorder.intend(now_ns);
                    self.submit(index, request, Times { intended_ns: now_ns, sent_ns: now_ns, waited: false }, recorder);
                }
                _ => break,
            }
        }
        self.list(index);
    }

    fn flush_all(&mut self, recorder: &mut Recorder) {
        while let Some(index) = self.unflushed.pop() {
            if let Err(failure) = self.connections[index].flush(&self.poll, index as u64) {
                self.lose(index, failure, recorder);
            }
        }
    }

    fn lose(&mut self, index: usize, failure: Failure, recorder: &mut Recorder) {
        self.counts.lost += 1;
        self.closed.push_back(index);
        let clock = self.around.clock;
        let now_ns = clock.now_ns();
        self.connections[index].lose(failure, now_ns, &mut Book { recorder, clock, now_ns });
    }

    /// Waits until something can be read or written, or until a moment, and serves what can.
    fn wait(&mut self, now_ns: u64, until_ns: u64, recorder: &mut Recorder, demand: &mut Demand, running: bool) {
        let wait_ns = if self.around.busy { 0 } else { until_ns.saturating_sub(now_ns) };
        let time_out = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let mut events = [MaybeUninit::uninit(); EVENTS];
        // Interrupted by a signal: the loop looks at what that meant.
        if let Ok((events, _)) = epoll::wait(&self.poll, &mut events, Some(&time_out)) {
            for event in &*events {
                self.serve(event.data.u64() as usize, event.flags, recorder, demand, running);
            }
            self.round_events += events.len();
            // Where there is more to tell than fits, the poll goes on with those that it has not told of for longest.
            if events.len() < EVENTS || self.round_events >= self.connections.len() {
                self.seen_ns = if self.round_ns == 0 { now_ns } else { self.round_ns };
                (self.round_ns, self.round_events) = (0, 0);
            } else if self.round_ns == 0 {
                self.round_ns = now_ns;
            }
        }
    }

    fn serve(&mut self, index: usize, flags: epoll::EventFlags, recorder: &mut Recorder, demand: &mut Demand, running: bool) {
        let clock = self.around.clock;
        if self.connections[index].is_connecting() {
            self.attempts -= 1;
            let result = self.connections[index].ready_to_write(&self.poll, index as u64, clock.now_ns());
            self.note(index, result);
        } else {
            let mut buffer = std::mem::take(&mut self.buffer);
            let result = self.connections[index].receive(&self.manner, &mut buffer, &mut Book { recorder, clock, now_ns: 0 });
            self.buffer = buffer;
            if let Err(failure) = result {
                self.lose(index, failure, recorder);
            }
            if flags.contains(epoll::EventFlags::OUT) {
                self.unflushed.push(index);
            }
        }
        self.offer(index, recorder, demand, running);
        // Each connection's own output at once: after hundreds of others it would be late.
        self.flush_all(recorder);
    }

    /// The end of an attempt to connect.
    fn note(&mut self, index: usize, result: Result<(), NotConnected>) {
        match result {
            Ok(()) => self.counts.opened += 1,
            Err(NotConnected(error)) => {
                self.counts.refused += 1;
                self.last_error = Some(error);
                self.closed.push_back(index);
            }
        }
    }

    /// Time-outs, and connections that should be there and are not.
    fn keep_house(&mut self, recorder: &mut Recorder, demand: &mut Demand, now_ns: u64, running: bool) {
        self.housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        while let Some(index) = self.closed.front().copied().filter(|_| running && self.attempts < ATTEMPTS_MAX) {
            // They wait equally long: if the first may not, none may.
            if !self.connections[index].may_retry(now_ns) {
                break;
            }
            self.closed.pop_front();
            let result = self.connections[index].connect(&self.manner, &self.poll, index as u64, now_ns);
            if self.connections[index].is_connecting() {
                self.attempts += 1;
            } else {
                self.note(index, result);
                self.offer(index, recorder, demand, running);
            }
        }
        for _ in 0..self.connections.len().min(HOUSEKEEPING_CONNECTIONS) {
            let index = self.housekeeping_next;
            self.housekeeping_next = (index + 1) % self.connections.len();
            let (connection, clock, time_out_ns) = (&mut self.connections[index], self.around.clock, self.around.time_out_ns);
            if let Err(failure) = connection.expire(&self.manner, self.seen_ns, time_out_ns, &mut Book { recorder, clock, now_ns }) {
                self.lose(index, failure, recorder);
            } else if let Err(error) = connection.expire_attempt(self.seen_ns, time_out_ns) {
                self.attempts -= 1;
                self.note(index, Err(error));
            } else if connection.has_room(&self.manner) {
                self.offer(index, recorder, demand, running);
            }
        }
        self.flush_all(recorder);
    }

    fn give_up_waiting(&mut self, recorder: &mut Recorder) {
        for (intended_ns, _) in self.queue.drain(..) {
            recorder.fail(Failure::NeverSent, intended_ns);
        }
    }

    /// What is still out has no answer; a connection that owes one is of no use to the next run.
    fn end(&mut self, recorder: &mut Recorder) {
        self.give_up_waiting(recorder);
        for index in 0..self.connections.len() {
            if self.connections[index].outstanding() != 0 {
                self.lose(index, Failure::Unanswered, recorder);
            }
        }
    }
}
