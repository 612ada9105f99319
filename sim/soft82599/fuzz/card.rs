// SPDX-License-Identifier: BSL-1.0
//! The card against a driver and a peer that do anything at all. It must not panic, hang, or grow: the first is libFuzzer's to see, the
//! second its -timeout, the third its -rss_limit_mb and the bounds that the host watches.
#![no_main]

mod host;
mod operations;
mod tally;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tally::add(operations::run(data)));
