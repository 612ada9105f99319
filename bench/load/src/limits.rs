// SPDX-License-Identifier: BSL-1.0
//! This machine's limit on open files.

use crate::run::Load;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// The largest number of programs that generate one load together: this program and its agents.
pub const LOADERS_MAX: u64 = 10_000;
/// Allowance for open files other than connections to the server: report files, standard streams, connections to agents.
const OTHER_DESCRIPTORS: u64 = 64;
/// Number of open files of a thread: its poller, one connection for preloading, and the poller of that connection.
const DESCRIPTORS_A_THREAD: u64 = 3;

/// Raises this process's limit of open files to the number that the load's connections need. Fails if the user may not open so many files.
pub fn allow_descriptors(load: &Load) -> Result<(), String> {
    let connections = load.connections + load.measuring.map_or(0, |measuring| measuring.connections);
    allow_connections(connections as u64, DESCRIPTORS_A_THREAD * (load.threads as u64 + 1))
}

/// Raises the limit so that `connections` connections, `other` further files, and OTHER_DESCRIPTORS more can be open.
pub fn allow_connections(connections: u64, other: u64) -> Result<(), String> {
    let other = OTHER_DESCRIPTORS + other;
    let needed = connections + other;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(connections_max) = limit.maximum.filter(|&maximum| maximum < needed) {
        let connections_max = connections_max.saturating_sub(other);
        return Err(format!(
            "{connections} connections need more open files than this user may have (ulimit -Hn); at most {connections_max} fit"
        ));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|error| format!("ulimit -n {needed}: {error}"))
}
