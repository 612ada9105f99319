// SPDX-License-Identifier: BSL-1.0
//! Offers load to a memcached or web server, Neap's or any other, and measures the latency of each request.

pub mod agent;
pub mod arrivals;
pub mod connection;
pub mod demand;
pub mod distributions;
pub mod limits;
pub mod neap_control;
pub mod options;
pub mod protocol;
pub mod reach;
pub mod recorder;
pub mod report;
pub mod run;
pub mod search;
pub mod server_log;
pub mod team;
pub mod terminal;
#[cfg(test)]
mod test_statistics;
pub mod trace;
pub mod worker;
pub mod workload;
