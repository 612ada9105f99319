// SPDX-License-Identifier: BSL-1.0
//! The options that describe one load: of the command line, and of each member of a sequence.
//!
//! A load of a sequence takes the same names, ranges and defaults as the command line, because the same parser reads both.

use crate::connection::ConnectionSettings;
use crate::load::LoadOptions;
use clap::Args;
use load::arrivals::{self, Process};
use load::distributions::Distribution;
use load::protocol::http::{Page, PageWords, BODY_BYTES_MAX, BODY_BYTES_MIN, PRESETS as HTTP_PRESETS};
use load::protocol::{Checks, Protocol, ProtocolName};
use load::workload::{Mix, Popularity, PRESETS, TPCC};
use std::net::Ipv4Addr;
use std::sync::Arc;

const MEMCACHED_PORT: u16 = 11211;
/// Of Neap's web server, and of the scripts in apps/webserver.
const HTTP_PORT: u16 = 8080;

#[derive(Args, Clone, Debug)]
pub struct LoadWords {
    /// Offer load. To a memcached: sizes, mix and arrivals as published: etc, usr; or fixed. To the transactions: tpcc. To a web server:
    /// http, hello, study, json. Without it there is only the network
    #[arg(long, value_name = "PRESET", value_parser = preset, groups = ["result", "loads"])]
    pub load: Option<String>,
    /// Requests a second over all connections; 0: idle connections
    #[arg(long, value_name = "N", default_value = "1000", value_parser = rate)]
    pub rate: f64,
    /// Connections, over all clients
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub connections: u32,
    /// A request takes any connection that has room, by chance, instead of the one that has waited longest
    #[arg(long, requires = "load")]
    pub any_connection: bool,
    /// Requests in flight on one connection
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub depth: u32,
    /// text, meta, binary; http. The default is that of the preset: text or http
    #[arg(long)]
    pub protocol: Option<ProtocolName>,
    /// Of http: the page (/)
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Of http: POST with a body of JSON of N bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(BODY_BYTES_MIN)..=i64::from(BODY_BYTES_MAX)))]
    pub body_size: Option<u32>,
    /// Number of keys
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keys: Option<u64>,
    /// Popularity of the keys: uniform, zipf (0.99), zipf:EXPONENT
    #[arg(long)]
    pub popularity: Option<Popularity>,
    /// Key size in bytes: a number or a distribution
    #[arg(long, value_name = "SIZE")]
    pub key_size: Option<Distribution>,
    /// Value size in bytes: a number or a distribution
    #[arg(long, value_name = "SIZE")]
    pub value_size: Option<Distribution>,
    /// Share of requests that are sets, 0 to 1; or GET:SET, like 30:1
    #[arg(long, value_name = "RATIO", value_parser = load::options::update_ratio)]
    pub update: Option<f64>,
    /// Distribution of the gaps between requests, as of neap-load
    #[arg(long, long_help = format!("Distribution of the gaps between requests: {}", arrivals::GRAMMAR))]
    pub arrivals: Option<Process>,
    /// Compare each byte of each value, not only key and length
    #[arg(long)]
    pub check_bytes: bool,
    /// Time limit of a request; after the window, unfinished requests are awaited for twice as long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub time_out: u64,
    /// Load before the window
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    pub warmup: u64,
    /// The measured window
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = time)]
    pub window: u64,
}

impl LoadWords {
    /// Ok(None): no load is asked for. Err: a line that says which option is invalid.
    pub fn load(&self, server: Ipv4Addr, seed: u64) -> Result<Option<LoadOptions>, String> {
        let Some(name) = self.load.as_deref() else { return Ok(None) };
        let usual = if name == "etc" { Process::Pareto(arrivals::ETC_GAPS) } else { Process::Exponential };
        let (port, protocol, mix) = match Mix::preset(name) {
            Some(preset) => (MEMCACHED_PORT, self.memcached_protocol(name)?, self.mix(preset)),
            None => {
                let page = self.page(name, server)?;
                let mix = page.mix();
                (HTTP_PORT, Protocol::Http(Arc::new(page)), mix)
            }
        };
        Ok(Some(LoadOptions {
            settings: ConnectionSettings {
                server: (server, port),
                protocol,
                checks: Checks { bytes: self.check_bytes },
                depth: self.depth as usize,
            },
            mix,
            process: self.arrivals.clone().unwrap_or(usual),
            rate: self.rate,
            connections: self.connections as usize,
            any_connection: self.any_connection,
            time_out_ns: self.time_out,
            seed,
        }))
    }

    fn memcached_protocol(&self, name: &str) -> Result<Protocol, String> {
        if self.path.is_some() || self.body_size.is_some() {
            return Err(format!("--load {name} is for memcached, which has no --path and no --body-size"));
        }
        let usual = if name == TPCC { ProtocolName::Tpcc } else { ProtocolName::Text };
        let protocol = self.protocol.unwrap_or(usual).of_memcached();
        protocol.ok_or_else(|| format!("--load {name} is for memcached, those of http are {}", HTTP_PRESETS.join(", ")))
    }

    fn mix(&self, preset: Mix) -> Mix {
        Mix {
            keys: self.keys.unwrap_or(preset.keys),
            popularity: self.popularity.unwrap_or(preset.popularity),
            key_size: self.key_size.clone().unwrap_or(preset.key_size),
            value_size: self.value_size.clone().unwrap_or(preset.value_size),
            update_ratio: self.update.unwrap_or(preset.update_ratio),
            expiry_s: preset.expiry_s,
        }
    }

    fn page(&self, name: &str, server: Ipv4Addr) -> Result<Page, String> {
        let of_memcached = [
            ("--protocol", self.protocol.is_some_and(|protocol| protocol != ProtocolName::Http)),
            ("--keys", self.keys.is_some()),
            ("--popularity", self.popularity.is_some()),
            ("--key-size", self.key_size.is_some()),
            ("--value-size", self.value_size.is_some()),
            ("--update", self.update.is_some()),
            ("--check-bytes", self.check_bytes),
        ];
        if let Some((option, _)) = of_memcached.iter().find(|(_, is_given)| *is_given) {
            return Err(format!("--load {name} is for a web server, and {option} is for memcached"));
        }
        let words = PageWords { preset: Some(name.into()), path: self.path.clone(), body_bytes: self.body_size };
        Page::new(&words, &format!("{server}:{HTTP_PORT}"))
    }
}

fn preset(text: &str) -> Result<String, String> {
    let known = [&PRESETS[..], &HTTP_PRESETS].concat();
    known.contains(&text).then(|| text.to_string()).ok_or_else(|| format!("known are {}", known.join(", ")))
}

fn rate(text: &str) -> Result<f64, String> {
    let is_rate = |rate: &f64| *rate == 0.0 || (1e-3..=1e8).contains(rate);
    text.parse().ok().filter(is_rate).ok_or("not 0, and not a number from 0.001 to 100000000".into())
}

/// Nanoseconds from a number with a unit: 250us, 20ms, 1.5s.
pub fn time(text: &str) -> Result<u64, String> {
    time_up_to(text, 3600)
}

/// As `time`, for up to 11 days: slow transfers are mostly idle time, which costs the host little.
pub fn long_time(text: &str) -> Result<u64, String> {
    time_up_to(text, 1_000_000)
}

fn time_up_to(text: &str, seconds_max: u64) -> Result<u64, String> {
    let wrong = || format!("{text} is not a time of at most {seconds_max}s, like 500ns, 250us, 20ms or 1.5s");
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (digits, unit) = units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit))).ok_or_else(wrong)?;
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    Some(number * unit).filter(|ns| (0.0..=seconds_max as f64 * 1e9).contains(ns)).map(|ns| ns.round() as u64).ok_or_else(wrong)
}
