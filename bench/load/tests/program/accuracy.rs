// SPDX-License-Identifier: BSL-1.0
//! Compares measured latencies with the real delays of the stub server.

use crate::common::{load, Finished, Stub};
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// Largest number of attempts. A busy machine may delay client and server, and both record their largest lateness. Each attempt must
/// measure at least `made_min`, and match the real delay within tolerance plus lateness. The attempts end when one of them matches within
/// the tolerance alone.
const ATTEMPTS: usize = 3;
/// The recorded lateness does not include the client's delay between a reply's arrival in the kernel and the reading of the clock. So the
/// recorded lateness is multiplied by this factor.
const UNRECORDED_FACTOR: f64 = 2.0;
/// The histograms of client and server round to three digits.
const ROUNDING: f64 = 0.002;

/// In nanoseconds: the server's real delay, the lowest latency allowed, the measured latency, and both programs' largest lateness.
struct Figure {
    name: &'static str,
    made: f64,
    made_min: f64,
    measured: f64,
    late: f64,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} measured for a delay of {}, largest lateness of both {}", self.name, self.measured, self.made, self.late)
    }
}

/// Repeats the attempt until its figures are within `tolerance`.
fn close_within(tolerance: f64, attempt: impl Fn() -> Vec<Figure>) {
    for number in 1..=ATTEMPTS {
        let figures = attempt();
        for figure in &figures {
            println!("attempt {number}: {figure}");
            let allowed = figure.made * tolerance + UNRECORDED_FACTOR * figure.late;
            assert!(figure.measured >= figure.made_min && (figure.measured - figure.made).abs() <= allowed, "{figure}");
        }
        if figures.iter().all(|figure| (figure.measured / figure.made - 1.0).abs() <= tolerance) {
            return;
        }
    }
    println!("this machine was too busy for a tolerance of {}%", tolerance * 100.0);
}

// The histograms of client and server contain the same requests, so the comparison does not depend on chance.
#[test]
fn percentiles_are_those_of_the_delays_that_were_made() {
    close_within(0.02, || {
        let stub = Stub::start("--delay-us exponential:200000");
        let finished = load(&stub.address, "--no-preload -w 0 -s 3 --rate 1500 -c 2000 --check-bytes -q --time-out 50");
        let report = stub.end();
        assert_eq!(finished.number("loading/requests/errors"), 0.0, "{}", finished.table);
        assert_eq!(finished.number("loading/latency/count"), report["answers"].as_f64().unwrap());
        let own_late = finished.number("loading/lateness/p100_ns");
        let late = own_late + report["late_max_ns"].as_f64().unwrap();
        let figure = |name| {
            let measured = finished.number(&format!("loading/latency_from_sending/{name}"));
            // The latency from the intended time includes neap-load's own lateness.
            let intended = finished.number(&format!("loading/latency/{name}"));
            assert!(intended >= measured * (1.0 - ROUNDING) && intended <= measured * (1.0 + ROUNDING) + own_late, "{name}: {intended}");
            let made = report["delay"][name].as_f64().unwrap();
            Figure { name, made, made_min: made * (1.0 - ROUNDING), measured, late }
        };
        ["p50_ns", "p99_ns", "p99.9_ns"].map(figure).into()
    });
}

/// Returns the latency that 1 % of evenly spaced requests exceed. `absences_ns`: start and length of the server's times without polls.
fn p99_of_absences(absences_ns: &[(f64, f64)], window_ns: f64) -> f64 {
    // A request that arrives during an absence waits for the rest of the absence.
    let beyond = |x: f64| absences_ns.iter().map(|(since, length)| ((since + length - x).min(window_ns) - since).max(0.0)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e11);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if beyond(middle) > 0.01 * window_ns {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Loads a server that freezes. Returns the result, the expected p99, and the server's total time without polls outside the freezes.
fn frozen((every_ms, for_ms): (u64, u64), seconds: f64, words: &str) -> (Finished, f64, f64) {
    let stub = Stub::start(&format!("--freeze {every_ms}:{for_ms}"));
    let finished = load(&stub.address, &format!("--no-preload -w 0 -s {seconds} -q --time-out 50 {words}"));
    let absences: Vec<(f64, f64)> = serde_json::from_value(stub.end()["absences_ns"].take()).unwrap();
    let (meant, not_meant): (Vec<f64>, Vec<f64>) =
        absences.iter().map(|(_, length)| length).partition(|&&length| length >= for_ms as f64 * 1e6);
    assert!(!meant.is_empty(), "{absences:?}");
    (finished, p99_of_absences(&absences, seconds * 1e9), not_meant.iter().sum())
}

#[test]
fn a_freeze_of_a_tenth_of_each_second_shows_in_p99_as_it_should() {
    close_within(0.05, || {
        let (finished, made, away) = frozen((1000, 100), 4.0, "--rate 2000 --arrivals fixed -c 800");
        let late = finished.number("loading/lateness/p100_ns") + away;
        // The window of 4 s has three freezes or more. 1 % of its requests are due in the first 14 ms of the freezes, and wait over 80 ms.
        vec![Figure { name: "p99_ns", made, made_min: 80e6, measured: finished.number("loading/latency/p99_ns"), late }]
    });
}

// Unlike an open loop, a closed loop with one request in flight sends no requests during the freeze.
#[test]
fn a_closed_loop_hides_a_freeze() {
    let (finished, made, _) = frozen((2000, 1000), 3.0, "--closed -c 1");
    let measured = finished.number("loading/latency/p99_ns");
    assert!(measured < made / 4.0, "{measured} where an open loop would have measured {made}");
}

#[test]
fn an_overloaded_server_has_not_achieved_the_rate() {
    // Four connections have one request in flight each, which takes ten milliseconds or more. So at most 400 requests a second are
    // possible.
    let stub = Stub::start("--delay-us fixed:10000");
    let finished = load(&stub.address, "--no-preload -w 0 -s 2 --rate 1200 -c 4 -q --time-out 1");
    drop(stub);
    assert!(finished.number("rate/achieved") < 410.0, "{}", finished.table);
    assert!(finished.number("rate/intended") > 1000.0);
    assert!(finished.number("loading/waited_for_room") > 0.0);
    assert!(finished.number("loading/requests/failures/never_sent") > 0.0);
    // The latency from the intended time shows the wait for a connection; the latency from the send does not.
    assert!(finished.number("loading/latency/p50_ns") > 5.0 * finished.number("loading/latency_from_sending/p50_ns"));
    assert_eq!(finished.accounted("loading"), finished.number("loading/intended"));
}

/// Runs the program against a server that answers every line with a miss. Returns the bytes that the server received.
fn recorded(words: &str) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let mut stream: TcpStream = listener.accept().unwrap().0;
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
            all.extend_from_slice(&buffer[..bytes]);
            for _ in buffer[..bytes].iter().filter(|&&byte| byte == b'\n') {
                stream.write_all(b"END\r\n").unwrap();
            }
        }
        all
    });
    assert!(load(&address, &format!("--no-preload -w 0 -s 0.5 --rate 2000 -c 1 -d 1000 -q {words}")).is_good);
    server.join().unwrap()
}

#[test]
fn the_same_seed_gives_the_same_requests() {
    let first = recorded("--seed 5 --preset etc --update 0 --popularity zipf");
    assert!(first.iter().filter(|&&byte| byte == b'\n').count() > 500);
    assert_eq!(first, recorded("--seed 5 --preset etc --update 0 --popularity zipf"));
    assert_ne!(first, recorded("--seed 6 --preset etc --update 0 --popularity zipf"));
}

#[test]
fn ten_thousand_connections_from_one_process() {
    use rustix::process::{getrlimit, Resource};
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    // Uses 10,000 connections, or fewer if this user may not open so many files.
    let connections = allowed.saturating_sub(200).min(10_000);
    let stub = Stub::start("");
    let finished = load(&stub.address, &format!("--no-preload -w 0 -s 3 --rate 5000 -c {connections} -q --time-out 100"));
    let report = stub.end();
    assert_eq!(report["connections_max"], connections, "{}", finished.stderr);
    assert_eq!((finished.number("loading/requests/errors"), finished.number("connections/lost")), (0.0, 0.0));
    assert_eq!(finished.number("loading/intended"), report["requests"].as_f64().unwrap());
    assert!(finished.number("loading/intended") > connections as f64);
}
