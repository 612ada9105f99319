// SPDX-License-Identifier: BSL-1.0
//! The command line.

use crate::clients::{Server, CLIENTS_MAX, CLIENT_HOST_FIRST};
use crate::experiment::ExperimentOptions;
use crate::incidents::{self, Incident, Moment};
use crate::load_words::{long_time, LoadWords};
use crate::plan::{self, PlannedLoad, SETTINGS_MAX};
use crate::switch::NetworkOptions;
use clap::Parser;
use soft82599::log::Level;
use soft82599::options::Strict;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Requests that wait for connections which are opened again need longer than a request's time limit.
const RECOVERY_DRAIN_NS_MIN: u64 = 60_000_000_000;
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// Card, network, clients and load of the model machine, on one virtual clock that the machine drives.
#[derive(Parser, Clone, Debug)]
#[command(name = "neap-world", version, max_term_width = 120)]
pub struct Options {
    /// vfio-user socket of the card
    #[arg(long, value_name = "PATH")]
    pub socket_path: PathBuf,
    /// Socket for the program that drives the clock
    #[arg(long, value_name = "PATH")]
    pub driven: PathBuf,
    /// A second machine: vfio-user socket of its card. The cards are joined by the switch; there are no clients
    #[arg(long, value_name = "PATH", requires = "peer_driven", group = "result", conflicts_with_all = ["fault", "pcap"])]
    pub peer_socket_path: Option<PathBuf>,
    /// Socket for the program that drives the second machine's clock
    #[arg(long, value_name = "PATH", requires = "peer_socket_path")]
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
    /// With --strict, the second machine may break rules: its driver is not Neap's
    #[arg(long, requires = "peer_socket_path")]
    pub peer_free: bool,
    /// A fault as of soft82599, from the start or at a virtual time, repeatable: 'drop rx chance 0.01', 'at 25ms hang tx 0'. Further
    /// kinds: 'at window+5ms network loss=0.1', 'link down', 'link flap NS TIMES', 'control LINE', 'require LINE' (until
    /// control has accepted it), 'close N', 'reset N' (a connection),
    /// 'flood RATE COUNT PORT' (SYNs with forged sources)
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

    #[command(flatten)]
    pub offered: LoadWords,
    /// Loads one after the other in one boot: a JSON array of objects. Their members are the options above by their names, and
    /// name, seed, log (true, false) and settings (lines for control before the load)
    #[arg(long, value_name = "FILE", groups = ["result", "loads"], conflicts_with = "LoadWords")]
    pub sequence: Option<PathBuf>,
    /// A line for control after the set-up of the first load, repeatable. The result has the answers
    #[arg(long, value_name = "LINE", requires = "loads")]
    pub ask: Vec<String>,
    /// After the drain: open all connections again, and send this many requests, whose answers are awaited. Also take control's statistics
    /// before and after the log's begin and end
    #[arg(long, value_name = "N", requires = "log", conflicts_with = "sequence")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub recovery: Option<u32>,
    /// Limit of boot, connections, preload and settings
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = long_time)]
    pub set_up_limit: u64,
    /// Equal options and seeds give equal runs
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Lines for Neap's control before the warm-up; empty lines and lines from # on are skipped
    #[arg(long, value_name = "FILE", requires = "load", conflicts_with = "sequence")]
    pub settings: Option<PathBuf>,
    /// Folder for the cores' logs of the window: core0.log, core1.log, ...; of a sequence: for the folders of its loads
    #[arg(long, value_name = "DIR", requires = "loads")]
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

    /// Reads the sequence and the settings, and makes the folders of logs. Err: one line that says what failed.
    pub fn experiment(&self) -> Result<ExperimentOptions, String> {
        let loads = match &self.sequence {
            Some(file) => plan::read_sequence(file, &plan::Common { server: self.server, seed: self.seed, log: self.log.as_deref() })?,
            None => self.only_load()?.into_iter().collect(),
        };
        for folder in loads.iter().filter_map(|load| load.log.as_ref()) {
            std::fs::create_dir_all(folder).map_err(|error| format!("--log {}: {error}", folder.display()))?;
        }
        Ok(ExperimentOptions {
            loads,
            is_sequence: self.sequence.is_some(),
            asked: self.ask.clone(),
            set_up_ns_max: self.set_up_limit,
            recovery: self.recovery.map(u64::from),
        })
    }

    /// The load that the command line describes.
    fn only_load(&self) -> Result<Option<PlannedLoad>, String> {
        let Some(plan) = PlannedLoad::new(&self.offered, self.server, self.seed)? else { return Ok(None) };
        if self.recovery.is_some() && plan.load.rate == 0.0 {
            return Err("--recovery sends requests, so it needs a --rate above 0".into());
        }
        let drain_ns_min = if self.recovery.is_some() { RECOVERY_DRAIN_NS_MIN } else { 0 };
        let drain_ns_max = plan.drain_ns_max.max(drain_ns_min);
        Ok(Some(PlannedLoad { drain_ns_max, settings: self.read_settings()?, log: self.log.clone(), ..plan }))
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

#[cfg(test)]
mod tests {
    use super::*;
    use load::arrivals::{self, Process};

    fn parse(words: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(format!("neap-world --socket-path s --driven d {words}").split_whitespace())
    }

    #[test]
    fn options_describe_network_load_and_phases() {
        let options =
            parse("--network delay_ns=500,loss=0.01 --load etc --rate 100000 --keys 50 --warmup 5ms --window 1.5s --strict").unwrap();
        assert_eq!((options.network.delay_ns, options.network.impairments.loss), (500, 0.01));
        let plan = options.only_load().unwrap().unwrap();
        let load = plan.load;
        assert_eq!((load.mix.keys, load.mix.update_ratio, load.rate, load.connections), (50, 0.25, 1e5, 16));
        assert_eq!(load.process, Process::Pareto(arrivals::ETC_GAPS));
        assert_eq!((plan.warm_up_ns, plan.window_ns, options.strict()), (5_000_000, 1_500_000_000, Strict::Report));
        assert_eq!(parse("--strict=stop").unwrap().strict(), Strict::Stop);
        assert!(parse("--sequence f --log d --ask status --out o").unwrap().sequence.is_some());
        assert!(parse("").unwrap().only_load().unwrap().is_none());
        let load = parse("--load json --body-size 2000 --protocol http --depth 4").unwrap().only_load().unwrap().unwrap().load;
        assert_eq!((load.settings.server.1, load.settings.depth, load.mix.value_bytes(1)), (8080, 4, 2000));
        assert_eq!((load.mix.update_ratio, load.settings.protocol.has_keys()), (1.0, false));
        for words in ["--load study --protocol text", "--load hello --value-size 5", "--load etc --protocol http", "--load hello --path a"]
        {
            assert!(parse(words).unwrap().only_load().is_err(), "{words}");
        }
        assert!(parse("--load etc --rate 0 --log d --recovery 5").unwrap().only_load().unwrap_err().contains("--rate above 0"));
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
            "--load etc --rate 0.0001",
            "--load etc --sequence f",
            "--sequence f --rate 5",
            "--sequence f --any-connection",
            "--sequence f --settings f",
            "--sequence f --log d --recovery 5",
            "--ask status",
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
