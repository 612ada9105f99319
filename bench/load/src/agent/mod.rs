// SPDX-License-Identifier: BSL-1.0
//! Load from several machines: the protocol between a master and its agents.
//!
//! A machine that generates a high load also measures the delays of its own queues. So other machines (agents) generate the load, and the
//! master measures on its own connections at a low rate. Master and agent exchange one JSON object per line over TCP. The master sends
//! orders, and the agent answers.
//!
//! The master sends a load as command-line arguments. The agent parses and checks them like its own command line. It refuses arguments that
//! name files, because an agent neither reads nor writes files for a master.
//!
//! Agents send their measurements as complete histograms, because percentiles over several machines can be computed only from the sum of
//! the histograms.

pub mod lines;
pub mod remote;
pub mod serve;

pub use remote::{Remote, RemoteEnd};

use crate::recorder::{new_histogram, Interval, Measurement, Tally};
use crate::worker::ConnectionCounts;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Version of this protocol. Both ends must have the same version.
pub const VERSION: u32 = 1;
/// A peer that has been silent for longer than this is considered gone. An agent that executes an order sends a line each second.
pub const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The pace of a run. A rate file or a trace file is sent as the file's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaceOrder {
    Rate(f64),
    Course(String),
    Trace(String),
    Closed,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// The first line of a session.
    Hello { version: u32 },
    /// Requests readings of the agent's clocks. The agent answers at once.
    Clock {},
    /// Opens the connections of a load. `share`: the agent's index among the `shares` programs that generate load.
    Load { arguments: Vec<String>, share: u64, shares: u64 },
    /// Stores the agent's share of the keys.
    Preload {},
    /// Performs one run. `start_ns` is a time of the agent's `Clock`, which begins with the session.
    Run { pace: PaceOrder, start_ns: u64 },
    /// Ends the order that the agent is executing.
    Stop {},
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    Hello {
        version: u32,
    },
    Clock {
        now_ns: u64,
        unix_ns: u64,
    },
    Connected {
        open: usize,
        asked: usize,
    },
    Stored {
        keys: u64,
    },
    Second {
        second: u64,
        latency: String,
        tally: Box<Tally>,
        backlog: u64,
    },
    End {
        measurement: Box<MeasurementText>,
        connections: ConnectionCounts,
        measured_ns: u64,
    },
    /// A keep-alive: the order is still being executed.
    Alive {},
    Refused {
        why: String,
    },
}

/// A measurement with its histograms as text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurementText {
    /// One histogram for each operation.
    latency: [String; 3],
    from_sending: String,
    lateness: String,
    tally: Tally,
    intended: u64,
    answered_in_window: u64,
    waited_for_room: u64,
    behind: u64,
}

/// Returns the histogram in HdrHistogram's V2 format, in base64.
fn text(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // Writing to a Vec cannot fail, and the format can represent histograms with our bounds.
    V2Serializer::new().serialize(histogram, &mut bytes).expect("a histogram of our bounds");
    STANDARD.encode(bytes)
}

fn histogram(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|error| format!("a histogram: {error}"))?;
    let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|error| format!("a histogram: {error:?}"))?;
    let ours = new_histogram();
    if (read.low(), read.high(), read.sigfig()) != (ours.low(), ours.high(), ours.sigfig()) {
        return Err("a histogram with other bounds".into());
    }
    Ok(read)
}

impl MeasurementText {
    pub fn new(measurement: &Measurement) -> Self {
        Self {
            latency: measurement.latency.each_ref().map(text),
            from_sending: text(&measurement.from_sending),
            lateness: text(&measurement.lateness),
            tally: measurement.tally.clone(),
            intended: measurement.intended,
            answered_in_window: measurement.answered_in_window,
            waited_for_room: measurement.waited_for_room,
            behind: measurement.behind,
        }
    }

    pub fn measurement(self) -> Result<Measurement, String> {
        let [get, set, delete] = self.latency;
        Ok(Measurement {
            latency: [histogram(&get)?, histogram(&set)?, histogram(&delete)?],
            from_sending: histogram(&self.from_sending)?,
            lateness: histogram(&self.lateness)?,
            tally: self.tally,
            intended: self.intended,
            answered_in_window: self.answered_in_window,
            waited_for_room: self.waited_for_room,
            behind: self.behind,
        })
    }
}

impl Answer {
    pub fn second(interval: &crate::run::Second) -> Self {
        Self::Second {
            second: interval.number,
            latency: text(&interval.latency),
            tally: Box::new(interval.tally.clone()),
            backlog: interval.backlog,
        }
    }
}

fn interval(second: u64, latency: &str, tally: Tally, backlog: u64) -> Result<Interval, String> {
    Ok(Interval { second, latency: histogram(latency)?, tally, backlog })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Outcome;
    use crate::recorder::{Recorder, Times, LATENCY_NS_MAX};
    use crate::workload::Operation;

    #[test]
    fn a_measurement_survives_the_transfer() {
        let mut recorder = Recorder::new(0, 0..1_000_000_000);
        for latency_ns in [1, 999, 123_456_789, LATENCY_NS_MAX] {
            recorder.intend(5);
            recorder.answer(Operation::Set, Outcome::Done, Times { intended_ns: 5, sent_ns: 6, waited: true }, 5 + latency_ns);
        }
        let sent = recorder.measurement.clone();
        let line = serde_json::to_string(&MeasurementText::new(&sent)).unwrap();
        let read = serde_json::from_str::<MeasurementText>(&line).unwrap().measurement().unwrap();
        assert_eq!(read.latency, sent.latency);
        assert_eq!((&read.from_sending, &read.lateness), (&sent.from_sending, &sent.lateness));
        assert_eq!((read.tally, read.intended, read.waited_for_room), (sent.tally, 4, 4));
        assert!(line.len() < 4096, "{}", line.len());
    }

    #[test]
    fn a_histogram_that_cannot_be_added_is_refused() {
        let other = Histogram::<u64>::new_with_bounds(1, 1000, 2).unwrap();
        assert!(histogram(&text(&other)).is_err());
        for wrong in ["", "AAAA", "*", "HISTFAAAACF4nJNpmSzMwMDAxAABzFCaEUoz2H+AMAA"] {
            assert!(histogram(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_with_an_unknown_name_is_refused() {
        assert!(serde_json::from_str::<Order>(r#"{"load":{"arguments":[],"share":0,"shares":1,"run":"rm"}}"#).is_err());
        assert!(serde_json::from_str::<Order>(r#"{"write":{}}"#).is_err());
        assert!(serde_json::from_str::<Order>(r#"{"run":{"pace":"closed","start_ns":5}}"#).is_ok());
    }
}
