// SPDX-License-Identifier: BSL-1.0
//! The load of a web server: its pages, and its faults.

use crate::common::{load, Stub};

#[test]
fn each_preset_accepts_its_page() {
    for (preset, operation) in [("http", "get"), ("hello", "get"), ("study", "get"), ("json", "set")] {
        let stub = Stub::start(&format!("--preset {preset}"));
        let finished = load(&stub.address, &format!("--protocol http --preset {preset} -w 0 -s 0.3 --rate 1000 -d 4 -q --time-out 50"));
        let report = stub.end();
        assert!(finished.is_good, "{}", finished.stderr);
        assert_eq!(finished.number("loading/requests/errors"), 0.0, "{}", finished.table);
        let answered = finished.number("loading/requests/outcomes/done");
        assert!(answered > 0.0 && answered == finished.number("loading/intended"), "{}", finished.table);
        assert_eq!(report["requests"].as_f64(), Some(answered), "nothing is stored before the run");
        assert_eq!(finished.number(&format!("loading/latency_by_operation/{operation}/count")), answered);
        assert!(finished.table.contains("\nerrors 0\n"), "{}", finished.table);
    }
}

#[test]
fn the_studies_run_ends_after_its_requests() {
    let stub = Stub::start("--preset study");
    let finished = load(&format!("http://{}/", stub.address), "--preset study -w 0 -q --time-out 50");
    assert!(finished.is_good, "{}", finished.stderr);
    assert_eq!(finished.number("loading/intended"), 100_000.0);
    assert_eq!(finished.number("loading/requests/outcomes/done"), 100_000.0, "{}", finished.table);
    assert!(finished.table.contains("closed loop") && finished.number("connections/opened") == 16.0, "{}", finished.table);
}

#[test]
fn a_number_of_requests_ends_every_pace() {
    for (preset, words) in [("fixed", "--closed -d 3"), ("fixed", "--rate 5000"), ("hello", "--rate 5000"), ("json", "--closed")] {
        let stub = Stub::start(&format!("--preset {preset}"));
        let finished = load(&stub.address, &format!("--preset {preset} {words} --requests 1001 -w 0.1 -t 2 -q --time-out 50"));
        assert!(finished.is_good, "{}", finished.stderr);
        assert_eq!(finished.number("loading/intended"), 1001.0, "{preset} {words}: {}", finished.table);
        assert_eq!((finished.accounted("loading"), finished.number("loading/requests/errors")), (1001.0, 0.0), "{preset} {words}");
    }
}

// A server may end a connection with a reply that says so. The request is answered, and the next one takes another connection.
#[test]
fn a_last_reply_loses_its_connection_and_no_request() {
    let stub = Stub::start("--preset hello --fault last-reply --every 25");
    let finished = load(&stub.address, "--preset hello -w 0 -s 0.5 --rate 1000 -c 50 -q --time-out 50");
    let report = stub.end();
    assert!(finished.is_good, "{}", finished.stderr);
    assert_eq!(finished.number("loading/requests/outcomes/done"), finished.number("loading/intended"), "{}", finished.table);
    assert_eq!(finished.number("connections/lost"), report["faults"].as_f64().unwrap());
    assert!(finished.number("connections/lost") > 5.0);
}

#[test]
fn each_fault_is_counted_by_its_kind() {
    for (preset, fault, kind) in [
        ("hello", "close", "failures/closed"),
        ("hello", "reset", "failures/reset"),
        ("json", "half", "failures/half_reply"),
        ("hello", "stall", "failures/timed_out"),
        ("hello", "garbage", "failures/garbage"),
        ("hello", "endless", "failures/garbage"),
        ("json", "wrong-key", "outcomes/wrong_bytes"),
        ("study", "wrong-length", "outcomes/wrong_length"),
        ("study", "wrong-bytes", "outcomes/wrong_bytes"),
        ("hello", "server-error", "outcomes/server_error"),
        ("hello", "miss", "outcomes/wrong_reply"),
    ] {
        let stub = Stub::start(&format!("--preset {preset} --fault {fault} --every 25"));
        let time_out = if fault == "stall" { 4.0 } else { 50.0 };
        let words = format!("--preset {preset} -w 0 -s 0.5 --rate 1000 -c 50 -q --time-out {time_out}");
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
    }
}
