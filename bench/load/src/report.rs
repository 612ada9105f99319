// SPDX-License-Identifier: BSL-1.0
//! The reports: one line per second, a table, JSON and a histogram file.
//!
//! The histogram file is an HdrHistogram interval log (format 1.3, compressed V2 histograms, nanoseconds), which HdrHistogram's own tools
//! read and plot.

use crate::protocol::Outcome;
use crate::recorder::{Failure, Measurement, Tally, BEHIND_NS_MIN, LATENCY_NS_MAX, SECOND_NS};
use crate::run::{Outcomes, Second};
use crate::workload::Operation;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::Histogram;
use serde_json::{json, Map, Value};
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

pub const PERCENTILES: [f64; 7] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];

fn us(nanoseconds: u64) -> String {
    format!("{:.1}", nanoseconds as f64 / 1000.0)
}

/// Returns the errors that occurred, by kind, as `timed_out 3, wrong_bytes 1`; empty if there were none.
pub fn errors(tally: &Tally) -> String {
    let bad = Outcome::ALL.into_iter().filter(|outcome| !outcome.is_good()).map(|outcome| (outcome.name(), tally.of(outcome)));
    let failed = Failure::ALL.into_iter().map(|failure| (failure.name(), tally.failures[failure as usize]));
    let parts: Vec<String> = bad.chain(failed).filter(|(_, count)| *count != 0).map(|(name, count)| format!("{name} {count}")).collect();
    parts.join(", ")
}

pub const SECOND_HEADING: &str = "    s   requests/s    p50 us    p99 us    max us   waiting  errors";

pub fn second(second: &Second) -> String {
    let latency = &second.latency;
    format!(
        "{:5} {:12} {:>9} {:>9} {:>9} {:9}  {}",
        second.number + 1,
        second.tally.answered(),
        us(latency.value_at_quantile(0.50)),
        us(latency.value_at_quantile(0.99)),
        us(latency.max()),
        second.backlog,
        if second.tally.errors() == 0 { "0".into() } else { errors(&second.tally) },
    )
}

fn row(name: &str, latency: &Histogram<u64>) -> String {
    let mut line =
        format!("{name:<14} {:>10} {:>9}", latency.len(), if latency.is_empty() { "-".into() } else { us(latency.mean() as u64) });
    for percentile in PERCENTILES {
        line += &format!(" {:>9}", if latency.is_empty() { "-".into() } else { us(latency.value_at_quantile(percentile / 100.0)) });
    }
    line
}

/// Returns the table that is printed at the end. `asked`: the requested rate, in requests a second; None in a closed loop. `has_keys`: a
/// get may miss.
pub fn table(outcomes: &Outcomes, asked: Option<f64>, has_keys: bool) -> String {
    let mut lines = vec![format!(
        "{:<14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "latency, us", "requests", "mean", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"
    )];
    if let Some(measuring) = &outcomes.measuring {
        lines.push(row("measured", &measuring.all_latencies()));
    }
    let loading = &outcomes.loading;
    for operation in Operation::ALL.into_iter().filter(|&operation| !loading.latency[operation as usize].is_empty()) {
        lines.push(row(operation.name(), &loading.latency[operation as usize]));
    }
    lines.push(row("all", &loading.all_latencies()));
    lines.push(row("from sending", &loading.from_sending));
    let seconds = outcomes.measured_ns as f64 / SECOND_NS as f64;
    let achieved = outcomes.achieved_rate();
    lines.push(match asked {
        Some(asked) => {
            format!("{achieved:.1} requests/s achieved of {asked:.1} asked ({:.2}%), {seconds:.2} s", achieved / asked.max(1e-9) * 100.0)
        }
        None => format!("{achieved:.1} requests/s, closed loop, {seconds:.2} s"),
    });
    let tally = total(outcomes);
    let misses = format!("misses {} of {} gets; ", tally.outcomes[0][Outcome::Miss as usize], gets(&tally));
    lines.push(format!("{}errors {}", if has_keys { &misses } else { "" }, tally.errors()));
    if tally.errors() != 0 {
        lines.push(format!("errors by kind: {}", errors(&tally)));
    }
    if let Some(line) = behind(outcomes) {
        lines.push(line);
    }
    let connections = &outcomes.connections;
    lines.push(format!("connections opened {}, refused {}, lost {}", connections.opened, connections.refused, connections.lost));
    lines.join("\n")
}

fn total(outcomes: &Outcomes) -> Tally {
    let mut tally = outcomes.loading.tally.clone();
    if let Some(measuring) = &outcomes.measuring {
        tally.add(&measuring.tally);
    }
    tally
}

fn gets(tally: &Tally) -> u64 {
    tally.outcomes[Operation::Get as usize].iter().sum()
}

/// Returns a line with the numbers of requests that were sent later than intended, by cause. None if there were none.
fn behind(outcomes: &Outcomes) -> Option<String> {
    let (loading, measuring) = (&outcomes.loading, outcomes.measuring.clone().unwrap_or_default());
    let (behind, waited) = (loading.behind + measuring.behind, loading.waited_for_room + measuring.waited_for_room);
    if behind == 0 && waited == 0 {
        return None;
    }
    let percent = |count: u64| count as f64 * 100.0 / (loading.intended + measuring.intended).max(1) as f64;
    Some(format!(
        "behind schedule: {behind} ({:.3}%) left more than {} ms late because this client was too slow; {waited} ({:.3}%) waited because \
         all connections had their depth of requests out; lateness p99 {} us, max {} us",
        percent(behind),
        BEHIND_NS_MIN / 1_000_000,
        percent(waited),
        us(loading.lateness.value_at_quantile(0.99)),
        us(loading.lateness.max()),
    ))
}

fn latency_json(latency: &Histogram<u64>) -> Value {
    let mut object = Map::new();
    object.insert("count".into(), json!(latency.len()));
    object.insert("mean_ns".into(), json!(latency.mean()));
    object.insert("min_ns".into(), json!(if latency.is_empty() { 0 } else { latency.min() }));
    for percentile in PERCENTILES {
        object.insert(format!("p{percentile}_ns"), json!(latency.value_at_quantile(percentile / 100.0)));
    }
    Value::Object(object)
}

fn tally_json(tally: &Tally) -> Value {
    let outcomes: Map<String, Value> = Outcome::ALL.into_iter().map(|outcome| (outcome.name().into(), json!(tally.of(outcome)))).collect();
    let failures: Map<String, Value> =
        Failure::ALL.into_iter().map(|failure| (failure.name().into(), json!(tally.failures[failure as usize]))).collect();
    json!({"outcomes": outcomes, "failures": failures, "errors": tally.errors()})
}

fn measurement_json(measurement: &Measurement) -> Value {
    let operations: Map<String, Value> = Operation::ALL
        .into_iter()
        .map(|operation| (operation.name().into(), latency_json(&measurement.latency[operation as usize])))
        .collect();
    json!({
        "intended": measurement.intended,
        "answered_in_window": measurement.answered_in_window,
        "latency": latency_json(&measurement.all_latencies()),
        "latency_by_operation": operations,
        "latency_from_sending": latency_json(&measurement.from_sending),
        "lateness": latency_json(&measurement.lateness),
        "behind_schedule": measurement.behind,
        "waited_for_room": measurement.waited_for_room,
        "requests": tally_json(&measurement.tally),
    })
}

/// Returns a histogram of two significant digits as text: "value count value count ...", without empty buckets. Values are the highest of
/// their bucket, in nanoseconds. Percentiles of several seconds can be computed from the histograms, not from the seconds' percentiles.
/// It is one string, because JSON for people has each number of a list on a line, and an hour has 3,600 histograms.
fn histogram_json(latency: &Histogram<u64>) -> Value {
    let mut coarse = Histogram::<u64>::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("two digits from 1 ns to an hour");
    for value in latency.iter_recorded() {
        coarse.saturating_record_n(value.value_iterated_to(), value.count_at_value());
    }
    let pairs: Vec<String> =
        coarse.iter_recorded().map(|value| format!("{} {}", value.value_iterated_to(), value.count_at_value())).collect();
    json!(pairs.join(" "))
}

/// Returns the figures of one second as JSON. `from_s` counts from the start of the window, so it is negative in the warm-up. The latencies
/// are those of all connections whose replies came in this second.
pub fn second_json(second: &Second, warm_up_ns: u64) -> Value {
    let mut object = latency_json(&second.latency);
    object["from_s"] = json!((second.number as f64).mul_add(SECOND_NS as f64, -(warm_up_ns as f64)) / SECOND_NS as f64);
    object["answered"] = json!(second.tally.answered());
    object["errors"] = json!(second.tally.errors());
    object["waiting"] = json!(second.backlog);
    object["histogram_ns"] = histogram_json(&second.latency);
    object
}

/// Returns all figures as JSON. Times are in nanoseconds, rates in requests a second.
pub fn json(outcomes: &Outcomes, asked: Option<f64>) -> Value {
    json!({
        "seconds": outcomes.measured_ns as f64 / SECOND_NS as f64,
        "began_unix_ns": outcomes.began.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        "rate": {"asked": asked, "intended": outcomes.intended_rate(), "achieved": outcomes.achieved_rate()},
        "loading": measurement_json(&outcomes.loading),
        "measuring": outcomes.measuring.as_ref().map(measurement_json),
        "connections": {
            "opened": outcomes.connections.opened,
            "refused": outcomes.connections.refused,
            "lost": outcomes.connections.lost,
        },
    })
}

/// Writes the windows' histograms as intervals of an HdrHistogram log, one for each run and tag. The tags are `measured` (with a measuring
/// client), `get`, `set` and `delete`.
pub fn write_histograms(runs: &[&Outcomes], out: &mut impl Write) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let began = runs.first().map_or(UNIX_EPOCH, |outcomes| outcomes.began);
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("latency in nanoseconds from the intended send time of the request")
        .with_start_time(began)
        .with_base_time(began)
        .with_max_value_divisor(1000.0)
        .begin_log_with(out, &mut serializer)?;
    for outcomes in runs {
        let since = outcomes.began.duration_since(began).unwrap_or_default();
        let mut write = |name: &'static str, histogram: &Histogram<u64>| {
            if histogram.is_empty() {
                return Ok(());
            }
            let length = Duration::from_nanos(outcomes.measured_ns);
            log.write_histogram(histogram, since, length, Tag::new(name)).map_err(|error| io::Error::other(format!("{error:?}")))
        };
        if let Some(measuring) = &outcomes.measuring {
            write("measured", &measuring.all_latencies())?;
        }
        for operation in Operation::ALL {
            write(operation.name(), &outcomes.loading.latency[operation as usize])?;
        }
    }
    Ok(())
}
