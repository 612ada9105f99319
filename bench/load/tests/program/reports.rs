// SPDX-License-Identifier: BSL-1.0
//! Tests of the reports for people and for programs.

use crate::common::{load, scratch_file, start, Stub};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::Histogram;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

#[test]
fn the_histogram_file_agrees_with_the_json() {
    let stub = Stub::start("--delay-us exponential:2000");
    let file = scratch_file("h.hlog");
    let words = format!(
        "--no-preload -w 0.2 -s 0.5 --scan 400:800:400 -c 50 --measure-connections 4 -q --time-out 50 --histogram {}",
        file.display()
    );
    let finished = load(&stub.address, &words);
    let log = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut found = Vec::new();
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, interval.encoded_histogram()).unwrap();
            let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            let p99 = histogram.value_at_quantile(0.99) as f64;
            found.push((interval.tag().unwrap().as_str().to_string(), histogram.len() as f64, p99));
        }
    }
    let mut expected = Vec::new();
    for run in 0..2 {
        for (tag, path) in [("measured", "measuring/latency"), ("get", "loading/latency_by_operation/get")] {
            let number = |name: &str| finished.number_of(run, &format!("{path}/{name}"));
            expected.push((tag.to_string(), number("count"), number("p99_ns")));
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn json_and_table_have_all_figures() {
    let stub = Stub::start("--preset etc");
    let finished = load(
        &stub.address,
        "--preset etc -w 0.2 -s 0.5 --rate 2000 -c 20 -t 2 --measure-connections 2 --measure-rate 300 --check-bytes --time-out 50",
    );
    let report = stub.end();
    assert!(finished.is_good, "{}", finished.stderr);
    // The server's count includes the preloaded keys.
    assert!(finished.stderr.starts_with("10000 keys stored\n"), "{}", finished.stderr);
    assert_eq!(finished.number("rate/asked"), 2300.0);
    let run = &finished.json["runs"][0];
    for name in ["loading", "measuring"] {
        assert_eq!(run[name]["requests"]["errors"], 0, "{}", finished.table);
        for part in ["latency", "latency_from_sending", "lateness"] {
            for figure in ["count", "mean_ns", "min_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "p99.9_ns", "p99.99_ns", "p100_ns"] {
                assert!(run[name][part][figure].is_number(), "{name}/{part}/{figure}");
            }
        }
        assert_eq!(finished.accounted(name), finished.number(&format!("{name}/intended")));
    }
    let outcomes = &run["loading"]["requests"]["outcomes"];
    assert!(outcomes["done"].as_f64() > Some(0.0) && outcomes["hit"].as_f64() > Some(0.0), "{outcomes}");
    assert_eq!(finished.number("connections/opened"), 22.0);
    assert_eq!(report["connections_max"], 24, "two more stored the keys");
    assert!(run["log"]["started"].is_null() && finished.json["agents"].as_array().unwrap().is_empty());
    for word in ["measured ", "get ", "set ", "all ", "from sending ", "requests/s achieved of 2300.0 asked"] {
        assert!(finished.table.contains(word), "{}", finished.table);
    }
}

#[test]
fn json_has_the_latencies_of_each_second() {
    let stub = Stub::start("--delay-us fixed:2000");
    let finished = load(&stub.address, "--rate 400 -w 0.5 -s 1.5 -c 8 --time-out 50");
    assert!(finished.is_good, "{}", finished.stderr);
    let seconds = finished.json["runs"][0]["over_time"].as_array().unwrap();
    let begins: Vec<f64> = seconds.iter().map(|second| second["from_s"].as_f64().unwrap()).collect();
    // On a busy machine the last answers may come after the window.
    assert_eq!(begins[..2], [-0.5, 0.5], "{seconds:?}");
    for second in &seconds[..2] {
        assert!(second["answered"].as_u64() > Some(0) && second["errors"] == 0, "{second}");
        assert!(second["p50_ns"].as_u64() >= Some(2_000_000) && second["p100_ns"].as_u64() >= second["p99_ns"].as_u64(), "{second}");
        let histogram: Vec<u64> = second["histogram_ns"].as_str().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        let buckets: Vec<(u64, u64)> = histogram.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), second["count"].as_u64().unwrap(), "{second}");
        assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0) && buckets[0].0 >= second["min_ns"].as_u64().unwrap(), "{second}");
        let half = second["count"].as_u64().unwrap().div_ceil(2);
        let mut seen = 0;
        let median = buckets.iter().find(|(_, count)| (seen += count, seen >= half).1).unwrap().0 as f64;
        let exact = second["p50_ns"].as_f64().unwrap();
        assert!((median / exact - 1.0).abs() < 0.02, "{median} of two digits, {exact} of three");
    }
}

#[test]
fn a_scan_has_a_run_for_each_rate() {
    let stub = Stub::start("");
    let finished = load(&stub.address, "--no-preload -w 0 -s 0.3 --scan 500:1500:500 -c 20 -q --time-out 50");
    let asked: Vec<f64> = (0..3).map(|run| finished.number_of(run, "rate/asked")).collect();
    assert_eq!(asked, [500.0, 1000.0, 1500.0]);
    assert_eq!(finished.json["runs"].as_array().unwrap().len(), 3);
}

#[test]
fn a_search_ends_at_the_highest_rate_that_held() {
    // With two connections and at least five milliseconds a request, at most 400 requests a second are possible, and fewer on a busy
    // machine.
    let stub = Stub::start("--delay-us fixed:5000");
    let finished = load(&stub.address, "--no-preload -w 0 -s 0.5 --search p50<100ms --search-from 100 -c 2 -q --time-out 50");
    let verdicts: Vec<bool> = finished.table.lines().filter(|line| line.contains(" hold")).map(|line| line.ends_with("holds")).collect();
    assert_eq!(verdicts.len(), finished.json["runs"].as_array().unwrap().len(), "{}", finished.table);
    let tried = |verdict: bool| verdicts.iter().enumerate().filter(move |(_, &held)| held == verdict).map(|(run, _)| run);
    let highest = tried(true).map(|run| finished.number_of(run, "rate/asked")).fold(0.0, f64::max);
    let lowest = tried(false).map(|run| finished.number_of(run, "rate/asked")).fold(f64::INFINITY, f64::min);
    // The search does not go below one request a second.
    assert!(highest < lowest && (lowest - highest <= 0.02 * lowest || lowest < 2.0), "{}", finished.table);
    // The rate may be above 400, because a few answers may arrive after a run of half a second.
    assert!(highest < 430.0, "{}", finished.table);
    let last = finished.table.lines().last().unwrap();
    assert_eq!(last, format!("highest rate with p50 below 100000 us: {highest:.0} requests/s"));
}

/// Imitates the control connection of a Neap machine. The thread returns the lines that it received.
fn control() -> (String, std::thread::JoinHandle<Vec<String>>) {
    control_of_build(true)
}

/// `has_marks`: false for a build that is older than the command `mark`.
fn control_of_build(has_marks: bool) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        let mut writer = stream.try_clone().unwrap();
        let mut received = Vec::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let answer = match line.as_str() {
                "rdtsc" => "ok tsc=500 tsc_hz=1000000000 now_ns=500 core=0\n",
                "start" => "ok run=7\n",
                "stop" => "ok run=7 lines=3 unwritten=0\n",
                "mark,preload" | "mark,warm_up" if has_marks => "ok no run\n",
                "mark,window" | "mark,drain" | "mark,end" if has_marks => "ok\n",
                _ => "error: what?\n",
            };
            writer.write_all(answer.as_bytes()).unwrap();
            received.push(line);
        }
        received
    });
    (address, server)
}

#[test]
fn the_log_is_started_and_stopped_once_per_run() {
    for warm_up in ["-w 0", "-w 0.3"] {
        let stub = Stub::start("");
        let (address, server) = control();
        let finished = load(&stub.address, &format!("--no-preload {warm_up} -s 0.3 --scan 200:300:100 -q --control {address}"));
        assert!(finished.is_good, "{}", finished.stderr);
        let received: Vec<String> = server.join().unwrap().into_iter().filter(|line| line != "rdtsc").collect();
        let mut once = vec!["start", "mark,window", "mark,drain", "mark,end", "stop"];
        if warm_up != "-w 0" {
            once.insert(0, "mark,warm_up");
        }
        assert_eq!(received, [once.clone(), once.clone()].concat());
        let log = &finished.json["runs"][1]["log"];
        assert_eq!((&log["started"], &log["stopped"]), (&"run=7".into(), &"run=7 lines=3 unwritten=0".into()));
        assert_eq!(log["clock"]["tsc"], 500);
        let marks = log["marks"].as_array().unwrap();
        let answers: Vec<&str> = marks.iter().map(|mark| mark["answer"].as_str().unwrap()).collect();
        assert_eq!(answers, if warm_up == "-w 0" { vec![""; 3] } else { vec!["no run", "", "", ""] });
        assert!(marks.windows(2).all(|pair| pair[0]["unix_ns"].as_u64() < pair[1]["unix_ns"].as_u64()), "{marks:?}");
    }
}

#[test]
fn the_log_starts_with_the_phase_that_is_asked_for() {
    let cases = [
        ("preload", "start mark,preload mark,warm_up mark,window mark,drain mark,end stop"),
        ("warm-up", "mark,preload start mark,warm_up mark,window mark,drain mark,end stop"),
        ("window", "mark,preload mark,warm_up start mark,window mark,drain mark,end stop"),
        ("never", "mark,preload mark,warm_up mark,window mark,drain mark,end"),
    ];
    for (phase, expected) in cases {
        let stub = Stub::start("");
        let (address, server) = control();
        let finished = load(&stub.address, &format!("--keys 100 -w 0.2 -s 0.2 -q --control {address} --log-from {phase}"));
        assert!(finished.is_good, "{}", finished.stderr);
        let received: Vec<String> = server.join().unwrap().into_iter().filter(|line| line != "rdtsc").collect();
        assert_eq!(received.join(" "), expected);
    }
}

#[test]
fn a_machine_that_refuses_marks_is_loaded_without_them() {
    let stub = Stub::start("");
    let (address, server) = control_of_build(false);
    let finished = load(&stub.address, &format!("--no-preload -w 0 -s 0.2 --scan 200:300:100 -q --control {address}"));
    assert!(finished.is_good, "{}", finished.stderr);
    let received: Vec<String> = server.join().unwrap().into_iter().filter(|line| line != "rdtsc").collect();
    assert_eq!(received, ["start", "mark,window", "stop", "start", "stop"], "it is asked once");
    assert_eq!(finished.json["runs"][0]["log"]["marks"].as_array().unwrap().len(), 0);
}

#[test]
fn a_run_that_is_stopped_in_its_warm_up_starts_no_log() {
    let stub = Stub::start("");
    let (address, server) = control();
    let mut run = start(&stub.address, &format!("--no-preload -w 500 -s 1 --control {address}"));
    run.wait_for("    1 ");
    run.interrupt();
    assert!(run.end().is_good);
    let received: Vec<String> = server.join().unwrap().into_iter().filter(|line| line != "rdtsc").collect();
    assert_eq!(received, ["mark,warm_up", "mark,end"]);
}
