// SPDX-License-Identifier: BSL-1.0
//! Counts the fuzzer's operations in the file that FUZZ_OPERATIONS names. libFuzzer itself only counts inputs.

use std::sync::atomic::{AtomicU64, Ordering};

static OPERATIONS: AtomicU64 = AtomicU64::new(0);
const EVERY: u64 = 1 << 18;

pub fn add(count: u64) {
    let before = OPERATIONS.fetch_add(count, Ordering::Relaxed);
    if before / EVERY != (before + count) / EVERY || before == 0 {
        if let Some(path) = std::env::var_os("FUZZ_OPERATIONS") {
            // A failure is ignored: the count is written again soon.
            let _ = std::fs::write(path, format!("{}\n", before + count));
        }
    }
}
