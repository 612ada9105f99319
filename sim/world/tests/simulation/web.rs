// SPDX-License-Identifier: BSL-1.0
//! The load of a web server.

use crate::{options, report_of, run};
use serde_json::json;

#[test]
fn each_request_of_a_web_server_is_answered_and_repeats() {
    for (words, operation) in [("--load hello", "get"), ("--load http --depth 4", "get"), ("--load json --body-size 5000 --depth 3", "set")]
    {
        let words = format!("{words} --rate 20000 --window 40ms --arrivals bursts:32:fixed");
        let report = report_of(&words);
        assert_eq!((&report["answered"], &report["failed"]), (&report["offered"], &json!(0)), "{report}");
        assert_eq!(report["operations"], json!({operation: {"done": report["answered"]}}));
        assert!(report["answered"].as_u64() > Some(700));
        assert_eq!(report, report_of(&words));
    }
}

#[test]
fn a_wrong_page_is_counted() {
    let report = report_of("--load http --path /nothing --rate 20000 --window 10ms");
    assert_eq!(report["answered"], json!(0));
    assert_eq!(report["operations"], json!({"get": {"wrong_reply": report["offered"]}}), "{report}");
}

#[test]
fn logs_are_fetched_as_under_a_load_of_memcached() {
    let folder = crate::folder("web");
    let options = options(&format!("--load hello --rate 10000 --window 20ms --log {}", folder.display()));
    let run = run(&options).unwrap();
    assert_eq!(run.report(&options)["failed"], 0);
    assert!(["core0.log", "core1.log"].iter().all(|name| folder.join(name).is_file()));
    std::fs::remove_dir_all(folder).unwrap();
}
