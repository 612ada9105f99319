// SPDX-License-Identifier: BSL-1.0
//! Does it measure what happened?

use crate::common::{load, Stub};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

fn percentile(report: &Value, name: &str) -> f64 {
    report["delay"][name].as_f64().unwrap()
}

/// One comparison; Err: a figure that is further off than 2%.
fn compared() -> Result<(), String> {
    let stub = Stub::start("--delay-us exponential:200000");
    let ended = load(&stub.address, "--no-preload -w 0 -s 3 --rate 1500 -c 2000 --check-bytes -q --time-out 20");
    let report = stub.end();
    assert_eq!(ended.number("loading/requests/errors"), 0.0);
    assert_eq!(ended.number("loading/latency/count"), report["answers"].as_f64().unwrap());
    for name in ["p50_ns", "p99_ns", "p99.9_ns"] {
        let (made, measured) = (percentile(&report, name), ended.number(&format!("loading/latency_from_sending/{name}")));
        if (measured / made - 1.0).abs() > 0.02 {
            return Err(format!("{name}: {measured} where {made} was made"));
        }
        // From the intended moment on this program's own lateness comes on top, and is stated.
        let intended = ended.number(&format!("loading/latency/{name}"));
        let late = ended.number("loading/lateness/p100_ns");
        assert!(intended > made * 0.98 && intended < made * 1.02 + late, "{name}: {intended} where {made} was made, {late} late");
    }
    Ok(())
}

// Delays long against what a busy machine adds between the two. Both books hold the same requests: no chance in the comparison. A machine
// that keeps both from running for long is no fault of the measurement, but it does not do so three times over.
#[test]
fn percentiles_are_those_of_the_delays_that_were_made() {
    let why: Vec<String> = (0..3).map_while(|_| compared().err()).collect();
    assert!(why.len() < 3, "{why:?}");
}

/// The latency that a hundredth of evenly spread requests exceed if the server stands still so long, so often.
fn p99_of_freezes(freezes_ns: &[f64], seconds: f64) -> f64 {
    let beyond = |x: f64| freezes_ns.iter().map(|freeze| (freeze - x).max(0.0)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e10);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if beyond(middle) > 0.01 * seconds * 1e9 {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[test]
fn a_freeze_shows_in_p99_as_it_should_and_a_closed_loop_hides_it() {
    let run = |words: &str| {
        let stub = Stub::start("--freeze 1000:100");
        let ended = load(&stub.address, &format!("--no-preload -w 0 -s 3 -q --time-out 20 {words}"));
        let freezes: Vec<f64> = stub.end()["freezes_ns"].as_array().unwrap().iter().map(|length| length.as_f64().unwrap()).collect();
        assert!(freezes.len() >= 2, "{freezes:?}");
        (ended.number("loading/latency/p99_ns"), p99_of_freezes(&freezes, 3.0))
    };
    let (open, expected) = run("--rate 1000 --arrivals fixed -c 400");
    assert!((open / expected - 1.0).abs() < 0.1, "{open} where {expected} was to be seen");
    // The contrast: who waits for its one reply asks for nothing meanwhile.
    let (closed, expected) = run("--closed -c 1");
    assert!(closed < expected / 4.0, "{closed} where requests would have seen {expected}");
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
    let ended = load(&stub.address, &format!("--no-preload -w 0 -s 3 --rate 5000 -c {connections} -q --time-out 60"));
    let report = stub.end();
    assert_eq!(report["connections_max"], connections, "{}", ended.aside);
    assert_eq!((ended.number("loading/requests/errors"), ended.number("connections/lost")), (0.0, 0.0));
    assert_eq!(ended.number("loading/intended"), report["requests"].as_f64().unwrap());
    assert!(ended.number("loading/intended") > connections as f64);
}
