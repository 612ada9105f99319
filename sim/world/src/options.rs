// SPDX-License-Identifier: BSL-1.0
//! The command line.

use crate::clients::{Server, CLIENTS_MAX, CLIENT_HOST_FIRST};
use crate::connection::ConnectionSettings;
use crate::experiment::ExperimentOptions;
use crate::incidents::{self, Incident, Moment};
use crate::load::LoadOptions;
use crate::switch::NetworkOptions;
use clap::Parser;
use load::arrivals::{self, Process};
use load::distributions::Distribution;
use load::protocol::{Checks, Protocol};
use load::workload::{Mix, Popularity, PRESETS};
use soft82599::log::Level;
use soft82599::options::Strict;
use std::net::Ipv4Addr;
use std::path::PathBuf;

const MEMCACHED_PORT: u16 = 11211;
const SETTINGS_MAX: usize = 1000;
/// Requests that wait for connections which are opened again need longer than a request's time limit.
const RECOVERY_DRAIN_NS_MIN: u64 = 60_000_000_000;
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// Card, network, clients and load of the model machine, on one virtual clock that the machine drives.
#[derive(Parser, Clone, Debug)]
#[command(name = "neap-world", version, max_term_width = 120)]
pub struct Options {
    /// vfio-user socket of the card
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Socket for the program that drives the clock
    #[arg(long, value_name = "PATH")]
    pub driven: PathBuf,
    /// A second machine: vfio-user socket of its card. The cards are joined by the switch; there are no clients
    #[arg(long, value_name = "PATH", requires = "peer_driven", group = "result", conflicts_with_all = ["fault", "pcap"])]
    pub peer_socket: Option<PathBuf>,
    /// Socket for the program that drives the second machine's clock
    #[arg(long, value_name = "PATH", requires = "peer_socket")]
    pub peer_driven: Option<PathBuf>,
    /// The second card's MAC
    #[arg(long, value_name = "ADDRESS", default_value = "02:82:59:90:00:02", value_parser = soft82599::options::mac)]
    pub peer_mac: [u8; 6],
    /// Socket for commands to the card, as of soft82599; of two machines, to the first one's
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// The card's MAC
    #[arg(long, value_name = "ADDRESS", default_value = "02:82:59:90:00:01", value_parser = soft82599::options::mac)]
    pub mac: [u8; 6],
    /// Report each rule of the datasheet that the driver breaks, exit with status 3 if there was any; =stop: end at the first
    #[arg(long, value_name = "stop", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = strict)]
    pub strict: Option<Strict>,
    /// A fault as of soft82599, from the start or at a virtual time, repeatable: 'drop rx chance 0.01', 'at 25ms hang tx 0'. Further
    /// kinds: 'at window+5ms network loss=0.1', 'link down', 'link flap NS TIMES', 'control LINE', 'require LINE' (until
    /// control has accepted it), 'close N', 'reset N' (a connection)
    #[arg(long, value_name = "WORDS")]
    pub fault: Vec<String>,
    /// Record every frame of the card, with virtual times
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Maximum size of the recording, like 500K, 20M, 2G
    #[arg(long, value_name = "N", requires = "pcap", value_parser = soft82599::options::bytes)]
    pub pcap_limit: Option<u64>,
    /// error, warn, info, debug
    #[arg(long, default_value = "warn", value_parser = soft82599::options::level)]
    pub log_level: Level,

    /// Cables and switch: delay_ns=1000,rate_mbps=10000,queue_bytes=1048576; chances loss=, duplicate=, corrupt=, reorder= (by up to
    /// jitter_ns=50000)
    #[arg(long, value_name = "LIST", default_value = "")]
    pub network: NetworkOptions,
    /// The guest's address; the clients are .16 and the following in the same network of 24 bits
    #[arg(long, value_name = "IP", default_value = "10.0.0.2", value_parser = server)]
    pub server: Ipv4Addr,
    /// Hosts
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=CLIENTS_MAX as i64))]
    pub clients: u32,

    /// Offer load: sizes, mix and arrivals as published: etc, usr; or fixed. Without it there is only the network
    #[arg(long, value_name = "PRESET", value_parser = preset, group = "result")]
    pub load: Option<String>,
    /// Requests a second over all connections
    #[arg(long, value_name = "N", default_value = "1000", value_parser = rate)]
    pub rate: f64,
    /// Connections, over all clients
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub connections: u32,
    /// A request takes any connection that has room, by chance, instead of the one that has waited longest
    #[arg(long, requires = "load")]
    pub any_connection: bool,
    /// Requests in flight on one connection
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub depth: u32,
    /// text, meta, binary
    #[arg(long, default_value = "text")]
    pub protocol: Protocol,
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
    /// After the drain: open all connections again, and send this many requests, whose answers are awaited. Also take control's statistics
    /// before and after the log's begin and end
    #[arg(long, value_name = "N", requires = "log", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub recovery: Option<u32>,
    /// Limit of boot, connections, preload and settings
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub set_up_limit: u64,
    /// Equal options and seeds give equal runs
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Lines for Neap's control before the warm-up; empty lines and lines from # on are skipped
    #[arg(long, value_name = "FILE", requires = "load")]
    pub settings: Option<PathBuf>,
    /// Folder for the cores' logs of the window: core0.log, core1.log, ...
    #[arg(long, value_name = "DIR", requires = "load")]
    pub log: Option<PathBuf>,
    /// The card's interrupt messages and writes to EITR since the machine's reset, one JSON object a line, as in soft82599's trace
    #[arg(long, value_name = "FILE", requires = "out")]
    pub interrupts: Option<PathBuf>,
    /// Result: one JSON object
    #[arg(long, value_name = "FILE", requires = "result")]
    pub out: Option<PathBuf>,
}

/// Random streams of one seed, for parts that must not influence each other.
#[derive(Clone, Copy)]
pub enum Stream {
    Switch = 1,
    Faults = 2,
    /// Of the way from the second machine to the first.
    Back = 3,
    /// And the following: one for each client.
    Clients = 1000,
}

impl Options {
    pub fn stream_seed(&self, stream: Stream, place: u64) -> u64 {
        // The finaliser of SplitMix64 (Steele, Lea, Flood 2014). The load takes the seed itself, as neap-load does.
        let mut x = self.seed.wrapping_add((stream as u64 + place).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub fn server(&self) -> Server {
        Server { address: self.server, mac: self.mac }
    }

    pub fn strict(&self) -> Strict {
        self.strict.unwrap_or(Strict::No)
    }

    /// Faults and the like, and the times at which they happen.
    pub fn incidents(&self) -> Result<Vec<(Moment, Incident)>, String> {
        let seed = self.stream_seed(Stream::Faults, 0);
        self.fault.iter().zip(0..).map(|(words, place)| incidents::parse(words, seed.wrapping_add(place))).collect()
    }

    pub fn load(&self) -> Option<LoadOptions> {
        let name = self.load.as_ref()?;
        let preset = Mix::preset(name)?;
        let usual = if name == "etc" { Process::Pareto(arrivals::ETC_GAPS) } else { Process::Exponential };
        Some(LoadOptions {
            settings: ConnectionSettings {
                server: (self.server, MEMCACHED_PORT),
                protocol: self.protocol,
                checks: Checks { bytes: self.check_bytes },
                depth: self.depth as usize,
            },
            mix: Mix {
                keys: self.keys.unwrap_or(preset.keys),
                popularity: self.popularity.unwrap_or(preset.popularity),
                key_size: self.key_size.clone().unwrap_or(preset.key_size),
                value_size: self.value_size.clone().unwrap_or(preset.value_size),
                update_ratio: self.update.unwrap_or(preset.update_ratio),
                expiry_s: preset.expiry_s,
            },
            process: self.arrivals.clone().unwrap_or(usual),
            rate: self.rate,
            connections: self.connections as usize,
            any_connection: self.any_connection,
            time_out_ns: self.time_out,
            seed: self.seed,
        })
    }

    /// Reads the settings and makes the folder of logs. Err: one line that says what failed.
    pub fn experiment(&self) -> Result<ExperimentOptions, String> {
        if let Some(folder) = &self.log {
            std::fs::create_dir_all(folder).map_err(|error| format!("--log {}: {error}", folder.display()))?;
        }
        Ok(ExperimentOptions {
            warm_up_ns: self.warmup,
            window_ns: self.window.max(1),
            drain_ns_max: self.time_out.saturating_mul(2).max(if self.recovery.is_some() { RECOVERY_DRAIN_NS_MIN } else { 1 }),
            set_up_ns_max: self.set_up_limit,
            settings: self.read_settings()?,
            log: self.log.clone(),
            recovery: self.recovery.map(u64::from),
        })
    }

    fn read_settings(&self) -> Result<Vec<String>, String> {
        let Some(file) = &self.settings else { return Ok(Vec::new()) };
        let named = |why: String| format!("--settings {}: {why}", file.display());
        let size = std::fs::metadata(file).map_err(|error| named(error.to_string()))?.len();
        if size > SETTINGS_BYTES_MAX {
            return Err(named(format!("{size} bytes are more than {SETTINGS_BYTES_MAX}")));
        }
        let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
        let line = |line: &str| line.split('#').next().unwrap_or_default().trim().to_string();
        let lines: Vec<String> = text.lines().map(line).filter(|line| !line.is_empty()).collect();
        if lines.len() > SETTINGS_MAX {
            return Err(named(format!("{} lines are more than {SETTINGS_MAX}", lines.len())));
        }
        Ok(lines)
    }
}

fn preset(text: &str) -> Result<String, String> {
    Mix::preset(text).map(|_| text.to_string()).ok_or_else(|| format!("known are {}", PRESETS.join(", ")))
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|rate: &f64| (1e-3..=1e8).contains(rate)).ok_or("not a number from 0.001 to 100000000".into())
}

fn server(text: &str) -> Result<Ipv4Addr, String> {
    let address: Ipv4Addr = text.parse().map_err(|_| "not an address like 10.0.0.2".to_string())?;
    let last = address.octets()[3];
    let clients_end = u32::from(CLIENT_HOST_FIRST) + CLIENTS_MAX as u32;
    if last == 0 || last == 255 || (u32::from(CLIENT_HOST_FIRST)..clients_end).contains(&last.into()) {
        return Err(format!(
            "its last byte must be 1 to {} or {clients_end} to 254, because the clients have the others",
            CLIENT_HOST_FIRST - 1
        ));
    }
    Ok(address)
}

fn strict(text: &str) -> Result<Strict, String> {
    soft82599::options::strict(Some(text).filter(|text| !text.is_empty()))
}

/// Nanoseconds from a number with a unit: 250us, 20ms, 1.5s.
pub fn time(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is not a time of at most 3600s, like 500ns, 250us, 20ms or 1.5s");
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (digits, unit) = units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit))).ok_or_else(wrong)?;
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    Some(number * unit).filter(|ns| (0.0..=3.6e12).contains(ns)).map(|ns| ns.round() as u64).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(format!("neap-world --socket s --driven d {words}").split_whitespace())
    }

    #[test]
    fn options_describe_network_load_and_phases() {
        let options =
            parse("--network delay_ns=500,loss=0.01 --load etc --rate 100000 --keys 50 --warmup 5ms --window 1.5s --strict").unwrap();
        assert_eq!((options.network.delay_ns, options.network.impairments.loss), (500, 0.01));
        let load = options.load().unwrap();
        assert_eq!((load.mix.keys, load.mix.update_ratio, load.rate, load.connections), (50, 0.25, 1e5, 16));
        assert_eq!(load.process, Process::Pareto(arrivals::ETC_GAPS));
        assert_eq!((options.warmup, options.window, options.strict()), (5_000_000, 1_500_000_000, Strict::Report));
        assert_eq!(parse("--strict=stop").unwrap().strict(), Strict::Stop);
        assert!(parse("").unwrap().load().is_none());
    }

    #[test]
    fn a_fault_may_have_a_time_and_takes_the_seed() {
        let mut options = parse("--seed 5").unwrap();
        options.fault = vec!["drop rx chance 0.5".into(), "at 25ms ecc".into()];
        let faults = options.incidents().unwrap();
        assert_eq!((faults[0].0, faults[1].0), (Moment::SinceReset(0), Moment::SinceReset(25_000_000)));
        options.seed = 6;
        assert_ne!(options.incidents().unwrap()[0], faults[0]);
    }

    #[test]
    fn an_invalid_option_is_refused() {
        for words in [
            "--server 10.0.0.16",
            "--server 10.0.0.0",
            "--clients 0",
            "--clients 201",
            "--load nothing",
            "--rate 0",
            "--window 5",
            "--warmup -1ms",
            "--out f",
            "--strict=maybe",
            "--network loss=2",
            "--mac 03:00:00:00:00:01",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
    }

    #[test]
    fn streams_of_a_seed_differ() {
        let options = parse("--seed 1").unwrap();
        let seeds = [
            options.stream_seed(Stream::Switch, 0),
            options.stream_seed(Stream::Faults, 0),
            options.stream_seed(Stream::Clients, 0),
            options.stream_seed(Stream::Clients, 1),
        ];
        for (place, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..place].contains(seed));
        }
    }
}
