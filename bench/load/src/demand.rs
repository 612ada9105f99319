// SPDX-License-Identifier: BSL-1.0
//! The requests of one worker (a thread that generates load), and their intended times.
//!
//! In an open loop each request has an intended time, from an arrival process or a trace. In a closed loop there are no intended times; the
//! next request is sent when a reply has arrived. A closed loop measures the server's capacity. Its latencies hide stalls, because it sends
//! nothing during a stall.

use crate::arrivals::Arrivals;
use crate::trace::Line;
use crate::workload::{Request, Requests};
use std::sync::Arc;

/// Returns the seed for the requests of one worker in one run. The returned seed plus 1 is for the worker's arrival times. SplitMix64
/// derives the generator's state from the seed, so adjacent seeds give unrelated states. `share`: the program's index among the programs
/// that generate load. `run`: counted from 1.
pub fn stream_seed(seed: u64, share: u64, run: u64, worker: u64) -> u64 {
    let stream = ((share * 1_000_003 + run) * 100_003 + worker) * 2;
    seed.wrapping_add(stream.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

pub enum Demand {
    Open(Box<Open>),
    /// The function returns None if there are no more requests.
    Closed(Box<dyn FnMut() -> Option<Request> + Send>),
}

pub struct Open {
    kind: Kind,
    requests: Requests,
    /// The next request and its intended time, if `next_ns` has determined them.
    next: Option<(u64, Request)>,
}

enum Kind {
    Process(Arrivals),
    /// Every `stride`-th line of a trace, from line `next` on.
    Trace {
        lines: Arc<Vec<Line>>,
        next: usize,
        stride: usize,
    },
}

impl Open {
    pub fn process(arrivals: Arrivals, requests: Requests) -> Self {
        Self { kind: Kind::Process(arrivals), requests, next: None }
    }

    /// Returns the demand of worker number `worker` of `workers`: every `workers`-th line of a trace.
    pub fn trace(lines: Arc<Vec<Line>>, requests: Requests, worker: usize, workers: usize) -> Self {
        Self { kind: Kind::Trace { lines, next: worker, stride: workers }, requests, next: None }
    }

    /// Returns the intended time of the next request, in nanoseconds from the start. None if there are no more requests.
    pub fn next_ns(&mut self) -> Option<u64> {
        if self.next.is_none() {
            self.next = match &mut self.kind {
                Kind::Process(arrivals) => arrivals.next_ns().map(|at| (at, self.requests.next_request())),
                Kind::Trace { lines, next, stride } => lines.get(*next).map(|line| {
                    *next += *stride;
                    (line.at_ns, self.requests.next_of(line))
                }),
            };
        }
        self.next.map(|(at, _)| at)
    }

    /// Takes the next request and its intended time. Returns None if that time is after `now_ns`.
    pub fn take_due(&mut self, now_ns: u64) -> Option<(u64, Request)> {
        self.next_ns().filter(|&at| at <= now_ns)?;
        self.next.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributions::Rng;
    use crate::workload::{Mix, Operation};
    use rand::SeedableRng as _;

    fn requests() -> Requests {
        Requests::new(Mix::preset("usr").unwrap(), Arc::default(), Rng::seed_from_u64(1)).unwrap()
    }

    #[test]
    fn workers_share_a_trace_without_a_gap() {
        let lines: Vec<Line> = (0..10).map(|at_ns| Line { at_ns, operation: Operation::Get, key_bytes: 19, value_bytes: 0 }).collect();
        let lines = Arc::new(lines);
        let mut moments: Vec<u64> = (0..3)
            .flat_map(|worker| {
                let mut open = Open::trace(lines.clone(), requests(), worker, 3);
                std::iter::from_fn(move || open.take_due(100)).map(|(at, _)| at).collect::<Vec<_>>()
            })
            .collect();
        moments.sort_unstable();
        assert_eq!(moments, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_request_is_taken_once_at_its_intended_time() {
        let arrivals = Arrivals::new(&"fixed".parse().unwrap(), 1000.0, Rng::seed_from_u64(1));
        let mut open = Open::process(arrivals, requests());
        let at = open.next_ns().unwrap();
        assert_eq!(open.take_due(at.wrapping_sub(1).min(at)).is_some(), at == 0);
        let first = open.take_due(at).map(|(at, _)| at).unwrap_or(at);
        assert_eq!(first, at);
        assert!(open.next_ns().unwrap() > at);
    }
}
