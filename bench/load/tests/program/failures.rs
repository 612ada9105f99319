// SPDX-License-Identifier: BSL-1.0
//! What goes wrong is counted by its kind, and never brings the program down.

use crate::common::{load, start, Stub};
use std::net::TcpListener;

#[test]
fn each_fault_is_counted_as_what_it_is() {
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
        // Long enough for a machine that is out of cores to make no time-outs of its own.
        let time_out = if fault == "stall" { 4.0 } else { 50.0 };
        let words = format!("--no-preload -w 0 -s 0.5 --rate 1000 -c 50 --check-bytes -q --time-out {time_out}");
        let ended = load(&stub.address, &words);
        let report = stub.end();
        assert!(ended.is_good, "{fault}: {}", ended.aside);
        let faults = report["faults"].as_f64().unwrap();
        assert!(faults > 5.0, "{fault}: {report}");
        // An answer that goes on and on may still do so at the end.
        let least = if fault == "endless" { 1.0 } else { faults };
        let counted = ended.number(&format!("loading/requests/{kind}"));
        assert!(counted >= least && counted <= faults, "{fault}: {counted} of {faults}\n{}", ended.table);
        assert_eq!(ended.accounted("loading"), ended.number("loading/intended"), "{fault}");
        let is_error = fault != "miss";
        assert_eq!(ended.number("loading/requests/errors") != 0.0, is_error, "{fault}");
        assert_eq!(ended.table.contains(&format!("{} ", kind.split('/').next_back().unwrap())), is_error, "{}", ended.table);
    }
}

#[test]
fn a_server_that_dies_is_outlived() {
    let stub = Stub::start("");
    let mut run = start(&stub.address, "--no-preload -w 0 -s 600 --rate 1000 -c 20 -d 4");
    run.wait_for(" requests/s");
    run.wait_for("    1 ");
    stub.kill();
    run.wait_for("    4 ");
    run.interrupt();
    let ended = run.end();
    assert!(ended.is_good, "{}", ended.aside);
    assert!(ended.number("connections/refused") > 0.0);
    assert!(ended.number("connections/lost") >= 20.0);
    assert!(ended.number("loading/requests/failures/never_sent") > 0.0);
    assert_eq!(ended.accounted("loading"), ended.number("loading/intended"));
}

#[test]
fn ctrl_c_prints_what_there_is() {
    for words in ["--rate 1000 -w 0", "--closed -w 0", "--rate 1000 -w 500", "--rate 1000 -w 0 --arrivals bursts:1000"] {
        let stub = Stub::start("--delay-us exponential:1000");
        let mut run = start(&stub.address, &format!("--no-preload -s 600 -c 20 {words}"));
        run.wait_for("    2 ");
        run.interrupt();
        let ended = run.end();
        assert!(ended.is_good, "{words}: {}", ended.aside);
        assert!(ended.table.contains("requests/s") && ended.table.contains("stopped before its time"), "{words}: {}", ended.table);
        assert_eq!(ended.json["stopped_early"], true);
        let has_begun = words.contains("-w 0");
        assert_eq!(ended.number("loading/intended") != 0.0, has_begun, "{words}");
        assert_eq!(ended.accounted("loading"), ended.number("loading/intended"), "{words}");
        assert!(ended.number("seconds") < 300.0);
    }
}

#[test]
fn what_cannot_work_is_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = taken.local_addr().unwrap().to_string();
    drop(taken);
    for (address, words, named) in [
        (nobody.as_str(), "", "cannot connect"),
        (nobody.as_str(), "--rate-file /nowhere", "/nowhere"),
        (nobody.as_str(), "--histogram /nowhere/h", "/nowhere/h"),
        (nobody.as_str(), "-c 900000", "ulimit"),
        (nobody.as_str(), "-c 0", "--connections 0"),
        ("no.such.host.invalid:1", "", "no.such.host"),
    ] {
        let ended = load(address, words);
        assert!(!ended.is_good, "{words}");
        assert_eq!(ended.aside.lines().count(), 1, "{}", ended.aside);
        assert!(ended.aside.contains(named), "{}", ended.aside);
    }
}

// Storing keys must end when the server does not answer, with one line.
#[test]
fn preloading_ends_with_the_first_failure() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let ended = load(&silent.local_addr().unwrap().to_string(), "--time-out 0.5 -s 1 -q");
    assert!(!ended.is_good);
    assert!(ended.aside.contains("storing keys beforehand failed after 0: timed_out 32"), "{}", ended.aside);
}
