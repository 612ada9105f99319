// SPDX-License-Identifier: BSL-1.0
//! The command line.

use crate::fault_words::{self, Fault};
use crate::guest_socket::GuestSource;
use crate::log::Level;
use crate::net::Specification;
use card::Model;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// Descriptors below this one are stdin, stdout and stderr.
const DESCRIPTOR_MIN: RawFd = 3;

pub const USAGE: &str = "\
usage: soft82599 --socket-path=PATH [option ...]
       soft82599 --fd=FDNUM [option ...]

  --socket-path=PATH    vfio-user socket; QEMU: -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"PATH\"}}'
  --fd=FDNUM            the vfio-user socket is the inherited descriptor FDNUM, which listens or is connected to the only guest
                        without both options: the socket that systemd passes (LISTEN_FDS)
  --net=SPEC            none (default) | listen:PATH | connect:PATH | tap:NAME | loopback
  --model=M             82599 (default, SFP+) | x540 | x550 (10GBASE-T)
  --mac=ADDRESS         default 02:82:59:90:00:01
  --control=PATH        socket for commands, one per line; the answer to an unknown command lists all
  --time-scale=F        speed of the card's clock relative to real time (0.01: a hundred times slower); default 1
  --stopped             the card's clock is stopped until the control command clock step NS or clock run
  --pcap=FILE           record every frame in both directions, in pcap with nanoseconds; FILE is replaced
  --pcap-limit=N        maximum size of the recording in bytes, like 500K, 20M, 2G; default: no limit
  --fault=WORDS         a fault from the start, repeatable: 'drop rx chance 0.01'; the control command fault lists all
  --strict              report each rule of the datasheet that the driver breaks; exit with status 3 if there was any
  --strict=stop         exit at the first one
  --log-level=L         error | warn (default) | info | debug (every register access by name)
  --once                exit when the first guest has disconnected
  --print-capabilities  print type, features and models as JSON, ignore all other options, and exit
  --help, -h            print this text and exit
  --version, -V         print the version and exit

A value may also follow its option as the next argument. Messages are printed to stderr, and the line 'soft82599: ready' to stdout.
SIGTERM and SIGINT end the program. Exit status: 0 ended as requested, 1 failure, 2 wrong usage, 3 broken rule with --strict.";

/// The optional options, which --print-capabilities lists.
pub const FEATURES: [&str; 12] =
    ["control", "fault", "log-level", "mac", "model", "net", "once", "pcap", "pcap-limit", "stopped", "strict", "time-scale"];

#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub socket: GuestSource,
    pub net: Specification,
    pub model: Model,
    pub mac: [u8; 6],
    pub control: Option<PathBuf>,
    pub time_scale: f64,
    pub stopped: bool,
    pub pcap: Option<PathBuf>,
    pub pcap_limit: Option<u64>,
    pub faults: Vec<Fault>,
    pub strict: Strict,
    pub level: Level,
    pub once: bool,
}

/// The reaction to a broken rule, in addition to counting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strict {
    No,
    Report,
    Stop,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    Run(Box<Options>),
    Capabilities,
    Help,
    Version,
}

/// Parses the command line. `passed_socket` is called if no option names the guest's socket, and returns the socket that a service manager
/// has passed. An error is one line that says what is wrong.
pub fn parse(
    arguments: impl Iterator<Item = OsString>,
    passed_socket: impl FnOnce() -> Result<Option<RawFd>, String>,
) -> Result<Parsed, String> {
    let arguments: Vec<OsString> = arguments.collect();
    if arguments.iter().any(|argument| argument == "--print-capabilities") {
        return Ok(Parsed::Capabilities);
    }
    let mut socket_path = None;
    let mut descriptor = None;
    let mut options = Options {
        socket: GuestSource::Path(PathBuf::new()),
        net: Specification::None,
        model: Model::default(),
        mac: [0x02, 0x82, 0x59, 0x90, 0x00, 0x01],
        control: None,
        time_scale: 1.0,
        stopped: false,
        pcap: None,
        pcap_limit: None,
        faults: Vec::new(),
        strict: Strict::No,
        level: Level::Warn,
        once: false,
    };
    let text = |argument: OsString| argument.into_string().map_err(|argument| format!("{} is not UTF-8", argument.to_string_lossy()));
    let mut arguments = arguments.into_iter().map(text).collect::<Result<Vec<String>, String>>()?.into_iter();
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (argument.clone(), None),
        };
        let mut value = || inline.clone().or_else(|| arguments.next()).ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--socket-path" => socket_path = Some(PathBuf::from(value()?)),
            "--fd" => descriptor = Some(inherited(&value()?)?),
            "--net" => options.net = net(&value()?)?,
            "--model" => options.model = model(&value()?)?,
            "--mac" => options.mac = mac(&value()?)?,
            "--control" => options.control = Some(PathBuf::from(value()?)),
            "--time-scale" => options.time_scale = time_scale(&value()?).map_err(|message| format!("--time-scale: {message}"))?,
            "--stopped" if inline.is_none() => options.stopped = true,
            "--pcap" => options.pcap = Some(PathBuf::from(value()?)),
            "--pcap-limit" => options.pcap_limit = Some(bytes(&value()?)?),
            "--fault" => options.faults.push(fault_words::parse(&value()?).map_err(|message| format!("--{message}"))?),
            "--strict" => options.strict = strict(inline.as_deref())?,
            "--log-level" => options.level = level(&value()?)?,
            "--once" if inline.is_none() => options.once = true,
            "--help" | "-h" if inline.is_none() => return Ok(Parsed::Help),
            "--version" | "-V" if inline.is_none() => return Ok(Parsed::Version),
            _ => return Err(format!("unknown option {argument}; --help lists them")),
        }
    }
    options.socket = match (socket_path, descriptor) {
        (Some(_), Some(_)) => return Err("--socket-path and --fd exclude each other".into()),
        (Some(path), None) => GuestSource::Path(path),
        (None, Some(descriptor)) => GuestSource::Descriptor(descriptor),
        (None, None) => GuestSource::Descriptor(passed_socket()?.ok_or("--socket-path (or --fd) is missing; --help lists the options")?),
    };
    Ok(Parsed::Run(Box::new(options)))
}

fn inherited(text: &str) -> Result<RawFd, String> {
    let wrong = || format!("--fd {text} is not the number of an inherited descriptor, {DESCRIPTOR_MIN} or more");
    text.parse().ok().filter(|&descriptor| descriptor >= DESCRIPTOR_MIN).ok_or_else(wrong)
}

fn net(text: &str) -> Result<Specification, String> {
    let path = |path: &str| if path.is_empty() { Err(format!("--net {text} names no path")) } else { Ok(PathBuf::from(path)) };
    match text.split_once(':') {
        None if text == "none" => Ok(Specification::None),
        None if text == "loopback" => Ok(Specification::Loopback),
        Some(("listen", rest)) => Ok(Specification::Listen(path(rest)?)),
        Some(("connect", rest)) => Ok(Specification::Connect(path(rest)?)),
        Some(("tap", name)) if !name.is_empty() => Ok(Specification::Tap(name.into())),
        _ => Err(format!("--net {text}: known are none, listen:PATH, connect:PATH, tap:NAME, loopback")),
    }
}

fn model(text: &str) -> Result<Model, String> {
    Model::named(text).ok_or_else(|| format!("--model {text}: known are 82599, x540, x550"))
}

/// Parses the MAC address of a card, six bytes in hexadecimal.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let wrong = || format!("--mac {text} is not six bytes in hexadecimal, like 02:82:59:90:00:01");
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
    }
    if parts.next().is_some() {
        return Err(wrong());
    }
    if bytes[0] & 1 != 0 || bytes == [0; 6] {
        return Err(format!("--mac {text} is a group address or zero, which no card has"));
    }
    Ok(bytes)
}

pub fn time_scale(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|scale| (1e-6..=1e3).contains(scale))
        .ok_or_else(|| format!("{text} is not a scale, a number from 0.000001 to 1000"))
}

/// Parses a number of bytes, optionally followed by K, M or G.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, [10, 20, 30]["KMG".find(&text[digits.len()..]).unwrap_or(0)]),
        None => (text, 0),
    };
    let wrong = || format!("--pcap-limit {text} is not a number of bytes, like 4096, 500K, 20M or 2G");
    digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift)).filter(|&count| count != 0).ok_or_else(wrong)
}

/// Parses the value of --strict. `text` is None if the option has no value.
pub fn strict(text: Option<&str>) -> Result<Strict, String> {
    match text {
        None => Ok(Strict::Report),
        Some("stop") => Ok(Strict::Stop),
        Some(other) => Err(format!("--strict={other}: known are --strict and --strict=stop")),
    }
}

pub fn level(text: &str) -> Result<Level, String> {
    Ok(match text {
        "error" => Level::Error,
        "warn" => Level::Warn,
        "info" => Level::Info,
        "debug" => Level::Debug,
        _ => return Err(format!("--log-level {text}: known are error, warn, info, debug")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Parsed, String> {
        parse(line.split_whitespace().map(OsString::from), || Ok(None))
    }

    #[test]
    fn all_options_are_accepted_in_both_spellings() {
        let Ok(Parsed::Run(options)) = parsed("--socket-path /s --net=connect:/n:1 --mac 02:00:00:00:00:0f --time-scale 0.01 --once")
        else {
            panic!()
        };
        assert_eq!(options.socket, GuestSource::Path("/s".into()));
        assert_eq!(options.net, Specification::Connect("/n:1".into()));
        assert_eq!((options.mac[5], options.time_scale, options.once), (15, 0.01, true));
        let Ok(Parsed::Run(options)) = parsed("--socket-path /s --model x550 --pcap=/p --pcap-limit 3K --fault=away --strict --stopped")
        else {
            panic!()
        };
        assert_eq!(options.model, Model::X550);
        assert_eq!((options.pcap, options.pcap_limit), (Some("/p".into()), Some(3072)));
        assert_eq!((options.faults, options.strict, options.stopped), (vec![Fault::Away(true)], Strict::Report, true));
    }

    #[test]
    fn an_option_that_names_the_socket_comes_before_a_passed_socket() {
        let source = |line: &str| match parse(line.split_whitespace().map(OsString::from), || Ok(Some(3))) {
            Ok(Parsed::Run(options)) => options.socket,
            other => panic!("{other:?}"),
        };
        assert_eq!(source(""), GuestSource::Descriptor(3));
        assert_eq!(source("--fd 5"), GuestSource::Descriptor(5));
        assert_eq!(source("--socket-path=/s"), GuestSource::Path("/s".into()));
    }

    // A reader of the capabilities relies on the names: each is an option, and each option but those that every back-end has is listed.
    #[test]
    fn the_features_are_the_optional_options_of_the_usage() {
        let needed = ["socket-path", "fd", "print-capabilities", "help", "version"];
        let lines = USAGE.lines().filter_map(|line| line.strip_prefix("  --"));
        let mut names: Vec<&str> =
            lines.filter_map(|line| line.split(['=', ',', ' ']).next()).filter(|name| !needed.contains(name)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, FEATURES);
    }

    #[test]
    fn an_invalid_option_is_refused_and_named() {
        for (line, named) in [
            ("", "--socket-path"),
            ("--socket-path", "--socket-path"),
            ("--socket /s", "--socket"),
            ("--fd", "--fd"),
            ("--fd=2", "2"),
            ("--fd=-1", "-1"),
            ("--fd=three", "three"),
            ("--socket-path /s --fd=3", "--fd"),
            ("--help=all", "--help=all"),
            ("--socket-path /s --net carrier-pigeon", "carrier-pigeon"),
            ("--socket-path /s --net listen:", "listen:"),
            ("--socket-path /s --mac 03:00:00:00:00:00", "03:00"),
            ("--socket-path /s --mac 02:00", "02:00"),
            ("--socket-path /s --time-scale 0", "0"),
            ("--socket-path /s --time-scale NaN", "NaN"),
            ("--socket-path /s --model x710", "x710"),
            ("--socket-path /s --verbose", "--verbose"),
            ("--socket-path /s --pcap-limit 0", "0"),
            ("--socket-path /s --pcap-limit 5T", "5T"),
            ("--socket-path /s --pcap-limit 99999999999G", "99999999999G"),
            ("--socket-path /s --strict=maybe", "maybe"),
            ("--socket-path /s --fault=explode", "explode"),
            ("--socket-path /s --once=yes", "--once=yes"),
        ] {
            let message = parsed(line).unwrap_err();
            assert!(message.contains(named), "{line}: {message}");
        }
    }
}
