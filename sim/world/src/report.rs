// SPDX-License-Identifier: BSL-1.0
//! The result of a run: one JSON object. Times are virtual nanoseconds.

use crate::counts::{Counts, FrameCounts};
use crate::digest::Digest;
use crate::impairments::ImpairmentCounts;
use crate::load::{ConnectionCounts, Totals};
use crate::machine::Machine;
use crate::steering::SteeringCounts;
use crate::switch::Losses;
use crate::world::World;
use load::protocol::Outcome;
use load::recorder::{Failure, Measurement, Tally};
use load::workload::Operation;
use serde_json::{json, Map, Value};

const VERSION: u64 = 1;

/// Everything that the report states.
pub struct Figures<'m> {
    pub seed: u64,
    /// The loads come from a file: the members of a load are only in `runs`.
    pub is_sequence: bool,
    pub runs: Vec<RunFigures<'m>>,
    /// Since the start.
    pub totals: Counts,
    pub digest: Digest,
    /// Control's answers to `--ask`.
    pub answers: &'m [String],
    pub trial: Trial<'m>,
}

/// One load.
pub struct RunFigures<'m> {
    pub name: &'m str,
    pub seed: u64,
    /// Requests a second, as requested.
    pub rate: f64,
    pub window_ns: (u64, u64),
    pub measurement: &'m Measurement,
    pub connections: ConnectionCounts,
    /// Of the window.
    pub counts: Counts,
    /// Of all frames up to the window's end.
    pub digest: Digest,
    /// Control's answers to the load's settings.
    pub setting_answers: &'m [String],
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
    /// The figures of a finished run. None: the world has no load.
    pub fn of<M: Machine>(world: &'m World<M>, seed: u64) -> Option<Self> {
        let experiment = world.experiment();
        let last = experiment.runs().last()?.load;
        let runs = experiment.runs().zip(world.windows()).map(|(run, window)| RunFigures {
            name: &run.plan.name,
            seed: run.plan.load.seed,
            rate: run.plan.load.rate,
            window_ns: run.window_ns,
            measurement: &run.load.recorder().measurement,
            connections: run.load.counts,
            counts: window.end.since(&window.begin),
            digest: window.digest,
            setting_answers: run.setting_answers,
        });
        Some(Self {
            seed,
            is_sequence: experiment.is_sequence(),
            runs: runs.collect(),
            totals: world.totals(),
            digest: world.digest(),
            answers: experiment.answers(),
            trial: Trial {
                impaired: world.switch().impaired,
                totals: last.totals,
                changes: world.steering().counts,
                recovery: last.recovery().map(|recorder| &recorder.measurement),
                statistics: experiment.statistics(),
            },
        })
    }
}

pub fn report(figures: &Figures) -> Value {
    let totals = &figures.totals;
    let mut report = Map::new();
    if let ([run], false) = (&figures.runs[..], figures.is_sequence) {
        report.extend(of_run(run));
    }
    let frames = totals.frames;
    report.extend([
        ("version".into(), json!(VERSION)),
        ("seed".into(), json!(figures.seed)),
        ("lost_frames".into(), json!(totals.losses.total())),
        ("losses".into(), losses(&totals.losses)),
        ("frames".into(), json!({"to_card": frames.to_card, "from_card": frames.from_card})),
        ("card".into(), counters(&totals.card)),
        ("digest".into(), json!(figures.digest.text())),
        ("answers".into(), json!(figures.answers)),
        ("runs".into(), figures.runs.iter().map(|run| Value::Object(members(run).collect())).collect()),
    ]);
    if let Some(recovery) = figures.trial.recovery {
        report.insert("trial".into(), trial(&figures.trial, recovery));
    }
    Value::Object(report)
}

/// The members of a load in a sequence: the counts are those of its window.
fn members<'r>(run: &'r RunFigures) -> impl Iterator<Item = (String, Value)> + 'r {
    let own = [
        ("name", json!(run.name)),
        ("seed", json!(run.seed)),
        ("lost_frames", json!(run.counts.losses.total())),
        ("losses", losses(&run.counts.losses)),
        ("card", counters(&run.counts.card)),
        ("digest", json!(run.digest.text())),
        ("answers", json!(run.setting_answers)),
    ];
    of_run(run).into_iter().chain(own.map(|(name, value)| (name.to_string(), value)))
}

/// The members of a load that mean the same in both forms of a run.
fn of_run(run: &RunFigures) -> Map<String, Value> {
    let measurement = run.measurement;
    let (from_ns, to_ns) = run.window_ns;
    let good: u64 = Outcome::ALL.into_iter().filter(|outcome| outcome.is_good()).map(|outcome| measurement.tally.of(outcome)).sum();
    let seconds = to_ns.saturating_sub(from_ns).max(1) as f64 / 1e9;
    let members = json!({
        "rate": run.rate,
        "offered": measurement.intended,
        "answered": good,
        "failed": measurement.tally.errors(),
        "achieved_rate": measurement.answered_in_window as f64 / seconds,
        "waited_for_room": measurement.waited_for_room,
        "window": {"from_ns": from_ns, "to_ns": to_ns},
        "latency_ns": latency(measurement),
        "latency_histogram": histogram(measurement),
        "operations": operations(&measurement.tally),
        "failures": failures(&measurement.tally),
        "connections": {
            "opened": run.connections.opened,
            "refused": run.connections.refused,
            "lost": run.connections.lost,
            "ended": run.connections.ended,
        },
        "frames_in_window": window_frames(&run.counts.frames),
        "interrupts": run.counts.interrupts(),
    });
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn window_frames(frames: &FrameCounts) -> Value {
    json!({
        "to_card": frames.to_card,
        "from_card": frames.from_card,
        "bytes_to_card": frames.bytes_to_card,
        "bytes_from_card": frames.bytes_from_card,
    })
}

fn losses(losses: &Losses) -> Value {
    json!({
        "chance": losses.lost,
        "queue_full": losses.queue_full,
        "unknown_address": losses.unknown_address,
        "fault": losses.fault,
    })
}

fn counters(counters: &[(String, u64)]) -> Value {
    Value::Object(counters.iter().map(|(name, count)| (name.clone(), json!(count))).collect())
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

/// The latencies of the good answers: pairs of the highest latency of a bucket, in nanoseconds, and its number of answers, in order. A
/// bucket is at most a thousandth of its latency wide. Sums of several histograms give the percentiles of all their answers.
fn histogram(measurement: &Measurement) -> Value {
    let all = measurement.all_latencies();
    all.iter_recorded().map(|bucket| json!([bucket.value_iterated_to(), bucket.count_since_last_iteration()])).collect()
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
        let frames = FrameCounts { to_card: 8, from_card: 9, ..FrameCounts::default() };
        let in_window = FrameCounts { to_card: 3, from_card: 2, bytes_to_card: 180, bytes_from_card: 400 };
        let card = |count, messages| vec![("messages[0]".into(), messages), ("rx.missed".into(), count)];
        let run = RunFigures {
            name: "a",
            seed: 3,
            rate: 5.0,
            window_ns: (1000, 2000),
            measurement: &recorder.measurement,
            connections: ConnectionCounts::default(),
            counts: Counts { frames: in_window, losses: Losses { lost: 1, ..Losses::default() }, card: card(2, 7) },
            digest: Digest::default(),
            setting_answers: &["itr=8us".to_string()],
        };
        let mut figures = Figures {
            seed: 3,
            is_sequence: false,
            runs: vec![run],
            totals: Counts { frames, losses: Losses { lost: 2, queue_full: 1, ..Losses::default() }, card: card(4, 9) },
            digest: Digest::default(),
            answers: &["x".to_string()],
            trial: Trial::default(),
        };
        let sequence = {
            figures.is_sequence = true;
            super::report(&figures)
        };
        figures.is_sequence = false;
        let report = super::report(&figures);
        assert!(report.get("trial").is_none(), "a run without a recovery has none");
        assert_eq!((&report["offered"], &report["answered"], &report["failed"]), (&json!(3), &json!(1), &json!(2)));
        assert_eq!((&report["latency_ns"]["max"], &report["lost_frames"]), (&json!(600), &json!(3)));
        assert_eq!(report["operations"], json!({"get": {"hit": 1}, "set": {"server_error": 1}}));
        assert_eq!(report["failures"], json!({"reset": 1}));
        assert_eq!(report["card"], json!({"messages[0]": 9, "rx.missed": 4}));
        assert_eq!(report["frames"], json!({"to_card": 8, "from_card": 9}));
        assert_eq!((&report["interrupts"], &report["answers"]), (&json!(7), &json!(["x"])));
        assert_eq!(report["latency_histogram"], json!([[600, 1]]));
        let run = &sequence["runs"][0];
        assert_eq!((run, sequence.get("offered")), (&report["runs"][0], None));
        assert_eq!((&run["name"], &run["offered"], &run["interrupts"]), (&json!("a"), &json!(3), &json!(7)));
        assert_eq!(run["answers"], json!(["itr=8us"]));
        assert_eq!((&run["card"]["rx.missed"], &run["lost_frames"]), (&json!(2), &json!(1)));
        let frames = json!({"to_card": 3, "from_card": 2, "bytes_to_card": 180, "bytes_from_card": 400});
        assert_eq!((&run["frames_in_window"], &report["frames_in_window"]), (&frames, &frames));
    }
}
