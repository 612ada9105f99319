// SPDX-License-Identifier: BSL-1.0
//! Resets, handshakes, and the access paths to registers.

use super::driver::{numbered_frame, Driver, MAC};
use crate::registers::{field, Register};

#[test]
fn every_reset_restores_the_initial_state() {
    for reset in [field::ctrl::RST.ones(), field::ctrl::LRST.ones(), 0] {
        let mut driver = Driver::up(2, 64);
        driver.write_at(Register::Ral, 0, 0x1234_5678);
        driver.write_at(Register::Ral, 3, 1);
        driver.arrive(&numbered_frame(1, 60));
        driver.send(1, &numbered_frame(1, 60));
        if reset == 0 {
            driver.card.config_write(&mut driver.host, driver.now, 0xA8, &[0x10, 0xA8]);
            driver.card.config_write(&mut driver.host, driver.now, 4, &[0x06, 0x04]);
        } else {
            driver.write(Register::Ctrl, reset);
        }
        assert_eq!(driver.read(Register::Ctrl) & (field::ctrl::RST.ones() | field::ctrl::LRST.ones()), 0, "self-clearing");
        assert_eq!(driver.read_at(Register::Ral, 0).to_le_bytes(), MAC[..4]);
        assert_eq!(driver.read_at(Register::Ral, 3), 0);
        for queue in 0..2 {
            assert_eq!(driver.read_at(Register::Rdlen, queue), 0);
            assert_eq!(driver.read_at(Register::Rdt, queue), 0);
            assert_eq!(driver.read_at(Register::Tdh, queue), 0);
            assert!(!field::rxdctl::ENABLE.is_set(driver.read_at(Register::Rxdctl, queue)));
        }
        assert_eq!(driver.read(Register::Eims), 0);
        assert_eq!(driver.read(Register::Rxctrl), 0);
        let kept = reset == field::ctrl::RST.ones();
        assert_eq!(field::links::LINK_UP.is_set(driver.read(Register::Links)), kept, "a software reset keeps the link");
        driver.advance(20_000_000);
        assert!(field::links::LINK_UP.is_set(driver.read(Register::Links)));
        driver.host.messages.clear();
        driver.arrive(&numbered_frame(1, 60));
        assert!(driver.host.messages.is_empty());
    }
}

#[test]
fn resets_differ_in_what_they_keep() {
    for (reset, semaphore_kept) in [(field::ctrl::RST.ones(), true), (field::ctrl::LRST.ones(), true), (0, false)] {
        let mut driver = Driver::bare();
        driver.read(Register::Swsm);
        driver.write(Register::Eewr, field::eewr::ADDRESS.put(0x101) | field::eewr::DATA.put(0x4402) | field::eewr::START.ones());
        if reset == 0 {
            driver.card.function_reset(&mut driver.host, driver.now);
        } else {
            driver.write(Register::Ctrl, reset);
        }
        let mut command = [0];
        driver.card.config_read(4, &mut command);
        assert_eq!(command[0] & 4 != 0, reset != 0, "bus mastering is the configuration space's");
        assert_eq!(field::swsm::SMBI.is_set(driver.read(Register::Swsm)), semaphore_kept);
        assert_eq!(driver.read(Register::Ral) & 0xFFFF, 0x4402, "the EEPROM keeps its contents, and the reset loads them");
    }
}

#[test]
fn links_reports_a_lost_link_once() {
    let mut driver = Driver::bare();
    let up_since_read = |driver: &mut Driver| field::links::UP_SINCE_READ.is_set(driver.read(Register::Links));
    driver.read(Register::Links);
    assert!(up_since_read(&mut driver));
    driver.card.set_link(&mut driver.host, driver.now, false);
    driver.card.set_link(&mut driver.host, driver.now, true);
    driver.advance(20_000_000);
    assert!(!up_since_read(&mut driver));
    assert!(up_since_read(&mut driver));
}

#[test]
fn a_forced_link_needs_no_peer_and_ends_with_the_force_bit() {
    let mut driver = Driver::bare();
    driver.card.set_link(&mut driver.host, driver.now, false);
    let autoc = driver.read(Register::Autoc);
    for (force, up) in [(field::autoc::FORCE_LINK_UP.ones(), true), (0, false)] {
        driver.write(Register::Autoc, autoc | force);
        assert_eq!(field::links::LINK_UP.is_set(driver.read(Register::Links)), up);
    }
    driver.write(Register::Autoc, autoc | field::autoc::FORCE_LINK_UP.ones());
    driver.write(Register::Ctrl, field::ctrl::RST.ones());
    assert!(!field::links::LINK_UP.is_set(driver.read(Register::Links)), "a reset ends it, too");
}

#[test]
fn without_the_laser_there_is_no_link() {
    let mut driver = Driver::bare();
    let pins = driver.read(Register::Esdp);
    driver.write(Register::Esdp, pins | field::esdp::SDP3_DATA.ones());
    assert!(!field::links::LINK_UP.is_set(driver.read(Register::Links)));
    driver.advance(1_000_000_000);
    assert!(!field::links::LINK_UP.is_set(driver.read(Register::Links)));
    driver.write(Register::Esdp, pins);
    driver.advance(4_000_000);
    assert!(!field::links::LINK_UP.is_set(driver.read(Register::Links)), "training takes time");
    driver.advance(1_000_000);
    assert!(field::links::LINK_UP.is_set(driver.read(Register::Links)));
}

#[test]
fn bus_master_disable_completes() {
    let mut driver = Driver::up(1, 64);
    assert!(field::status::PCIE_MASTER_ENABLE.is_set(driver.read(Register::Status)));
    driver.write(Register::Ctrl, field::ctrl::PCIE_MASTER_DISABLE.ones());
    assert!(!field::status::PCIE_MASTER_ENABLE.is_set(driver.read(Register::Status)));
    driver.send(0, &numbered_frame(1, 60));
    assert!(driver.host.sent.is_empty());
}

#[test]
fn handshakes_that_drivers_wait_for_complete() {
    let mut driver = Driver::bare();
    assert!(field::rdrxctl::DMA_INIT_DONE.is_set(driver.read(Register::Rdrxctl)));
    assert!(field::eemngctl::CFG_DONE0.is_set(driver.read(Register::Eemngctl)));
    assert!(field::eec::AUTO_READ_DONE.is_set(driver.read(Register::Eec)));
    assert!(field::esdp::SDP2_DATA.is_set(driver.read(Register::Esdp)));
    driver.write(Register::Secrxctrl, field::secrxctrl::STOP.ones());
    assert!(field::secrxstat::READY.is_set(driver.read(Register::Secrxstat)));
    driver.write(Register::Msca, field::msca::COMMAND.ones() | field::msca::OPCODE.put(3));
    assert!(!field::msca::COMMAND.is_set(driver.read(Register::Msca)));
    assert_eq!(field::msrwd::READ_DATA.get(driver.read(Register::Msrwd)), 0xFFFF);
    driver.write(Register::Fdirctrl, 1);
    assert!(field::fdirctrl::INIT_DONE.is_set(driver.read(Register::Fdirctrl)));
    driver.write(Register::Fdircmd, 1 | field::fdircmd::QUEUE_ENABLE.ones());
    assert_eq!(field::fdircmd::COMMAND.get(driver.read(Register::Fdircmd)), 0);
}

#[test]
fn a_restart_in_a_negotiating_mode_leaves_state_zero() {
    let mut driver = Driver::bare();
    let autoc = driver.read(Register::Autoc);
    driver.write(Register::Autoc, (autoc ^ field::autoc::LINK_MODE.put(4)) | field::autoc::RESTART_AN.ones());
    assert_ne!(field::anlp1::AN_STATE.get(driver.read(Register::Anlp1)), 0);
    driver.write(Register::Autoc, autoc | field::autoc::RESTART_AN.ones());
    assert!(!field::autoc::RESTART_AN.is_set(driver.read(Register::Autoc)));
    driver.advance(20_000_000);
    assert_eq!(field::links::SPEED.get(driver.read(Register::Links)), 3);
}

#[test]
fn wide_reads_are_split_and_odd_ones_are_reported() {
    let mut driver = Driver::bare();
    let mut wide = [0; 8];
    driver.card.bar_read(&mut driver.host, 0, 0xA200, &mut wide);
    assert_eq!(wide, [MAC[0], MAC[1], MAC[2], MAC[3], MAC[4], MAC[5], 0, 0x80]);
    driver.card.bar_write(&mut driver.host, 0, 0x5080, &[0xFF, 0xFF]);
    assert_eq!(driver.read(Register::Fctrl), 0, "the card takes whole dwords only");
    driver.card.bar_write(&mut driver.host, 0, 0x1_FFFE, &[0; 8]);
    driver.card.bar_read(&mut driver.host, 0, u64::MAX - 3, &mut wide);
    assert!(driver.card.take_violation().unwrap().contains("2 bytes"));
}

#[test]
fn the_io_window_reaches_registers() {
    let mut driver = Driver::bare();
    driver.card.io_write(&mut driver.host, 0, 0, &0x5080u32.to_le_bytes());
    driver.card.io_write(&mut driver.host, 0, 4, &field::fctrl::BROADCAST_ACCEPT.ones().to_le_bytes());
    assert_eq!(driver.read(Register::Fctrl), field::fctrl::BROADCAST_ACCEPT.ones());
    let mut value = [0; 4];
    driver.card.io_read(&mut driver.host, 0, 4, &mut value);
    assert_eq!(u32::from_le_bytes(value), field::fctrl::BROADCAST_ACCEPT.ones());
}

#[test]
fn accesses_are_counted_by_name() {
    let mut driver = Driver::bare();
    driver.card.clear_access_counters();
    driver.read(Register::Status);
    driver.read(Register::Status);
    driver.write_at(Register::Tdt, 3, 0);
    let reads: Vec<_> = driver.card.access_counters().reads().collect();
    let writes: Vec<_> = driver.card.access_counters().writes().collect();
    assert_eq!(reads, [("STATUS".to_string(), 2)]);
    assert_eq!(writes, [("TDT[3]".to_string(), 1)]);
}
