// SPDX-License-Identifier: BSL-1.0
//! Failures are counted by kind and never end the program.

use crate::common::{load, start, Stub};
use std::net::TcpListener;

#[test]
fn each_fault_is_counted_by_its_kind() {
    for (fault, kind) in [
        ("close", "failures/closed"),
        ("reset", "failures/reset"),
        ("half", "failures/half_reply"),
        ("stall", "failures/timed_out"),
        ("garbage", "failures/garbage"),
        ("endless", "failures/garbage"),
        ("wrong-key", "outcomes/wrong_key"),
        ("wrong-length", "outcomes/wrong_length"),
        ("wrong-bytes", "outcomes/wrong_bytes"),
        ("server-error", "outcomes/server_error"),
        ("miss", "outcomes/miss"),
    ] {
        let stub = Stub::start(&format!("--fault {fault} --every 25"));
        // The time-out is so long that a busy machine alone causes no time-outs.
        let time_out = if fault == "stall" { 4.0 } else { 50.0 };
        let words = format!("--no-preload -w 0 -s 0.5 --rate 1000 -c 50 --check-bytes -q --time-out {time_out}");
        let finished = load(&stub.address, &words);
        let report = stub.end();
        assert!(finished.is_good, "{fault}: {}", finished.stderr);
        let faults = report["faults"].as_f64().unwrap();
        assert!(faults > 5.0, "{fault}: {report}");
        // If an endless answer is still arriving when the run ends, the client counts it as another failure.
        let counted_min = if fault == "endless" { 1.0 } else { faults };
        let counted = finished.number(&format!("loading/requests/{kind}"));
        assert!(counted >= counted_min && counted <= faults, "{fault}: {counted} of {faults}\n{}", finished.table);
        assert_eq!(finished.accounted("loading"), finished.number("loading/intended"), "{fault}");
        let is_error = fault != "miss";
        assert_eq!(finished.number("loading/requests/errors") != 0.0, is_error, "{fault}");
        assert_eq!(finished.table.contains(&format!("{} ", kind.split('/').next_back().unwrap())), is_error, "{}", finished.table);
    }
}

#[test]
fn the_load_survives_the_end_of_its_server() {
    let stub = Stub::start("");
    let mut run = start(&stub.address, "--no-preload -w 0 -s 600 --rate 1000 -c 20 -d 4");
    run.wait_for(" requests/s");
    run.wait_for("    1 ");
    stub.kill();
    run.wait_for("    4 ");
    run.interrupt();
    let finished = run.end();
    assert!(finished.is_good, "{}", finished.stderr);
    assert!(finished.number("connections/refused") > 0.0);
    assert!(finished.number("connections/lost") >= 20.0);
    assert!(finished.number("loading/requests/failures/never_sent") > 0.0);
    assert_eq!(finished.accounted("loading"), finished.number("loading/intended"));
}

#[test]
fn ctrl_c_prints_the_results_so_far() {
    for words in ["--rate 1000 -w 0", "--closed -w 0", "--rate 1000 -w 500", "--rate 1000 -w 0 --arrivals bursts:1000"] {
        let stub = Stub::start("--delay-us exponential:1000");
        let mut run = start(&stub.address, &format!("--no-preload -s 600 -c 20 {words}"));
        run.wait_for("    2 ");
        run.interrupt();
        let finished = run.end();
        assert!(finished.is_good, "{words}: {}", finished.stderr);
        assert!(finished.table.contains("requests/s") && finished.table.contains("stopped before its time"), "{words}: {}", finished.table);
        assert_eq!(finished.json["stopped_early"], true);
        let has_begun = words.contains("-w 0");
        assert_eq!(finished.number("loading/intended") != 0.0, has_begun, "{words}");
        assert_eq!(finished.accounted("loading"), finished.number("loading/intended"), "{words}");
        assert!(finished.number("seconds") < 300.0);
    }
}

#[test]
fn a_setup_error_is_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let unused = taken.local_addr().unwrap().to_string();
    drop(taken);
    for (address, words, named) in [
        (unused.as_str(), "", "cannot connect"),
        (unused.as_str(), "--rate-file /nowhere", "/nowhere"),
        (unused.as_str(), "--histogram /nowhere/h", "/nowhere/h"),
        (unused.as_str(), "-c 900000", "ulimit"),
        (unused.as_str(), "-c 0", "--connections 0"),
        ("no.such.host.invalid:1", "", "no.such.host"),
    ] {
        let finished = load(address, words);
        assert!(!finished.is_good, "{words}");
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        assert!(finished.stderr.contains(named), "{}", finished.stderr);
    }
}

// If the server does not answer, preloading must end with one error line.
#[test]
fn preloading_ends_with_the_first_failure() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let finished = load(&silent.local_addr().unwrap().to_string(), "--time-out 0.5 -s 1 -q");
    assert!(!finished.is_good);
    assert!(finished.stderr.contains("storing keys beforehand failed after 0: timed_out 32"), "{}", finished.stderr);
}
