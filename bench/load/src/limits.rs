// SPDX-License-Identifier: BSL-1.0
//! What this machine gives and what it does not: open files.

use crate::run::Load;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Programs that load together.
pub const LOADERS_MAX: u64 = 10_000;
/// Beside connections: files, standard streams, agents.
const OTHER_DESCRIPTORS: u64 = 64;
/// A poller, and a connection for storing beforehand with its own.
const DESCRIPTORS_A_THREAD: u64 = 3;

/// Each connection of a load is an open file: raises this process's limit as far as it needs. Err: the user may not have so many.
pub fn allow_descriptors(load: &Load) -> Result<(), String> {
    let connections = load.connections + load.measuring.map_or(0, |measuring| measuring.connections);
    allow_connections(connections as u64, DESCRIPTORS_A_THREAD * (load.threads as u64 + 1))
}

/// The same for any program. `other`: files beside connections and the few that each program has.
pub fn allow_connections(connections: u64, other: u64) -> Result<(), String> {
    let other = OTHER_DESCRIPTORS + other;
    let needed = connections + other;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(most) = limit.maximum.filter(|&maximum| maximum < needed) {
        let most = most.saturating_sub(other);
        return Err(format!("{connections} connections need more open files than this user may have (ulimit -Hn); at most {most} fit"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|error| format!("ulimit -n {needed}: {error}"))
}
