// SPDX-License-Identifier: BSL-1.0
//! Faults on demand: the driver sees data that is late, lost or all ones, but write-backs in their order. Each fault ends on request.

use super::driver::{numbered_frame, Driver, SPARE};
use crate::registers::descriptor::transmit_write_back;
use crate::registers::{field, Register};
use crate::{Direction, Trigger};

#[test]
fn a_hung_receive_queue_keeps_its_frames_until_it_is_released() {
    let mut driver = Driver::up(1, 64);
    driver.card.hang_queue(&mut driver.host, driver.now, Direction::Receive, 0, true);
    driver.arrive(&numbered_frame(1, 60));
    driver.arrive(&numbered_frame(2, 60));
    assert!(driver.poll(0).is_none());
    driver.card.hang_queue(&mut driver.host, driver.now, Direction::Receive, 0, false);
    assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(1, 60));
    assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(2, 60));
}

#[test]
fn a_hung_transmit_queue_stops_and_the_others_continue() {
    let mut driver = Driver::up(2, 64);
    driver.card.hang_queue(&mut driver.host, driver.now, Direction::Transmit, 0, true);
    driver.send(0, &numbered_frame(1, 60));
    driver.send(1, &numbered_frame(2, 60));
    assert_eq!(driver.host.sent, [numbered_frame(2, 60)]);
    assert_eq!(driver.read_at(Register::Tdh, 0), 0, "the register that a watchdog reads");
    assert!(!driver.card.has_transmit_work(), "a hung queue causes no busy loop");
    driver.card.hang_queue(&mut driver.host, driver.now, Direction::Transmit, 0, false);
    assert_eq!(driver.host.sent[1], numbered_frame(1, 60));
}

#[test]
fn late_write_backs_arrive_in_order_before_their_interrupt() {
    let mut driver = Driver::up(1, 64);
    driver.card.delay_write_back(1_000_000);
    driver.host.messages.clear();
    driver.arrive(&numbered_frame(1, 60));
    let sent = driver.send(0, &numbered_frame(2, 60));
    assert_eq!(driver.host.sent.len(), 1, "the frame itself is not late");
    driver.advance(999_999);
    assert!(driver.poll(0).is_none() && driver.host.messages.is_empty());
    assert!(!transmit_write_back::DESCRIPTOR_DONE.is_set(&[0, driver.host.u64_at(sent + 8)]));
    driver.advance(1);
    assert!(!driver.host.messages.is_empty());
    assert!(transmit_write_back::DESCRIPTOR_DONE.is_set(&[0, driver.host.u64_at(sent + 8)]));
    assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(1, 60));
    // The delay has ended, but a new write-back still comes after those that wait.
    driver.arrive(&numbered_frame(3, 60));
    driver.card.delay_write_back(0);
    driver.arrive(&numbered_frame(4, 60));
    assert!(driver.poll(0).is_none());
    driver.advance(1_000_000);
    assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(3, 60));
    assert_eq!(driver.poll(0).unwrap().bytes, numbered_frame(4, 60));
}

#[test]
fn late_write_backs_to_unmapped_memory_are_counted() {
    let mut driver = Driver::up(1, 64);
    driver.card.delay_write_back(1_000_000);
    driver.arrive(&numbered_frame(1, 60));
    driver.host.memory.clear();
    driver.advance(1_000_000);
    assert!(driver.card.statistics().contains(&("fault.late_without_memory".into(), 1)), "{:?}", driver.card.statistics());
}

#[test]
fn a_disabled_queue_writes_nothing_afterwards() {
    let mut driver = Driver::up(1, 64);
    driver.card.delay_write_back(1_000_000);
    driver.arrive(&numbered_frame(1, 60));
    driver.write_at(Register::Rxdctl, 0, 0);
    driver.host.published.clear();
    driver.advance(2_000_000);
    assert!(driver.host.published.is_empty());
}

#[test]
fn a_stale_head_overwrites_a_newer_one_but_not_after_its_queue_is_disabled() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::Txdctl, 0, 0);
    driver.write_at(Register::Tdwbal, 0, SPARE as u32 | field::tdwbal::HEAD_WRITE_BACK.ones());
    let order = driver.read_at(Register::DcaTxctrl, 0);
    driver.write_at(Register::DcaTxctrl, 0, order & !field::dca_txctrl::DESCRIPTOR_WRITE_RELAXED.ones());
    driver.write_at(Register::Txdctl, 0, field::txdctl::ENABLE.ones());
    assert_eq!(driver.card.violations(), 0);
    driver.card.repeat_heads(1_000_000, Trigger::Next(2));
    let mut heads = vec![];
    for number in 0..3 {
        driver.send(0, &numbered_frame(number, 60));
        heads.push(driver.host.u64_at(SPARE) as u32);
        driver.advance(100_000);
    }
    driver.advance(700_000);
    heads.push(driver.host.u64_at(SPARE) as u32);
    driver.advance(100_000);
    heads.push(driver.host.u64_at(SPARE) as u32);
    assert_eq!(heads, [1, 2, 3, 1, 2]);
    assert!(driver.card.statistics().contains(&("fault.stale_heads".into(), 2)), "{:?}", driver.card.statistics());
    driver.card.repeat_heads(1_000_000, Trigger::Next(1));
    driver.send(0, &numbered_frame(4, 60));
    driver.write_at(Register::Txdctl, 0, 0);
    driver.host.put_u64(SPARE, 77);
    driver.advance(2_000_000);
    assert_eq!(driver.host.u64_at(SPARE), 77);
}

#[test]
fn heads_that_may_be_reordered_are_reported() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::Txdctl, 0, 0);
    driver.write_at(Register::Tdwbal, 0, SPARE as u32 | field::tdwbal::HEAD_WRITE_BACK.ones());
    driver.write_at(Register::Txdctl, 0, field::txdctl::ENABLE.ones());
    assert!(driver.card.take_violation().unwrap().starts_with("heads_out_of_order"), "a reset leaves relaxed ordering on");
}

#[test]
fn a_lost_message_is_lost_once_and_only_of_its_vector() {
    let mut driver = Driver::up(2, 64);
    driver.host.messages.clear();
    driver.card.lose_messages(Some(0), Trigger::Next(1));
    driver.send(1, &numbered_frame(1, 60));
    driver.send(0, &numbered_frame(2, 60));
    let after_one = driver.host.messages.clone();
    driver.send(0, &numbered_frame(3, 60));
    assert_eq!((after_one, driver.host.messages.clone()), (vec![1], vec![1, 0]));
}

#[test]
fn a_removed_card_reads_as_all_ones_and_accesses_nothing() {
    let mut driver = Driver::up(1, 64);
    driver.card.set_removed(&mut driver.host, driver.now, true);
    let mut four = [0; 4];
    driver.card.bar_read(&mut driver.host, driver.now, 8, &mut four);
    assert_eq!(four, [0xFF; 4]);
    driver.card.config_read(0, &mut four);
    assert_eq!(four, [0xFF; 4]);
    driver.host.published.clear();
    driver.arrive(&numbered_frame(1, 60));
    driver.advance(1_000_000_000);
    assert!(driver.host.published.is_empty() && driver.host.messages.is_empty());
    driver.card.set_removed(&mut driver.host, driver.now, false);
    driver.card.config_read(0, &mut four);
    assert_eq!(four, [0x86, 0x80, 0xFB, 0x10]);
}

#[test]
fn chance_has_its_probability_and_is_reproducible() {
    let selects = |seed| {
        let mut trigger = Trigger::chance(0.01, seed);
        (0..1_000_000).filter(|_| trigger.selects()).collect::<Vec<_>>()
    };
    let first = selects(1);
    assert!((9_500..10_500).contains(&first.len()), "{}", first.len());
    assert_eq!(first, selects(1));
    assert_ne!(first, selects(2));
    let mut never = Trigger::chance(0.0, 1);
    assert!((0..1000).all(|_| !never.selects()));
    let mut always = Trigger::chance(1.0, 1);
    assert!((0..1000).all(|_| always.selects()));
}
