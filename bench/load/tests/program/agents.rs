// SPDX-License-Identifier: BSL-1.0
//! A master and its agents.

use crate::common::{load, scratch_file, start, Finished, Stub, Watched};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Agent {
    child: Watched,
    address: String,
}

impl Agent {
    fn start() -> Self {
        let mut child =
            Command::new(env!("CARGO_BIN_EXE_neap-load")).args(["agent", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("neap-load agent: listening on ").unwrap().to_string();
        // A thread reads the agent's further output, because a full pipe would block the agent.
        std::thread::spawn(move || lines.lines().for_each(drop));
        Self { child: Watched::new(child), address }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill();
        self.child.wait();
    }
}

fn is_whole(finished: &Finished, client: &str) {
    assert_eq!(finished.accounted(client), finished.number(&format!("{client}/intended")));
}

#[test]
fn agents_load_while_the_master_measures() {
    let (one, two) = (Agent::start(), Agent::start());
    let stub = Stub::start("--delay-us exponential:1000");
    let agents = format!("--agents {},{}", one.address, two.address);
    let words = format!(
        "{agents} --keys 1000 -w 0 -s 1 --rate 2000 --time-out 50 --agent-connections 30 --measure-connections 4 --measure-rate 200"
    );
    let finished = load(&stub.address, &words);
    assert!(finished.is_good, "{}", finished.stderr);
    let report = stub.end();
    // The server counts the 1,000 preloaded keys, too. No request may be missing in the measurements.
    assert_eq!(finished.number("loading/intended") + finished.number("measuring/intended") + 1000.0, report["requests"].as_f64().unwrap());
    let intended = finished.number("loading/intended");
    assert!((1700.0..2300.0).contains(&intended), "{intended}");
    assert!(finished.stderr.starts_with("1000 keys stored"), "{}", finished.stderr);
    assert_eq!(finished.number("connections/opened"), 64.0);
    is_whole(&finished, "loading");
    is_whole(&finished, "measuring");
    for agent in finished.json["agents"].as_array().unwrap() {
        assert!(agent["clock"]["rtt_ns"].as_u64().unwrap() > 0 && agent["clock"]["wall_offset_ns"].is_i64(), "{agent}");
    }
    // A second master can use the agents. The second master generates load as well, and each run of its scan includes all members.
    let stub = Stub::start("");
    let finished = load(&stub.address, &format!("{agents} --no-preload -w 0 -s 0.5 --scan 600:1200:600 -c 10 -q --time-out 50"));
    assert!(finished.is_good, "{}", finished.stderr);
    let all = finished.number_of(0, "loading/intended") + finished.number_of(1, "loading/intended");
    assert_eq!(all, stub.end()["requests"].as_f64().unwrap());
}

#[test]
fn ctrl_c_at_the_master_stops_the_agents_and_returns_their_measurements() {
    let agent = Agent::start();
    let stub = Stub::start("");
    let mut run = start(&stub.address, &format!("--agents {} --no-preload -w 0 -s 600 --rate 500", agent.address));
    run.wait_for("    2 ");
    run.interrupt();
    let finished = run.end();
    assert!(finished.is_good, "{}", finished.stderr);
    assert!(finished.table.contains("stopped before its time"));
    // After Ctrl-C some intended requests are not sent.
    let seen = stub.end()["requests"].as_f64().unwrap();
    assert!(finished.number("loading/latency/count") <= seen && seen <= finished.number("loading/intended"), "{}", finished.table);
    is_whole(&finished, "loading");
}

#[test]
fn an_agent_that_is_gone_busy_or_silent_ends_the_run_with_one_line() {
    let agent = Agent::start();
    let stub = Stub::start("");
    let mut first = start(&stub.address, &format!("--agents {} --no-preload -s 600 --rate 500", agent.address));
    first.wait_for("    1 ");
    let words = format!("--agents {} --no-preload -q -s 1", agent.address);
    let second = load(&stub.address, &words);
    assert!(!second.is_good && second.stderr.contains("is busy with another master"), "{}", second.stderr);
    agent.child.kill();
    let finished = first.end();
    assert!(
        !finished.is_good && finished.stderr.lines().last().unwrap().contains(&format!("agent {}", agent.address)),
        "{}",
        finished.stderr
    );
    let finished = load(&stub.address, &words);
    assert!(!finished.is_good && finished.stderr.lines().count() == 1, "{}", finished.stderr);
    // The agent accepts the connection and then sends nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = std::thread::spawn(move || listener.accept().map(|(stream, _)| BufReader::new(stream).lines().for_each(drop)));
    let finished = load(&stub.address, &format!("--agents {address} --no-preload -q -s 1"));
    assert!(!finished.is_good && finished.stderr.contains("does not answer"), "{}", finished.stderr);
    silent.join().unwrap().unwrap();
}

/// An agent that is busy for longer than this is broken.
const RUN_TIME_OUT: Duration = Duration::from_secs(60);

/// Returns the agent's answer to the last of these orders. While the agent still serves an earlier master, the orders are sent again.
fn answer(agent: &Agent, orders: &[&str]) -> String {
    let until = Instant::now() + RUN_TIME_OUT;
    loop {
        let answered = answer_once(agent, orders);
        if (!answered.is_empty() && !answered.contains("busy")) || Instant::now() > until {
            return answered;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn answer_once(agent: &Agent, orders: &[&str]) -> String {
    let mut stream = TcpStream::connect(&agent.address).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut answer = String::new();
    for order in orders {
        // The write fails if the agent was busy and has closed the connection.
        if stream.write_all(format!("{order}\n").as_bytes()).is_err() {
            return String::new();
        }
        answer = lines.by_ref().map_while(Result::ok).find(|line| !line.contains(r#"{"alive":"#)).unwrap_or_default();
    }
    answer
}

const HELLO: &str = r#"{"hello":{"version":1}}"#;

// An order that arrives late does not end the run. Requests that were due earlier are sent late and counted as behind schedule.
#[test]
fn an_agent_that_starts_late_catches_up_and_reports_it() {
    let (agent, stub) = (Agent::start(), Stub::start(""));
    let words = format!(r#""{}","--arrivals=fixed","--warm-up=0","--seconds=3600","--connections=50""#, stub.address);
    let order = format!(r#"{{"load":{{"arguments":[{words}],"share":0,"shares":1}}}}"#);
    // The agent's clock starts with the session, so a run that starts at zero starts in the past.
    let late = r#"{"run":{"pace":{"rate":100000},"start_ns":0}}"#;
    assert!(answer(&agent, &[HELLO, &order, late]).starts_with(r#"{"second":"#));
    let words = words.replace("3600", "0.000001");
    let order = format!(r#"{{"load":{{"arguments":[{words}],"share":0,"shares":1}}}}"#);
    for late in [late, r#"{"run":{"pace":"closed","start_ns":0}}"#] {
        let answered = answer(&agent, &[HELLO, &order, late]);
        assert!(answered.contains("too late to start"), "{answered}");
    }
}

#[test]
fn an_agent_refuses_files_and_invalid_orders() {
    let agent = Agent::start();
    let file = scratch_file("stolen");
    let load = |words: &str| format!(r#"{{"load":{{"arguments":["127.0.0.1:1",{words}],"share":0,"shares":1}}}}"#);
    for (order, named) in [
        (load(&format!(r#""--json","{}""#, file.display())), "files"),
        (load(&format!(r#""--histogram={}""#, file.display())), "files"),
        (load(r#""--trace","/etc/passwd""#), "files"),
        (load(r#""--agents=127.0.0.1:2""#), "agents"),
        (load(r#""--control=127.0.0.1:2""#), "control"),
        (load(r#""--depth","0""#), "depth"),
        (load(r#""--keys","0""#), "keys"),
        (load(r#""--time-out","0.2""#), "cannot connect"),
        (r#"{"run":{"pace":"closed","start_ns":5}}"#.into(), "no load yet"),
        (r#"{"preload":{}}"#.into(), "no load yet"),
    ] {
        let answered = answer(&agent, &[HELLO, &order]);
        assert!(answered.starts_with(r#"{"refused""#) && answered.contains(named), "{order}: {answered}");
    }
    assert!(!file.exists());
    // After an invalid line, another protocol version or a long silence the agent closes the connection and serves the next master.
    for noise in ["GET / HTTP/1.1", "{}", r#"{"clock":{}}"#] {
        let answered = answer_once(&agent, &[noise]);
        assert!(answered.is_empty() || answered.contains("busy"), "{answered}");
    }
}

// The master prints texts of an agent, which may be hostile.
#[test]
fn control_characters_of_an_agent_are_escaped() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let hostile = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(br#"{"refused":{"why":"\u001b[2J\u001b]0;title\u0007"}}"#).unwrap();
        stream.write_all(b"\n").unwrap();
        // Waits until the master has read the answer and closed the connection.
        BufReader::new(stream).lines().for_each(drop);
    });
    let stub = Stub::start("");
    let finished = load(&stub.address, &format!("--agents {address} --no-preload -q -s 1"));
    hostile.join().unwrap();
    assert!(!finished.is_good && finished.stderr.contains("u{1b}[2J"), "{}", finished.stderr);
    assert!(!finished.stderr.contains('\u{1b}') && !finished.stderr.contains('\u{7}'));
}

// An agent that sends keep-alives forever must not hold the master forever.
#[test]
fn an_agent_that_only_sends_keep_alives_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let hostile = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut out = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let answer = match line.as_str() {
                line if line.contains("hello") => r#"{"hello":{"version":1}}"#,
                line if line.contains("clock") => r#"{"clock":{"now_ns":0,"unix_ns":0}}"#,
                line if line.contains("load") => r#"{"connected":{"open":1,"asked":1}}"#,
                _ => {
                    while out.write_all(b"{\"alive\":{}}\n").is_ok() {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    return;
                }
            };
            out.write_all(format!("{answer}\n").as_bytes()).unwrap();
        }
    });
    let stub = Stub::start("");
    let start = Instant::now();
    let finished = load(&stub.address, &format!("--agents {address} --no-preload -q -w 0 -s 0.2 --rate 100"));
    assert!(!finished.is_good && finished.stderr.contains("does not end its run"), "{}", finished.stderr);
    assert!(start.elapsed() < RUN_TIME_OUT, "{:?}", start.elapsed());
    hostile.join().unwrap();
}
