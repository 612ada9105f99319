// SPDX-License-Identifier: BSL-1.0
//! neap-load-stub: a memcached that is slow or wrong in known ways.
//!
//! What a load generator measures can only be judged beside what really happened. So this server speaks just enough of memcached's text
//! language, answers each get with the value that neap-load expects there, and delays, freezes and misbehaves as its words say. A timer on
//! a busy machine is late: what counts is therefore not what was asked for but what was done, from the moment a request was read to the
//! moment its answer was written, and that is reported as JSON on standard output when standard input ends.

mod answer;
mod server;

use clap::Parser;
use load::distributions::Distribution;
use load::limits;
use load::workload::Mix;
use std::process::ExitCode;
use std::str::FromStr;

/// A memcached that is slow or wrong in known ways; for tests of neap-load.
#[derive(Parser, Clone, Debug)]
#[command(name = "neap-load-stub", version)]
pub struct Words {
    /// Where to listen; the address is printed as `listening on ADDRESS:PORT`
    #[arg(default_value = "127.0.0.1:0")]
    listen: String,
    /// Microseconds from a request to its answer, a distribution as of neap-load
    #[arg(long, default_value = "0")]
    delay_us: Distribution,
    /// Answers nothing for so long, so often: EVERY_MS:FOR_MS, the first time after half of EVERY_MS
    #[arg(long)]
    freeze: Option<Freeze>,
    /// What to do wrong
    #[arg(long, value_enum)]
    fault: Option<Fault>,
    /// With each so manieth request
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// The same seed gives the same delays
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Whose values to answer with: etc, usr, fixed
    #[arg(long, default_value = "fixed", value_parser = preset)]
    preset: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    Close,
    Reset,
    /// Never answers again on this connection.
    Stall,
    Garbage,
    /// Half of the answer, then closes.
    Half,
    WrongKey,
    WrongLength,
    WrongBytes,
    ServerError,
    Miss,
    /// A value that goes on and on.
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
    Mix::preset(text).map(|_| text.to_string()).ok_or_else(|| "not a preset".into())
}

fn main() -> ExitCode {
    let words = Words::parse();
    let most = 16_384;
    // With fewer, some tests cannot be made; they say so themselves.
    let _ = limits::allow_connections(most, 0);
    match server::serve(&words) {
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
