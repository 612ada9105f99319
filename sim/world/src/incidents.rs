// SPDX-License-Identifier: BSL-1.0
//! Events of a run that are planned in advance: faults of card, cable and network, commands to control, and clients that end connections.
//!
//! A driver's and a stack's recovery is tested by faults in the middle of traffic. Here each fault has its virtual time, so a failure that
//! depends on the order of two events repeats. Times count from the machine's reset, or from the beginning of the measured window (of a
//! sequence: the first one), whose time is not known in advance:
//!
//!   25ms hang tx 0              window+5ms network loss=0.1,reorder=0.2      window+9ms control itr,100us
//!   window+1ms link flap 2000000 3          window+2ms close 5               window+3ms reset 6
//!   window+1ms flood 20000 1000000 11211

use crate::flood::FloodWords;
use crate::impairments::Impairments;
use crate::load_words::time;
use soft82599::fault_words::{self, Fault};
use std::collections::VecDeque;

const FLAPS_MAX: u64 = 1000;
const FLAP_NS_MIN: u64 = 1000;
const OTHERS: &str = "network LIST, link up|down|flap NS TIMES, control LINE, require LINE, close N, reset N, flood RATE COUNT PORT";

#[derive(Clone, Debug, PartialEq)]
pub enum Incident {
    Card(CardIncident),
    Network(Impairments),
    /// A line for Neap's control. A refusal is counted.
    Control(String),
    /// A line that control has to accept, or the run fails. It is sent until it was accepted.
    Require(String),
    /// A client ends a connection: by FIN, or at once by RST.
    End {
        connection: usize,
        at_once: bool,
    },
    /// SYNs with forged sources.
    Flood(FloodWords),
}

#[derive(Clone, Debug, PartialEq)]
pub enum CardIncident {
    Fault(Fault),
    Cable(bool),
    Flap { every_ns: u64, times: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    SinceReset(u64),
    SinceWindow(u64),
}

/// Err: one line that says what is wrong. `seed`: of a chance whose words name none.
pub fn parse(words: &str, seed: u64) -> Result<(Moment, Incident), String> {
    let words = words.trim();
    let Some(rest) = words.strip_prefix("at ") else { return Ok((Moment::SinceReset(0), incident(words, seed)?)) };
    let (at, rest) = rest.trim_start().split_once(' ').unwrap_or((rest, ""));
    let moment = match at.strip_prefix("window+") {
        Some(after) => Moment::SinceWindow(time(after)?),
        None => Moment::SinceReset(time(at)?),
    };
    Ok((moment, incident(rest.trim(), seed)?))
}

fn incident(text: &str, seed: u64) -> Result<Incident, String> {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    let wrong = || format!("fault {text}: known are {OTHERS}");
    let connection = |at_once| Ok(Incident::End { connection: rest.parse().map_err(|_| wrong())?, at_once });
    match kind {
        "network" => rest.parse().map(Incident::Network),
        "control" if !rest.is_empty() => Ok(Incident::Control(rest.into())),
        "require" if !rest.is_empty() => Ok(Incident::Require(rest.into())),
        "link" => cable(rest).map(Incident::Card).ok_or_else(wrong),
        "close" => connection(false),
        "reset" => connection(true),
        "flood" => FloodWords::parse(rest, seed).map(Incident::Flood).ok_or_else(wrong),
        _ => fault_words::parse_seeded(text, seed)
            .map(|fault| Incident::Card(CardIncident::Fault(fault)))
            .map_err(|why| format!("{why}, {OTHERS}")),
    }
}

fn cable(text: &str) -> Option<CardIncident> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Some(match words[..] {
        ["up"] => CardIncident::Cable(true),
        ["down"] => CardIncident::Cable(false),
        ["flap", every_ns, times] => CardIncident::Flap {
            every_ns: every_ns.parse().ok().filter(|&ns| ns >= FLAP_NS_MIN)?,
            times: times.parse().ok().filter(|times| (1..=FLAPS_MAX).contains(times))?,
        },
        _ => return None,
    })
}

/// The incidents that have not happened yet.
pub struct Incidents {
    /// In order of their times.
    due: VecDeque<(u64, Incident)>,
    since_window: Vec<(u64, Incident)>,
}

impl Incidents {
    pub fn new(incidents: Vec<(Moment, Incident)>) -> Self {
        let mut all = Self { due: VecDeque::new(), since_window: Vec::new() };
        for (moment, incident) in incidents {
            match moment {
                Moment::SinceReset(at_ns) => all.due.push_back((at_ns, incident)),
                Moment::SinceWindow(after_ns) => all.since_window.push((after_ns, incident)),
            }
        }
        all.sort();
        all
    }

    // The sort is stable, so incidents of one moment happen in the order of the options.
    fn sort(&mut self) {
        self.due.make_contiguous().sort_by_key(|(at_ns, _)| *at_ns);
    }

    /// The window has begun.
    pub fn begin_window(&mut self, from_ns: u64) {
        if !self.since_window.is_empty() {
            self.due.extend(self.since_window.drain(..).map(|(after_ns, incident)| (from_ns.saturating_add(after_ns), incident)));
            self.sort();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.due.is_empty() && self.since_window.is_empty()
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.due.front().map(|(at_ns, _)| *at_ns)
    }

    /// Takes the next incident that is due.
    pub fn take_due(&mut self, now_ns: u64) -> Option<Incident> {
        self.next_ns().filter(|&at_ns| at_ns <= now_ns)?;
        self.due.pop_front().map(|(_, incident)| incident)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_incident_is_parsed() {
        let impairments = Impairments { loss: 0.5, ..Impairments::default() };
        for (words, moment, incident) in [
            ("ecc", Moment::SinceReset(0), Incident::Card(CardIncident::Fault(Fault::Ecc))),
            ("at 25ms ecc", Moment::SinceReset(25_000_000), Incident::Card(CardIncident::Fault(Fault::Ecc))),
            ("at window+5us link down", Moment::SinceWindow(5000), Incident::Card(CardIncident::Cable(false))),
            ("link flap 2000 3", Moment::SinceReset(0), Incident::Card(CardIncident::Flap { every_ns: 2000, times: 3 })),
            ("at window+0ns network loss=0.5", Moment::SinceWindow(0), Incident::Network(impairments)),
            ("at 1s control itr,8us,3", Moment::SinceReset(1_000_000_000), Incident::Control("itr,8us,3".into())),
            ("at window+1ms require idle,halt", Moment::SinceWindow(1_000_000), Incident::Require("idle,halt".into())),
            ("close 4", Moment::SinceReset(0), Incident::End { connection: 4, at_once: false }),
            ("reset 4", Moment::SinceReset(0), Incident::End { connection: 4, at_once: true }),
            ("flood 20 5 80", Moment::SinceReset(0), Incident::Flood(FloodWords { rate: 20, count: 5, port: 80, seed: 1 })),
        ] {
            assert_eq!(parse(words, 1), Ok((moment, incident)), "{words}");
        }
    }

    #[test]
    fn an_invalid_incident_is_refused() {
        for words in [
            "",
            "at",
            "at 5 ecc",
            "at 5ms",
            "at window ecc",
            "explode",
            "control",
            "require",
            "close",
            "reset x",
            "link sideways",
            "flood 20 5",
            "network speed=3",
        ] {
            assert!(parse(words, 1).is_err(), "{words}");
        }
        for words in ["link flap 10 3", "link flap 2000 0", "link flap 2000 1001"] {
            assert!(parse(words, 1).is_err(), "{words}");
        }
    }

    #[test]
    fn incidents_of_the_window_wait_for_it_and_equal_times_keep_their_order() {
        let all = ["at window+5ns close 1", "at 8ns close 2", "at window+5ns close 3", "close 4"].map(|words| parse(words, 1).unwrap());
        let mut incidents = Incidents::new(all.into());
        let take = |incidents: &mut Incidents, now_ns| match incidents.take_due(now_ns) {
            Some(Incident::End { connection, .. }) => Some(connection),
            _ => None,
        };
        assert_eq!([take(&mut incidents, 0), take(&mut incidents, 0)], [Some(4), None]);
        assert_eq!(incidents.next_ns(), Some(8));
        incidents.begin_window(2);
        assert_eq!(incidents.next_ns(), Some(7));
        assert_eq!([(); 4].map(|()| take(&mut incidents, 100)), [Some(1), Some(3), Some(2), None]);
        assert!(incidents.is_empty());
    }
}
