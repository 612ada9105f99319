// SPDX-License-Identifier: BSL-1.0
//! Planned commands to Neap's control in the middle of faults. Unlike the experiment's own commands, they may fail.
//!
//! A required line may not: the machine would stay in a state for which the rest of the run is not made. For example, cores that poll
//! execute instructions all the time, so each virtual second of waiting takes the host a minute. Such a line is sent on a new connection
//! every `ATTEMPT_NS`, because TCP's retransmissions, which back off during a fault, would reach the guest seconds after its end.

use crate::clients::Host;
use crate::neap_control::{Answer, NeapControl};
use std::collections::VecDeque;

/// The client whose control connection carries the commands.
pub const STEERING_HOST: usize = 0;
/// Time for an attempt of a required line.
const ATTEMPT_NS: u64 = 100_000_000;
/// Time for all attempts of a required line. The driver looks at a link whose interrupt was lost after 1 s.
const REQUIRED_NS_MAX: u64 = 3_000_000_000;
/// From the first acceptance of a required line to the next. An earlier line may still wait in a core that is held, and be executed later.
const REPETITION_NS: u64 = 10_000_000;
/// A required line is complete after this many answers.
const REQUIRED_ANSWERS: u32 = 2;

/// Answers to the commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringCounts {
    pub accepted: u64,
    pub refused: u64,
    /// No answer came, the connection broke, or a required line took the command's place: it may have had its effect.
    pub failed: u64,
}

struct Required {
    line: String,
    fails_ns: u64,
    /// The attempt under way ends then, and another one begins.
    attempt_ends_ns: u64,
    answers: u32,
    /// The last refusal or failure.
    refusal: String,
}

pub struct Steering {
    control: NeapControl,
    lines: VecDeque<String>,
    is_busy: bool,
    required: Option<Required>,
    /// Required lines after that one.
    required_later: VecDeque<String>,
    pub counts: SteeringCounts,
}

impl Steering {
    pub fn new(control: NeapControl) -> Self {
        let (lines, required_later, counts) = Default::default();
        Self { control, lines, is_busy: false, required: None, required_later, counts }
    }

    pub fn is_idle(&self) -> bool {
        !self.is_busy && self.lines.is_empty() && self.required.is_none()
    }

    /// The next time at which `service` has work.
    pub fn next_ns(&self) -> Option<u64> {
        let attempt_ends_ns = self.required.as_ref().map(|required| required.attempt_ends_ns);
        self.control.next_ns().into_iter().chain(attempt_ends_ns).min()
    }

    /// Sends a line, after those before it have their answers.
    pub fn add(&mut self, line: String, now_ns: u64, host: &mut Host) {
        self.lines.push_back(line);
        self.go_on(now_ns, host);
    }

    /// Sends a line until it was accepted. Lines without an answer fail.
    pub fn require(&mut self, line: String, now_ns: u64, host: &mut Host) {
        self.counts.failed += self.lines.len() as u64 + u64::from(self.is_busy);
        self.lines.clear();
        self.is_busy = false;
        self.required_later.push_back(line);
        self.go_on(now_ns, host);
    }

    fn go_on(&mut self, now_ns: u64, host: &mut Host) {
        if self.required.is_none() {
            if let Some(line) = self.required_later.pop_front() {
                let fails_ns = now_ns.saturating_add(REQUIRED_NS_MAX);
                let refusal = "there was no answer".into();
                self.required = Some(Required { line, fails_ns, attempt_ends_ns: now_ns, answers: 0, refusal });
                self.attempt(now_ns, host);
            }
        }
        while !self.is_busy && self.required.is_none() {
            let Some(line) = self.lines.pop_front() else { return };
            match self.control.ask(&line, now_ns, host) {
                Ok(()) => self.is_busy = true,
                Err(_) => self.counts.failed += 1,
            }
        }
    }

    /// Begins an attempt of the required line, on a new connection.
    fn attempt(&mut self, now_ns: u64, host: &mut Host) {
        let Some(required) = &mut self.required else { return };
        self.control.abandon(host);
        required.attempt_ends_ns = now_ns + ATTEMPT_NS;
        if let Err(why) = self.control.ask(&required.line, now_ns, host) {
            required.refusal = why;
        }
    }

    /// The host's stack has worked, or a time-out is due. Err: one line that says which required line was not accepted.
    pub fn service(&mut self, now_ns: u64, host: &mut Host) -> Result<(), String> {
        let answer = self.control.service_any(now_ns, host);
        if self.required.is_some() {
            return self.service_required(answer, now_ns, host);
        }
        match answer {
            Ok(None) => return Ok(()),
            Ok(Some(Answer::Refused(_))) => self.counts.refused += 1,
            Ok(Some(_)) => self.counts.accepted += 1,
            Err(_) => {
                self.counts.failed += 1;
                self.control.abandon(host);
            }
        }
        self.is_busy = false;
        self.go_on(now_ns, host);
        Ok(())
    }

    fn service_required(&mut self, answer: Result<Option<Answer>, String>, now_ns: u64, host: &mut Host) -> Result<(), String> {
        let Some(required) = &mut self.required else { return Ok(()) };
        match answer {
            Ok(None) => {}
            Ok(Some(Answer::Refused(answer))) => required.refusal = format!("the last answer was {answer:?}"),
            Ok(Some(_)) => {
                required.answers += 1;
                required.attempt_ends_ns = now_ns + REPETITION_NS;
            }
            Err(why) => {
                required.refusal = why;
                self.control.abandon(host);
            }
        }
        if required.answers == REQUIRED_ANSWERS {
            self.counts.accepted += 1;
            self.required = None;
            self.go_on(now_ns, host);
        } else if now_ns >= required.fails_ns {
            let seconds = REQUIRED_NS_MAX / 1_000_000_000;
            return Err(format!("control did not accept {} within {seconds} s: {}", required.line, required.refusal));
        } else if now_ns >= required.attempt_ends_ns {
            self.attempt(now_ns, host);
        }
        Ok(())
    }
}
