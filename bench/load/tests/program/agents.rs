// SPDX-License-Identifier: BSL-1.0
//! A master and its agents.

use crate::common::{load, scratch_file, start, Ended, Stub, Watched};
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
        // What it says later must find a reader.
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

fn is_whole(ended: &Ended, client: &str) {
    assert_eq!(ended.accounted(client), ended.number(&format!("{client}/intended")));
}

#[test]
fn agents_load_while_the_master_measures() {
    let (one, two) = (Agent::start(), Agent::start());
    let stub = Stub::start("--delay-us exponential:1000");
    let agents = format!("--agents {},{}", one.address, two.address);
    let words = format!(
        "{agents} --keys 1000 -w 0 -s 1 --rate 2000 --time-out 50 --agent-connections 30 --measure-connections 4 --measure-rate 200"
    );
    let ended = load(&stub.address, &words);
    assert!(ended.is_good, "{}", ended.aside);
    let report = stub.end();
    // Their sum is what the server saw, what was stored beforehand included: nothing is lost between the books.
    assert_eq!(ended.number("loading/intended") + ended.number("measuring/intended") + 1000.0, report["requests"].as_f64().unwrap());
    let intended = ended.number("loading/intended");
    assert!((1700.0..2300.0).contains(&intended), "{intended}");
    assert!(ended.aside.starts_with("1000 keys stored"), "{}", ended.aside);
    assert_eq!(ended.number("connections/opened"), 64.0);
    is_whole(&ended, "loading");
    is_whole(&ended, "measuring");
    for agent in ended.json["agents"].as_array().unwrap() {
        assert!(agent["clock"]["rtt_ns"].as_u64().unwrap() > 0 && agent["clock"]["wall_offset_ns"].is_i64(), "{agent}");
    }
    // A second master finds them free; it loads as well, and a scan has runs of them all.
    let stub = Stub::start("");
    let ended = load(&stub.address, &format!("{agents} --no-preload -w 0 -s 0.5 --scan 600:1200:600 -c 10 -q --time-out 50"));
    assert!(ended.is_good, "{}", ended.aside);
    let all = ended.number_of(0, "loading/intended") + ended.number_of(1, "loading/intended");
    assert_eq!(all, stub.end()["requests"].as_f64().unwrap());
}

#[test]
fn ctrl_c_at_the_master_stops_the_agents_and_brings_their_books() {
    let agent = Agent::start();
    let stub = Stub::start("");
    let mut run = start(&stub.address, &format!("--agents {} --no-preload -w 0 -s 600 --rate 500", agent.address));
    run.wait_for("    2 ");
    run.interrupt();
    let ended = run.end();
    assert!(ended.is_good, "{}", ended.aside);
    assert!(ended.table.contains("stopped before its time"));
    // In this hurry some may never have been sent.
    let seen = stub.end()["requests"].as_f64().unwrap();
    assert!(ended.number("loading/latency/count") <= seen && seen <= ended.number("loading/intended"), "{}", ended.table);
    is_whole(&ended, "loading");
}

#[test]
fn an_agent_that_is_gone_busy_or_silent_ends_the_run_with_one_line() {
    let agent = Agent::start();
    let stub = Stub::start("");
    let mut first = start(&stub.address, &format!("--agents {} --no-preload -s 600 --rate 500", agent.address));
    first.wait_for("    1 ");
    let words = format!("--agents {} --no-preload -q -s 1", agent.address);
    let second = load(&stub.address, &words);
    assert!(!second.is_good && second.aside.contains("is busy with another master"), "{}", second.aside);
    agent.child.kill();
    let ended = first.end();
    assert!(!ended.is_good && ended.aside.lines().last().unwrap().contains(&format!("agent {}", agent.address)), "{}", ended.aside);
    let ended = load(&stub.address, &words);
    assert!(!ended.is_good && ended.aside.lines().count() == 1, "{}", ended.aside);
    // One that connects and then says nothing more.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = std::thread::spawn(move || listener.accept().map(|(stream, _)| BufReader::new(stream).lines().for_each(drop)));
    let ended = load(&stub.address, &format!("--agents {address} --no-preload -q -s 1"));
    assert!(!ended.is_good && ended.aside.contains("does not answer"), "{}", ended.aside);
    silent.join().unwrap().unwrap();
}

/// Beyond this an agent that stays busy is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an agent answers to the last of these lines. A master before may still be leaving: then they are said again.
fn answer(agent: &Agent, orders: &[&str]) -> String {
    let until = Instant::now() + PATIENCE;
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
        // One that is busy has closed the connection already.
        if stream.write_all(format!("{order}\n").as_bytes()).is_err() {
            return String::new();
        }
        // What takes long is said to be still going on.
        answer = lines.by_ref().map_while(Result::ok).find(|line| !line.contains(r#"{"alive":"#)).unwrap_or_default();
    }
    answer
}

const HELLO: &str = r#"{"hello":{"version":1}}"#;

// A word that comes late over a slow network, or to a busy machine, ends no run: what was due meanwhile leaves late, and is told as that.
#[test]
fn an_agent_that_starts_late_catches_up_and_says_so() {
    let (agent, stub) = (Agent::start(), Stub::start(""));
    let words = format!(r#""{}","--arrivals=fixed","--warm-up=0","--seconds=3600","--connections=50""#, stub.address);
    let order = format!(r#"{{"load":{{"arguments":[{words}],"share":0,"shares":1}}}}"#);
    // Its clock begins with the session: a start at zero is some time ago.
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
fn an_agent_takes_no_files_and_no_nonsense_from_a_master() {
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
    // Noise, another version and a long silence close the connection; it serves on.
    for noise in ["GET / HTTP/1.1", "{}", r#"{"clock":{}}"#] {
        let answered = answer_once(&agent, &[noise]);
        assert!(answered.is_empty() || answered.contains("busy"), "{answered}");
    }
}

// What an agent says is printed by the master, and an agent may be hostile.
#[test]
fn what_an_agent_says_moves_no_cursor() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let hostile = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(br#"{"refused":{"why":"\u001b[2J\u001b]0;title\u0007"}}"#).unwrap();
        stream.write_all(b"\n").unwrap();
        // Until the master has read it and left.
        BufReader::new(stream).lines().for_each(drop);
    });
    let stub = Stub::start("");
    let ended = load(&stub.address, &format!("--agents {address} --no-preload -q -s 1"));
    hostile.join().unwrap();
    assert!(!ended.is_good && ended.aside.contains("u{1b}[2J"), "{}", ended.aside);
    assert!(!ended.aside.contains('\u{1b}') && !ended.aside.contains('\u{7}'));
}

// An agent that says for ever that it is alive must not hold the master for ever.
#[test]
fn an_agent_that_is_alive_but_does_not_end_is_given_up() {
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
    let ended = load(&stub.address, &format!("--agents {address} --no-preload -q -w 0 -s 0.2 --rate 100"));
    assert!(!ended.is_good && ended.aside.contains("does not end its run"), "{}", ended.aside);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    hostile.join().unwrap();
}
