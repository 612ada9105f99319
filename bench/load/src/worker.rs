// SPDX-License-Identifier: BSL-1.0
//! One thread of load: its connections, and the loop that serves them.
//!
//! The loop sends the requests that are due, waits for the next intended time or the next reply, and reads. It never waits for a particular
//! connection. A due request is sent on the connection that has had room for the longest time. If no connection has room, the request is
//! queued, and its latency still counts from its intended time. The queue is bounded; requests that do not fit into it are counted as
//! failures.

use crate::connection::{Connection, ConnectionSettings, NotConnected, Sink};
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

/// Counts nanoseconds since its creation. All workers of a run use the same clock.
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

/// The environment that all workers of a run share.
#[derive(Clone)]
pub struct Environment {
    pub clock: Clock,
    /// Set by Ctrl-C, which ends the run; the results so far are printed.
    pub stop: Arc<AtomicBool>,
    /// Time limit of a request and of a connection attempt. After the run's end, queued requests are still sent for this time, and replies
    /// in flight are awaited. So each request in the server's log is also in the results.
    pub time_out_ns: u64,
    /// True if the worker polls the kernel instead of sleeping, for exact times at the cost of a whole core.
    pub busy: bool,
}

/// One run of one worker. Times are the clock's nanoseconds.
pub struct Plan {
    pub start_ns: u64,
    /// The intended times of the measured requests.
    pub window: Range<u64>,
    /// The run's end. No request has a later intended time.
    pub end_ns: u64,
    /// The run ends earlier when the window has this number of requests.
    pub requests_max: u64,
    pub demand: Demand,
    /// True if the run ends at the first failure or lost connection.
    pub strict: bool,
}

/// Connection counts since the worker's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ConnectionCounts {
    pub opened: u64,
    /// Number of attempts that failed.
    pub refused: u64,
    /// Number of open connections that ended, for any reason.
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
/// The largest number of requests that are issued before the loop flushes them and reads replies.
const BATCH: usize = 64;
/// Interval of checks for time-outs and for connections to reopen.
const HOUSEKEEPING_NS: u64 = 10_000_000;
/// Number of connections checked at each interval. Ten thousand checks would delay due requests by a large part of a millisecond.
const HOUSEKEEPING_CONNECTIONS: usize = 1024;
/// Largest number of connection attempts at a time, so that they fit into the server's listen backlog.
const ATTEMPTS_MAX: usize = 64;
/// Time within which housekeeping detects the last time-out.
const DRAIN_NS: u64 = 100_000_000;
/// Drain time for replies in flight after Ctrl-C.
const INTERRUPTED_DRAIN_NS: u64 = 200_000_000;

pub struct Worker {
    settings: ConnectionSettings,
    environment: Environment,
    connections: Vec<Connection>,
    poll: OwnedFd,
    /// Connections with room, each once; the first connection has waited longest.
    ready: VecDeque<usize>,
    is_ready: Vec<bool>,
    /// Connections that are neither open nor connecting, each once; the first connection has been closed longest.
    closed: VecDeque<usize>,
    /// The connection at which the next round of housekeeping begins.
    housekeeping_next: usize,
    /// Connections with output that is not sent yet.
    unflushed: Vec<usize>,
    queue: VecDeque<(u64, Request)>,
    /// True if the demand has no further request, or the window has all its requests.
    exhausted: bool,
    attempts: usize,
    last_error: Option<Errno>,
    housekeeping_ns: u64,
    /// All bytes that arrived before this time have been read.
    seen_ns: u64,
    /// The current round through the poll's events: its start, and the number of events so far.
    round_ns: u64,
    round_events: usize,
    buffer: Vec<u8>,
    pub counts: ConnectionCounts,
}

struct RecordingSink<'r> {
    recorder: &'r mut Recorder,
    clock: Clock,
    now_ns: u64,
}

impl Sink for RecordingSink<'_> {
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
    pub fn new(settings: ConnectionSettings, environment: Environment, connections: usize) -> Result<Self, String> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("cannot make an epoll: {error}"))?;
        // A kernel or a container may not support epoll_pwait2(2). The first call, here, then fails. So later calls need no check.
        epoll::wait(&poll, &mut [MaybeUninit::uninit(); 1], Some(&Timespec::default()))
            .map_err(|error| format!("cannot wait for a part of a millisecond (epoll_pwait2, Linux 5.11): {error}"))?;
        Ok(Self {
            settings,
            environment,
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

    /// Opens all connections, or as many as possible within the time-out. If none could be opened, the error is a line that says why.
    pub fn connect(&mut self) -> Result<usize, String> {
        // The default timer slack of the kernel is 50 us (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let now_ns = self.environment.clock.now_ns();
        let mut recorder = Recorder::new(now_ns, 0..0);
        let give_up_ns = now_ns + self.environment.time_out_ns;
        let mut demand = Demand::Closed(Box::new(|| None));
        loop {
            let now_ns = self.environment.clock.now_ns();
            let open = self.connections.iter().filter(|connection| connection.is_open()).count();
            if open == self.connections.len() || self.seen_ns >= give_up_ns || self.is_stopped() {
                break;
            }
            self.run_housekeeping(&mut recorder, &mut demand, now_ns, true);
            self.wait(now_ns, now_ns + 1_000_000, &mut recorder, &mut demand, false);
        }
        let open = self.connections.iter().filter(|connection| connection.is_open()).count();
        if open == 0 {
            let why = self.last_error.map_or("no answer".to_string(), |error| error.to_string());
            return Err(format!("cannot connect to {}: {why}", self.settings.server));
        }
        Ok(open)
    }

    fn is_stopped(&self) -> bool {
        self.environment.stop.load(Ordering::Relaxed)
    }

    /// Performs the plan, and reports each second at that second's end.
    pub fn run(&mut self, mut plan: Plan, mut report: impl FnMut(Interval)) -> Recorder {
        let mut recorder = Recorder::new(plan.start_ns, plan.window.clone()).limit_to(plan.requests_max);
        let lost_before = self.counts.lost;
        // After the end, queued requests are still sent for the length of one time-out. The request that is sent last then has a time-out
        // of its own, which housekeeping detects a little later.
        let (mut wait_ns, mut drain_ns) = (self.environment.time_out_ns, 2 * self.environment.time_out_ns + DRAIN_NS);
        self.exhausted = false;
        self.is_ready.fill(false);
        self.ready.clear();
        while self.environment.clock.now_ns() < plan.start_ns && !self.is_stopped() {
            let now_ns = self.environment.clock.now_ns();
            self.wait(now_ns, plan.start_ns.min(now_ns + HOUSEKEEPING_NS), &mut recorder, &mut plan.demand, false);
        }
        for index in 0..self.connections.len() {
            self.offer(index, &mut recorder, &mut plan.demand, true);
        }
        loop {
            let now_ns = self.environment.clock.now_ns();
            let failed = plan.strict && (self.counts.lost != lost_before || recorder.measurement.tally.errors() != 0);
            if plan.end_ns > now_ns && (self.exhausted || failed || self.is_stopped()) {
                plan.end_ns = now_ns;
                recorder.end_early(now_ns);
            }
            if self.is_stopped() {
                (wait_ns, drain_ns) = (wait_ns.min(INTERRUPTED_DRAIN_NS), drain_ns.min(INTERRUPTED_DRAIN_NS));
            }
            let next_ns = self.issue(&mut recorder, &mut plan, now_ns);
            // Requests with intended times before the end are sent, even if this thread is late.
            let running = now_ns < plan.end_ns || next_ns.is_some();
            self.flush_all(&mut recorder);
            while now_ns >= recorder.second_ends_ns() {
                report(recorder.close_second());
            }
            let (waited_ns, drained_ns) = (plan.end_ns.saturating_add(wait_ns), plan.end_ns.saturating_add(drain_ns));
            if !running && self.seen_ns >= waited_ns {
                self.fail_queued(&mut recorder);
            }
            if !running && (recorder.backlog() == 0 || self.seen_ns >= drained_ns) {
                break;
            }
            if now_ns >= self.housekeeping_ns {
                self.run_housekeeping(&mut recorder, &mut plan.demand, now_ns, running);
            }
            let end_ns = [plan.end_ns, waited_ns].into_iter().find(|&moment_ns| now_ns < moment_ns).unwrap_or(drained_ns);
            let until_ns = next_ns.unwrap_or(end_ns).min(end_ns).min(recorder.second_ends_ns()).min(self.housekeeping_ns);
            self.wait(now_ns, until_ns, &mut recorder, &mut plan.demand, running);
        }
        self.end(&mut recorder);
        recorder
    }

    /// Sends at most one batch of due requests. Returns the intended time of the next request; None if the run ends before that time.
    fn issue(&mut self, recorder: &mut Recorder, plan: &mut Plan, now_ns: u64) -> Option<u64> {
        let Demand::Open(open) = &mut plan.demand else { return None };
        // A run that was stopped before it began sends no requests: its end is not after its start.
        let end_ns = plan.end_ns.checked_sub(plan.start_ns).filter(|&length| length != 0)?;
        let until_ns = now_ns.saturating_sub(plan.start_ns).min(end_ns - 1);
        for _ in 0..BATCH {
            if recorder.is_full() {
                break;
            }
            let Some((at_ns, request)) = open.take_due(until_ns) else { break };
            let intended_ns = plan.start_ns + at_ns;
            recorder.intend(intended_ns);
            match self.take_ready() {
                Some(index) => {
                    self.submit(index, request, Times { intended_ns, sent_ns: now_ns, waited: false }, recorder);
                    self.mark_ready(index);
                }
                None if self.queue.len() < QUEUE_MAX => self.queue.push_back((intended_ns, request)),
                None => recorder.fail(Failure::QueueFull, intended_ns),
            }
        }
        if recorder.is_full() {
            self.exhausted = true;
            return None;
        }
        open.next_ns().filter(|&at_ns| at_ns < end_ns).map(|at_ns| plan.start_ns + at_ns)
    }

    fn take_ready(&mut self) -> Option<usize> {
        while let Some(index) = self.ready.pop_front() {
            self.is_ready[index] = false;
            // `ready` may still contain a lost connection.
            if self.connections[index].has_room(&self.settings) {
                return Some(index);
            }
        }
        None
    }

    fn mark_ready(&mut self, index: usize) {
        if !self.is_ready[index] && self.connections[index].has_room(&self.settings) {
            self.is_ready[index] = true;
            self.ready.push_back(index);
        }
    }

    fn submit(&mut self, index: usize, request: Request, times: Times, recorder: &mut Recorder) {
        let mut sink = RecordingSink { recorder, clock: self.environment.clock, now_ns: times.sent_ns };
        let connection = &mut self.connections[index];
        // A connection that already has output is in `unflushed`, or waits until its socket is writable.
        let is_listed = connection.has_output();
        connection.submit(&self.settings, request, times, &mut sink);
        if !is_listed && connection.has_output() {
            self.unflushed.push(index);
        }
    }

    /// Sends queued requests, or in a closed loop the next requests, on a connection that may have room.
    fn offer(&mut self, index: usize, recorder: &mut Recorder, demand: &mut Demand, running: bool) {
        if (self.queue.is_empty() && !(running && matches!(demand, Demand::Closed(_)))) || !self.connections[index].has_room(&self.settings)
        {
            return self.mark_ready(index);
        }
        let now_ns = self.environment.clock.now_ns();
        // The loop sends at most as many requests as had room at its beginning. A request that fails at once uses no room, so the loop
        // might otherwise never end. Housekeeping offers the remaining room later.
        for _ in self.connections[index].outstanding()..self.settings.depth {
            if let Some((intended_ns, request)) = self.queue.pop_front() {
                self.submit(index, request, Times { intended_ns, sent_ns: now_ns, waited: true }, recorder);
                continue;
            }
            match demand {
                Demand::Closed(next) if running => {
                    let Some(request) = (if recorder.is_full() { None } else { next() }) else {
                        self.exhausted = true;
                        break;
                    };
                    recorder.intend(now_ns);
                    self.submit(index, request, Times { intended_ns: now_ns, sent_ns: now_ns, waited: false }, recorder);
                }
                _ => break,
            }
        }
        self.mark_ready(index);
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
        let clock = self.environment.clock;
        let now_ns = clock.now_ns();
        self.connections[index].lose(failure, now_ns, &mut RecordingSink { recorder, clock, now_ns });
    }

    /// Waits until a socket is ready or a time is reached, and serves the ready sockets.
    fn wait(&mut self, now_ns: u64, until_ns: u64, recorder: &mut Recorder, demand: &mut Demand, running: bool) {
        let wait_ns = if self.environment.busy { 0 } else { until_ns.saturating_sub(now_ns) };
        let time_out = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let mut events = [MaybeUninit::uninit(); EVENTS];
        // An error means that a signal interrupted the wait; the caller's loop checks for a stop.
        if let Ok((events, _)) = epoll::wait(&self.poll, &mut events, Some(&time_out)) {
            for event in &*events {
                self.serve(event.data.u64() as usize, event.flags, recorder, demand, running);
            }
            self.round_events += events.len();
            // If not all events fit into `events`, the next poll returns the sockets that have waited longest.
            if events.len() < EVENTS || self.round_events >= self.connections.len() {
                self.seen_ns = if self.round_ns == 0 { now_ns } else { self.round_ns };
                (self.round_ns, self.round_events) = (0, 0);
            } else if self.round_ns == 0 {
                self.round_ns = now_ns;
            }
        }
    }

    fn serve(&mut self, index: usize, flags: epoll::EventFlags, recorder: &mut Recorder, demand: &mut Demand, running: bool) {
        let clock = self.environment.clock;
        if self.connections[index].is_connecting() {
            self.attempts -= 1;
            let result = self.connections[index].ready_to_write(&self.poll, index as u64, clock.now_ns());
            self.record_attempt(index, result);
        } else {
            let mut buffer = std::mem::take(&mut self.buffer);
            let result = self.connections[index].receive(&self.settings, &mut buffer, &mut RecordingSink { recorder, clock, now_ns: 0 });
            self.buffer = buffer;
            if let Err(failure) = result {
                self.lose(index, failure, recorder);
            }
            if flags.contains(epoll::EventFlags::OUT) {
                self.unflushed.push(index);
            }
        }
        self.offer(index, recorder, demand, running);
        // The output of each connection is flushed right after its replies. If hundreds of other connections were served first, the output
        // would be late.
        self.flush_all(recorder);
    }

    fn record_attempt(&mut self, index: usize, result: Result<(), NotConnected>) {
        match result {
            Ok(()) => self.counts.opened += 1,
            Err(NotConnected(error)) => {
                self.counts.refused += 1;
                self.last_error = Some(error);
                self.closed.push_back(index);
            }
        }
    }

    fn run_housekeeping(&mut self, recorder: &mut Recorder, demand: &mut Demand, now_ns: u64, running: bool) {
        self.housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        while let Some(index) = self.closed.front().copied().filter(|_| running && self.attempts < ATTEMPTS_MAX) {
            // All closed connections wait equally long for a retry. If the first, which has waited longest, may not retry yet, none may.
            if !self.connections[index].may_retry(now_ns) {
                break;
            }
            self.closed.pop_front();
            let result = self.connections[index].connect(&self.settings, &self.poll, index as u64, now_ns);
            if self.connections[index].is_connecting() {
                self.attempts += 1;
            } else {
                self.record_attempt(index, result);
                self.offer(index, recorder, demand, running);
            }
        }
        for _ in 0..self.connections.len().min(HOUSEKEEPING_CONNECTIONS) {
            let index = self.housekeeping_next;
            self.housekeeping_next = (index + 1) % self.connections.len();
            let (connection, clock, time_out_ns) = (&mut self.connections[index], self.environment.clock, self.environment.time_out_ns);
            if let Err(failure) =
                connection.expire(&self.settings, self.seen_ns, time_out_ns, &mut RecordingSink { recorder, clock, now_ns })
            {
                self.lose(index, failure, recorder);
            } else if let Err(error) = connection.expire_attempt(self.seen_ns, time_out_ns) {
                self.attempts -= 1;
                self.record_attempt(index, Err(error));
            } else if connection.has_room(&self.settings) {
                self.offer(index, recorder, demand, running);
            }
        }
        self.flush_all(recorder);
    }

    fn fail_queued(&mut self, recorder: &mut Recorder) {
        for (intended_ns, _) in self.queue.drain(..) {
            recorder.fail(Failure::NeverSent, intended_ns);
        }
    }

    /// Ends requests in flight as unanswered. Their connections are closed, because late replies would otherwise arrive in the next run.
    fn end(&mut self, recorder: &mut Recorder) {
        self.fail_queued(recorder);
        for index in 0..self.connections.len() {
            if self.connections[index].outstanding() != 0 {
                self.lose(index, Failure::Unanswered, recorder);
            }
        }
    }
}
