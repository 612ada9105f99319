// SPDX-License-Identifier: BSL-1.0
//! Whole runs against a guest that is only a host: load, clients, switch and phases.

mod guest;
mod sequence;
#[path = "../common/service.rs"]
mod service;
mod web;

use clap::Parser as _;
use guest::Guest;
use load::distributions::Rng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use smoltcp::wire::{Ipv4Packet, TcpPacket};
use std::path::PathBuf;
use world::experiment::Phase;
use world::machine::Machine;
use world::options::Options;
use world::report::{report, Figures};
use world::start;
use world::world::World;

const UP_NS: u64 = 30_000_000;
/// Of virtual time.
const END_NS: u64 = 300_000_000_000;

fn options(words: &str) -> Options {
    Options::parse_from(format!("neap-world --socket-path s --driven d {words}").split_whitespace())
}

struct Run {
    world: World<Guest>,
    /// Times at which the phase was seen to change.
    changes: Vec<(Phase, u64)>,
    advances: u64,
}

/// Advances as the plugin does, from one `next_ns` to the next, until the run has finished.
fn run(options: &Options) -> Result<Run, String> {
    let mut world = start::world(options, Guest::new(options.server(), UP_NS))?;
    let mut changes = vec![(Phase::SetUp, 0)];
    let mut advances = 0;
    while world.experiment().is_under_way() {
        let at_ns = world.next_ns().ok_or("nothing happens any more")?;
        assert!(at_ns > world.now_ns() && at_ns < END_NS, "{at_ns}");
        world.advance(at_ns)?;
        advances += 1;
        let phase = world.experiment().phase();
        if changes.last().is_some_and(|(last, _)| *last != phase) {
            changes.push((phase, world.now_ns()));
        }
    }
    Ok(Run { world, changes, advances })
}

impl Run {
    fn report(&self, options: &Options) -> Value {
        report(&Figures::of(&self.world, options.seed).unwrap())
    }
}

fn report_of(words: &str) -> Value {
    let options = options(words);
    run(&options).unwrap().report(&options)
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("world-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn equal_options_and_seeds_give_equal_runs() {
    let words = "--load etc --rate 50000 --keys 500 --check-bytes --network loss=0.001 --window 40ms --seed";
    let first = report_of(&format!("{words} 4"));
    assert_eq!(first, report_of(&format!("{words} 4")));
    let other = report_of(&format!("{words} 5"));
    assert_ne!((&first["digest"], &first["offered"]), (&other["digest"], &other["offered"]));
}

/// The same requests, over other connections.
#[test]
fn a_request_takes_any_connection_by_chance() {
    let words = "--load usr --rate 20000 --keys 200 --connections 32 --window 40ms --check-bytes";
    let (in_turn, by_chance) = (report_of(words), report_of(&format!("{words} --any-connection")));
    assert_eq!(by_chance, report_of(&format!("{words} --any-connection")));
    assert_eq!((&by_chance["offered"], &by_chance["answered"]), (&in_turn["offered"], &in_turn["offered"]));
    assert_eq!(by_chance["failed"], 0);
    assert_ne!(by_chance["digest"], in_turn["digest"]);
}

#[test]
fn requests_follow_their_arrivals_and_latencies_their_cables() {
    let options = options("--load usr --rate 20000 --keys 200 --connections 32 --window 200ms --check-bytes");
    let run = run(&options).unwrap();
    let report = run.report(&options);
    let offered = report["offered"].as_f64().unwrap();
    // Poisson: 4000 requests with a standard deviation of 63.
    assert!((offered - 4000.0).abs() < 250.0, "{report}");
    assert_eq!((&report["answered"], report["failed"].as_u64()), (&report["offered"], Some(0)));
    assert_eq!(report["lost_frames"], 0);
    // Four cables of 1 us, four transmissions of at least 67.2 ns, and the guest's 5 us. The histogram has three digits.
    let latency = &report["latency_ns"];
    let (p50, max) = (latency["p50"].as_u64().unwrap(), latency["max"].as_u64().unwrap());
    assert!((9_250..11_000).contains(&p50) && max >= p50, "{report}");
    let times: Vec<u64> = run.changes.iter().map(|(_, at_ns)| *at_ns).collect();
    let phases: Vec<Phase> = run.changes.iter().map(|(phase, _)| *phase).collect();
    assert_eq!(phases, [Phase::SetUp, Phase::WarmUp, Phase::Window, Phase::Drain, Phase::Finished]);
    assert!(times[1] > UP_NS);
    // Window and drain begin at the very nanosecond.
    assert_eq!((times[3] - times[2], run.world.experiment().window_ns()), (200_000_000, (times[2], times[3])));
    // An advance for each frame to the card and for each time that the guest works, and few others.
    assert!(run.advances < 4 * run.world.counts().to_card, "{} advances, {:?}", run.advances, run.world.counts());
}

#[test]
fn lost_frames_are_sent_again_and_nothing_is_lost_unsaid() {
    let report = report_of("--load etc --rate 20000 --keys 300 --network loss=0.02 --window 200ms --time-out 5s --check-bytes");
    assert!(report["lost_frames"].as_u64().unwrap() > 100, "{report}");
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("offered"), count("answered") + count("failed"));
    assert_eq!(count("failed"), 0, "{report}");
    // A retransmission costs 10 ms or more.
    assert!(report["latency_ns"]["max"].as_u64().unwrap() > 10_000_000, "{report}");
    // The frames of the same run without loss. Retransmissions come on top of the losses.
    let clean = report_of("--load etc --rate 20000 --keys 300 --window 200ms --time-out 5s --check-bytes");
    assert!(clean["latency_ns"]["max"].as_u64().unwrap() < 1_000_000, "{clean}");
}

#[test]
fn more_load_than_a_cable_carries_waits_and_is_counted() {
    let words = "--load fixed --value-size 1000 --update 1 --keys 50 --rate 20000 --network rate_mbps=10 --clients 1 --window 20ms";
    let report = report_of(&format!("{words} --time-out 2s"));
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("offered"), count("answered") + count("failed"));
    assert!(count("waited_for_room") > 200, "{report}");
    assert!(report["latency_ns"]["p50"].as_u64().unwrap() > 50_000_000, "{report}");
}

#[test]
fn settings_precede_the_warm_up_and_logs_follow_the_window() {
    let folder = folder("logs");
    let settings = folder.join("settings");
    std::fs::write(&settings, "# ITR\nitr,100us\n\nidle,halt # all cores\n").unwrap();
    let logs = folder.join("log");
    let words = format!("--load usr --keys 100 --settings {} --log {}", settings.display(), logs.display());
    let options = options(&words);
    let run = run(&options).unwrap();
    assert_eq!(run.world.machine.service.commands, ["itr,100us", "idle,halt", "status", "start", "stop", "get,0", "get,1"]);
    let at = |wanted| run.changes.iter().find(|(phase, _)| *phase == wanted).map(|(_, at_ns)| *at_ns).unwrap();
    assert_eq!(run.world.experiment().window_ns(), (at(Phase::Window), at(Phase::Drain)));
    for (core, byte) in [(0, b'0'), (1, b'1')] {
        let log = std::fs::read(logs.join(format!("core{core}.log"))).unwrap();
        assert_eq!((log.len(), log[5000]), (4096 + 64 * 3000, byte));
    }
    std::fs::write(&settings, "itr,900us\n").unwrap();
    let why = run_error(&words);
    assert!(why.contains("itr,900us") && why.contains("not accepted"), "{why}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn incidents_happen_in_their_order_and_afterwards_each_request_is_answered() {
    let folder = folder("incidents");
    let mut options = options(&format!("--load etc --rate 20000 --keys 100 --window 50ms --recovery 50 --log {}", folder.display()));
    options.fault = ["at window+1ms control itr,8us", "at window+2ms control itr,900us", "at window+3ms close 3", "at window+4ms reset 4"]
        .into_iter()
        .chain(["at window+5ms network duplicate=0.3,corrupt=0.1,reorder=0.3", "at window+40ms network"])
        .map(String::from)
        .collect();
    let run = run(&options).unwrap();
    let commands = &run.world.machine.service.commands;
    assert_eq!(commands[..], ["stats", "status", "start", "stats", "itr,8us", "itr,900us", "stats", "stop", "stats", "get,0", "get,1"]);
    let report = run.report(&options);
    let trial = &report["trial"];
    assert_eq!(trial["changes"], serde_json::json!({"accepted": 1, "refused": 1, "failed": 0}));
    assert_eq!(trial["statistics"], serde_json::json!(["stats", "stats", "stats", "stats"]));
    assert_eq!(report["connections"]["ended"], 2);
    assert!(["duplicated", "corrupted", "reordered"].iter().all(|kind| trial["impaired"][kind].as_u64().unwrap() > 10), "{trial}");
    let recovered: u64 = trial["recovery"]["operations"]
        .as_object()
        .unwrap()
        .values()
        .map(|outcomes| outcomes["hit"].as_u64().unwrap_or(0) + outcomes["done"].as_u64().unwrap_or(0))
        .sum();
    assert_eq!((trial["recovery"]["offered"].as_u64().unwrap(), &trial["recovery"]["failures"]), (recovered, &serde_json::json!({})));
    assert!(recovered >= 40, "{trial}");
    let requests = &trial["requests"];
    assert!(requests["submitted"].as_u64() >= requests["answered"].as_u64(), "{trial}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The lines that control got from the window's begin to the statistics at the end, and the counts of their answers.
fn commands_of(name: &str, faults: &[&str]) -> Result<(Vec<String>, Value), String> {
    let folder = folder(name);
    let words = format!("--load usr --keys 50 --window 20ms --time-out 300ms --recovery 20 --log {}", folder.display());
    let options = Options { fault: faults.iter().map(ToString::to_string).collect(), ..options(&words) };
    let result = run(&options).map(|run| {
        let lines = run.world.machine.service.commands.iter();
        let lines = lines.filter(|line| !["stats", "status", "start", "stop"].contains(&line.as_str()) && !line.starts_with("get,"));
        (lines.cloned().collect(), run.report(&options)["trial"]["changes"].clone())
    });
    std::fs::remove_dir_all(folder).unwrap();
    result
}

#[test]
fn a_required_command_reaches_control_as_soon_as_the_network_lets_it() {
    let (lines, counts) = commands_of(
        "required",
        &[
            "at window+1ms network loss=0.999999",
            "at window+2ms control idle,poll",
            "at window+3ms control itr,8us",
            "at window+4ms require idle,halt",
            "at window+5ms require idle,c1",
            "at window+6ms control itr,16us",
            "at window+250ms network",
        ],
    )
    .unwrap();
    // Twice: in the second place a command that a held core executes late would be overridden. The commands before are given up.
    assert_eq!(lines, ["idle,halt", "idle,halt", "idle,c1", "idle,c1", "itr,16us"]);
    assert_eq!(counts, serde_json::json!({"accepted": 3, "refused": 0, "failed": 2}));
}

#[test]
fn a_required_command_that_is_not_accepted_ends_the_run() {
    let why = commands_of("refused", &["at window+2ms require itr,900us"]).unwrap_err();
    assert!(why.contains("control did not accept itr,900us within 3 s: the last answer was \"error: itr:"), "{why}");
    let why = commands_of("unheard", &["at window+1ms network loss=0.999999", "at window+2ms require idle,halt"]).unwrap_err();
    assert!(why.contains("control did not accept idle,halt within 3 s: there was no answer"), "{why}");
}

#[test]
fn an_answer_after_the_drain_is_not_taken_for_another_requests() {
    let folder = folder("late");
    // A set needs 0.9 ms on the cable, so requests are in flight when the drain ends after 60 ms.
    let words = "--load fixed --value-size 1000 --update 1 --keys 20 --rate 20000 --network rate_mbps=10 --clients 1 --connections 2";
    let report = report_of(&format!("{words} --warmup 0ms --window 20ms --time-out 30ms --log {}", folder.display()));
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("offered"), count("answered") + count("failed"));
    assert!(report["failures"]["unanswered"].as_u64().is_some_and(|count| count > 0), "{report}");
    std::fs::remove_dir_all(folder).unwrap();
}

fn run_error(words: &str) -> String {
    run(&options(words)).err().unwrap()
}

/// A guest whose every frame is noise, or a frame of a client with some bytes changed.
struct HostileGuest {
    rng: Rng,
    seen: Vec<Vec<u8>>,
    next_ns: u64,
    now_ns: u64,
}

impl Machine for HostileGuest {
    fn next_ns(&self) -> Option<u64> {
        Some(self.next_ns)
    }
    fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
    fn receive(&mut self, _: u64, frame: Vec<u8>) {
        self.seen.push(frame);
    }
    fn take_frame(&mut self) -> Option<Vec<u8>> {
        if self.now_ns < self.next_ns {
            return None;
        }
        self.next_ns = self.now_ns + 2000;
        let rng = &mut self.rng;
        let mut frame = match self.seen.len() {
            0 => (0..rng.random_range(0..200)).map(|_| rng.random()).collect(),
            seen => self.seen[rng.random_range(0..seen)].clone(),
        };
        // Back to its sender: the addresses of Ethernet, IP and TCP are exchanged.
        for (a, b, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
            if frame.len() >= b + length {
                (0..length).for_each(|i| frame.swap(a + i, b + i));
            }
        }
        for _ in 0..rng.random_range(0..5) {
            if !frame.is_empty() {
                let at = rng.random_range(0..frame.len());
                frame[at] = rng.random();
            }
        }
        frame.truncate(rng.random_range(0..frame.len() * 8 + 1));
        mend_checksums(&mut frame);
        Some(frame)
    }
    fn waits_for_wire(&self) -> bool {
        false
    }
    fn link_is_up(&self) -> bool {
        true
    }
}

/// Without right checksums hardly a changed frame would get past them.
fn mend_checksums(frame: &mut [u8]) {
    if let Ok(mut ip) = Ipv4Packet::new_checked(frame.get_mut(14..).unwrap_or_default()) {
        ip.fill_checksum();
        let (from, to) = (ip.src_addr(), ip.dst_addr());
        if let Ok(mut tcp) = TcpPacket::new_checked(ip.payload_mut()) {
            tcp.fill_checksum(&from.into(), &to.into());
        }
    }
}

#[test]
fn no_frame_of_a_guest_ends_the_program() {
    let mut answered = 0;
    for seed in 0..20 {
        let options = options(&format!("--load etc --connections 8 --set-up-limit 50ms --seed {seed}"));
        let guest = HostileGuest { rng: Rng::seed_from_u64(seed), seen: Vec::new(), next_ns: 0, now_ns: 0 };
        let mut world = start::world(&options, guest).unwrap();
        let why = loop {
            let at_ns = world.next_ns().unwrap();
            if let Err(why) = world.advance(at_ns) {
                break why;
            }
        };
        assert!(why.contains("connections") || why.contains("keys"), "{why}");
        answered += world.counts().to_card;
    }
    assert!(answered > 1000, "{answered}");
}

#[test]
fn a_guest_that_never_comes_up_ends_the_run_with_a_reason() {
    let why = run_error("--load usr --set-up-limit 20ms");
    assert!(why.contains("link") && why.contains("0.02 s"), "{why}");
    let why = run_error("--load usr --set-up-limit 40ms --network loss=0.999999");
    assert!(why.contains("connections"), "{why}");
}
