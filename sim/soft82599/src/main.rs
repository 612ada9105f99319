// SPDX-License-Identifier: BSL-1.0
//! A software Intel 82599 for any vfio-user client.
//!
//! The card itself is the crate `card`. This crate provides its environment: the bus (vfio-user), the guest's memory, the wire, the clock
//! and a control socket, all served by one thread.

mod cable;
mod card_host;
mod clock;
mod commands;
mod control;
mod event_loop;
mod fault_words;
mod guest_memory;
mod log;
mod net;
mod options;
mod rig;
mod socket_file;
mod sys;
mod vfio;

use std::io::Write;
use std::process::ExitCode;

/// The exit status if the driver broke a rule and --strict is set.
const RULES_BROKEN: u8 = 3;

fn main() -> ExitCode {
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(options::Parsed::Run(options)) => options,
        Ok(options::Parsed::Help) => {
            let _ = writeln!(std::io::stdout(), "{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "soft82599: {message}");
            return ExitCode::from(2);
        }
    };
    let log = log::Log::new(options.level);
    let result = event_loop::EventLoop::new(&options).and_then(|mut event_loop| {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "soft82599: ready").and_then(|()| out.flush());
        event_loop.run()
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(RULES_BROKEN),
        Err(error) => {
            log.error(|| error.to_string());
            ExitCode::FAILURE
        }
    }
}
