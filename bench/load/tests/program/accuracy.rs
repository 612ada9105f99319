// SPDX-License-Identifier: BSL-1.0
//! Does it measure what happened?

use crate::common::{load, Ended, Stub};
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// A machine that runs tests may keep both programs from running at any time, and both write down how late they ever were. So of each
/// attempt it is asserted that the measurement misses nothing of what was made for certain, and is no further off than those books allow;
/// and attempts are made until one is as close as on a quiet machine.
const ATTEMPTS: usize = 3;
/// Times what the books say: the client's way from the kernel to its clock has no book.
const UNSEEN: f64 = 2.0;
/// Three digits, in each of the two histograms.
const ROUNDING: f64 = 0.002;

/// Nanoseconds: what was made, what of it is certain, what was measured, and how late both programs were at most.
struct Figure {
    name: &'static str,
    made: f64,
    least: f64,
    measured: f64,
    late: f64,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} measured where {} was made, both late by {} at most", self.name, self.measured, self.made, self.late)
    }
}

/// Attempts until the figures of one are as close as they should be.
fn close_within(tolerance: f64, attempt: impl Fn() -> Vec<Figure>) {
    for number in 1..=ATTEMPTS {
        let figures = attempt();
        for figure in &figures {
            println!("attempt {number}: {figure}");
            let allowed = figure.made * tolerance + UNSEEN * figure.late;
            assert!(figure.measured >= figure.least && (figure.measured - figure.made).abs() <= allowed, "{figure}");
        }
        if figures.iter().all(|figure| (figure.measured / figure.made - 1.0).abs() <= tolerance) {
            return;
        }
    }
    println!("this machine has been too busy for {}%", tolerance * 100.0);
}

// Both books hold the same requests: no chance in the comparison.
#[test]
fn percentiles_are_those_of_the_delays_that_were_made() {
    close_within(0.02, || {
        let stub = Stub::start("--delay-us exponential:200000");
        let ended = load(&stub.address, "--no-preload -w 0 -s 3 --rate 1500 -c 2000 --check-bytes -q --time-out 50");
        let report = stub.end();
        assert_eq!(ended.number("loading/requests/errors"), 0.0, "{}", ended.table);
        assert_eq!(ended.number("loading/latency/count"), report["answers"].as_f64().unwrap());
        let own_late = ended.number("loading/lateness/p100_ns");
        let late = own_late + report["late_max_ns"].as_f64().unwrap();
        let figure = |name| {
            let measured = ended.number(&format!("loading/latency_from_sending/{name}"));
            // From the intended moment on, this program's own lateness comes on top.
            let intended = ended.number(&format!("loading/latency/{name}"));
            assert!(intended >= measured * (1.0 - ROUNDING) && intended <= measured * (1.0 + ROUNDING) + own_late, "{name}: {intended}");
            let made = report["delay"][name].as_f64().unwrap();
            Figure { name, made, least: made * (1.0 - ROUNDING), measured, late }
        };
        ["p50_ns", "p99_ns", "p99.9_ns"].map(figure).into()
    });
}

/// The latency that a hundredth of evenly spread requests exceed if the server is away at these times (since when, for how long).
fn p99_of_absences(absences_ns: &[(f64, f64)], window_ns: f64) -> f64 {
    // Who asks at a time within an absence waits for the rest of it.
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

/// What a load says of a server that freezes, what p99 must then be, and for how long in all the server was away without meaning to.
fn frozen((every_ms, for_ms): (u64, u64), seconds: f64, words: &str) -> (Ended, f64, f64) {
    let stub = Stub::start(&format!("--freeze {every_ms}:{for_ms}"));
    let ended = load(&stub.address, &format!("--no-preload -w 0 -s {seconds} -q --time-out 50 {words}"));
    let absences: Vec<(f64, f64)> = serde_json::from_value(stub.end()["absences_ns"].take()).unwrap();
    let (meant, not_meant): (Vec<f64>, Vec<f64>) =
        absences.iter().map(|(_, length)| length).partition(|&&length| length >= for_ms as f64 * 1e6);
    assert!(!meant.is_empty(), "{absences:?}");
    (ended, p99_of_absences(&absences, seconds * 1e9), not_meant.iter().sum())
}

#[test]
fn a_freeze_of_a_tenth_of_each_second_shows_in_p99_as_it_should() {
    close_within(0.05, || {
        let (ended, made, away) = frozen((1000, 100), 4.0, "--rate 2000 --arrivals fixed -c 800");
        let late = ended.number("loading/lateness/p100_ns") + away;
        // Three of the four freezes are within the window however late its requests were, and 40 ms of it are its hundredth.
        vec![Figure { name: "p99_ns", made, least: 80e6, measured: ended.number("loading/latency/p99_ns"), late }]
    });
}

// The contrast: who waits for its one reply asks for nothing meanwhile.
#[test]
fn a_closed_loop_hides_a_freeze() {
    let (ended, made, _) = frozen((2000, 1000), 3.0, "--closed -c 1");
    let measured = ended.number("loading/latency/p99_ns");
    assert!(measured < made / 4.0, "{measured} where requests at moments of their own would have seen {made}");
}

#[test]
fn a_server_that_falls_behind_has_not_achieved_the_rate() {
    // Four connections with a request each of ten milliseconds or more: at most 400 a second.
    let stub = Stub::start("--delay-us fixed:10000");
    let ended = load(&stub.address, "--no-preload -w 0 -s 2 --rate 1200 -c 4 -q --time-out 1");
    drop(stub);
    assert!(ended.number("rate/achieved") < 410.0, "{}", ended.table);
    assert!(ended.number("rate/intended") > 1000.0);
    assert!(ended.number("loading/waited_for_room") > 0.0);
    assert!(ended.number("loading/requests/failures/never_sent") > 0.0);
    // It shows from the intended moment on, not from the sending.
    assert!(ended.number("loading/latency/p50_ns") > 5.0 * ended.number("loading/latency_from_sending/p50_ns"));
    assert_eq!(ended.accounted("loading"), ended.number("loading/intended"));
}

/// Answers every line with a miss, and gives the lines.
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
fn the_same_seed_asks_the_same() {
    let first = recorded("--seed 5 --preset etc --update 0 --popularity zipf");
    assert!(first.iter().filter(|&&byte| byte == b'\n').count() > 500);
    assert_eq!(first, recorded("--seed 5 --preset etc --update 0 --popularity zipf"));
    assert_ne!(first, recorded("--seed 6 --preset etc --update 0 --popularity zipf"));
}

#[test]
fn ten_thousand_connections_from_one_process() {
    use rustix::process::{getrlimit, Resource};
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    // Fewer only where this user may not open so many files.
    let connections = allowed.saturating_sub(200).min(10_000);
    let stub = Stub::start("");
    let ended = load(&stub.address, &format!("--no-preload -w 0 -s 3 --rate 5000 -c {connections} -q --time-out 100"));
    let report = stub.end();
    assert_eq!(report["connections_max"], connections, "{}", ended.aside);
    assert_eq!((ended.number("loading/requests/errors"), ended.number("connections/lost")), (0.0, 0.0));
    assert_eq!(ended.number("loading/intended"), report["requests"].as_f64().unwrap());
    assert!(ended.number("loading/intended") > connections as f64);
}
