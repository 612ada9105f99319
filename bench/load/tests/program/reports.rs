// SPDX-License-Identifier: BSL-1.0
//! What a person and other programs read.

use crate::common::{load, scratch_file, start, Stub};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::Histogram;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

#[test]
fn the_histogram_file_holds_what_the_json_says() {
    let stub = Stub::start("--delay-us exponential:2000");
    let file = scratch_file("h.hlog");
    let words = format!(
        "--no-preload -w 0.2 -s 0.5 --scan 400:800:400 -c 50 --measure-connections 4 -q --time-out 50 --histogram {}",
        file.display()
    );
    let ended = load(&stub.address, &words);
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
            let number = |name: &str| ended.number_of(run, &format!("{path}/{name}"));
            expected.push((tag.to_string(), number("count"), number("p99_ns")));
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn json_and_table_have_all_figures() {
    let stub = Stub::start("--preset etc");
    let ended = load(
        &stub.address,
        "--preset etc -w 0.2 -s 0.5 --rate 2000 -c 20 -t 2 --measure-connections 2 --measure-rate 300 --check-bytes --time-out 50",
    );
    let report = stub.end();
    assert!(ended.is_good, "{}", ended.aside);
    // Those stored beforehand are in the server's count.
    assert!(ended.aside.starts_with("10000 keys stored\n"), "{}", ended.aside);
    assert_eq!(ended.number("rate/asked"), 2300.0);
    let run = &ended.json["runs"][0];
    for name in ["loading", "measuring"] {
        assert_eq!(run[name]["requests"]["errors"], 0, "{}", ended.table);
        for part in ["latency", "latency_from_sending", "lateness"] {
            for figure in ["count", "mean_ns", "min_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "p99.9_ns", "p99.99_ns", "p100_ns"] {
                assert!(run[name][part][figure].is_number(), "{name}/{part}/{figure}");
            }
        }
        assert_eq!(ended.accounted(name), ended.number(&format!("{name}/intended")));
    }
    let outcomes = &run["loading"]["requests"]["outcomes"];
    assert!(outcomes["done"].as_f64() > Some(0.0) && outcomes["hit"].as_f64() > Some(0.0), "{outcomes}");
    assert_eq!(ended.number("connections/opened"), 22.0);
    assert_eq!(report["connections_max"], 24, "two more stored the keys");
    assert!(run["log"]["started"].is_null() && ended.json["agents"].as_array().unwrap().is_empty());
    for word in ["measured ", "get ", "set ", "all ", "from sending ", "requests/s achieved of 2300.0 asked"] {
        assert!(ended.table.contains(word), "{}", ended.table);
    }
}

#[test]
fn a_scan_has_a_run_for_each_rate() {
    let stub = Stub::start("");
    let ended = load(&stub.address, "--no-preload -w 0 -s 0.3 --scan 500:1500:500 -c 20 -q --time-out 50");
    let asked: Vec<f64> = (0..3).map(|run| ended.number_of(run, "rate/asked")).collect();
    assert_eq!(asked, [500.0, 1000.0, 1500.0]);
    assert_eq!(ended.json["runs"].as_array().unwrap().len(), 3);
}

#[test]
fn a_search_ends_at_the_highest_rate_that_held() {
    // Two connections, five milliseconds a request or more: never above 400 a second, and less on a machine that is busy otherwise.
    let stub = Stub::start("--delay-us fixed:5000");
    let ended = load(&stub.address, "--no-preload -w 0 -s 0.5 --search p50<100ms --search-from 100 -c 2 -q --time-out 50");
    let verdicts: Vec<bool> = ended.table.lines().filter(|line| line.contains(" hold")).map(|line| line.ends_with("holds")).collect();
    assert_eq!(verdicts.len(), ended.json["runs"].as_array().unwrap().len(), "{}", ended.table);
    let tried = |verdict: bool| verdicts.iter().enumerate().filter(move |(_, &held)| held == verdict).map(|(run, _)| run);
    let highest = tried(true).map(|run| ended.number_of(run, "rate/asked")).fold(0.0, f64::max);
    let lowest = tried(false).map(|run| ended.number_of(run, "rate/asked")).fold(f64::INFINITY, f64::min);
    // It goes no lower than a request a second.
    assert!(highest < lowest && (lowest - highest <= 0.02 * lowest || lowest < 2.0), "{}", ended.table);
    // A few may cross the end of a run of half a second.
    assert!(highest < 430.0, "{}", ended.table);
    let last = ended.table.lines().last().unwrap();
    assert_eq!(last, format!("highest rate with p50 below 100000 us: {highest:.0} requests/s"));
}

/// A Neap's control: gives the lines that it was told.
fn control() -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        let mut writer = stream.try_clone().unwrap();
        let mut told = Vec::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let answer = match line.as_str() {
                "rdtsc" => "ok tsc=500 tsc_hz=1000000000 now_ns=500 core=0\n",
                "start" => "ok run=7\n",
                "stop" => "ok run=7 lines=3 unwritten=0\n",
                _ => "error: what?\n",
            };
            writer.write_all(answer.as_bytes()).unwrap();
            told.push(line);
        }
        told
    });
    (address, server)
}

#[test]
fn a_log_is_started_and_stopped_once_a_run() {
    for warm_up in ["-w 0", "-w 0.3"] {
        let stub = Stub::start("");
        let (address, server) = control();
        let ended = load(&stub.address, &format!("--no-preload {warm_up} -s 0.3 --scan 200:300:100 -q --control {address}"));
        assert!(ended.is_good, "{}", ended.aside);
        let told: Vec<String> = server.join().unwrap().into_iter().filter(|line| line != "rdtsc").collect();
        assert_eq!(told, ["start", "stop", "start", "stop"]);
        let log = &ended.json["runs"][1]["log"];
        assert_eq!((&log["started"], &log["stopped"]), (&"run=7".into(), &"run=7 lines=3 unwritten=0".into()));
        assert_eq!(log["clock"]["tsc"], 500);
    }
}

#[test]
fn a_run_that_is_stopped_in_its_warm_up_starts_no_log() {
    let stub = Stub::start("");
    let (address, server) = control();
    let mut run = start(&stub.address, &format!("--no-preload -w 500 -s 1 --control {address}"));
    run.wait_for("    1 ");
    run.interrupt();
    assert!(run.end().is_good);
    assert!(server.join().unwrap().iter().all(|line| line == "rdtsc"));
}
