// SPDX-License-Identifier: BSL-1.0
//! The result of a run: one JSON object. Times are virtual nanoseconds.

use crate::digest::Digest;
use crate::impairments::ImpairmentCounts;
use crate::load::{ConnectionCounts, Totals};
use crate::machine::Machine;
use crate::steering::SteeringCounts;
use crate::switch::Losses;
use crate::world::{FrameCounts, World};
use load::protocol::Outcome;
use load::recorder::{Failure, Measurement, Tally};
use load::workload::Operation;
use serde_json::{json, Map, Value};

const VERSION: u64 = 1;

/// Everything that the report states.
pub struct Figures<'m> {
    pub seed: u64,
    /// Requests a second, as requested.
    pub rate: f64,
    pub window_ns: (u64, u64),
    pub measurement: &'m Measurement,
    pub connections: ConnectionCounts,
    pub losses: Losses,
    pub frames: FrameCounts,
    /// Messages of the card within the window.
    pub interrupts: u64,
    /// The card's counters that are not zero.
    pub card: Vec<(String, u64)>,
    pub digest: Digest,
    pub trial: Trial<'m>,
}

/// The part that tells whether the guest stood its faults.
#[derive(Default)]
pub struct Trial<'m> {
    pub impaired: ImpairmentCounts,
    pub totals: Totals,
    pub changes: SteeringCounts,
    /// Requests after the faults.
    pub recovery: Option<&'m Measurement>,
    /// Control's answers to `stats`: before and after the log's begin, and before and after its end.
    pub statistics: &'m [String],
}

impl<'m> Figures<'m> {
    /// The figures that network, clients and load give. The caller adds those of the machine: its lost frames, `interrupts` and `card`.
    /// None: the world has no load.
    pub fn of<M: Machine>(world: &'m World<M>, seed: u64, rate: f64) -> Option<Self> {
        let experiment = world.experiment();
        let load = experiment.load()?;
        Some(Self {
            seed,
            rate,
            window_ns: experiment.window_ns(),
            measurement: &load.recorder().measurement,
            connections: load.counts,
            losses: world.switch().losses,
            frames: world.counts(),
            interrupts: 0,
            card: Vec::new(),
            digest: world.digest(),
            trial: Trial {
                impaired: world.switch().impaired,
                totals: load.totals,
                changes: world.steering().counts,
                recovery: load.recovery().map(|recorder| &recorder.measurement),
                statistics: experiment.statistics(),
            },
        })
    }
}

pub fn report(figures: &Figures) -> Value {
    let measurement = figures.measurement;
    let (from_ns, to_ns) = figures.window_ns;
    let good: u64 = Outcome::ALL.into_iter().filter(|outcome| outcome.is_good()).map(|outcome| measurement.tally.of(outcome)).sum();
    let seconds = to_ns.saturating_sub(from_ns).max(1) as f64 / 1e9;
    let mut report = json!({
        "version": VERSION,
        "seed": figures.seed,
        "rate": figures.rate,
        "offered": measurement.intended,
        "answered": good,
        "failed": measurement.tally.errors(),
        "achieved_rate": measurement.answered_in_window as f64 / seconds,
        "waited_for_room": measurement.waited_for_room,
        "lost_frames": figures.losses.total(),
        "losses": {
            "chance": figures.losses.lost,
            "queue_full": figures.losses.queue_full,
            "unknown_address": figures.losses.unknown_address,
            "fault": figures.losses.fault,
        },
        "window": {"from_ns": from_ns, "to_ns": to_ns},
        "latency_ns": latency(measurement),
        "operations": operations(&measurement.tally),
        "failures": failures(&measurement.tally),
        "connections": {
            "opened": figures.connections.opened,
            "refused": figures.connections.refused,
            "lost": figures.connections.lost,
            "ended": figures.connections.ended,
        },
        "frames": {"to_card": figures.frames.to_card, "from_card": figures.frames.from_card},
        "interrupts": figures.interrupts,
        "card": Value::Object(figures.card.iter().map(|(name, count)| (name.clone(), json!(count))).collect()),
        "digest": figures.digest.text(),
    });
    if let (Some(recovery), Value::Object(members)) = (figures.trial.recovery, &mut report) {
        members.insert("trial".into(), trial(&figures.trial, recovery));
    }
    report
}

fn trial(trial: &Trial, recovery: &Measurement) -> Value {
    json!({
        "impaired": {
            "duplicated": trial.impaired.duplicated,
            "corrupted": trial.impaired.corrupted,
            "reordered": trial.impaired.reordered,
        },
        "requests": {"submitted": trial.totals.submitted, "answered": trial.totals.answered},
        "changes": {"accepted": trial.changes.accepted, "refused": trial.changes.refused, "failed": trial.changes.failed},
        "recovery": {
            "offered": recovery.intended,
            "operations": operations(&recovery.tally),
            "failures": failures(&recovery.tally),
        },
        "statistics": trial.statistics,
    })
}

fn latency(measurement: &Measurement) -> Value {
    let all = measurement.all_latencies();
    let at = |quantile: f64| all.value_at_quantile(quantile);
    json!({
        "mean": all.mean(),
        "p50": at(0.5),
        "p90": at(0.9),
        "p95": at(0.95),
        "p99": at(0.99),
        "p999": at(0.999),
        "max": all.max(),
    })
}

/// The outcomes that occurred, by operation.
fn operations(tally: &Tally) -> Value {
    let of = |operation: Operation| -> Map<String, Value> {
        let counts = tally.outcomes[operation as usize];
        Outcome::ALL
            .into_iter()
            .zip(counts)
            .filter(|(_, count)| *count != 0)
            .map(|(outcome, count)| (outcome.name().into(), json!(count)))
            .collect()
    };
    let used = Operation::ALL.into_iter().map(|operation| (operation, of(operation))).filter(|(_, counts)| !counts.is_empty());
    Value::Object(used.map(|(operation, counts)| (operation.name().to_string(), Value::Object(counts))).collect())
}

/// The failures that occurred.
fn failures(tally: &Tally) -> Value {
    let counts = Failure::ALL.into_iter().map(|failure| (failure, tally.failures[failure as usize]));
    Value::Object(counts.filter(|(_, count)| *count != 0).map(|(failure, count)| (failure.name().to_string(), json!(count))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::recorder::{Recorder, Times};

    #[test]
    fn every_offered_request_is_answered_or_failed() {
        let mut recorder = Recorder::new(0, 1000..2000);
        for intended_ns in [500, 1000, 1500, 1999, 2000] {
            recorder.intend(intended_ns);
        }
        let times = |intended_ns| Times { intended_ns, sent_ns: intended_ns, waited: false };
        recorder.answer(Operation::Get, Outcome::Hit, times(500), 1400);
        recorder.answer(Operation::Get, Outcome::Hit, times(1000), 1600);
        recorder.answer(Operation::Set, Outcome::ServerError, times(1500), 2600);
        recorder.fail(Failure::Reset, 1999);
        let report = report(&Figures {
            seed: 3,
            rate: 5.0,
            window_ns: (1000, 2000),
            measurement: &recorder.measurement,
            connections: ConnectionCounts::default(),
            losses: Losses { lost: 2, queue_full: 1, unknown_address: 0, fault: 0 },
            frames: FrameCounts { to_card: 8, from_card: 9 },
            interrupts: 7,
            card: vec![("rx.missed".into(), 4)],
            digest: Digest::default(),
            trial: Trial::default(),
        });
        assert!(report.get("trial").is_none(), "a run without a recovery has none");
        assert_eq!((&report["offered"], &report["answered"], &report["failed"]), (&json!(3), &json!(1), &json!(2)));
        assert_eq!((&report["latency_ns"]["max"], &report["lost_frames"]), (&json!(600), &json!(3)));
        assert_eq!(report["operations"], json!({"get": {"hit": 1}, "set": {"server_error": 1}}));
        assert_eq!(report["failures"], json!({"reset": 1}));
        assert_eq!(report["card"], json!({"rx.missed": 4}));
        assert_eq!(report["frames"], json!({"to_card": 8, "from_card": 9}));
        assert_eq!(report["interrupts"], json!(7));
    }
}
