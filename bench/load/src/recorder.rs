// SPDX-License-Identifier: BSL-1.0
//! Recorded results: latencies as histograms, outcomes and failures as counts.
//!
//! A latency counts from the intended send time of the request. The time from the real send to the reply, and the lateness of the send, are
//! also recorded. They show whether the server or this program was slow.
//!
//! HDR histograms (three significant digits) of several workers and machines can be added without losing percentiles. Averages of
//! percentiles would not be percentiles.

use crate::protocol::Outcome;
use crate::workload::Operation;
use hdrhistogram::Histogram;
use std::ops::Range;

/// Largest recorded latency. A longer latency is recorded as one hour.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
pub const SECOND_NS: u64 = 1_000_000_000;
/// A request is behind schedule if it was sent more than this time after its intended time.
pub const BEHIND_NS_MIN: u64 = 1_000_000;

/// The reason why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Closed,
    /// The server closed the connection in the middle of a reply.
    HalfReply,
    /// The connection was reset or broke otherwise.
    Reset,
    TimedOut,
    /// The received bytes are not a reply.
    Garbage,
    /// No connection had room, and the queue was full.
    QueueFull,
    /// The request was still waiting for a connection with room when the run ended.
    NeverSent,
    /// The request was sent, but not answered before the end.
    Unanswered,
    /// The request does not fit into a datagram.
    TooLong,
}

impl Failure {
    pub const ALL: [Self; 9] = [
        Self::Closed,
        Self::HalfReply,
        Self::Reset,
        Self::TimedOut,
        Self::Garbage,
        Self::QueueFull,
        Self::NeverSent,
        Self::Unanswered,
        Self::TooLong,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfReply => "half_reply",
            Self::Reset => "reset",
            Self::TimedOut => "timed_out",
            Self::Garbage => "garbage",
            Self::QueueFull => "queue_full",
            Self::NeverSent => "never_sent",
            Self::Unanswered => "unanswered",
            Self::TooLong => "too_long",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Number of answers, by operation and by outcome.
    pub outcomes: [[u64; Outcome::ALL.len()]; Operation::ALL.len()],
    pub failures: [u64; Failure::ALL.len()],
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.outcomes.as_flattened_mut().iter_mut().zip(other.outcomes.as_flattened()) {
            *sum += count;
        }
        for (sum, count) in self.failures.iter_mut().zip(other.failures) {
            *sum += count;
        }
    }

    pub fn answered(&self) -> u64 {
        self.outcomes.as_flattened().iter().sum()
    }

    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes.iter().map(|counts| counts[outcome as usize]).sum()
    }

    /// Returns the number of requests that failed or got a bad answer.
    pub fn errors(&self) -> u64 {
        let bad: u64 = Outcome::ALL.into_iter().filter(|outcome| !outcome.is_good()).map(|outcome| self.of(outcome)).sum();
        bad + self.failures.iter().sum::<u64>()
    }
}

pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("three digits from 1 ns to an hour")
}

/// The results of the requests whose intended time is in the measured window. Replies after the window are included.
#[derive(Clone)]
pub struct Measurement {
    /// Nanoseconds from the intended time to the reply, by operation; only for good outcomes.
    pub latency: [Histogram<u64>; Operation::ALL.len()],
    /// Nanoseconds from the real send to the reply.
    pub from_sending: Histogram<u64>,
    /// Nanoseconds from the intended time to the real send.
    pub lateness: Histogram<u64>,
    pub tally: Tally,
    /// Requests whose intended time is in the window.
    pub intended: u64,
    /// Good answers that arrived within the window, whatever the intended times of their requests. Their number gives the server's
    /// throughput. The number of the window's requests that were answered is no measure of throughput, because an overloaded server answers
    /// some of them after the window's end.
    pub answered_in_window: u64,
    /// The number of the window's requests that waited for a connection with room. The cause is the server or a small depth, not a slow
    /// client.
    pub waited_for_room: u64,
    /// The number of the window's requests that this program sent more than BEHIND_NS_MIN late although a connection had room.
    pub behind: u64,
}

impl Default for Measurement {
    fn default() -> Self {
        Self {
            latency: std::array::from_fn(|_| new_histogram()),
            from_sending: new_histogram(),
            lateness: new_histogram(),
            tally: Tally::default(),
            intended: 0,
            answered_in_window: 0,
            waited_for_room: 0,
            behind: 0,
        }
    }
}

impl Measurement {
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in self.latency.iter_mut().zip(&other.latency) {
            sum.add(part).expect("equal bounds");
        }
        self.from_sending.add(&other.from_sending).expect("equal bounds");
        self.lateness.add(&other.lateness).expect("equal bounds");
        self.tally.add(&other.tally);
        self.intended += other.intended;
        self.answered_in_window += other.answered_in_window;
        self.waited_for_room += other.waited_for_room;
        self.behind += other.behind;
    }

    pub fn all_latencies(&self) -> Histogram<u64> {
        let mut all = new_histogram();
        for part in &self.latency {
            all.add(part).expect("equal bounds");
        }
        all
    }
}

/// The answers of one second of the run, for the progress lines.
pub struct Interval {
    /// The number of the second, counted from the start of the run.
    pub second: u64,
    pub latency: Histogram<u64>,
    pub tally: Tally,
    /// Requests in flight or queued at the second's end.
    pub backlog: u64,
}

/// The times of a request, in nanoseconds of the run clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub intended_ns: u64,
    pub sent_ns: u64,
    /// True if no connection had room at the intended time.
    pub waited: bool,
}

/// Records the results of one worker.
pub struct Recorder {
    window: Range<u64>,
    requests_max: u64,
    start_ns: u64,
    second: u64,
    pub measurement: Measurement,
    latency: Histogram<u64>,
    tally: Tally,
    /// The numbers of requests begun and ended since the start, within and outside the window.
    begun: u64,
    ended: u64,
}

impl Recorder {
    /// `window`: requests with intended times in this range are measured. All times are nanoseconds of the run clock.
    pub fn new(start_ns: u64, window: Range<u64>) -> Self {
        Self {
            window,
            requests_max: u64::MAX,
            start_ns,
            second: 0,
            measurement: Measurement::default(),
            latency: new_histogram(),
            tally: Tally::default(),
            begun: 0,
            ended: 0,
        }
    }

    /// The window ends after this number of requests.
    pub fn limit_to(self, requests_max: u64) -> Self {
        Self { requests_max, ..self }
    }

    /// True if the window has all its requests, so that the run ends.
    pub fn is_full(&self) -> bool {
        self.measurement.intended >= self.requests_max
    }

    fn is_measured(&self, intended_ns: u64) -> bool {
        self.window.contains(&intended_ns)
    }

    /// Ends the window at `now_ns`, if the run ended early.
    pub fn end_early(&mut self, now_ns: u64) {
        self.window.end = self.window.end.min(now_ns);
    }
    pub fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    pub fn backlog(&self) -> u64 {
        self.begun - self.ended
    }

    pub fn intend(&mut self, intended_ns: u64) {
        self.begun += 1;
        self.measurement.intended += u64::from(self.is_measured(intended_ns));
    }

    pub fn answer(&mut self, operation: Operation, outcome: Outcome, times: Times, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(times.intended_ns);
        self.ended += 1;
        self.measurement.answered_in_window += u64::from(outcome.is_good() && self.window.contains(&now_ns));
        self.tally.outcomes[operation as usize][outcome as usize] += 1;
        if outcome.is_good() {
            self.latency.saturating_record(latency_ns);
        }
        if !self.is_measured(times.intended_ns) {
            return;
        }
        let measurement = &mut self.measurement;
        measurement.tally.outcomes[operation as usize][outcome as usize] += 1;
        let late_ns = times.sent_ns.saturating_sub(times.intended_ns);
        measurement.lateness.saturating_record(late_ns);
        measurement.waited_for_room += u64::from(times.waited);
        measurement.behind += u64::from(!times.waited && late_ns > BEHIND_NS_MIN);
        if outcome.is_good() {
            measurement.latency[operation as usize].saturating_record(latency_ns);
            measurement.from_sending.saturating_record(now_ns.saturating_sub(times.sent_ns));
        }
    }

    pub fn fail(&mut self, failure: Failure, intended_ns: u64) {
        self.ended += 1;
        self.tally.failures[failure as usize] += 1;
        if self.is_measured(intended_ns) {
            self.measurement.tally.failures[failure as usize] += 1;
        }
    }

    pub fn second_ends_ns(&self) -> u64 {
        self.start_ns + (self.second + 1) * SECOND_NS
    }

    /// Ends the current second, which MUST be over, and begins the next second.
    pub fn close_second(&mut self) -> Interval {
        let interval = Interval {
            second: self.second,
            latency: std::mem::replace(&mut self.latency, new_histogram()),
            tally: std::mem::take(&mut self.tally),
            backlog: self.backlog(),
        };
        self.second += 1;
        interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn times(intended_ns: u64, sent_ns: u64) -> Times {
        Times { intended_ns, sent_ns, waited: false }
    }

    #[test]
    fn latency_counts_from_the_intended_time() {
        let mut recorder = Recorder::new(0, 0..SECOND_NS);
        recorder.answer(Operation::Get, Outcome::Hit, times(10 * MS, 60 * MS), 61 * MS);
        let measurement = &recorder.measurement;
        assert_eq!(measurement.latency[0].max() / MS, 51);
        assert_eq!(measurement.from_sending.max() / MS, 1);
        assert_eq!(measurement.behind, 1);
    }

    #[test]
    fn only_requests_intended_for_the_window_are_measured() {
        let mut recorder = Recorder::new(0, SECOND_NS..2 * SECOND_NS);
        for intended in [SECOND_NS - 1, SECOND_NS, 2 * SECOND_NS - 1, 2 * SECOND_NS] {
            recorder.intend(intended);
            recorder.intend(intended);
            recorder.answer(Operation::Get, Outcome::Hit, times(intended, intended), 3 * SECOND_NS);
            recorder.fail(Failure::TimedOut, intended);
        }
        let measurement = &recorder.measurement;
        assert_eq!((measurement.intended, measurement.tally.answered(), measurement.tally.errors()), (4, 2, 2));
        assert_eq!(recorder.backlog(), 0);
        assert_eq!(recorder.close_second().tally.answered(), 4);
    }

    // An overloaded server answers the window's requests after the window's end. Those answers do not count for the achieved rate.
    #[test]
    fn the_achieved_rate_counts_answers_within_the_window() {
        let mut recorder = Recorder::new(0, SECOND_NS..2 * SECOND_NS);
        for (intended, answered) in [(0, SECOND_NS), (SECOND_NS, 2 * SECOND_NS - 1), (SECOND_NS, 2 * SECOND_NS)] {
            recorder.intend(intended);
            recorder.answer(Operation::Get, Outcome::Hit, times(intended, intended), answered);
        }
        assert_eq!((recorder.measurement.answered_in_window, recorder.measurement.tally.answered()), (2, 2));
    }

    #[test]
    fn a_bad_outcome_is_counted_but_has_no_latency() {
        let mut recorder = Recorder::new(0, 0..SECOND_NS);
        recorder.answer(Operation::Get, Outcome::WrongBytes, times(0, 0), MS);
        assert_eq!(recorder.measurement.all_latencies().len(), 0);
        assert_eq!(recorder.measurement.tally.errors(), 1);
    }

    #[test]
    fn adding_two_recorders_equals_recording_in_one() {
        let mut sum = Measurement::default();
        for worker in 1..=4 {
            let mut recorder = Recorder::new(0, 0..SECOND_NS);
            recorder.intend(0);
            recorder.answer(Operation::Set, Outcome::Done, times(0, 0), worker * MS);
            sum.add(&recorder.measurement);
        }
        let all = sum.all_latencies();
        // A histogram rounds values down, by at most a thousandth.
        assert_eq!((all.len(), all.max() / MS, (all.min() + MS / 2) / MS, sum.intended), (4, 4, 1, 4));
    }

    #[test]
    fn each_second_is_reported_once_in_order() {
        let mut recorder = Recorder::new(5, 0..1);
        assert_eq!(recorder.second_ends_ns(), SECOND_NS + 5);
        recorder.intend(0);
        recorder.answer(Operation::Get, Outcome::Hit, times(0, 0), 9);
        let answered: Vec<(u64, u64)> =
            std::iter::repeat_with(|| recorder.close_second()).map(|i| (i.second, i.tally.answered())).take(3).collect();
        assert_eq!(answered, [(0, 1), (1, 0), (2, 0)]);
        assert_eq!(recorder.second_ends_ns(), 4 * SECOND_NS + 5);
    }
}
