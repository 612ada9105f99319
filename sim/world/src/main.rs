// SPDX-License-Identifier: BSL-1.0
//! neap-world: the command line, and the exit status. 0: the machine and its run ended in order; 1: they did not; 2: invalid options;
//! 3: the driver broke a rule, with --strict.

use clap::Parser as _;
use std::io::Write as _;
use std::process::ExitCode;
use world::event_loop::{EventLoop, Outcome};
use world::options::Options;
use world::start;

const FAILED: u8 = 1;
const INVALID_OPTIONS: u8 = 2;
const RULES_BROKEN: u8 = 3;

fn main() -> ExitCode {
    let options = Options::parse();
    let end = |why: String, status| {
        eprintln!("neap-world: {why}");
        ExitCode::from(status)
    };
    let world = match start::card(&options).and_then(|card| start::world(&options, card)) {
        Ok(world) => world,
        Err(why) => return end(why, INVALID_OPTIONS),
    };
    let result = EventLoop::new(&options, world).and_then(|mut event_loop| {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "neap-world: ready").and_then(|()| out.flush());
        event_loop.run()
    });
    match result {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(FAILED),
        Ok(Outcome::RulesBroken) => ExitCode::from(RULES_BROKEN),
        Err(error) => end(error.to_string(), FAILED),
    }
}
