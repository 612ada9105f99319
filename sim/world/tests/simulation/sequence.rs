// SPDX-License-Identifier: BSL-1.0
//! Several loads in one boot, and loads without requests.

use crate::{folder, options, report_of, run, run_error};
use serde_json::{json, Value};
use std::path::Path;
use world::experiment::Phase;

/// Options for the loads, which are written to a file in `folder`.
fn words(folder: &Path, loads: &Value, words: &str) -> String {
    let file = folder.join("sequence.json");
    std::fs::write(&file, loads.to_string()).unwrap();
    format!("--sequence {} {words}", file.display())
}

fn load(name: &str, rate: u32, connections: u32, value_bytes: u32) -> Value {
    json!({"name": name, "load": "fixed", "rate": rate, "connections": connections, "value-size": value_bytes, "update": 0.2, "keys": 100,
           "window": "40ms", "check-bytes": true, "seed": 5})
}

/// 90 connections are more than the guest can have at a time, so those of each load must have been closed before the next one's.
#[test]
fn each_load_of_a_sequence_is_measured_like_a_run_of_its_own() {
    let folder = folder("sequence");
    let loads = json!([load("small", 20_000, 30, 100), load("large", 5000, 30, 32_768), load("other", 20_000, 30, 50)]);
    let words = words(&folder, &loads, "");
    let options = options(&words);
    let run = run(&options).unwrap();
    let report = run.report(&options);
    for (number, (rate, bytes)) in [(20_000, 100), (5000, 32_768), (20_000, 50)].into_iter().enumerate() {
        let of_run = &report["runs"][number];
        let words = format!("--rate {rate} --value-size {bytes} --update 0.2 --keys 100 --window 40ms --check-bytes --seed 5");
        let alone = report_of(&format!("--load fixed --connections 30 {words}"));
        assert_eq!((&of_run["answered"], &of_run["failed"]), (&of_run["offered"], &json!(0)), "{of_run}");
        assert_eq!((&of_run["offered"], &of_run["operations"]), (&alone["offered"], &alone["operations"]));
        let connections = &of_run["connections"];
        assert_eq!((&connections["opened"], &connections["lost"], &connections["ended"]), (&json!(30), &json!(0), &json!(0)));
        let p50 = |report: &Value| report["latency_ns"]["p50"].as_f64().unwrap();
        assert!((p50(of_run) / p50(&alone) - 1.0).abs() < 0.02, "{of_run} {alone}");
        let frames = |report: &Value, name: &str| report["frames_in_window"][name].as_f64().unwrap();
        for way in ["to_card", "from_card", "bytes_to_card", "bytes_from_card"] {
            // Delayed acknowledgements of the warm-up's last requests may fall into the window or not.
            assert!((frames(of_run, way) / frames(&alone, way) - 1.0).abs() < 0.03, "{way} {of_run} {alone}");
        }
        assert!(frames(of_run, "bytes_to_card") >= 60.0 * frames(of_run, "to_card"), "{of_run}");
        let answers = of_run["latency_histogram"].as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap());
        assert_eq!(Some(answers.sum()), of_run["answered"].as_u64(), "each answer is in the histogram");
    }
    let phases: Vec<Phase> = run.changes.iter().map(|(phase, _)| *phase).collect();
    let once = [Phase::SetUp, Phase::WarmUp, Phase::Window, Phase::Drain];
    assert_eq!(phases, [&once[..], &once, &once, &[Phase::Finished]].concat());
    for (number, changes) in run.changes.chunks(4).take(3).enumerate() {
        assert_eq!(report["runs"][number]["window"], json!({"from_ns": changes[2].1, "to_ns": changes[3].1}));
        assert_eq!(changes[3].1 - changes[2].1, 40_000_000);
    }
    assert!(run.world.machine.service.commands.is_empty(), "loads without log and settings leave control alone");
    assert_eq!(report, crate::report_of(&words), "a sequence repeats");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn only_loads_with_a_log_or_settings_use_control() {
    let folder = folder("sequence-log");
    let mut loads = json!([load("a", 5000, 4, 10), load("b", 5000, 4, 10), load("c", 5000, 4, 10)]);
    loads[0]["log"] = json!(true);
    loads[0]["settings"] = json!(["itr,8us"]);
    loads[2]["log"] = json!(true);
    loads[2]["settings"] = json!(["idle,halt", "itr,20us"]);
    let words = words(&folder, &loads, &format!("--log {} --ask status --ask hello", folder.join("logs").display()));
    let options = options(&words);
    let run = run(&options).unwrap();
    let first = ["itr,8us", "status", "hello", "status", "start", "stop", "get,0", "get,1"];
    let third = ["idle,halt", "itr,20us", "status", "start", "stop", "get,0", "get,1"];
    assert_eq!(run.world.machine.service.commands, [&first[..], &third].concat());
    let report = run.report(&options);
    assert_eq!(report["answers"], json!(["application=memcached; cores=2; run=0", "hello"]));
    let of_settings = [json!(["itr,8us"]), json!([]), json!(["idle,halt", "itr,20us"])];
    for (of_run, answers) in report["runs"].as_array().unwrap().iter().zip(of_settings) {
        assert_eq!(of_run["answers"], answers, "each load has the answers to its own settings");
    }
    let mut made: Vec<String> = walk(&folder.join("logs"));
    made.sort();
    assert_eq!(made, ["0-a/core0.log", "0-a/core1.log", "2-c/core0.log", "2-c/core1.log"]);
    std::fs::remove_dir_all(folder).unwrap();
}

fn walk(folder: &Path) -> Vec<String> {
    let entries = |path: &Path| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap()).collect::<Vec<_>>();
    let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().to_string();
    let below = |entry: &std::fs::DirEntry| entries(&entry.path()).iter().map(|file| format!("{}/{}", name(entry), name(file))).collect();
    entries(folder).iter().flat_map(|entry| -> Vec<String> { below(entry) }).collect()
}

/// The keys are stored only if the values of the load before are others: then the sets of the preload are missing.
#[test]
fn equal_keys_and_values_are_stored_once() {
    let folder = folder("sequence-keys");
    let frames = |loads: Value| {
        let options = options(&words(&folder, &loads, ""));
        let run = run(&options).unwrap();
        let report = run.report(&options);
        assert!(report["runs"].as_array().unwrap().iter().all(|run| run["failed"] == 0 && run["operations"]["get"]["miss"].is_null()));
        run.world.counts().to_card
    };
    let mut loads = json!([load("a", 5000, 4, 10), load("b", 5000, 4, 10)]);
    let equal = frames(loads.clone());
    loads[1]["value-size"] = json!(11);
    assert!(frames(loads) >= equal + 100);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn idle_connections_have_a_window_without_requests() {
    let report = report_of("--load fixed --rate 0 --connections 20 --keys 100 --window 500ms");
    assert_eq!((&report["offered"], &report["answered"], &report["failed"]), (&json!(0), &json!(0), &json!(0)));
    assert_eq!((&report["rate"], &report["achieved_rate"]), (&json!(0.0), &json!(0.0)));
    assert_eq!(report["connections"]["opened"], 20);
    assert_eq!((&report["latency_ns"]["p999"], &report["latency_histogram"]), (&json!(0), &json!([])));
    assert_eq!(report["window"]["to_ns"].as_u64().unwrap() - report["window"]["from_ns"].as_u64().unwrap(), 500_000_000);
    // At most the acknowledgements of the last keys' answers.
    assert!(report["frames_in_window"]["to_card"].as_u64().unwrap() <= 20, "{report}");
    assert_eq!(report["frames_in_window"]["from_card"], 0);
}

#[test]
fn a_failure_names_its_load() {
    let folder = folder("sequence-failure");
    let mut loads = json!([load("good", 5000, 4, 10), load("bad", 5000, 4, 10)]);
    loads[1]["settings"] = json!(["itr,900us"]);
    let why = run_error(&words(&folder, &loads, ""));
    assert!(why.starts_with("load 1 (bad): ") && why.contains("itr,900us"), "{why}");
    // More connections than the guest can have.
    let loads = json!([load("good", 5000, 4, 10), load("many", 5000, 41, 10)]);
    let why = run_error(&words(&folder, &loads, "--set-up-limit 8s"));
    assert!(why.starts_with("load 1 (many): the guest did not accept all connections") && why.contains("within 8 s"), "{why}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn each_set_up_has_the_whole_limit() {
    let folder = folder("sequence-limit");
    let mut loads = json!([load("long", 0, 4, 10), load("next", 5000, 4, 10)]);
    loads[0]["warmup"] = json!("9s");
    let report = report_of(&words(&folder, &loads, "--set-up-limit 8s"));
    assert!(report["runs"][1]["answered"].as_u64().unwrap() > 100, "{report}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn connections_that_do_not_close_end_the_run() {
    let folder = folder("sequence-closing");
    let mut loads = json!([load("deaf", 1000, 30, 10), load("next", 1000, 4, 10)]);
    loads[0]["window"] = json!("5ms");
    let mut options = options(&words(&folder, &loads, ""));
    options.fault = vec!["at window+1ms network loss=0.999999".into()];
    let why = run(&options).err().unwrap();
    assert_eq!(why, "load 0 (deaf): the guest did not close all connections within 10 s of virtual time");
    std::fs::remove_dir_all(folder).unwrap();
}
