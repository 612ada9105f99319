// SPDX-License-Identifier: BSL-1.0
//! The plan of a run: one load, or a sequence of loads from a file.
//!
//! A guest may need much longer to boot than a window lasts. A sequence measures many loads in one boot. Its file is a JSON array with an
//! object for each load, in order:
//!
//!   [{"name": "etc", "load": "etc", "rate": 40000, "connections": 64, "warmup": "20ms", "window": "100ms", "log": true},
//!    {"name": "idle", "load": "fixed", "rate": 0, "connections": 1000, "window": "1s", "settings": ["itr,100us"]}]
//!
//! `name` is required. `seed` is the command line's if it is missing. `log`: whether the cores' logs are fetched. `settings`: lines for
//! control before the load. All other members are options of a load (load_words.rs), by their names.

use crate::load::LoadOptions;
use crate::load_words::LoadWords;
use clap::Parser;
use serde_json::{Map, Value};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

pub const LOADS_MAX: usize = 256;
pub const SETTINGS_MAX: usize = 1000;
const SEQUENCE_BYTES_MAX: u64 = 1 << 20;
const NAME_BYTES_MAX: usize = 64;

/// One load and its phases.
#[derive(Clone, Debug)]
pub struct PlannedLoad {
    /// Empty for the load of the command line.
    pub name: String,
    pub load: LoadOptions,
    pub warm_up_ns: u64,
    pub window_ns: u64,
    /// After the window: time for requests that have not ended.
    pub drain_ns_max: u64,
    /// Lines for control before the warm-up.
    pub settings: Vec<String>,
    /// The folder for the cores' logs.
    pub log: Option<PathBuf>,
}

impl PlannedLoad {
    /// Ok(None): no load is asked for. Err: a line that says which option is invalid.
    pub fn new(words: &LoadWords, server: Ipv4Addr, seed: u64) -> Result<Option<Self>, String> {
        let load = words.load(server, seed)?;
        Ok(load.map(|load| Self {
            name: String::new(),
            load,
            warm_up_ns: words.warmup,
            window_ns: words.window.max(1),
            drain_ns_max: words.time_out.saturating_mul(2).max(1),
            settings: Vec::new(),
            log: None,
        }))
    }

    /// True if both loads store the same keys with the same values.
    pub fn stores_same_as(&self, other: &Self) -> bool {
        let (a, b) = (&self.load.mix, &other.load.mix);
        (a.keys, &a.key_size, &a.value_size, a.expiry_s) == (b.keys, &b.key_size, &b.value_size, b.expiry_s)
    }
}

/// The options of a load, as a command line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    words: LoadWords,
}

/// The settings that the loads of a sequence share.
pub struct Common<'o> {
    pub server: Ipv4Addr,
    /// Of loads that name none.
    pub seed: u64,
    /// The folder below which logs are kept, in folders named NUMBER-NAME.
    pub log: Option<&'o Path>,
}

/// Reads the file of a sequence. Err: one line that says what is wrong.
pub fn read_sequence(file: &Path, common: &Common) -> Result<Vec<PlannedLoad>, String> {
    let named = |why: String| format!("--sequence {}: {why}", file.display());
    let size = std::fs::metadata(file).map_err(|error| named(error.to_string()))?.len();
    if size > SEQUENCE_BYTES_MAX {
        return Err(named(format!("{size} bytes are more than {SEQUENCE_BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    sequence(&text, common).map_err(named)
}

fn sequence(text: &str, common: &Common) -> Result<Vec<PlannedLoad>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let loads = value.as_array().filter(|loads| (1..=LOADS_MAX).contains(&loads.len()));
    let loads = loads.ok_or_else(|| format!("not a JSON array of 1 to {LOADS_MAX} loads"))?;
    let planned = |(number, load): (usize, &Value)| planned(number, load, common).map_err(|why| format!("load {number}: {why}"));
    loads.iter().enumerate().map(planned).collect()
}

fn planned(number: usize, value: &Value, common: &Common) -> Result<PlannedLoad, String> {
    let Value::Object(members) = value else { return Err("not a JSON object".into()) };
    let is_name = |name: &&str| {
        (1..=NAME_BYTES_MAX).contains(&name.len())
            && !name.starts_with('.')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let name = members.get("name").and_then(Value::as_str).filter(is_name);
    let name = name.ok_or_else(|| format!("`name` takes 1 to {NAME_BYTES_MAX} letters, digits and . _ - (none begins with .)"))?;
    let with_name = |why: String| format!("{name}: {why}");
    let words = words(members).map_err(with_name)?;
    let seed = match members.get("seed") {
        None => common.seed,
        Some(seed) => seed.as_u64().ok_or_else(|| with_name(format!("`seed` takes a number from 0 to 2^64 - 1, not {seed}")))?,
    };
    let plan = PlannedLoad::new(&words, common.server, seed).map_err(with_name)?;
    let plan = plan.ok_or_else(|| with_name("`load` is missing, which names the mix".into()))?;
    let log = match members.get("log") {
        None | Some(Value::Bool(false)) => None,
        Some(Value::Bool(true)) => {
            Some(common.log.ok_or_else(|| with_name("`log` needs --log with a folder".into()))?.join(format!("{number}-{name}")))
        }
        Some(other) => return Err(with_name(format!("`log` takes true or false, not {other}"))),
    };
    Ok(PlannedLoad { name: name.into(), settings: settings(members).map_err(with_name)?, log, ..plan })
}

/// The members that are options, read as the command line's.
fn words(members: &Map<String, Value>) -> Result<LoadWords, String> {
    let mut line = Vec::new();
    for (name, value) in members {
        match (name.as_str(), value) {
            ("name" | "seed" | "log" | "settings", _) | (_, Value::Bool(false) | Value::Null) => {}
            (_, Value::Bool(true)) => line.push(format!("--{name}")),
            (_, Value::Number(number)) => line.push(format!("--{name}={number}")),
            (_, Value::String(text)) => line.push(format!("--{name}={text}")),
            (_, Value::Array(_) | Value::Object(_)) => return Err(format!("`{name}` takes a number, a text, true or false")),
        }
    }
    let parsed = Line::try_parse_from(line).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string()
    });
    Ok(parsed?.words)
}

fn settings(members: &Map<String, Value>) -> Result<Vec<String>, String> {
    let Some(value) = members.get("settings") else { return Ok(Vec::new()) };
    let line = |line: &Value| line.as_str().filter(|line| !line.trim().is_empty() && !line.contains('\n')).map(String::from);
    let lines: Option<Vec<String>> = value.as_array().and_then(|lines| lines.iter().map(line).collect());
    lines.filter(|lines| lines.len() <= SETTINGS_MAX).ok_or_else(|| format!("`settings` takes an array of at most {SETTINGS_MAX} lines"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<PlannedLoad>, String> {
        sequence(text, &Common { server: Ipv4Addr::new(10, 0, 0, 2), seed: 7, log: Some(Path::new("logs")) })
    }

    #[test]
    fn members_are_the_command_lines_options() {
        let loads = read(
            r#"[{"name": "a", "load": "etc", "rate": 2.5e4, "connections": 3, "any-connection": true, "check-bytes": false, "log": true},
                {"name": "idle.2", "load": "fixed", "rate": 0, "value-size": 32768, "update": "30:1", "warmup": "3ms", "window": "1.5s",
                 "time-out": "2s", "seed": 9, "settings": ["itr,8us"], "protocol": "binary"}]"#,
        )
        .unwrap();
        let [a, idle] = &loads[..] else { panic!("{loads:?}") };
        assert_eq!((a.name.as_str(), a.load.rate, a.load.connections, a.load.seed), ("a", 2.5e4, 3, 7));
        assert_eq!((a.load.any_connection, a.log.as_deref()), (true, Some(Path::new("logs/0-a"))));
        assert_eq!((idle.load.rate, idle.load.seed, idle.log.as_ref()), (0.0, 9, None));
        assert_eq!((idle.warm_up_ns, idle.window_ns, idle.drain_ns_max), (3_000_000, 1_500_000_000, 4_000_000_000));
        assert_eq!((idle.load.mix.value_bytes(5), idle.settings.as_slice()), (32768, ["itr,8us".to_string()].as_slice()));
        assert!(!a.stores_same_as(idle) && a.stores_same_as(a));
    }

    #[test]
    fn an_invalid_sequence_is_refused_with_the_load_and_the_member() {
        for (text, said) in [
            ("{}", "JSON array"),
            ("[]", "JSON array"),
            ("[1]", "load 0: not a JSON object"),
            (r#"[{"name": "a", "load": "etc"}, {"name": "../b", "load": "etc"}]"#, "load 1: `name`"),
            (r#"[{"name": "a"}]"#, "load 0: a: `load` is missing"),
            (r#"[{"name": "a", "load": "etc", "connections": 0}]"#, "load 0: a: invalid value '0' for '--connections <N>'"),
            (r#"[{"name": "a", "load": "etc", "rate": -1}]"#, "--rate"),
            (r#"[{"name": "a", "load": "etc", "speed": 3}]"#, "unexpected argument '--speed'"),
            (r#"[{"name": "a", "load": "etc", "keys": [1]}]"#, "`keys` takes"),
            (r#"[{"name": "a", "load": "etc", "seed": -1}]"#, "`seed` takes"),
            (r#"[{"name": "a", "load": "etc", "log": 1}]"#, "`log` takes"),
            (r#"[{"name": "a", "load": "etc", "settings": "itr,8us"}]"#, "`settings` takes"),
            (r#"[{"name": "a", "load": "study", "keys": 5}]"#, "load 0: a: --load study is for a web server, and --keys"),
            (r#"[{"name": "a", "load": "etc", "path": "/a"}]"#, "load 0: a: --load etc is for memcached"),
            (r#"[{"name": "a", "load": "json", "body-size": 5}]"#, "--body-size"),
            (r#"[{"name": "a", "load": "etc", "socket-path": "x"}]"#, "unexpected argument '--socket-path'"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
        let without_folder = Common { server: Ipv4Addr::new(10, 0, 0, 2), seed: 7, log: None };
        assert!(sequence(r#"[{"name": "a", "load": "etc", "log": true}]"#, &without_folder).unwrap_err().contains("--log"));
    }
}
