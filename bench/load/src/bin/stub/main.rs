// SPDX-License-Identifier: BSL-1.0
//! neap-load-stub: a memcached or a web server that is slow or wrong in known ways.
//!
//! A load generator's measurements can be checked only against a server that records its own delays. So this server implements the part of
//! memcached's text protocol that neap-load uses. It answers each get with the value that neap-load expects, and delays, freezes or fails
//! as its options say. With a preset of HTTP, it is a web server with that preset's page.
//!
//! A timer on a busy machine fires late. So the reference is not the requested delay, but the real time from reading a request to writing
//! its answer. These real delays are printed as JSON on standard output when standard input ends.

mod answer;
mod http;
mod server;

use clap::Parser;
use load::distributions::Distribution;
use load::limits;
use load::protocol::http::PRESETS as HTTP_PRESETS;
use load::workload::Mix;
use std::process::ExitCode;
use std::str::FromStr;

/// A memcached or a web server that is slow or wrong in known ways; for tests of neap-load.
#[derive(Parser, Clone, Debug)]
#[command(name = "neap-load-stub", version)]
pub struct Options {
    /// The address to listen on; it is printed as `listening on ADDRESS:PORT`
    #[arg(default_value = "127.0.0.1:0")]
    listen: String,
    /// Microseconds from a request to its answer: a distribution as in neap-load
    #[arg(long, default_value = "0")]
    delay_us: Distribution,
    /// Periodic freeze without answers: EVERY_MS:FOR_MS, the first one after half of EVERY_MS
    #[arg(long)]
    freeze: Option<Freeze>,
    /// The fault to make
    #[arg(long, value_enum)]
    fault: Option<Fault>,
    /// Make the fault with each Nth request
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// The same seed gives the same delays
    #[arg(long, default_value = "1")]
    seed: u64,
    /// The preset of the expected values: etc, usr, fixed; or of the page: http, hello, study, json
    #[arg(long, default_value = "fixed", value_parser = preset)]
    preset: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    Close,
    Reset,
    /// Answers with `Connection: close`, and closes. Of HTTP.
    LastReply,
    /// Never answers again on this connection.
    Stall,
    Garbage,
    /// Sends half of the answer, then closes.
    Half,
    WrongKey,
    WrongLength,
    WrongBytes,
    ServerError,
    /// Of HTTP: the status 404.
    Miss,
    /// Sends a value that is longer than neap-load accepts.
    Endless,
}

#[derive(Clone, Copy, Debug)]
pub struct Freeze {
    every_ms: u64,
    for_ms: u64,
}

impl FromStr for Freeze {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(':').map(|(every, length)| (every.parse(), length.parse()));
        match numbers {
            Some((Ok(every_ms), Ok(for_ms))) if for_ms < every_ms => Ok(Self { every_ms, for_ms }),
            _ => Err("not EVERY_MS:FOR_MS".into()),
        }
    }
}

fn preset(text: &str) -> Result<String, String> {
    let is_known = Mix::preset(text).is_some() || HTTP_PRESETS.contains(&text);
    is_known.then(|| text.to_string()).ok_or_else(|| "not a preset".into())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let connections_max = 16_384;
    // An error is ignored. If the limit is too low, the tests that need so many connections report it.
    let _ = limits::allow_connections(connections_max, 0);
    match server::serve(&options) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("neap-load-stub: {error}");
            ExitCode::FAILURE
        }
    }
}
