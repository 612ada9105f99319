// SPDX-License-Identifier: BSL-1.0
//! The actions of a guest's driver: rings of eight descriptors, and frames with numbers.

use crate::common::{Client, Event, Memory, CONFIG, MSIX, TIME_OUT};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

// The offsets are repeated here on purpose, so that an error in the card's table is found.
pub const CTRL: u64 = 0x0;
pub const STATUS: u64 = 0x8;
pub const LINKS: u64 = 0x42A4;
pub const EICS: u64 = 0x808;
pub const EITR: u64 = 0x820;
pub const GPIE: u64 = 0x898;
pub const EIAC: u64 = 0x810;
pub const EIMS_EX: u64 = 0xAA0;
pub const IVAR: u64 = 0x900;
pub const FCTTV: u64 = 0x3200;
pub const FCRTH: u64 = 0x3260;
pub const FCCFG: u64 = 0x3D00;
pub const FCTRL: u64 = 0x5080;
pub const RXCTRL: u64 = 0x3000;
pub const DMATXCTL: u64 = 0x4A80;
pub const RDBAL: u64 = 0x1000;
pub const RDLEN: u64 = 0x1008;
pub const SRRCTL: u64 = 0x1014;
pub const RDT: u64 = 0x1018;
pub const RXDCTL: u64 = 0x1028;
pub const TDBAL: u64 = 0x6000;
pub const TDLEN: u64 = 0x6008;
pub const TDT: u64 = 0x6018;
pub const TXDCTL: u64 = 0x6028;

pub const MEMORY: u64 = 1 << 20;
pub const RECEIVE_RING: u64 = 0x1000;
pub const TRANSMIT_RING: u64 = 0x2000;
pub const RECEIVE_BUFFER: u64 = 0x10000;
pub const TRANSMIT_BUFFER: u64 = 0x20000;

/// Sets up one ring in each direction with eight descriptors; all interrupts go to vector 0.
pub fn bring_up(client: &mut Client, memory: &Memory) -> Event {
    client.map(0, MEMORY, memory, 0).unwrap();
    let event = Event::new();
    client.set_eventfd(MSIX, 0, &event);
    client.write(CONFIG, 4, &[0x06, 0x04]).unwrap();
    for i in 0..8 {
        memory.write(RECEIVE_RING + i * 16, &(RECEIVE_BUFFER + i * 2048).to_le_bytes());
    }
    for (offset, value) in [
        (GPIE, 0x10),
        (EIAC, 0xFFFF),
        (IVAR, 0x0000_8080),
        (EIMS_EX, 1),
        (FCTRL, 0x700),
        (RDBAL, RECEIVE_RING as u32),
        (RDLEN, 128),
        (SRRCTL, 0x0200_0002),
        (RXDCTL, 1 << 25),
        (RDT, 7),
        (RXCTRL, 1),
        (DMATXCTL, 0x8100_0001),
        (TDBAL, TRANSMIT_RING as u32),
        (TDLEN, 128),
        (TXDCTL, 1 << 25),
    ] {
        client.set_register(offset, value);
    }
    assert_eq!(client.register(RXDCTL) >> 25 & 1, 1);
    event
}

pub fn wait_for_link(client: &mut Client, up: bool) {
    let until = std::time::Instant::now() + TIME_OUT;
    while (client.register(LINKS) >> 30 & 1 == 1) != up {
        assert!(std::time::Instant::now() < until, "the link does not change");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn transmit(client: &mut Client, memory: &Memory, index: u64, frame: &[u8]) {
    memory.write(TRANSMIT_BUFFER, frame);
    memory.write(TRANSMIT_RING + index * 16, &TRANSMIT_BUFFER.to_le_bytes());
    let command = frame.len() as u64 | 0x2B30_0000 | (frame.len() as u64) << 46;
    memory.write(TRANSMIT_RING + index * 16 + 8, &command.to_le_bytes());
    client.set_register(TDT, (index as u32 + 1) % 8);
}

pub fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![0xFF; 6];
    frame.extend([2, 0, 0, 0, 0, 9, 0x88, 0xB5]);
    frame.resize(60 + usize::from(number), number);
    frame
}

pub fn read_frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).unwrap();
    frame
}

pub fn write_frame(stream: &mut UnixStream, frame: &[u8]) {
    stream.write_all(&(frame.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(frame).unwrap();
}
