// SPDX-License-Identifier: BSL-1.0
//! neap-world: the command line, and the exit status. 0: the machine and its run ended in order; 1: they did not; 2: invalid options;
//! 3: the driver broke a rule, with --strict.

use clap::Parser as _;
use std::io::Write as _;
use std::process::ExitCode;
use world::event_loop::{EventLoop, Outcome};
use world::options::Options;
use world::pair_loop::PairLoop;
use world::start;

const FAILED: u8 = 1;
const INVALID_OPTIONS: u8 = 2;
const RULES_BROKEN: u8 = 3;

fn main() -> ExitCode {
    let options = Options::parse();
    let result = if options.peer_socket_path.is_some() { run_pair(&options) } else { run_one(&options) };
    match result {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(FAILED),
        Ok(Outcome::RulesBroken) => ExitCode::from(RULES_BROKEN),
        Err((why, status)) => {
            eprintln!("neap-world: {why}");
            ExitCode::from(status)
        }
    }
}

/// Err: why it ended, and the exit status.
type Ended = Result<Outcome, (String, u8)>;

fn run_one(options: &Options) -> Ended {
    let world = start::card(options).and_then(|card| start::world(options, card)).map_err(|why| (why, INVALID_OPTIONS))?;
    let result = EventLoop::new(options, world).and_then(|mut event_loop| {
        say_ready();
        event_loop.run()
    });
    result.map_err(|error| (error.to_string(), FAILED))
}

fn run_pair(options: &Options) -> Ended {
    let pair = start::pair(options).map_err(|why| (why, INVALID_OPTIONS))?;
    let result = PairLoop::new(options, pair).and_then(|mut pair_loop| {
        say_ready();
        pair_loop.run()
    });
    result.map_err(|error| (error.to_string(), FAILED))
}

fn say_ready() {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "neap-world: ready").and_then(|()| out.flush());
}
