// SPDX-License-Identifier: BSL-1.0
//! The timing of interrupt messages, on a clock that the test steps, observed in the card's own trace.

use super::driver::{numbered_frame, Driver};
use crate::registers::{field, Register};
use crate::{Causes, Entry, Event, Nanoseconds};

const TRACE_ENTRIES: usize = 10_000;

fn set_interval_us(driver: &mut Driver, vector: usize, us: u32) {
    let value = field::eitr::ITR_INTERVAL.put(us / 2) | field::eitr::COUNTER_WRITE_DISABLE.ones();
    driver.write_at(Register::Eitr, vector, value);
}

fn traced(queues: usize) -> Driver {
    let mut driver = Driver::up(queues, 64);
    driver.card.start_interrupt_trace(driver.now, TRACE_ENTRIES);
    driver
}

fn entries(driver: &mut Driver) -> Vec<Entry> {
    driver.card.interrupt_trace().take(usize::MAX).collect()
}

/// Returns time and delay of each message of a vector.
fn messages(driver: &mut Driver, vector: u8) -> Vec<(Nanoseconds, Nanoseconds)> {
    let of = |entry: Entry| match entry.event {
        Event::Message { held, .. } if entry.vector == vector => Some((entry.at, held)),
        _ => None,
    };
    entries(driver).into_iter().filter_map(of).collect()
}

#[test]
fn messages_keep_their_interval_and_the_first_after_a_pause_is_immediate() {
    for interval_us in [0u64, 2, 8, 100, 1000, 1022] {
        let mut driver = traced(1);
        set_interval_us(&mut driver, 0, interval_us as u32);
        // Sends a frame every 3 us for 20 intervals, pauses, and sends one more frame.
        let frames = (interval_us * 20 / 3).max(50);
        for number in 0..frames {
            driver.advance(3_000);
            driver.arrive(&numbered_frame(number as u32, 60));
            while driver.poll(0).is_some() {}
        }
        driver.advance(interval_us * 1000 + 1);
        while driver.poll(0).is_some() {}
        let before = messages(&mut driver, 0);
        let distances: Vec<Nanoseconds> = before.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        let expected = if interval_us <= 3 { 3_000 } else { interval_us * 1000 };
        assert!(distances.iter().all(|&distance| distance == expected), "{interval_us} us: {distances:?}");
        assert!(before[1..].iter().all(|&(_, held)| (held != 0) == (interval_us > 3)), "{interval_us} us: {before:?}");
        driver.advance(1 + interval_us * 1000);
        driver.arrive(&numbered_frame(0, 60));
        assert_eq!(messages(&mut driver, 0), [(driver.now, 0)], "after a pause at once");
    }
}

#[test]
fn a_moderated_message_is_sent_exactly_at_the_end_of_the_interval() {
    let mut driver = traced(1);
    set_interval_us(&mut driver, 0, 50);
    let start = driver.now;
    driver.arrive(&numbered_frame(0, 60));
    assert_eq!(driver.host.messages.len(), 1);
    driver.advance(10_000);
    driver.arrive(&numbered_frame(1, 60));
    driver.arrive(&numbered_frame(2, 60));
    driver.advance(39_999);
    assert_eq!(driver.host.messages.len(), 1);
    driver.advance(1);
    assert_eq!(driver.host.messages.len(), 2, "both frames in one message");
    driver.advance(1_000_000);
    assert_eq!(driver.host.messages.len(), 2, "and nothing more without a cause");
    assert_eq!(messages(&mut driver, 0), [(start, 0), (start + 50_000, 40_000)]);
}

#[test]
fn the_interval_counts_from_the_message_and_not_from_clearing_its_cause() {
    let mut driver = traced(1);
    driver.write(Register::Eiac, 0);
    set_interval_us(&mut driver, 0, 100);
    driver.arrive(&numbered_frame(0, 60));
    driver.advance(90_000);
    driver.write(Register::Eicr, 1);
    driver.arrive(&numbered_frame(1, 60));
    driver.advance(10_000);
    assert_eq!(driver.host.messages.len(), 2);
}

#[test]
fn a_running_interval_ends_as_it_began_and_the_new_one_holds_from_the_next_message() {
    for (first, second) in [(1000u32, 10u32), (10, 1000), (100, 0)] {
        let mut driver = traced(1);
        set_interval_us(&mut driver, 0, first);
        let start = driver.now;
        for _ in 0..3 {
            driver.arrive(&numbered_frame(0, 60));
        }
        driver.advance(5_000);
        set_interval_us(&mut driver, 0, second);
        driver.advance(1_000_000);
        driver.arrive(&numbered_frame(0, 60));
        driver.arrive(&numbered_frame(0, 60));
        driver.advance(1_000_000);
        let (first, second) = (u64::from(first) * 1000, u64::from(second) * 1000);
        // The second message loads the new interval.
        let third = start + 1_005_000.max(first + second);
        let mut expected = vec![start, start + first, third];
        if third == start + 1_005_000 {
            expected.push(third + second);
        }
        let times: Vec<Nanoseconds> = messages(&mut driver, 0).into_iter().map(|(at, _)| at).collect();
        assert_eq!(times, expected, "from {first} to {second} ns");
    }
}

#[test]
fn a_written_counter_counts_from_its_new_value() {
    let mut driver = traced(1);
    set_interval_us(&mut driver, 0, 1000);
    let start = driver.now;
    driver.arrive(&numbered_frame(0, 60));
    driver.arrive(&numbered_frame(1, 60));
    driver.advance(10_000);
    // The field has the upper seven of the counter's nine bits, so 5 means 20 steps of 2 us. The counter may also exceed the interval.
    driver.write_at(Register::Eitr, 0, field::eitr::ITR_INTERVAL.put(500) | field::eitr::ITR_COUNTER.put(5));
    driver.advance(100_000);
    assert_eq!(messages(&mut driver, 0), [(start, 0), (start + 50_000, 50_000)]);
    driver.arrive(&numbered_frame(2, 60));
    driver.advance(1_000);
    assert_eq!(driver.host.messages.len(), 2, "the last message loaded the interval again");
    driver.write_at(Register::Eitr, 0, field::eitr::ITR_INTERVAL.put(500));
    assert_eq!(driver.host.messages.len(), 3, "zero sends it at once");
    driver.write_at(Register::Eitr, 0, field::eitr::ITR_INTERVAL.put(4) | field::eitr::ITR_COUNTER.put(127));
    driver.arrive(&numbered_frame(3, 60));
    driver.advance(1_015_999);
    assert_eq!(driver.host.messages.len(), 3);
    driver.advance(1);
    assert_eq!(driver.host.messages.len(), 4);
}

#[test]
fn eitr_reads_its_interval_and_the_running_counter() {
    let mut driver = Driver::up(1, 64);
    set_interval_us(&mut driver, 0, 1000);
    let counter = |driver: &mut Driver| field::eitr::ITR_COUNTER.get(driver.read_at(Register::Eitr, 0));
    assert_eq!(driver.read_at(Register::Eitr, 0), field::eitr::ITR_INTERVAL.put(500), "counter_write_disable reads as zero");
    driver.arrive(&numbered_frame(0, 60));
    assert_eq!(counter(&mut driver), 125);
    driver.advance(500_000);
    assert_eq!(counter(&mut driver), 62);
    driver.advance(500_000);
    assert_eq!(counter(&mut driver), 0);
    // The EITR registers of the vectors from 24 on are at another offset.
    driver.write_at(Register::Eitr, 40, field::eitr::ITR_INTERVAL.put(7));
    assert_eq!(driver.read_at(Register::Eitr, 40), field::eitr::ITR_INTERVAL.put(7));
}

#[test]
fn masks_and_moderation_combine() {
    let mut driver = traced(1);
    set_interval_us(&mut driver, 0, 100);
    let start = driver.now;
    driver.arrive(&numbered_frame(0, 60));
    driver.arrive(&numbered_frame(1, 60));
    driver.advance(50_000);
    // If the cause is masked while its message waits, nothing is sent at the end of the interval. Unmasking then sends the message.
    driver.write_at(Register::EimcEx, 0, 1);
    driver.advance(100_000);
    driver.write_at(Register::EimsEx, 0, 1);
    assert_eq!(messages(&mut driver, 0), [(start, 0), (start + 150_000, 0)], "by then only the mask held it");
    // If the cause is masked and unmasked within an interval, its message waits for the rest of the interval.
    driver.write_at(Register::EimcEx, 0, 1);
    driver.arrive(&numbered_frame(2, 60));
    driver.advance(30_000);
    driver.write_at(Register::EimsEx, 0, 1);
    driver.advance(200_000);
    assert_eq!(messages(&mut driver, 0), [(start + 250_000, 70_000)]);
}

#[test]
fn software_causes_are_moderated_unless_gpie_says_immediate() {
    for (immediate, expected) in [(false, vec![0, 100_000, 200_000]), (true, vec![0, 20_000, 50_000, 150_000])] {
        let mut driver = traced(1);
        let gpie = driver.read(Register::Gpie) | field::gpie::EIMEN.put(u32::from(immediate));
        driver.write(Register::Gpie, gpie);
        set_interval_us(&mut driver, 0, 100);
        let start = driver.now;
        driver.arrive(&numbered_frame(0, 60));
        driver.advance(20_000);
        driver.write(Register::Eics, 1);
        driver.advance(20_000);
        // The frame's message waits for the interval's end. An immediate message of a software cause comes first and reports the frame.
        driver.arrive(&numbered_frame(1, 60));
        driver.advance(10_000);
        driver.write_at(Register::EicsEx, 0, 1);
        driver.advance(60_000);
        driver.arrive(&numbered_frame(2, 60));
        driver.advance(500_000);
        let times: Vec<Nanoseconds> = messages(&mut driver, 0).into_iter().map(|(at, _)| at - start).collect();
        assert_eq!(times, expected, "GPIE.eimen {immediate}");
    }
}

#[test]
fn without_msix_the_first_register_moderates_everything() {
    let mut driver = traced(1);
    driver.enable_line();
    driver.write(Register::Gpie, 0);
    driver.write(Register::Eims, 1);
    set_interval_us(&mut driver, 0, 100);
    let start = driver.now;
    for number in 0..3 {
        driver.arrive(&numbered_frame(number, 60));
        driver.read(Register::Eicr);
        driver.advance(20_000);
    }
    driver.arrive(&numbered_frame(3, 60));
    assert!(!driver.host.line, "the line waits, too");
    driver.advance(100_000);
    assert!(driver.host.line);
    assert_eq!(messages(&mut driver, 0), [(start, 0), (start + 100_000, 40_000)]);
}

#[test]
fn the_trace_counts_causes_since_the_last_message() {
    let mut driver = traced(2);
    set_interval_us(&mut driver, 1, 100);
    driver.arrive(&numbered_frame(0, 60));
    driver.send(1, &numbered_frame(1, 60));
    driver.send(1, &numbered_frame(2, 60));
    driver.send(1, &numbered_frame(3, 60));
    driver.write(Register::Eics, 2);
    driver.advance(100_000);
    driver.card.set_link(&mut driver.host, driver.now, false);
    let causes: Vec<(u8, Causes)> = entries(&mut driver)
        .into_iter()
        .filter_map(|entry| match entry.event {
            Event::Message { causes, .. } => Some((entry.vector, causes)),
            Event::Interval { .. } => None,
        })
        .collect();
    let none = Causes::default();
    assert_eq!(
        causes,
        [
            (0, Causes { receive: 1, ..none }),
            (1, Causes { transmit: 1, ..none }),
            (1, Causes { transmit: 2, software: 1, ..none }),
            (2, Causes { other: field::eicr::LSC.ones(), ..none }),
        ]
    );
}

#[test]
fn the_trace_reports_the_intervals_in_force() {
    let mut driver = Driver::up(3, 64);
    set_interval_us(&mut driver, 1, 8);
    driver.advance(1_000);
    let start = driver.now;
    driver.card.start_interrupt_trace(start, TRACE_ENTRIES);
    driver.advance(1_000);
    set_interval_us(&mut driver, 0, 100);
    driver.write_at(Register::Eitr, 2, field::eitr::ITR_COUNTER.put(2));
    let interval = |interval, counter| Event::Interval { interval, counter };
    let expected = [
        Entry { at: start, vector: 1, event: interval(8_000, None) },
        Entry { at: start + 1_000, vector: 0, event: interval(100_000, None) },
        Entry { at: start + 1_000, vector: 2, event: interval(0, Some(16_000)) },
    ];
    assert_eq!(entries(&mut driver), expected);
}

#[test]
fn the_trace_is_off_by_default_bounded_and_survives_resets() {
    let mut driver = Driver::up(1, 64);
    driver.arrive(&numbered_frame(0, 60));
    assert!(entries(&mut driver).is_empty());
    driver.card.start_interrupt_trace(driver.now, 3);
    for number in 0..5 {
        driver.advance(1_000);
        driver.arrive(&numbered_frame(number, 60));
    }
    driver.write(Register::Ctrl, field::ctrl::RST.ones());
    let trace = driver.card.interrupt_trace();
    assert_eq!((trace.is_on(), trace.waiting(), trace.lost()), (true, 3, 2));
    assert_eq!(trace.take(2).count(), 2);
    trace.stop();
    assert_eq!(trace.take(usize::MAX).count(), 1, "what was kept can be read after the end");
    driver.card.start_interrupt_trace(driver.now, 3);
    assert_eq!(driver.card.interrupt_trace().lost(), 0);
}

#[test]
fn the_cost_of_waiting_vectors_is_bounded() {
    let mut driver = Driver::up(2, 64);
    for vector in 0..2 {
        set_interval_us(&mut driver, vector, 1000);
    }
    for round in 0..1000 {
        driver.write_at(Register::EicsEx, 0, 3);
        driver.advance(500);
        let waits = driver.card.next_deadline().is_some_and(|at| at <= driver.now + 1_000_000);
        assert_eq!(waits, round > 0, "round {round}: the first was sent at once, the others wait for the same moment");
    }
    assert_eq!(driver.host.messages.len(), 2, "half a millisecond has room for one message each");
}

#[test]
fn credits_accumulate_up_to_the_maximum_of_the_field() {
    let mut driver = Driver::up(1, 64);
    let gpie = driver.read(Register::Gpie);
    driver.write(Register::Gpie, gpie | field::gpie::LLI_INTERVAL.put(2));
    driver.write_at(Register::Eitr, 0, field::eitr::LLI_MODERATION.ones() | field::eitr::LLI_CREDIT.put(3));
    for (pause_us, credits) in [(7, 3), (1, 4), (8 * 26, 30), (8, 31), (10_000, 31)] {
        driver.advance(pause_us * 1000);
        assert_eq!(field::eitr::LLI_CREDIT.get(driver.read_at(Register::Eitr, 0)), credits);
    }
}
