// SPDX-License-Identifier: BSL-1.0
//! Measures the cost of a frame in the card alone, in nanoseconds and in instructions. The cases differ in the direction, the number of
//! queues (one or all), and the armed timers (none, or those of all vectors). The output is one line of JSON for each case.
//!
//! The cost includes the driver's work for a frame (new descriptors, a tail write per batch), but not QEMU, the socket and the guest. The
//! host is a vector of bytes and a wire that drops frames.

mod driver;
mod steps;

use driver::{Driver, BATCH};
use std::time::Instant;

const WARM_BATCHES: u32 = 200;
const TIMED_BATCHES: u32 = 1000;
const ROUNDS: u32 = 7;
const COUNTED_BATCHES: u32 = 1;

fn main() {
    for (way, receive) in [("rx", true), ("tx", false)] {
        for (size, bytes) in [("64B", 60), ("1500B", 1514)] {
            for queues in [1, 128] {
                for timers in [false, true] {
                    let mut driver = Driver::new(queues, timers, bytes);
                    let armed = driver.armed_timers();
                    let mut run = |driver: &mut Driver| if receive { driver.receive_batch() } else { driver.send_batch() };
                    (0..WARM_BATCHES).for_each(|_| run(&mut driver));
                    let nanoseconds = (0..ROUNDS).map(|_| time(&mut driver, &mut run)).fold(f64::INFINITY, f64::min);
                    let counted = steps::count(|| (0..COUNTED_BATCHES).for_each(|_| run(&mut driver)));
                    let instructions =
                        counted.map_or("null".into(), |count| format!("{:.1}", count as f64 / f64::from(COUNTED_BATCHES * BATCH)));
                    println!(
                        "{{\"way\": \"{way}\", \"size\": \"{size}\", \"queues\": {queues}, \"timers\": {armed}, \
                         \"nanoseconds\": {nanoseconds:.1}, \"instructions\": {instructions}}}"
                    );
                }
            }
        }
    }
}

/// Measures one round and returns its nanoseconds per frame.
fn time(driver: &mut Driver, run: &mut impl FnMut(&mut Driver)) -> f64 {
    let start = Instant::now();
    (0..TIMED_BATCHES).for_each(|_| run(driver));
    start.elapsed().as_nanos() as f64 / f64::from(TIMED_BATCHES * BATCH)
}
