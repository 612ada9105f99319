// SPDX-License-Identifier: BSL-1.0
//! The program: the command line, and the exit status. It follows the conventions for programs that serve a device to a virtual machine
//! (QEMU's vhost-user.rst, "Backend program conventions"), so that a management program can start, inspect and end it.

use soft82599::{capabilities, event_loop, log, options, service_manager};
use std::io::Write;
use std::process::ExitCode;

const WRONG_USAGE: u8 = 2;
/// The exit status if the driver broke a rule and --strict is set.
const RULES_BROKEN: u8 = 3;

fn main() -> ExitCode {
    let passed_socket = || service_manager::passed_socket(|name| std::env::var_os(name), std::process::id());
    let options = match options::parse(std::env::args_os().skip(1), passed_socket) {
        Ok(options::Parsed::Run(options)) => options,
        Ok(options::Parsed::Capabilities) => return print(&capabilities::as_json()),
        Ok(options::Parsed::Help) => return print(options::USAGE),
        Ok(options::Parsed::Version) => return print(concat!("soft82599 ", env!("CARGO_PKG_VERSION"))),
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "soft82599: {message}");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    let log = log::Log::new(options.level);
    let result = event_loop::EventLoop::new(&options).and_then(|mut event_loop| {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "soft82599: ready").and_then(|()| out.flush());
        if let Err(error) = service_manager::notify("READY=1") {
            log.warn(|| format!("NOTIFY_SOCKET: {error}"));
        }
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

/// Prints a text that the user requested. A text that cannot be written is a failure.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
