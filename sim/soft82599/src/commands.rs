// SPDX-License-Identifier: BSL-1.0
//! The commands of the control socket, one per line.
//!
//! The interrupt trace (the card's interrupt_trace.rs) is read in parts, and each read removes the entries that it returns. A client
//! repeats `trace read` until `left` is 0. A message has the form `{"at", "vector", "held", "receive", "transmit", "software", "other"}`. A
//! write to EITR has the form `{"at", "vector", "interval", "counter"}`. Times are in ns of the card's clock; `now` is the answer's time.

use crate::fault_words;
use crate::rig::{Rig, STEP_NS_MAX};
use card::{Entry, Event};

const TRACE_ENTRIES: usize = 1 << 16;
/// The trace's largest length; an entry has 48 bytes.
const TRACE_ENTRIES_MAX: usize = 1 << 22;
/// Largest number of entries in one answer, about 2 MB of text.
const TRACE_PIECE: usize = 1 << 14;
const FLAPS_MAX: u64 = 1_000_000;
pub const KNOWN: &str = "counters, reset-counters, statistics, state, violations, trace start [ENTRIES], trace stop, trace read, link up, \
     link down, link flap NS [TIMES], fault WORDS, faults, clock, clock stop, clock step NS, clock run [SCALE], quit";
const OK: &str = "{\"ok\": true}\n";

/// Returns the answer with its end of line. `quit` becomes true if the program is to end.
pub fn run(line: &str, rig: &mut Rig, quit: &mut bool) -> String {
    let (command, words) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let words = words.trim();
    match (command, words) {
        ("counters", "") => {
            let accesses = rig.card.access_counters();
            format!("{{\"reads\": {}, \"writes\": {}}}\n", object(accesses.reads()), object(accesses.writes()))
        }
        ("reset-counters", "") => {
            rig.card.clear_access_counters();
            OK.into()
        }
        ("statistics", "") => object(rig.statistics().into_iter()) + "\n",
        ("state", "") => rig.describe() + ".\n",
        ("violations", "") => violations(rig),
        ("trace", _) => {
            trace(words, rig).unwrap_or_else(|| error(&format!("trace takes start [ENTRIES, 1 to {TRACE_ENTRIES_MAX}], stop or read")))
        }
        ("link", _) => link(words, rig)
            .unwrap_or_else(|| error(&format!("link takes up, down, or flap NS [TIMES], NS from 1000, TIMES from 1 to {FLAPS_MAX}"))),
        ("fault", _) => match fault_words::parse(words) {
            Ok(fault) => {
                fault.apply(&mut rig.card, &mut rig.host, &mut rig.cable);
                rig.follow_cable();
                OK.into()
            }
            Err(message) => error(&message),
        },
        ("faults", "") => faults(rig),
        ("clock", _) => clock(words, rig).unwrap_or_else(|text| error(&text)),
        ("quit", "") => {
            *quit = true;
            OK.into()
        }
        _ => error(&format!("unknown command; known are {KNOWN}")),
    }
}

fn violations(rig: &Rig) -> String {
    let counts = object(rig.card.violations_by_kind());
    let recent: Vec<String> = rig.card.recent_violations().map(text).collect();
    format!("{{\"total\": {}, \"counts\": {counts}, \"recent\": [{}]}}\n", rig.card.violations(), recent.join(", "))
}

/// Runs the command `link`. Returns None if the arguments are invalid.
fn link(words: &str, rig: &mut Rig) -> Option<String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let now = rig.now();
    match words[..] {
        ["up"] => rig.cable.set(true),
        ["down"] => rig.cable.set(false),
        ["flap", every, ref times @ ..] if times.len() < 2 => {
            let every = every.parse().ok().filter(|&every| every >= 1000)?;
            let times = times.first().map_or(Some(1), |times| times.parse().ok()).filter(|times| (1..=FLAPS_MAX).contains(times))?;
            rig.cable.flap(now, every, times);
        }
        _ => return None,
    }
    rig.follow_cable();
    Some(OK.into())
}

fn faults(rig: &Rig) -> String {
    let card = rig.card.faults();
    let queues = |bits: u128| {
        let numbers: Vec<String> = (0..128).filter(|queue| bits >> queue & 1 != 0).map(|queue| queue.to_string()).collect();
        numbers.join(", ")
    };
    format!(
        "{{\"rx\": {}, \"tx\": {}, \"hung_rx\": [{}], \"hung_tx\": [{}], \"late_ns\": {}, \"late_waiting\": {}, \"lose\": {}, \
         \"stale_heads\": {}, \"away\": {}}}\n",
        text(&rig.host.receive_faults.describe()),
        text(&rig.host.transmit_faults.describe()),
        queues(card.hung_receive),
        queues(card.hung_transmit),
        card.write_back_delay,
        card.late_write_backs(),
        text(&rig.card.message_loss()),
        text(&card.stale_heads.to_string()),
        card.gone,
    )
}

fn clock(words: &str, rig: &mut Rig) -> Result<String, String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    match words[..] {
        [] => {}
        _ if rig.host.clock.is_driven() => return Err("clock: this clock is driven by the machine, so it can only be shown".into()),
        ["stop"] => rig.host.clock.stop(),
        ["run"] => rig.host.clock.run(rig.host.clock.scale()),
        ["run", scale] => rig.host.clock.run(crate::options::time_scale(scale)?),
        ["step", by] => {
            let known = || format!("clock step takes nanoseconds from 1 to {STEP_NS_MAX}");
            let by = by.parse().ok().filter(|by| (1..=STEP_NS_MAX).contains(by)).ok_or_else(known)?;
            if !rig.host.clock.is_stopped() {
                return Err("clock step: the clock runs; clock stop comes first".into());
            }
            rig.step(by);
        }
        _ => return Err("clock takes nothing, stop, run [SCALE] or step NS".into()),
    }
    let clock = &rig.host.clock;
    let next = rig.next_deadline().map_or("null".into(), |at| at.to_string());
    Ok(format!("{{\"now\": {}, \"stopped\": {}, \"scale\": {}, \"next\": {next}}}\n", clock.now(), clock.is_stopped(), clock.scale()))
}

/// Runs the command `trace`. Returns None if the arguments are invalid.
fn trace(words: &str, rig: &mut Rig) -> Option<String> {
    let now = rig.now();
    let card = &mut rig.card;
    match words.split_once(char::is_whitespace).unwrap_or((words, "")) {
        ("start", entries) => {
            let entries_max = if entries.is_empty() { TRACE_ENTRIES } else { entries.trim().parse().ok()? };
            if !(1..=TRACE_ENTRIES_MAX).contains(&entries_max) {
                return None;
            }
            card.start_interrupt_trace(now, entries_max);
        }
        ("stop", "") => card.interrupt_trace().stop(),
        ("read", "") => {
            let trace = card.interrupt_trace();
            let entries: Vec<String> = trace.take(TRACE_PIECE).map(|entry| entry_as_json(&entry)).collect();
            let (on, lost, left) = (trace.is_on(), trace.lost(), trace.waiting());
            let entries = entries.join(", ");
            return Some(format!("{{\"on\": {on}, \"lost\": {lost}, \"left\": {left}, \"now\": {now}, \"entries\": [{entries}]}}\n"));
        }
        _ => return None,
    }
    Some(OK.into())
}

/// Returns an entry of the interrupt trace as a JSON object (docs/soft82599.md).
pub fn entry_as_json(entry: &Entry) -> String {
    let Entry { at, vector, event } = entry;
    match event {
        Event::Message { causes, held } => format!(
            "{{\"at\": {at}, \"vector\": {vector}, \"held\": {held}, \"receive\": {}, \"transmit\": {}, \"software\": {}, \"other\": {}}}",
            causes.receive, causes.transmit, causes.software, causes.other
        ),
        Event::Interval { interval, counter } => {
            let counter = counter.map_or("null".into(), |counter| counter.to_string());
            format!("{{\"at\": {at}, \"vector\": {vector}, \"interval\": {interval}, \"counter\": {counter}}}")
        }
    }
}

pub fn error(message: &str) -> String {
    format!("{{\"error\": {}}}\n", text(message))
}

/// Returns `text`, which may come from a client, as a JSON string.
fn text(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' => "\\\"".into(),
            '\\' => "\\\\".into(),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

fn object<N: AsRef<str>>(entries: impl Iterator<Item = (N, u64)>) -> String {
    let inner: Vec<String> = entries.map(|(name, value)| format!("\"{}\": {value}", name.as_ref())).collect();
    format!("{{{}}}", inner.join(", "))
}
