// SPDX-License-Identifier: BSL-1.0
//! With a driver that makes every mistake, the card must not panic, hang, or access memory out of bounds.

use super::driver::{data, numbered_frame, Driver};
use super::noise::Noise;
use crate::registers::descriptor::transmit_data;
use crate::registers::{field, Register, REGISTERS};
use crate::{Model, BAR_BYTES};

#[test]
fn a_bad_receive_buffer_loses_its_frame_and_is_counted() {
    let mut driver = Driver::up(1, 64);
    let ring = driver.receive_ring(0);
    driver.host.put_u64(ring, u64::MAX - 100);
    driver.arrive(&numbered_frame(1, 60));
    driver.arrive(&numbered_frame(2, 60));
    assert_eq!(driver.host.u64_at(ring + 16 + 8) & 1, 1, "the next descriptor is used");
    assert!(driver.card.statistics().iter().any(|(name, count)| name == "violation.dma_fault" && *count == 1));
    assert!(field::eicr::PCI_EXCEPTION.is_set(driver.read(Register::Eicr)));
}

#[test]
fn a_bad_transmit_buffer_stops_only_its_queue() {
    let mut driver = Driver::up(2, 64);
    driver.queue_descriptor(0, data(1 << 60, 100, 100, transmit_data::END_OF_PACKET.put(1)));
    driver.ring_doorbell(0);
    driver.send(1, &numbered_frame(1, 60));
    assert_eq!(driver.host.sent.len(), 1);
    assert!(driver.card.take_violation().unwrap().contains("transmit queue 0"));
}

#[test]
fn tails_beyond_the_ring_are_refused() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::Tdt, 0, 64);
    driver.write_at(Register::Tdt, 0, 0xFFFF);
    driver.write_at(Register::Rdt, 0, 64);
    driver.arrive(&numbered_frame(1, 60));
    assert!(driver.host.sent.is_empty() && driver.poll(0).is_none());
    assert_eq!(std::iter::from_fn(|| driver.card.take_violation()).count(), 3);
}

#[test]
fn heads_beyond_the_ring_and_empty_rings_are_harmless() {
    let mut driver = Driver::up(1, 64);
    driver.write_at(Register::Rdh, 0, 0xFFFF);
    driver.write_at(Register::Tdh, 0, 0xFFFF);
    driver.write_at(Register::Tdt, 0, 5);
    driver.arrive(&numbered_frame(1, 60));
    driver.write_at(Register::Rdlen, 0, 0);
    driver.write_at(Register::Tdlen, 0, 0);
    driver.write_at(Register::Tdt, 0, 0);
    driver.arrive(&numbered_frame(2, 60));
    assert!(driver.host.sent.is_empty());
}

#[test]
fn a_packet_without_an_end_is_bounded() {
    let mut driver = Driver::up(1, 512);
    let at = driver.place(&[1; 60_000]);
    for _ in 0..400 {
        driver.queue_descriptor(0, data(at, 60_000, 60_000, 0));
    }
    driver.ring_doorbell(0);
    while driver.card.has_transmit_work() {
        driver.card.wire_ready(&mut driver.host, driver.now);
    }
    driver.send(0, &numbered_frame(1, 60));
    assert!(driver.host.sent.is_empty(), "its end completes the endless one");
    driver.send(0, &numbered_frame(2, 60));
    assert_eq!(driver.host.sent, [numbered_frame(2, 60)]);
}

#[test]
fn random_register_writes_descriptors_and_frames_never_panic() {
    for round in 1..=21u64 {
        let mut noise = Noise::new(round);
        let mut driver = Driver::up_as([Model::I82599, Model::X540, Model::X550][round as usize % 3], 4, 64);
        for _ in 0..5_000 {
            let random = noise.next();
            match random % 8 {
                0..=2 => {
                    // Accesses mostly existing registers, and sometimes any offset.
                    let offset = if random & 0x100 != 0 {
                        (noise.next() as u32) % (BAR_BYTES + 64)
                    } else {
                        let info = &REGISTERS[noise.next() as usize % REGISTERS.len()];
                        info.ranges[0].offset
                    };
                    let value = match random >> 9 & 3 {
                        0 => noise.next() as u32,
                        1 => 1 << (noise.next() % 32),
                        2 => u32::MAX,
                        _ => noise.next() as u32 & 0xFFF,
                    };
                    driver.card.mmio_write(&mut driver.host, driver.now, offset, value);
                }
                3 => {
                    driver.card.mmio_read(&mut driver.host, driver.now, noise.next() as u32 % (BAR_BYTES + 64));
                }
                4 => {
                    let bytes = noise.next() as usize % 3000;
                    let mut frame = numbered_frame(noise.next() as u32, bytes);
                    for _ in 0..4 {
                        let at = noise.next() as usize % 60.max(frame.len());
                        if let Some(byte) = frame.get_mut(at) {
                            *byte = noise.next() as u8;
                        }
                    }
                    frame.truncate(bytes);
                    driver.arrive(&frame);
                }
                5 => {
                    let queue = noise.next() as usize % 4;
                    let words = [noise.next() % (9 << 20), noise.next()];
                    driver.queue_descriptor(queue, words);
                    driver.ring_doorbell(queue);
                }
                6 => driver.advance(noise.next() % 1_000_000),
                _ => {
                    let at = noise.next() as usize % 4096;
                    let value = noise.next().to_le_bytes();
                    driver.card.config_write(&mut driver.host, driver.now, at, &value[..1 + noise.next() as usize % 8]);
                    if noise.next() % 4 == 0 {
                        driver.card.config_write(&mut driver.host, driver.now, 4, &[0x06, 0x04]);
                    }
                }
            }
            driver.host.sent.clear();
            driver.host.published.clear();
            driver.host.messages.clear();
        }
    }
}
