// SPDX-License-Identifier: BSL-1.0
//! The command line, and the load that it describes.

mod http;

use crate::agent::PaceOrder;
use crate::arrivals::{self, Course, Process};
use crate::connection::{ConnectionSettings, Transport};
use crate::distributions::{self, Distribution};
use crate::protocol::{self, Checks, Protocol, ProtocolName};
use crate::reach;
use crate::run::{Load, Measuring, Pace, Run};
use crate::search::{Promise, Scan};
use crate::server_log::LogFrom;
use crate::workload::{Mix, Popularity, TPCC};
use clap::Parser;
use http::{HttpWords, Target};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const DEFAULT_PORT: u16 = 11211;
const HTTP_PORT: u16 = 80;
const SECONDS: f64 = 5.0;
/// The longest window of a run that ends after a number of requests.
const SECONDS_MAX: f64 = 3600.0;
const SECOND_NS: f64 = 1e9;
/// Time-out of a connection attempt to one address of a host name.
const CONNECT_TIME_OUT: Duration = Duration::from_secs(2);

const AGENT_HELP: &str = "`neap-load agent LISTEN` makes this machine an agent, which generates load for a master (see --agents).";
/// Default number of connections: of this program if there are no agents, and of each agent.
const CONNECTIONS: u32 = 16;

/// `neap-load agent`: generates load for a master, one at a time.
///
/// A master can make an agent load any server: listen only on networks where every machine is trusted. An agent writes and reads no files.
#[derive(Parser, Clone, Debug)]
#[command(name = "neap-load agent", version, max_term_width = 120)]
pub struct AgentOptions {
    /// The address to listen on: ADDRESS:PORT
    pub listen: String,
}

/// Offers load to a memcached or a web server and measures the latency of each request.
///
/// Latency counts from the intended send time of a request. Without --rate, --rate-file, --trace, --scan, --search or --closed the rate is
/// 1000 requests a second. Progress is printed to standard error, the table to standard output.
#[derive(Parser, Clone, Debug)]
#[command(name = "neap-load", version, max_term_width = 120, after_help = AGENT_HELP)]
pub struct Options {
    /// The server: HOST or HOST:PORT (11211, of http 80), or http://HOST[:PORT][/PATH]
    pub server: String,

    /// Of memcached: sizes, mix and arrivals as published: etc, usr; or fixed (key 30 bytes, value 200 bytes), the default. Of tpcc: tpcc.
    /// Of http: hello, study (100,000 requests in a closed loop, replies of 148 bytes), json (POST);
    /// or http (any page), the default with --protocol http
    #[arg(long, value_parser = preset)]
    pub preset: Option<String>,
    /// Number of keys
    #[arg(long, value_name = "N")]
    pub keys: Option<u64>,
    /// Popularity of the keys: uniform, zipf (0.99), zipf:EXPONENT
    #[arg(long)]
    pub popularity: Option<Popularity>,
    /// Key size in bytes: a number or a distribution
    #[arg(long, value_name = "SIZE", long_help = format!("Key size in bytes: a number or a distribution: {}", distributions::GRAMMAR))]
    pub key_size: Option<Distribution>,
    /// Value size in bytes: a number or a distribution
    #[arg(long, value_name = "SIZE")]
    pub value_size: Option<Distribution>,
    /// Share of requests that are sets, 0 to 1; or GET:SET, like 30:1
    #[arg(long, value_name = "RATIO", value_parser = update_ratio)]
    pub update: Option<f64>,
    /// Seconds until a stored value expires; 0: never
    #[arg(long, value_name = "SECONDS")]
    pub expiry: Option<u32>,

    /// Protocol: text, meta, binary; http. The default is that of the preset: text or http
    #[arg(long)]
    pub protocol: Option<ProtocolName>,
    #[command(flatten)]
    pub http: HttpWords,
    /// Use UDP instead of TCP
    #[arg(long)]
    pub udp: bool,

    /// Requests a second, over all connections, threads and agents
    #[arg(long, value_name = "PER_SECOND", value_parser = positive, group = "pace")]
    pub rate: Option<f64>,
    /// A rate that changes over time: CSV lines of seconds,rate
    #[arg(long, value_name = "FILE", group = "pace")]
    pub rate_file: Option<PathBuf>,
    /// A recorded load: CSV lines of seconds,operation,key bytes,value bytes
    #[arg(long, value_name = "FILE", group = "pace")]
    pub trace: Option<PathBuf>,
    /// One run for each rate: LOW:HIGH:STEP
    #[arg(long, group = "pace")]
    pub scan: Option<Scan>,
    /// Find the highest rate at which this holds, like 'p99<500us'
    #[arg(long, value_name = "PROMISE", group = "pace")]
    pub search: Option<Promise>,
    /// Closed loop: the next request is sent when a reply has arrived
    #[arg(long, group = "pace")]
    pub closed: bool,
    /// The first rate of --search
    #[arg(long, value_name = "PER_SECOND", default_value = "1000", value_parser = positive)]
    pub search_from: f64,
    /// Distribution of the gaps between requests
    #[arg(long, long_help = format!("Distribution of the gaps between requests: {}", arrivals::GRAMMAR))]
    pub arrivals: Option<Process>,

    /// Connections, over all threads (16; with --agents 0: this machine only measures)
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub connections: Option<u32>,
    /// Threads
    #[arg(short = 't', long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Requests in flight on one connection
    #[arg(short = 'd', long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub depth: u32,

    /// Connections of a separate measuring client; if there is one, its latencies are the result; 0: none
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub measure_connections: u32,
    /// Requests a second of the measuring client
    #[arg(long, value_name = "PER_SECOND", default_value = "1000", value_parser = positive)]
    pub measure_rate: f64,
    /// Depth of the measuring client
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub measure_depth: u32,

    /// Seconds of load before the measured window
    #[arg(short = 'w', long, value_name = "SECONDS", default_value = "1", value_parser = not_negative)]
    pub warm_up: f64,
    /// Seconds of the measured window (5)
    #[arg(short = 's', long, value_name = "SECONDS", value_parser = positive)]
    pub seconds: Option<f64>,
    /// The window ends after this number of requests, in place of --seconds
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "rate_file", "trace", "measure_connections"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub requests: Option<u64>,
    /// Do not store the keys before the run: they are already there
    #[arg(long)]
    pub no_preload: bool,
    /// Compare each byte of each value, not only key and length
    #[arg(long)]
    pub check_bytes: bool,
    /// The same seed gives the same requests at the same times
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Time limit of a request and of a connection attempt; after the end, waiting requests are still sent for as long
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = positive)]
    pub time_out: f64,
    /// Poll the kernel instead of sleeping: more exact times, but each thread uses a core
    #[arg(long)]
    pub busy: bool,

    /// Start, mark and stop the log of a Neap machine: HOST:PORT of its control
    #[arg(long, value_name = "HOST:PORT")]
    pub control: Option<String>,
    /// The phase with which the log starts; never: a run that is on gets the marks of the phases, and is not stopped
    #[arg(long, value_name = "PHASE", value_enum, default_value = "window", requires = "control")]
    pub log_from: LogFrom,
    /// File with the control's token
    #[arg(long, value_name = "FILE", requires = "control")]
    pub control_token_file: Option<PathBuf>,

    /// Machines that generate the load: HOST:PORT of each `neap-load agent`, separated by commas
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    pub agents: Vec<String>,
    /// Connections of each agent, over all its threads
    #[arg(long, value_name = "N", requires = "agents", default_value_t = CONNECTIONS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub agent_connections: u32,

    /// Write all figures to a file, `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write latencies to a file in HdrHistogram's log format
    #[arg(long, value_name = "FILE")]
    pub histogram: Option<PathBuf>,
    /// Print no progress lines
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

fn preset(text: &str) -> Result<String, String> {
    let known = [&crate::workload::PRESETS[..], &protocol::http::PRESETS].concat();
    known.contains(&text).then(|| text.to_string()).ok_or_else(|| format!("known are {}", known.join(", ")))
}

fn not_negative(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && (0.0..=1e9).contains(number)).ok_or("not a number from 0 on".into())
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text).ok().filter(|number| *number > 0.0).ok_or("not a number above 0".into())
}

/// Parses a share from 0 to 1, or GET:SET. Returns the share of sets.
pub fn update_ratio(text: &str) -> Result<f64, String> {
    let ratio = match text.split_once(':') {
        Some((gets, sets)) => {
            let (gets, sets) = (not_negative(gets)?, not_negative(sets)?);
            sets / (gets + sets)
        }
        None => not_negative(text)?,
    };
    // The ratio 0:0 gives NaN, which is outside every range.
    if (0.0..=1.0).contains(&ratio) {
        Ok(ratio)
    } else {
        Err("not a share from 0 to 1, nor GET:SET".into())
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * SECOND_NS) as u64
}

impl Options {
    pub fn is_http(&self) -> bool {
        self.protocol.map_or_else(|| self.names_http(), |protocol| protocol == ProtocolName::Http)
    }

    /// The protocol of memcached or of transactions, unless another one is asked for.
    fn text_protocol(&self) -> ProtocolName {
        self.protocol.unwrap_or(if self.preset() == TPCC { ProtocolName::Tpcc } else { ProtocolName::Text })
    }

    fn preset(&self) -> &str {
        self.preset.as_deref().unwrap_or(if self.is_http() { protocol::http::PRESETS[0] } else { crate::workload::PRESETS[0] })
    }

    /// Of memcached. An HTTP load has its mix from its page.
    pub fn mix(&self) -> Mix {
        let preset = Mix::preset(self.preset()).or_else(|| Mix::preset(crate::workload::PRESETS[0])).unwrap_or_else(|| unreachable!());
        Mix {
            keys: self.keys.unwrap_or(preset.keys),
            popularity: self.popularity.unwrap_or(preset.popularity),
            key_size: self.key_size.clone().unwrap_or(preset.key_size),
            value_size: self.value_size.clone().unwrap_or(preset.value_size),
            update_ratio: self.update.unwrap_or(preset.update_ratio),
            expiry_s: self.expiry.unwrap_or(preset.expiry_s),
        }
    }

    /// Returns the arrival process. ETC's published gaps are generalised Pareto; the other presets have exponential gaps.
    pub fn process(&self) -> Process {
        let usual = if self.preset() == "etc" { Process::Pareto(arrivals::ETC_GAPS) } else { Process::Exponential };
        self.arrivals.clone().unwrap_or(usual)
    }

    pub fn connections(&self) -> u32 {
        self.connections.unwrap_or(if self.agents.is_empty() { CONNECTIONS } else { 0 })
    }

    /// Returns the number of programs that generate load, including this program if it does.
    pub fn loaders(&self) -> u64 {
        self.agents.len() as u64 + u64::from(self.connections() != 0)
    }

    /// `share`: this program's index among the programs that generate load, and the number of these programs.
    pub fn load(&self, share: (u64, u64)) -> Result<Load, String> {
        self.check_protocol()?;
        let target = Target::parse(&self.server)?;
        let (protocol, mix) = match self.text_protocol().of_memcached().filter(|_| !self.is_http()) {
            Some(protocol) => (protocol, self.mix()),
            None => {
                let page = protocol::http::Page::new(&self.page_words(&target), target.authority)?;
                let mix = page.mix();
                (Protocol::Http(Arc::new(page)), mix)
            }
        };
        if mix.keys == 0 {
            return Err("--keys 0: a workload needs at least one key".into());
        }
        if self.loaders() == 0 {
            return Err("--connections 0: without agents there would be no load".into());
        }
        Ok(Load {
            settings: ConnectionSettings {
                server: address(target.authority, if self.is_http() { HTTP_PORT } else { DEFAULT_PORT })?,
                transport: if self.udp { Transport::Udp } else { Transport::Tcp },
                protocol,
                checks: Checks { bytes: self.check_bytes },
                depth: self.depth as usize,
            },
            mix,
            threads: self.threads as usize,
            connections: match self.connections() {
                0 => 0,
                connections => connections.max(self.threads) as usize,
            },
            measuring: (self.measure_connections != 0).then_some(Measuring {
                connections: self.measure_connections as usize,
                rate: self.measure_rate,
                depth: self.measure_depth as usize,
            }),
            seed: self.seed,
            share,
        })
    }

    /// Returns the command line with which an agent generates this load. It omits the measuring client, which belongs to the master.
    pub fn for_agents(&self) -> Vec<String> {
        let mut words = vec![self.server.clone()];
        let mut word = |name: &str, value: String| words.push(format!("--{name}={value}"));
        if self.is_http() {
            word("protocol", ProtocolName::Http.to_string());
            word("preset", self.preset().to_string());
            self.http.for_agents(&mut word);
        } else {
            let mix = self.mix();
            word("keys", mix.keys.to_string());
            word("popularity", mix.popularity.to_string());
            word("key-size", mix.key_size.to_string());
            word("value-size", mix.value_size.to_string());
            word("update", mix.update_ratio.to_string());
            word("expiry", mix.expiry_s.to_string());
            word("protocol", self.text_protocol().to_string());
        }
        word("arrivals", self.process().to_string());
        word("connections", self.agent_connections.to_string());
        word("threads", self.threads.to_string());
        word("depth", self.depth.to_string());
        word("warm-up", self.warm_up.to_string());
        match self.requests() {
            Some(requests) => word("requests", requests.to_string()),
            None => word("seconds", self.seconds.unwrap_or(SECONDS).to_string()),
        }
        word("seed", self.seed.to_string());
        word("time-out", self.time_out.to_string());
        for (name, is_set) in [("udp", self.udp), ("check-bytes", self.check_bytes), ("busy", self.busy)] {
            if is_set {
                words.push(format!("--{name}"));
            }
        }
        words
    }

    /// Fails if there are options that name files, or machines other than the server. An agent accepts no such option from a master.
    pub fn refuse_files(&self) -> Result<(), String> {
        let files = [&self.rate_file, &self.trace, &self.control_token_file, &self.json, &self.histogram];
        if files.iter().any(|file| file.is_some()) || self.control.is_some() || !self.agents.is_empty() {
            return Err("takes no files, control or agents from a master".into());
        }
        Ok(())
    }

    /// Returns the pace of one run. `rate`: the run's rate in a scan or a search; otherwise None.
    pub fn order(&self, rate: Option<f64>) -> Result<PaceOrder, String> {
        let read = |file: &Path| std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()));
        Ok(match (rate, &self.rate_file, &self.trace) {
            (Some(rate), _, _) => PaceOrder::Rate(rate),
            (None, Some(file), _) => PaceOrder::Course(read(file)?),
            (None, None, Some(file)) => PaceOrder::Trace(read(file)?),
            (None, None, None) if self.is_closed() => PaceOrder::Closed,
            (None, None, None) => PaceOrder::Rate(self.rate.unwrap_or(1000.0)),
        })
    }

    pub fn run_of(&self, order: &PaceOrder) -> Result<Run, String> {
        let named = |file: &Option<PathBuf>, why: String| match file {
            Some(file) => format!("{}: {why}", file.display()),
            None => why,
        };
        let requests = self.requests();
        let window_ns = nanoseconds(if requests.is_some() { SECONDS_MAX } else { self.seconds.unwrap_or(SECONDS) });
        let (pace, measured_ns) = match order {
            PaceOrder::Rate(rate) if !(rate.is_finite() && *rate > 0.0) => return Err(format!("a rate of {rate} is invalid")),
            PaceOrder::Rate(rate) => (Pace::Rate(self.process(), *rate), window_ns),
            PaceOrder::Course(text) => {
                let course = Course::parse(text).map_err(|why| named(&self.rate_file, why))?;
                let seconds = course.seconds();
                (Pace::Course(Arc::new(course)), nanoseconds(seconds))
            }
            PaceOrder::Trace(text) => {
                let lines = crate::trace::parse(text.as_bytes()).map_err(|why| named(&self.trace, why))?;
                let last_ns = lines.last().map_or(0, |line| line.at_ns);
                (Pace::Trace(Arc::new(lines)), last_ns + 1)
            }
            PaceOrder::Closed => (Pace::Closed, window_ns),
        };
        // A rate file and a trace are measured from their beginning to their end, without a warm-up.
        let whole = matches!(pace, Pace::Course(_) | Pace::Trace(_));
        Ok(Run { pace, warm_up_ns: if whole { 0 } else { nanoseconds(self.warm_up) }, measured_ns, requests })
    }

    pub fn time_out_ns(&self) -> u64 {
        nanoseconds(self.time_out)
    }
}

impl Run {
    /// Returns the mean rate of this run in requests a second. None in a closed loop.
    pub fn asked_rate(&self) -> Option<f64> {
        match &self.pace {
            Pace::Rate(_, rate) => Some(*rate),
            Pace::Course(course) => Some(course.requests() / course.seconds()),
            Pace::Trace(lines) => Some(lines.len() as f64 * SECOND_NS / self.measured_ns as f64),
            Pace::Closed => None,
        }
    }
}

/// Resolves HOST, HOST:PORT or [IPv6]:PORT. `port`: if there is none. Of several addresses, chooses the first that answers, or the first of
/// all if none answers.
fn address(text: &str, port: u16) -> Result<std::net::SocketAddr, String> {
    let with_port = if text.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_ipv6()) {
        format!("[{text}]:{port}")
    } else if text.starts_with('[') && !text.contains("]:") || !text.contains(':') {
        format!("{text}:{port}")
    } else {
        text.to_string()
    };
    let addresses = reach::addresses(&with_port).map_err(|why| format!("server {text}: {why}"))?;
    if let [only] = addresses[..] {
        return Ok(only);
    }
    let reached = reach::connect(&with_port, CONNECT_TIME_OUT).ok().and_then(|stream| stream.peer_addr().ok());
    Ok(reached.unwrap_or(addresses[0]))
}

#[cfg(test)]
mod tests;
