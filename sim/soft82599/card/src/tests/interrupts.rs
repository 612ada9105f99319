// SPDX-License-Identifier: BSL-1.0
//! Causes and masks: which messages are sent, and how messages change the causes. Tests of the messages' timing are in moderation.rs.

use super::driver::{numbered_frame, Driver};
use crate::registers::{field, Register};

fn set_gpie(driver: &mut Driver, bits: &[crate::registers::Field]) {
    driver.write(Register::Gpie, bits.iter().fold(0, |value, bit| value | bit.ones()));
}

#[test]
fn every_frame_interrupts_without_moderation() {
    let mut driver = Driver::up(1, 64);
    for number in 0..10 {
        driver.arrive(&numbered_frame(number, 60));
    }
    assert_eq!(driver.host.messages, [0; 10]);
}

#[test]
fn unmasking_a_vector_sends_its_pending_message() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::EimcEx, 0, 1);
    driver.arrive(&numbered_frame(0, 60));
    assert!(driver.host.messages.is_empty());
    assert_eq!(driver.read(Register::Eics) & 1, 1, "the cause is set");
    driver.write_at(Register::EimsEx, 0, 1);
    assert_eq!(driver.host.messages, [0]);
    assert_eq!(driver.read(Register::Eics) & 1, 0, "and is cleared by its message (EIAC)");
    driver.write_at(Register::EimsEx, 0, 1);
    assert_eq!(driver.host.messages, [0]);
}

#[test]
fn auto_mask_masks_a_vector_after_its_message() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::EiamEx, 0, 1);
    driver.arrive(&numbered_frame(0, 60));
    driver.arrive(&numbered_frame(1, 60));
    assert_eq!(driver.host.messages, [0]);
    assert_eq!(driver.read_at(Register::EimsEx, 0) & 1, 0);
    driver.write_at(Register::EimsEx, 0, 1);
    assert_eq!(driver.host.messages, [0, 0]);
}

#[test]
fn without_auto_clear_a_set_cause_sends_one_message() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::Eiac, 0);
    driver.arrive(&numbered_frame(0, 60));
    driver.arrive(&numbered_frame(1, 60));
    assert_eq!(driver.host.messages, [0]);
    driver.write(Register::Eicr, 1);
    driver.arrive(&numbered_frame(2, 60));
    assert_eq!(driver.host.messages, [0, 0]);
}

#[test]
fn vectors_from_sixteen_on_and_software_causes_work() {
    let mut driver = Driver::up(1, 64);
    driver.map_vector(0, 40);
    driver.write_at(Register::EimsEx, 1, 1 << 8);
    driver.arrive(&numbered_frame(0, 60));
    driver.arrive(&numbered_frame(1, 60));
    assert_eq!(driver.host.messages, [40, 40]);
    driver.write_at(Register::EicsEx, 1, 1 << 8);
    assert_eq!(driver.host.messages, [40, 40, 40]);
    driver.write(Register::Eics, 1);
    assert_eq!(driver.host.messages, [40, 40, 40, 0]);
}

#[test]
fn link_changes_use_the_vector_for_other_causes() {
    let mut driver = Driver::up(3, 64);
    driver.card.set_link(&mut driver.host, driver.now, false);
    assert_eq!(driver.host.messages, [3]);
    assert!(!field::links::LINK_UP.is_set(driver.read(Register::Links)));
    assert!(field::eicr::LSC.is_set(driver.read(Register::Eicr)));
    driver.card.set_link(&mut driver.host, driver.now, true);
    assert_eq!(driver.host.messages, [3], "training takes time");
    driver.advance(20_000_000);
    assert_eq!(driver.host.messages, [3, 3]);
    assert!(field::links::LINK_UP.is_set(driver.read(Register::Links)));
}

#[test]
fn without_msix_the_line_follows_the_causes() {
    let mut driver = Driver::up(1, 64);
    driver.enable_line();
    driver.write(Register::Gpie, 0);
    driver.write(Register::Eiam, 0xFFFF);
    driver.write(Register::Eims, 1);
    driver.arrive(&numbered_frame(0, 60));
    assert!(driver.host.line);
    assert_eq!(driver.host.messages, [0], "MSI sends its message");
    assert_eq!(driver.read(Register::Eicr) & 1, 1);
    assert!(!driver.host.line, "reading the causes deasserts the line");
    driver.arrive(&numbered_frame(1, 60));
    assert!(!driver.host.line, "reading masked it, too");
    driver.write(Register::Eims, 1);
    assert!(driver.host.line);
    driver.write(Register::Eimc, 1);
    assert!(!driver.host.line);
}

#[test]
fn a_vector_masked_by_eimc_keeps_its_cause_until_eims() {
    // Acts like a polling driver: masks the interrupt, takes frames, and unmasks. Then comes the message of the frames that arrived while
    // it was masked.
    let mut driver = Driver::up(2, 64);
    driver.write(Register::Eimc, 1 << 1);
    driver.map_vector(0, 1);
    driver.arrive(&numbered_frame(0, 60));
    driver.send(1, &numbered_frame(1, 60));
    assert!(driver.host.messages.is_empty());
    driver.write(Register::Eims, 1 << 1);
    assert_eq!(driver.host.messages, [1], "both causes in one message");
    driver.arrive(&numbered_frame(2, 60));
    assert_eq!(driver.host.messages, [1, 1]);
}

#[test]
fn software_causes_respect_masks_and_wait_for_them() {
    let mut driver = Driver::up(2, 64);
    driver.write_at(Register::EimcEx, 0, 2);
    driver.write_at(Register::EicsEx, 0, 3);
    assert_eq!(driver.host.messages, [0]);
    driver.write_at(Register::EimsEx, 0, 2);
    assert_eq!(driver.host.messages, [0, 1]);
    // A link change set by software uses the vector for other causes.
    driver.write(Register::Eics, field::eicr::LSC.ones());
    assert_eq!(driver.host.messages, [0, 1, 2]);
    // Bit 31 only summarises the other causes, so a write to it sets no cause.
    driver.read(Register::Eicr);
    driver.write(Register::Eics, field::eicr::OTHER.ones());
    assert_eq!((driver.host.messages.len(), driver.read(Register::Eics)), (3, 0));
}

#[test]
fn reading_eicr_clears_all_or_keeps_the_queues_as_gpie_says() {
    use field::gpie::{MULTIPLE_MSIX, OTHER_CLEAR_DISABLE};
    for (keep_queues, left) in [(false, 0), (true, 1)] {
        let mut driver = Driver::up(1, 64);
        driver.write(Register::Eiac, 0);
        set_gpie(&mut driver, if keep_queues { &[MULTIPLE_MSIX, OTHER_CLEAR_DISABLE] } else { &[MULTIPLE_MSIX] });
        driver.arrive(&numbered_frame(0, 60));
        driver.card.set_link(&mut driver.host, driver.now, false);
        let all = field::eicr::LSC.ones() | field::eicr::OTHER.ones() | 1;
        assert_eq!(driver.read(Register::Eics), all, "EICS shows and clears nothing");
        assert_eq!(driver.read(Register::Eicr), all);
        assert_eq!(driver.read(Register::Eics), left, "GPIE.other_clear_disable {keep_queues}");
    }
}

#[test]
fn auto_clear_clears_what_eiac_names_and_all_vectors_from_sixteen_on() {
    let mut driver = Driver::up(3, 64);
    driver.write(Register::Eiac, 1 << 1);
    driver.map_vector(2, 20);
    driver.write_at(Register::EimsEx, 0, 1 << 20);
    for queue in [0, 1] {
        driver.send(queue, &numbered_frame(0, 60));
    }
    driver.send(2, &numbered_frame(0, 60));
    assert_eq!(driver.host.messages, [0, 1, 20]);
    assert_eq!(driver.read(Register::Eics), 1, "vector 0 has to be cleared by its driver");
    driver.send(2, &numbered_frame(0, 60));
    assert_eq!(driver.host.messages, [0, 1, 20, 20]);
    // If EIAC names the other causes, they are cleared, too.
    driver.write(Register::Eiac, field::eicr::LSC.ones());
    driver.card.set_link(&mut driver.host, driver.now, false);
    assert!(!field::eicr::LSC.is_set(driver.read(Register::Eics)));
}

#[test]
fn auto_mask_acts_on_the_message_with_eiame_and_on_eicr_without() {
    use field::gpie::{EIAME, MULTIPLE_MSIX};
    for on_message in [true, false] {
        let mut driver = Driver::up(2, 64);
        driver.write(Register::Eiac, 0);
        set_gpie(&mut driver, if on_message { &[MULTIPLE_MSIX, EIAME] } else { &[MULTIPLE_MSIX] });
        driver.write_at(Register::EiamEx, 0, 3);
        driver.write(Register::Eiam, field::eicr::LSC.ones() | 3);
        driver.arrive(&numbered_frame(0, 60));
        driver.card.set_link(&mut driver.host, driver.now, false);
        assert_eq!(driver.host.messages, [0, 2]);
        let lsc = field::eicr::LSC.ones();
        assert_eq!(driver.read(Register::Eims), if on_message { 2 } else { lsc | 3 }, "after the messages, EIAME {on_message}");
        driver.write(Register::Eicr, lsc | 1);
        assert_eq!(driver.read(Register::Eims), 2, "after both were cleared");
    }
}

#[test]
fn without_eiame_eics_clears_the_masks_that_eiam_names() {
    let mut driver = Driver::up(2, 64);
    set_gpie(&mut driver, &[field::gpie::MULTIPLE_MSIX]);
    driver.write(Register::Eimc, 3);
    driver.write(Register::Eiam, 1);
    driver.write(Register::Eics, 3);
    assert_eq!(driver.host.messages, [0]);
    assert_eq!(driver.read(Register::Eims) & 3, 1);
}

#[test]
fn causes_without_a_vector_are_shown_but_send_no_message() {
    let mut driver = Driver::up(1, 64);
    driver.write(Register::IvarMisc, 0);
    driver.write_at(Register::Ivar, 0, 0);
    driver.arrive(&numbered_frame(0, 60));
    driver.card.set_link(&mut driver.host, driver.now, false);
    assert!(driver.host.messages.is_empty());
    assert_eq!(driver.read(Register::Eics), field::eicr::LSC.ones() | field::eicr::OTHER.ones());
}

#[test]
fn the_line_obeys_the_gates_of_the_configuration_space() {
    let mut driver = Driver::up(1, 64);
    driver.enable_line();
    driver.write(Register::Gpie, 0);
    driver.write(Register::Eims, 1);
    driver.arrive(&numbered_frame(0, 60));
    let status = |driver: &mut Driver| {
        let mut status = [0; 2];
        driver.card.config_read(6, &mut status);
        status[0] & 8 != 0
    };
    const COMMAND: usize = 4;
    const MSI_CONTROL: usize = 0x52;
    const MSIX_CONTROL: usize = 0x72;
    for (at, bytes) in [(COMMAND, [0x06, 0x04]), (MSI_CONTROL, [0x81, 0x01]), (MSIX_CONTROL, [0x3F, 0x80])] {
        assert!(driver.host.line && status(&mut driver));
        let mut before = [0; 2];
        driver.card.config_read(at, &mut before);
        driver.card.config_write(&mut driver.host, driver.now, at, &bytes);
        assert!(!driver.host.line, "turned off at {at:#x}");
        assert!(status(&mut driver), "the cause is set all the same");
        driver.card.config_write(&mut driver.host, driver.now, at, &before);
    }
    driver.read(Register::Eicr);
    assert!(!driver.host.line && !status(&mut driver));
}

#[test]
fn without_bus_mastering_messages_wait_and_none_is_lost() {
    let mut driver = Driver::up(2, 64);
    driver.card.config_write(&mut driver.host, driver.now, 4, &[0x02, 0x04]);
    driver.write(Register::Eics, 3 | field::eicr::LSC.ones());
    assert!(driver.host.messages.is_empty());
    driver.card.config_write(&mut driver.host, driver.now, 4, &[0x06, 0x04]);
    driver.host.messages.sort();
    assert_eq!(driver.host.messages, [0, 1, 2]);
}

#[test]
fn a_card_in_a_sleep_state_sends_nothing() {
    const POWER_STATE: usize = 0x44;
    let mut driver = Driver::up(1, 64);
    driver.card.config_write(&mut driver.host, driver.now, POWER_STATE, &[3]);
    driver.arrive(&numbered_frame(0, 60));
    driver.write(Register::Eics, 1);
    assert!(driver.host.messages.is_empty() && driver.poll(0).is_none());
    driver.card.config_write(&mut driver.host, driver.now, POWER_STATE, &[0]);
    assert!(!driver.host.messages.is_empty());
}

#[test]
fn the_tcp_timer_has_a_vector_of_its_own() {
    use field::tcptimer::{DURATION, ENABLE, FINISH, KICK_START, LOOP};
    let mut driver = Driver::up(2, 64);
    let misc = driver.read(Register::IvarMisc);
    driver.write(Register::IvarMisc, misc | field::ivar_misc::TCP_TIMER.put(9) | field::ivar_misc::TCP_TIMER_VALID.ones());
    driver.write(Register::Eiac, field::eicr::TCP_TIMER.ones());
    driver.write(Register::Eims, field::eicr::TCP_TIMER.ones());
    let loops = DURATION.put(7) | ENABLE.ones() | LOOP.ones();
    driver.write(Register::Tcptimer, loops | KICK_START.ones());
    assert_eq!(driver.read(Register::Tcptimer), loops, "the kick reads as zero");
    driver.advance(6_999_999);
    assert!(driver.host.messages.is_empty());
    driver.advance(1);
    assert_eq!(driver.host.messages, [9]);
    driver.advance(14_000_000);
    assert_eq!(driver.host.messages, [9, 9, 9]);
    driver.write(Register::Tcptimer, DURATION.put(7) | FINISH.ones());
    driver.advance(100_000_000);
    assert_eq!(driver.host.messages, [9, 9, 9, 9], "finished at once and permanently");
    driver.card.set_link(&mut driver.host, driver.now, false);
    assert_eq!(driver.host.messages, [9, 9, 9, 9, 2], "other causes keep their vector");
}
