// SPDX-License-Identifier: BSL-1.0
//! The manual pages have the options that the programs print with --help.

use std::collections::BTreeSet;
use std::process::Command;

fn of_help(program: &str) -> BTreeSet<String> {
    let output = Command::new(program).arg("--help").output().unwrap();
    assert!(output.status.success());
    // An option's line is like "  -c, --connections <N>". The possible values of an option are lines that begin with "- ".
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-') && !line.starts_with("- "))
        .flat_map(|line| line.split(", ").map(|option| option.split(' ').next().unwrap().to_string()).collect::<Vec<_>>())
        .collect()
}

/// Reads entries like ".It Fl -connections Ar N , Fl c Ar N" or ".It Fl -help , h".
fn of_page(page: &str) -> BTreeSet<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix(".It Fl "))
        .flat_map(|line| line.split(" , "))
        .map(|option| format!("-{}", option.strip_prefix("Fl ").unwrap_or(option).split(' ').next().unwrap()))
        .collect()
}

#[test]
fn the_manual_pages_have_the_options_of_help_and_no_others() {
    let options = of_help(env!("CARGO_BIN_EXE_neap-load"));
    assert!(options.len() > 40 && options.contains("--rate") && options.contains("-c"), "{options:?}");
    assert_eq!(of_page(include_str!("../../neap-load.1")), options);
    let options = of_help(env!("CARGO_BIN_EXE_neap-load-stub"));
    assert!(options.contains("--delay-us"), "{options:?}");
    assert_eq!(of_page(include_str!("../../neap-load-stub.1")), options);
}
