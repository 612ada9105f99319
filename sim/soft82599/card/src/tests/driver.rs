// SPDX-License-Identifier: BSL-1.0
//! A small driver for tests: it initialises the card, keeps rings in the test host's memory, receives and sends.

use super::host::TestHost;
use crate::registers::descriptor::{receive_read, receive_write_back as wb, transmit_context, transmit_data};
use crate::registers::{field, Register};
use crate::{Card, Configuration, Model, Nanoseconds};

pub const MAC: [u8; 6] = [0x02, 0x82, 0x59, 0x90, 0x00, 0x07];
const MEMORY_BYTES: usize = 8 << 20;
const RECEIVE_RINGS: u64 = 0x10_0000;
const TRANSMIT_RINGS: u64 = 0x18_0000;
const RING_SPACE: u64 = 0x8000;
const RECEIVE_BUFFERS: u64 = 0x20_0000;
const TRANSMIT_BUFFERS: u64 = 0x60_0000;
/// Address of memory for a test's own use.
pub const SPARE: u64 = 0x1000;

pub struct Driver {
    pub card: Card,
    pub host: TestHost,
    pub now: Nanoseconds,
    pub ring: u32,
    receive_next: Vec<u32>,
    transmit_next: Vec<u32>,
    transmit_space: u64,
}

/// One received frame, and the two words of its last descriptor.
#[derive(Debug)]
pub struct Received {
    pub bytes: Vec<u8>,
    pub words: [u64; 2],
    pub descriptors: u32,
}

impl Driver {
    /// Returns a card with its link up and bus mastering on, without further settings.
    pub fn bare() -> Self {
        Self::of(Model::I82599)
    }

    pub fn of(model: Model) -> Self {
        let mut host = TestHost::new(MEMORY_BYTES);
        let card = Card::new(&Configuration { mac: MAC, link: true, model }, &mut host, 0);
        let mut driver = Self { card, host, now: 0, ring: 0, receive_next: vec![0; 128], transmit_next: vec![0; 128], transmit_space: 0 };
        driver.card.config_write(&mut driver.host, 0, 4, &[0x06, 0x04]);
        driver.advance(10_000_000);
        driver
    }

    /// Returns a card with `queues` receive and transmit rings of `ring` advanced descriptors each, and buffers of 2 KiB. MSI-X has vector
    /// i for queue i and the next vector for other causes; everything is unmasked.
    pub fn up(queues: usize, ring: u32) -> Self {
        Self::up_as(Model::I82599, queues, ring)
    }

    pub fn up_as(model: Model, queues: usize, ring: u32) -> Self {
        let mut driver = Self::of(model);
        driver.ring = ring;
        driver.write(Register::Gpie, field::gpie::MULTIPLE_MSIX.ones() | field::gpie::EIAME.ones());
        driver.write(Register::Eiac, 0xFFFF);
        driver.write(Register::Fctrl, field::fctrl::BROADCAST_ACCEPT.ones());
        driver.write(Register::Rxcsum, field::rxcsum::PACKET_CHECKSUM_DISABLE.ones());
        let control = driver.read(Register::Dmatxctl);
        driver.write(Register::Dmatxctl, control | field::dmatxctl::ENABLE.ones());
        for queue in 0..queues {
            driver.map_vector(queue, queue as u32);
            driver.start_receive(queue);
            driver.start_transmit(queue);
        }
        driver.write(Register::IvarMisc, field::ivar_misc::OTHER.put(queues as u32) | field::ivar_misc::OTHER_VALID.ones());
        driver.write_at(Register::EimsEx, 0, (1u64 << queues).wrapping_sub(1) as u32);
        driver.write(Register::Eims, field::eicr::LSC.ones());
        driver.write(Register::Rxctrl, field::rxctrl::ENABLE.ones());
        // Clears the cause of the link change at power-up.
        driver.read(Register::Eicr);
        driver.host.messages.clear();
        driver
    }

    /// Clears the bit that disables the INTx line, as a driver does that uses neither MSI nor MSI-X.
    pub fn enable_line(&mut self) {
        self.card.config_write(&mut self.host, self.now, 4, &[0x06, 0x00]);
    }

    pub fn map_vector(&mut self, queue: usize, vector: u32) {
        let old = self.read_at(Register::Ivar, queue / 2);
        use field::ivar::*;
        let new = if queue % 2 == 0 {
            (old & 0xFFFF_0000) | RX_EVEN.put(vector) | RX_EVEN_VALID.ones() | TX_EVEN.put(vector) | TX_EVEN_VALID.ones()
        } else {
            (old & 0x0000_FFFF) | RX_ODD.put(vector) | RX_ODD_VALID.ones() | TX_ODD.put(vector) | TX_ODD_VALID.ones()
        };
        self.write_at(Register::Ivar, queue / 2, new);
    }

    fn start_receive(&mut self, queue: usize) {
        let base = RECEIVE_RINGS + queue as u64 * RING_SPACE;
        self.write_at(Register::Rdbal, queue, base as u32);
        self.write_at(Register::Rdbah, queue, (base >> 32) as u32);
        self.write_at(Register::Rdlen, queue, self.ring * 16);
        self.write_at(Register::Rdh, queue, 0);
        self.write_at(Register::Rdt, queue, 0);
        self.write_at(Register::Srrctl, queue, field::srrctl::PACKET_BUFFER_KIB.put(2) | field::srrctl::DESCRIPTOR_TYPE.put(1));
        self.write_at(Register::Rxdctl, queue, field::rxdctl::ENABLE.ones());
        assert!(field::rxdctl::ENABLE.is_set(self.read_at(Register::Rxdctl, queue)));
        for index in 0..self.ring {
            self.give_descriptor(queue, index);
        }
        self.write_at(Register::Rdt, queue, self.ring - 1);
    }

    /// Stops a receive queue, calls `change`, and starts the queue again with the same ring.
    pub fn reopen(&mut self, queue: usize, change: impl FnOnce(&mut Self)) {
        let control = self.read_at(Register::Rxdctl, queue);
        self.write_at(Register::Rxdctl, queue, control & !field::rxdctl::ENABLE.ones());
        change(self);
        self.write_at(Register::Rxdctl, queue, control);
    }

    fn start_transmit(&mut self, queue: usize) {
        let base = self.transmit_ring(queue);
        self.write_at(Register::Tdbal, queue, base as u32);
        self.write_at(Register::Tdbah, queue, (base >> 32) as u32);
        self.write_at(Register::Tdlen, queue, self.ring * 16);
        self.write_at(Register::Tdh, queue, 0);
        self.write_at(Register::Tdt, queue, 0);
        self.write_at(Register::Txdctl, queue, field::txdctl::ENABLE.ones());
    }

    pub fn receive_ring(&self, queue: usize) -> u64 {
        RECEIVE_RINGS + queue as u64 * RING_SPACE
    }
    pub fn transmit_ring(&self, queue: usize) -> u64 {
        TRANSMIT_RINGS + queue as u64 * RING_SPACE
    }
    pub fn receive_buffer(&self, queue: usize, index: u32) -> u64 {
        RECEIVE_BUFFERS + (queue as u64 * u64::from(self.ring) + u64::from(index)) * 2048 % (TRANSMIT_BUFFERS - RECEIVE_BUFFERS)
    }

    pub fn give_descriptor(&mut self, queue: usize, index: u32) {
        let at = self.receive_ring(queue) + u64::from(index) * 16;
        let buffer = self.receive_buffer(queue, index);
        self.host.put_u64(at, receive_read::PACKET_ADDRESS.put(buffer));
        self.host.put_u64(at + 8, 0);
    }

    pub fn read(&mut self, register: Register) -> u32 {
        self.read_at(register, 0)
    }
    pub fn read_at(&mut self, register: Register, index: usize) -> u32 {
        self.card.mmio_read(&mut self.host, self.now, offset(register, index))
    }
    pub fn write(&mut self, register: Register, value: u32) {
        self.write_at(register, 0, value);
    }
    pub fn write_at(&mut self, register: Register, index: usize, value: u32) {
        self.card.mmio_write(&mut self.host, self.now, offset(register, index), value);
    }

    /// Advances the card's time, stopping at each of its deadlines.
    pub fn advance(&mut self, by: Nanoseconds) {
        let end = self.now + by;
        while let Some(at) = self.card.next_deadline().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.card.tick(&mut self.host, self.now);
        }
        self.now = end;
        self.card.tick(&mut self.host, self.now);
    }

    pub fn arrive(&mut self, frame: &[u8]) {
        self.card.receive(&mut self.host, self.now, frame);
    }

    /// Takes the next frame from a ring and returns its descriptors to the card.
    pub fn poll(&mut self, queue: usize) -> Option<Received> {
        let mut bytes = Vec::new();
        let mut descriptors = 0;
        loop {
            let index = self.receive_next[queue];
            let at = self.receive_ring(queue) + u64::from(index) * 16;
            let words = [self.host.u64_at(at), self.host.u64_at(at + 8)];
            if !wb::DESCRIPTOR_DONE.is_set(&words) {
                assert_eq!(descriptors, 0, "either all of a frame's descriptors are done or none");
                return None;
            }
            let buffer = self.receive_buffer(queue, index);
            bytes.extend_from_slice(self.host.bytes(buffer, wb::LENGTH.get(&words) as usize));
            descriptors += 1;
            self.give_descriptor(queue, index);
            self.write_at(Register::Rdt, queue, index);
            self.receive_next[queue] = (index + 1) % self.ring;
            if wb::END_OF_PACKET.is_set(&words) {
                return Some(Received { bytes, words, descriptors });
            }
        }
    }

    /// Copies bytes to memory to which a descriptor can point. Returns their address.
    pub fn place(&mut self, bytes: &[u8]) -> u64 {
        let room = MEMORY_BYTES as u64 - TRANSMIT_BUFFERS;
        let needed = (bytes.len() as u64).next_multiple_of(64);
        if self.transmit_space + needed > room {
            self.transmit_space = 0;
        }
        let at = TRANSMIT_BUFFERS + self.transmit_space;
        self.transmit_space += needed;
        self.host.memory[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        at
    }

    /// Writes one descriptor to the ring, but does not write the tail register. Returns its address.
    pub fn queue_descriptor(&mut self, queue: usize, words: [u64; 2]) -> u64 {
        let index = self.transmit_next[queue];
        let at = self.transmit_ring(queue) + u64::from(index) * 16;
        self.host.put_u64(at, words[0]);
        self.host.put_u64(at + 8, words[1]);
        self.transmit_next[queue] = (index + 1) % self.ring;
        at
    }

    pub fn ring_doorbell(&mut self, queue: usize) {
        let tail = self.transmit_next[queue];
        self.write_at(Register::Tdt, queue, tail);
    }

    /// Sends a frame from one buffer, and requests a report (RS). Returns the descriptor's address.
    pub fn send(&mut self, queue: usize, frame: &[u8]) -> u64 {
        let at = self.place(frame);
        let words = data(at, frame.len(), frame.len(), transmit_data::END_OF_PACKET.put(1) | transmit_data::REPORT_STATUS.put(1));
        let descriptor = self.queue_descriptor(queue, words);
        self.ring_doorbell(queue);
        descriptor
    }
}

pub fn offset(register: Register, index: usize) -> u32 {
    let mut index = index as u32;
    for range in register.info().ranges {
        if index < range.count {
            return range.offset + index * range.stride;
        }
        index -= range.count;
    }
    panic!("{} has no entry {index}", register.info().name);
}

/// Returns an advanced data descriptor; `extra`: more bits of its second word.
pub fn data(address: u64, bytes: usize, payload: usize, extra: u64) -> [u64; 2] {
    use transmit_data::*;
    let word = DATA_LENGTH.put(bytes as u64) | TYPE.put(3) | INSERT_FCS.put(1) | EXTENSION.put(1) | PAYLOAD_LENGTH.put(payload as u64);
    [address, word | extra]
}

pub struct ContextOf {
    pub mac: usize,
    pub ip: usize,
    pub l4: usize,
    pub ipv4: bool,
    pub tcp: bool,
    pub mss: usize,
    pub vlan: u16,
    pub index: u64,
}

pub fn context(of: &ContextOf) -> [u64; 2] {
    use transmit_context::*;
    [
        IP_LENGTH.put(of.ip as u64) | MAC_LENGTH.put(of.mac as u64) | VLAN.put(u64::from(of.vlan)),
        IPV4.put(u64::from(of.ipv4))
            | L4_TYPE.put(u64::from(of.tcp))
            | TYPE.put(2)
            | EXTENSION.put(1)
            | INDEX.put(of.index)
            | L4_LENGTH.put(of.l4 as u64)
            | MSS.put(of.mss as u64),
    ]
}

/// Returns a frame of `bytes` bytes for the card, identified by its number.
pub fn numbered_frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xB5]);
    frame.extend(number.to_be_bytes());
    let mut state = number.wrapping_mul(2_654_435_761) | 1;
    while frame.len() < bytes {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        frame.push(state as u8);
    }
    frame
}

/// Returns a TCP or UDP frame over IPv4 for the card, with right checksums.
pub fn ipv4_frame(protocol: u8, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut l4 = Vec::new();
    l4.extend(ports.0.to_be_bytes());
    l4.extend(ports.1.to_be_bytes());
    if protocol == 6 {
        l4.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    } else {
        l4.extend(((8 + payload.len()) as u16).to_be_bytes());
        l4.extend([0, 0]);
    }
    l4.extend(payload);
    let addresses = [10, 0, 2, 2, 10, 0, 2, 15];
    let mut sum = crate::checksum::pseudo_header(&addresses, protocol, l4.len());
    sum.add(&l4);
    let at = if protocol == 6 { 16 } else { 6 };
    l4[at..at + 2].copy_from_slice(&sum.finish().to_be_bytes());
    let mut ip = vec![0x45, 0];
    ip.extend(((20 + l4.len()) as u16).to_be_bytes());
    ip.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
    ip.extend(addresses);
    let sum = crate::checksum::internet_checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    frame.extend(ip);
    frame.extend(l4);
    frame
}
