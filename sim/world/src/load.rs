// SPDX-License-Identifier: BSL-1.0
//! The clients' load: requests at intended moments of virtual time, and the latency of each.
//!
//! Mixes, arrivals, protocols and checks are those of the load generator (bench/load), so that a figure of the model machine means the same
//! as one of `./neap load`. With one thread there and the same seed, even the requests are the same. Here a request leaves exactly at its
//! intended moment, unless all connections have their depth of requests in flight. Then it waits in a bounded queue, and its latency still
//! counts from its moment.

use crate::clients::Host;
use crate::connection::{Connection, ConnectionSettings, Ending, State};
use load::arrivals::{Arrivals, Process};
use load::demand::{stream_seed, Open};
use load::distributions::Rng;
use load::protocol::Outcome;
use load::recorder::{Failure, Recorder, Times};
use load::workload::{Mix, Request, Requests, Sizes};
use rand::{Rng as _, SeedableRng as _};
use std::collections::VecDeque;
use std::sync::Arc;

const QUEUE_MAX: usize = 1 << 20;
/// Connection attempts at a time. The backlog of a server is usually not longer.
const ATTEMPTS_MAX: usize = 64;
/// Time limit of an attempt, and of the first one, which may come before the guest listens.
const ATTEMPT_NS_MAX: u64 = 1_000_000_000;
const FIRST_ATTEMPT_NS_MAX: u64 = 50_000_000;
/// From a failure to the next attempt.
const RETRY_NS: u64 = 5_000_000;
/// Interval of checks for time-outs and for connections to open again.
const HOUSEKEEPING_NS: u64 = 5_000_000;
/// Random streams of requests (`stream_seed`).
const WINDOW_STREAM: u64 = 1;
const RECOVERY_STREAM: u64 = 2;
/// Random stream of the choice of connections.
const CONNECTIONS_STREAM: u64 = 3;
/// Connections that are being closed at a time, so that their frames do not overflow the guest's receive ring.
const CLOSINGS_MAX: usize = 64;
/// Time limit of a request after the faults: some retransmissions, because a core that is late may still miss frames.
const RECOVERY_TIME_OUT_NS: u64 = 10_000_000_000;

#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub settings: ConnectionSettings,
    pub mix: Mix,
    pub process: Process,
    /// Requests a second over all connections; 0: the connections are idle.
    pub rate: f64,
    pub connections: usize,
    /// A request takes any connection that has room, by chance. Otherwise it takes the one that has waited longest; then connections whose
    /// answers came together stay together, and the requests reach one core of the server after the other.
    pub any_connection: bool,
    /// Of a request.
    pub time_out_ns: u64,
    pub seed: u64,
}

/// Connection counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    pub opened: u64,
    /// Attempts that failed after the first connection was open.
    pub refused: u64,
    /// Open connections that ended by a failure.
    pub lost: u64,
    /// Open connections that a planned incident ended.
    pub ended: u64,
}

/// Requests since the end of the preload, whether they were measured or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub submitted: u64,
    pub answered: u64,
}

struct OpenLoop {
    start_ns: u64,
    /// No request has this intended moment or a later one.
    end_ns: u64,
    demand: Open,
}

type Preload = Box<dyn Iterator<Item = Request> + Send>;

pub struct Load {
    options: LoadOptions,
    connections: Vec<Connection>,
    /// Connections by host.
    of_host: Vec<Vec<usize>>,
    /// Connections with room, each once; the first has waited longest.
    ready: VecDeque<usize>,
    /// For `any_connection`, from the first request on.
    chance: Option<Rng>,
    is_ready: Vec<bool>,
    /// Connections that may be opened. First one, because the guest may not listen yet; then one of each host, because the guest keeps few
    /// packets while it asks for the host's address; then all.
    wanted: usize,
    queue: VecDeque<(u64, Request)>,
    preload: Option<Preload>,
    /// Requests of the preload whose connections were lost.
    preload_again: Vec<Request>,
    /// Keys that are not stored yet.
    unstored: u64,
    open_loop: Option<OpenLoop>,
    /// Requests that are in flight, preloading included.
    in_flight: u64,
    /// The requests in flight were given up: their endings count no more.
    gave_up: bool,
    recorder: Recorder,
    /// The window's, after the recovery has begun.
    recorder_of_window: Option<Recorder>,
    housekeeping_ns: Option<u64>,
    endings: Vec<Ending>,
    pub counts: ConnectionCounts,
    pub totals: Totals,
}

impl Load {
    pub fn new(options: LoadOptions, hosts: usize) -> Self {
        let connections: Vec<Connection> = (0..options.connections).map(|index| Connection::new(index % hosts)).collect();
        let of_host = (0..hosts).map(|host| (host..connections.len()).step_by(hosts).collect()).collect();
        Self {
            of_host,
            ready: VecDeque::new(),
            chance: None,
            is_ready: vec![false; connections.len()],
            wanted: 0,
            queue: VecDeque::new(),
            preload: None,
            preload_again: Vec::new(),
            unstored: 0,
            open_loop: None,
            in_flight: 0,
            gave_up: false,
            recorder: Recorder::new(0, u64::MAX..u64::MAX),
            recorder_of_window: None,
            housekeeping_ns: None,
            endings: Vec::new(),
            counts: ConnectionCounts::default(),
            totals: Totals::default(),
            connections,
            options,
        }
    }

    /// Begins to open the connections.
    pub fn connect(&mut self, now_ns: u64) {
        self.wanted = 1;
        self.housekeeping_ns = Some(now_ns);
    }

    pub fn is_connected(&self) -> bool {
        self.connections.iter().all(|connection| connection.state() == State::Open)
    }

    /// Begins to store each key once, unless they are `stored` with these values, or the protocol has none.
    pub fn begin_preload(&mut self, stored: bool) {
        if !stored && self.options.settings.protocol.has_keys() {
            self.unstored = self.options.mix.keys;
            self.preload = Some(Box::new(self.options.mix.clone().preload(0, 1)));
        }
        for index in 0..self.connections.len() {
            self.mark_ready(index);
        }
    }

    pub fn is_preloaded(&self) -> bool {
        self.unstored == 0
    }

    /// Begins to send requests; none of them is measured yet.
    pub fn begin_requests(&mut self, now_ns: u64) -> Result<(), String> {
        self.begin_stream(now_ns, WINDOW_STREAM)
    }

    fn begin_stream(&mut self, now_ns: u64, stream: u64) -> Result<(), String> {
        if self.options.rate == 0.0 {
            return Ok(());
        }
        let seed = stream_seed(self.options.seed, 0, stream, 0);
        let sizes = Arc::new(Sizes::new(&self.options.mix));
        let requests = Requests::new(self.options.mix.clone(), sizes, Rng::seed_from_u64(seed))?;
        let arrivals = Arrivals::new(&self.options.process, self.options.rate, Rng::seed_from_u64(seed.wrapping_add(1)));
        if self.options.any_connection {
            self.chance = Some(Rng::seed_from_u64(stream_seed(self.options.seed, 0, CONNECTIONS_STREAM, stream)));
        }
        self.gave_up = false;
        self.open_loop = Some(OpenLoop { start_ns: now_ns, end_ns: u64::MAX, demand: Open::process(arrivals, requests) });
        Ok(())
    }

    /// The window begins now. The requests that are intended for the next `length_ns` are measured, and none follows them.
    pub fn begin_window(&mut self, now_ns: u64, length_ns: u64) {
        let end_ns = now_ns.saturating_add(length_ns);
        self.recorder = Recorder::new(now_ns, now_ns..end_ns);
        if let Some(open_loop) = &mut self.open_loop {
            open_loop.end_ns = end_ns;
        }
    }

    /// Ends all connections and opens them again. The window's requests MUST have ended or been given up.
    pub fn reopen(&mut self, now_ns: u64, hosts: &mut [Host]) {
        for connection in &mut self.connections {
            let host = &mut hosts[connection.host];
            connection.end(true, Failure::Closed, now_ns, host, &mut self.endings);
        }
        hosts.iter_mut().for_each(Host::abort_retired);
        self.endings.clear();
        self.wanted = self.connections.len();
        self.housekeeping_ns = Some(now_ns);
    }

    /// Sends `count` requests at the load's rate, or a few more, over all connections. Returns the time at which the last is sent.
    pub fn begin_recovery(&mut self, now_ns: u64, count: u64) -> Result<u64, String> {
        let length_ns = (count as f64 / self.options.rate * 1e9).ceil() as u64;
        self.begin_stream(now_ns, RECOVERY_STREAM)?;
        self.options.time_out_ns = self.options.time_out_ns.max(RECOVERY_TIME_OUT_NS);
        let of_window = std::mem::replace(&mut self.recorder, Recorder::new(0, u64::MAX..u64::MAX));
        self.recorder_of_window = Some(of_window);
        self.begin_window(now_ns, length_ns);
        for index in 0..self.connections.len() {
            self.mark_ready(index);
        }
        Ok(now_ns + length_ns)
    }

    /// A client ends a connection, if it is open. `index` counts modulo their number.
    pub fn end_connection(&mut self, index: usize, at_once: bool, now_ns: u64, hosts: &mut [Host]) -> Result<(), String> {
        let place = index % self.connections.len();
        let connection = &mut self.connections[place];
        if connection.state() == State::Open {
            self.counts.ended += 1;
            connection.end(at_once, Failure::Closed, now_ns + RETRY_NS, &mut hosts[connection.host], &mut self.endings);
            self.take_endings(now_ns)?;
        }
        Ok(())
    }

    /// All requests have ended.
    pub fn is_drained(&self) -> bool {
        self.in_flight == 0 && self.queue.is_empty()
    }

    /// Gives up the requests that have not ended. Answers to them may still come.
    pub fn give_up(&mut self) {
        for (intended_ns, _) in std::mem::take(&mut self.queue) {
            self.recorder.fail(Failure::NeverSent, intended_ns);
        }
        for connection in &self.connections {
            for lost in connection.outstanding() {
                self.recorder.fail(Failure::Unanswered, lost.times.intended_ns);
            }
        }
        self.in_flight = 0;
        self.gave_up = true;
    }

    /// The load is over: nothing is due any more.
    pub fn stop(&mut self) {
        self.open_loop = None;
        self.housekeeping_ns = None;
        self.wanted = 0;
    }

    /// Closes the connections by FIN, some at a time. Those with a request in flight end by RST, because its answer may still come and
    /// would not be read. MUST be called after `stop`, again and again until all are closed: then it returns true.
    pub fn close(&mut self, now_ns: u64, hosts: &mut [Host]) -> bool {
        if hosts.iter().any(Host::is_closing) {
            return false;
        }
        let open = self.connections.iter_mut().filter(|connection| !matches!(connection.state(), State::Closed { .. }));
        let mut closed = 0;
        for connection in open.take(CLOSINGS_MAX) {
            let at_once = connection.oldest().is_some();
            connection.end(at_once, Failure::Closed, now_ns, &mut hosts[connection.host], &mut self.endings);
            closed += 1;
        }
        self.endings.clear();
        closed == 0
    }

    /// Frees the memory of connections. The counts stay.
    pub fn release(&mut self) {
        self.connections = Vec::new();
        self.of_host.iter_mut().for_each(Vec::clear);
        self.ready.clear();
    }

    /// Of the window.
    pub fn recorder(&self) -> &Recorder {
        self.recorder_of_window.as_ref().unwrap_or(&self.recorder)
    }

    /// Of the requests after the faults.
    pub fn recovery(&self) -> Option<&Recorder> {
        self.recorder_of_window.as_ref().map(|_| &self.recorder)
    }

    /// The next time at which `act` has work.
    pub fn next_ns(&mut self) -> Option<u64> {
        let arrival_ns = self.open_loop.as_mut().and_then(|open_loop| {
            let at_ns = open_loop.start_ns.saturating_add(open_loop.demand.next_ns()?);
            (at_ns < open_loop.end_ns).then_some(at_ns)
        });
        arrival_ns.into_iter().chain(self.housekeeping_ns).min()
    }

    /// Performs what is due: requests, time-outs, connection attempts.
    pub fn act(&mut self, now_ns: u64, hosts: &mut [Host]) -> Result<(), String> {
        if self.housekeeping_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.housekeeping_ns = Some(now_ns + HOUSEKEEPING_NS);
            self.expire(now_ns, hosts);
            self.take_endings(now_ns)?;
            self.open_connections(now_ns, hosts)?;
        }
        self.send_preload(now_ns, hosts);
        while let Some((intended_ns, request)) = self.take_due(now_ns) {
            self.recorder.intend(intended_ns);
            match self.take_ready() {
                Some(index) => self.submit(index, request, Times { intended_ns, sent_ns: now_ns, waited: false }, hosts),
                None if self.queue.len() < QUEUE_MAX => self.queue.push_back((intended_ns, request)),
                None => self.recorder.fail(Failure::QueueFull, intended_ns),
            }
        }
        Ok(())
    }

    fn take_due(&mut self, now_ns: u64) -> Option<(u64, Request)> {
        let open_loop = self.open_loop.as_mut()?;
        let last_ns = now_ns.min(open_loop.end_ns.checked_sub(1)?);
        let (at_ns, request) = open_loop.demand.take_due(last_ns.checked_sub(open_loop.start_ns)?)?;
        Some((open_loop.start_ns + at_ns, request))
    }

    fn take_ready(&mut self) -> Option<usize> {
        while !self.ready.is_empty() {
            let place = self.chance.as_mut().map_or(0, |chance| chance.random_range(0..self.ready.len()));
            let Some(index) = self.ready.swap_remove_front(place) else { break };
            self.is_ready[index] = false;
            // A lost connection may still be in the list.
            if self.connections[index].has_room(&self.options.settings) {
                return Some(index);
            }
        }
        None
    }

    fn mark_ready(&mut self, index: usize) {
        if !self.is_ready[index] && self.connections[index].has_room(&self.options.settings) {
            self.is_ready[index] = true;
            self.ready.push_back(index);
        }
    }

    fn submit(&mut self, index: usize, request: Request, times: Times, hosts: &mut [Host]) {
        let connection = &mut self.connections[index];
        self.in_flight += 1;
        self.totals.submitted += u64::from(self.open_loop.is_some());
        connection.submit(&self.options.settings, request, times, &mut hosts[connection.host]);
        self.mark_ready(index);
    }

    fn send_preload(&mut self, now_ns: u64, hosts: &mut [Host]) {
        while self.preload.is_some() || !self.preload_again.is_empty() {
            let Some(index) = self.take_ready() else { return };
            match self.preload_again.pop().or_else(|| self.preload.as_mut().and_then(Iterator::next)) {
                Some(request) => self.submit(index, request, Times { intended_ns: now_ns, sent_ns: now_ns, waited: false }, hosts),
                None => {
                    self.preload = None;
                    self.mark_ready(index);
                }
            }
        }
    }

    fn expire(&mut self, now_ns: u64, hosts: &mut [Host]) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let attempt_ns_max = if self.counts.opened == 0 { FIRST_ATTEMPT_NS_MAX } else { ATTEMPT_NS_MAX };
            let expired = match connection.state() {
                State::Connecting { since_ns } => now_ns.saturating_sub(since_ns) >= attempt_ns_max,
                State::Open => {
                    connection.oldest().is_some_and(|first| now_ns.saturating_sub(first.times.sent_ns) > self.options.time_out_ns)
                }
                State::Closed { .. } => false,
            };
            if expired {
                self.lose(index, Failure::TimedOut, now_ns, hosts);
            }
        }
    }

    fn open_connections(&mut self, now_ns: u64, hosts: &mut [Host]) -> Result<(), String> {
        let connecting = |connection: &&Connection| matches!(connection.state(), State::Connecting { .. });
        let mut room = ATTEMPTS_MAX - self.connections.iter().filter(connecting).count().min(ATTEMPTS_MAX);
        for connection in self.connections.iter_mut().take(self.wanted) {
            if room != 0 && matches!(connection.state(), State::Closed { retry_ns } if retry_ns <= now_ns) {
                connection.connect(&self.options.settings, now_ns, &mut hosts[connection.host])?;
                room -= 1;
            }
        }
        Ok(())
    }

    fn lose(&mut self, index: usize, failure: Failure, now_ns: u64, hosts: &mut [Host]) {
        let connection = &mut self.connections[index];
        match connection.state() {
            State::Open => self.counts.lost += 1,
            _ => self.counts.refused += u64::from(self.counts.opened != 0),
        }
        connection.lose(failure, now_ns + RETRY_NS, &mut hosts[connection.host], &mut self.endings);
    }

    /// A host's stack has worked: handles what its connections have received. Err: one line that says why the load cannot go on.
    pub fn service(&mut self, now_ns: u64, host: usize, hosts: &mut [Host]) -> Result<(), String> {
        for place in 0..self.of_host[host].len() {
            let index = self.of_host[host][place];
            let connection = &mut self.connections[index];
            let before = connection.state();
            match connection.service(&self.options.settings, &mut hosts[host], &mut self.endings) {
                Ok(()) if before != connection.state() => {
                    self.counts.opened += 1;
                    self.widen(now_ns);
                }
                Ok(()) => {}
                Err(failure) => self.lose(index, failure, now_ns, hosts),
            }
            self.take_endings(now_ns)?;
            self.send_queued(index, now_ns, hosts);
        }
        Ok(())
    }

    /// More connections may be opened if those that may be are open.
    fn widen(&mut self, now_ns: u64) {
        let all_open = self.connections[..self.wanted].iter().all(|connection| connection.state() == State::Open);
        if all_open && self.wanted < self.connections.len() {
            let hosts = self.of_host.len();
            self.wanted = if self.wanted < hosts { hosts.min(self.connections.len()) } else { self.connections.len() };
            self.housekeeping_ns = Some(now_ns);
        }
    }

    /// Sends queued requests on a connection that may have room.
    fn send_queued(&mut self, index: usize, now_ns: u64, hosts: &mut [Host]) {
        while !self.queue.is_empty() && self.connections[index].has_room(&self.options.settings) {
            if let Some((intended_ns, request)) = self.queue.pop_front() {
                self.submit(index, request, Times { intended_ns, sent_ns: now_ns, waited: true }, hosts);
            }
        }
        self.mark_ready(index);
    }

    fn take_endings(&mut self, now_ns: u64) -> Result<(), String> {
        if self.gave_up {
            self.endings.clear();
            return Ok(());
        }
        let mut endings = std::mem::take(&mut self.endings);
        self.in_flight -= endings.len() as u64;
        let mut result = Ok(());
        for ending in endings.drain(..) {
            if self.open_loop.is_some() {
                match ending {
                    Ending::Answered(request, outcome, times) => {
                        self.totals.answered += 1;
                        self.recorder.answer(request.operation, outcome, times, now_ns);
                    }
                    Ending::Failed(failure, _, times) => self.recorder.fail(failure, times.intended_ns),
                }
            } else if let Err(why) = self.end_preload_of(ending) {
                result = Err(why);
            }
        }
        self.endings = endings;
        result
    }

    /// A key was stored, or it is stored again after a lost connection.
    fn end_preload_of(&mut self, ending: Ending) -> Result<(), String> {
        match ending {
            Ending::Answered(_, Outcome::Done, _) => {
                self.unstored -= 1;
                Ok(())
            }
            Ending::Answered(request, outcome, _) => Err(format!("the guest did not store key {}: {}", request.key.number, outcome.name())),
            Ending::Failed(_, request, _) => {
                self.preload_again.push(request);
                Ok(())
            }
        }
    }
}
