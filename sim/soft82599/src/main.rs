// SPDX-License-Identifier: BSL-1.0
//! The program: the command line, and the exit status.

use soft82599::{event_loop, log, options};
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
