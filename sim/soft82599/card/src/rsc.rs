// SPDX-License-Identifier: BSL-1.0
//! Receive side coalescing: consecutive segments of a TCP connection become one long frame (datasheet 7.11, 4.6.7.2).
//!
//! The card coalesces TCP over IPv4 only; segments over IPv6 are ordinary frames (7.11.1). A suitable segment opens one of 32 contexts. The
//! segment is written to its ring's buffers, but the descriptors are not written back yet. If the next segment of the same connection
//! continues the first segment in every respect, its payload is appended. Other frames of the ring take descriptors meanwhile, so the
//! descriptors of a context need not be adjacent. Each descriptor of a context names the next one.
//!
//! A context is closed, and its descriptors go to the driver, in six cases. A segment of its connection does not continue the frame (this
//! segment may open a new context). A segment has PSH. The frame reaches the queue's limit of buffers or the maximum length of IP. The ring
//! has no more descriptors. Another connection needs the context. The queue's interrupt becomes due. A closed context of one segment is an
//! ordinary frame. In a longer context the first segment's headers are updated in memory: IP length and checksum, and PSH and window from
//! the last segment. The TCP checksum keeps the first segment's value; the descriptor reports that the checksums of all segments were
//! right.
//!
//! Contexts are closed when EITR's interval of the queue's vector has ended, but at the earliest GPIE.rsc_delay after the first segment. So
//! coalescing needs an interval longer than that delay. With a shorter interval the card reports a violation and does not coalesce.
//!
//! If public sources leave open whether two segments may be coalesced, the model does not coalesce them. TCP options must be equal in all
//! segments (a new time stamp closes the context). The acknowledgement number must be equal, too (all drivers request that:
//! RDRXCTL.rsc_ack_completion). Segments without payload are never coalesced (the card allows it, but all drivers forbid it by RSCDBU).

use crate::card::Card;
use crate::faults::Direction;
use crate::host::{DmaFault, Host, Nanoseconds};
use crate::parse::{Network, Parsed, Transport};
use crate::receive::Arrival;
use crate::receive_checks::Checks;
use crate::receive_queue::{Form, ReceiveQueue};
use crate::receive_write::{Fill, Findings, Split, Trimmed};
use crate::registers::{field, Register, RegisterFile};
use crate::report::Violation;

const CONTEXTS: usize = 32;
/// Largest number of frames that may begin in one buffer, as the descriptor's counter permits.
const STARTS_MAX: u8 = 14;
const DATAGRAM_BYTES_MAX: usize = 65_535;
const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const TIME_STAMP_OPTION: usize = 12;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// Returns the number of buffers that a coalesced frame of the queue may take; None if the queue does not coalesce. Returns an error if
/// coalescing is enabled although a rule forbids it.
pub fn buffers_allowed(regs: &RegisterFile, index: usize, queue: &ReceiveQueue) -> Result<Option<usize>, &'static str> {
    let control = regs.get_at(Register::Rscctl, index);
    if !field::rscctl::ENABLE.is_set(control) {
        return Ok(None);
    }
    let buffers_max = [1, 4, 8, 16][field::rscctl::MAX_DESCRIPTORS.get(control) as usize];
    let strips_crc =
        field::hlreg0::RX_CRC_STRIP.is_set(regs.get(Register::Hlreg0)) && field::rdrxctl::CRC_STRIP.is_set(regs.get(Register::Rdrxctl));
    if queue.form == Form::Legacy {
        Err("its descriptors are legacy ones")
    } else if !strips_crc {
        Err("the CRC is not stripped (HLREG0, RDRXCTL)")
    } else if queue.header_bytes == 0 {
        Err("SRRCTL.BSIZEHEADER is 0")
    } else if !field::psrtype::TCP_HEADER.is_set(regs.get_at(Register::Psrtype, 0)) {
        Err("PSRTYPE does not have the TCP header")
    } else if buffers_max * queue.buffer_bytes > DATAGRAM_BYTES_MAX {
        Err("its buffers together are longer than 64 KiB")
    } else if queue.length as usize <= buffers_max {
        Err("its ring is no longer than one coalesced frame")
    } else {
        Ok(Some(buffers_max))
    }
}

/// The key of a connection on a queue: addresses, ports, VLAN tag and the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Connection {
    addresses: u64,
    ports: u32,
    tag: Option<u16>,
    queue: u8,
}

impl Connection {
    /// Returns None if the frame is not TCP over IPv4.
    fn of(frame: &[u8], parsed: &Parsed, queue: usize) -> Option<Self> {
        if parsed.network != Network::Ipv4 || parsed.transport != Transport::Tcp {
            return None;
        }
        let addresses = parsed.addresses(frame);
        Some(Self {
            addresses: u64::from_le_bytes(std::array::from_fn(|i| addresses[i])),
            ports: u32::from_le_bytes(parsed.ports(frame)),
            tag: parsed.vlan,
            queue: queue as u8,
        })
    }
}

/// A segment that can be coalesced.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    sequence: u32,
    /// Acknowledgement number, and the IP header's type of service.
    acknowledged: u32,
    service: u8,
    flags: u8,
    window: [u8; 2],
    options: [u8; TIME_STAMP_OPTION],
    options_bytes: usize,
    payload_at: usize,
    payload_bytes: usize,
}

impl Segment {
    /// Returns None if the frame is not suitable for coalescing (7.11.1).
    fn of(frame: &[u8], parsed: &Parsed, header_room: usize) -> Option<Self> {
        let end = parsed.tcp_end(frame)?;
        if parsed.network_extended || parsed.snap || parsed.fragment {
            return None;
        }
        let tcp = &frame[parsed.transport_offset..parsed.transport_offset + parsed.transport_length];
        let options_bytes = end - parsed.transport_offset - TCP_HEADER;
        let mut options = [0; TIME_STAMP_OPTION];
        match options_bytes {
            0 => {}
            // Network stacks use only this layout: two NOPs, then the option.
            TIME_STAMP_OPTION if tcp[TCP_HEADER..].starts_with(&[1, 1, 8, 10]) => {
                options.copy_from_slice(&tcp[TCP_HEADER..TCP_HEADER + TIME_STAMP_OPTION]);
            }
            _ => return None,
        }
        let service = frame[parsed.network_offset + 1];
        let congestion = service & 3 == 3;
        let plain = tcp[12] & 15 == 0 && tcp[13] & !PSH == ACK;
        let payload_bytes = parsed.transport_length - TCP_HEADER - options_bytes;
        if !plain || congestion || payload_bytes == 0 || end > header_room {
            return None;
        }
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        Some(Self {
            sequence: word(4),
            acknowledged: word(8),
            service,
            flags: tcp[13],
            window: [tcp[14], tcp[15]],
            options,
            options_bytes,
            payload_at: end,
            payload_bytes,
        })
    }
}

#[derive(Clone, Copy, Default)]
struct Context {
    connection: Connection,
    first: Segment,
    last: Segment,
    next_sequence: u32,
    frames: u32,
    /// The first segment's IP header, and the length of the whole datagram, for `update_headers`.
    ip: [u8; IP_HEADER],
    datagram_bytes: usize,
    /// Address of the IP header in guest memory.
    ip_address: u64,
    fill: Fill,
    words: [u64; 2],
    close_at: Nanoseconds,
}

pub struct Rsc {
    contexts: [Context; CONTEXTS],
    /// Bit i: context i is open.
    open: u32,
    earliest: Nanoseconds,
    /// If no context is free, a new connection closes this context and takes its place.
    victim: usize,
    pub coalesced_frames: u64,
    pub joined_segments: u64,
}

impl Rsc {
    pub fn new() -> Self {
        Self { contexts: [Context::default(); CONTEXTS], open: 0, earliest: u64::MAX, victim: 0, coalesced_frames: 0, joined_segments: 0 }
    }
    pub fn drop_contexts(&mut self) {
        self.open = 0;
    }
    pub fn open_frames(&self) -> u64 {
        self.open_ones().map(|i| u64::from(self.contexts[i].frames)).sum()
    }
    pub fn open_contexts(&self) -> u32 {
        self.open.count_ones()
    }
    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        (self.open != 0).then_some(self.earliest)
    }
    fn open_ones(&self) -> impl Iterator<Item = usize> {
        let mut rest = self.open;
        std::iter::from_fn(move || {
            let i = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(i)
        })
    }
    fn find(&self, connection: &Connection) -> Option<usize> {
        self.open_ones().find(|&i| self.contexts[i].connection == *connection)
    }
    /// Recomputes the earliest deadline of the open contexts.
    fn update_earliest(&mut self) {
        self.earliest = self.open_ones().map(|i| self.contexts[i].close_at).min().unwrap_or(u64::MAX);
    }
}

impl Context {
    /// True if the segment continues the frame and there is room for it.
    fn takes(&self, segment: &Segment, queue: &ReceiveQueue) -> bool {
        let more = segment.payload_bytes.saturating_sub(self.fill.room()).div_ceil(queue.buffer_bytes);
        let begins_here = self.fill.room() != 0;
        segment.sequence == self.next_sequence
            && segment.acknowledged == self.first.acknowledged
            && segment.service == self.first.service
            && (segment.options_bytes, segment.options) == (self.first.options_bytes, self.first.options)
            && self.datagram_bytes + segment.payload_bytes <= DATAGRAM_BYTES_MAX
            && !(begins_here && self.fill.starts_in_last() >= STARTS_MAX)
            && self.fill.descriptors() + more <= queue.coalesce.unwrap_or(0)
            && queue.available() as usize >= more
    }

    fn update_headers(&self, host: &mut impl Host) -> Result<(), DmaFault> {
        let mut ip = self.ip;
        ip[2..4].copy_from_slice(&(self.datagram_bytes as u16).to_be_bytes());
        ip[10..12].fill(0);
        let sum = crate::checksum::internet_checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        host.dma_write(self.ip_address, &ip)?;
        let flags = self.first.flags | self.last.flags;
        host.dma_write(self.ip_address.wrapping_add(IP_HEADER as u64 + 13), &[flags, self.last.window[0], self.last.window[1]])
    }
}

impl Card {
    /// Adds a frame of a coalescing queue to the context of its connection. A frame that does not continue this context closes it and may
    /// open a new context. Returns false if the frame must be received normally.
    pub(crate) fn coalesce(&mut self, host: &mut impl Host, now: Nanoseconds, frame: &[u8], arrival: &Arrival, checks: Checks) -> bool {
        let index = arrival.choice.queue;
        let queue = self.receive_queues[index];
        let Some(connection) = Connection::of(frame, &arrival.parsed, index) else { return false };
        let fit = !checks.wrong() && !arrival.choice.low_latency && !field::rfctl::RSC_DISABLE.is_set(self.regs.get(Register::Rfctl));
        let segment = if fit { Segment::of(frame, &arrival.parsed, queue.header_bytes) } else { None };
        if let Some(i) = self.rsc.find(&connection) {
            if let Some(segment) = segment.filter(|segment| self.rsc.contexts[i].takes(segment, &queue)) {
                self.join(host, now, i, frame, &segment);
                return true;
            }
            self.close_coalescing(host, now, i);
        }
        let Some(segment) = segment else { return false };
        self.open_coalescing(host, now, frame, arrival, checks, (connection, segment))
    }

    fn join(&mut self, host: &mut impl Host, now: Nanoseconds, i: usize, frame: &[u8], segment: &Segment) {
        let context = &mut self.rsc.contexts[i];
        let index = usize::from(context.connection.queue);
        let payload = &frame[segment.payload_at..segment.payload_at + segment.payload_bytes];
        let result = context.fill.append(host, &mut self.receive_queues[index], payload);
        context.next_sequence = segment.sequence.wrapping_add(segment.payload_bytes as u32);
        context.datagram_bytes += segment.payload_bytes;
        context.last = *segment;
        context.frames += 1;
        if let Err(fault) = result {
            self.rsc.open &= !(1 << i);
            return self.receive_fault(host, now, index, fault);
        }
        if segment.flags & PSH != 0 {
            self.close_coalescing(host, now, i);
        }
    }

    fn open_coalescing(
        &mut self,
        host: &mut impl Host,
        now: Nanoseconds,
        frame: &[u8],
        arrival: &Arrival,
        checks: Checks,
        (connection, segment): (Connection, Segment),
    ) -> bool {
        let index = arrival.choice.queue;
        let queue = self.receive_queues[index];
        let trimmed = Trimmed::new(frame, &arrival.parsed, queue.strip_vlan, false);
        let split = Split::of(frame, &arrival.parsed, &trimmed, &queue, self.regs.get_at(Register::Psrtype, 0));
        let needed = trimmed.bytes().saturating_sub(split.header_bytes).div_ceil(queue.buffer_bytes).max(1);
        // A frame to which no segment can be appended is received normally, and so is a frame that has to wait for descriptors.
        let room = needed <= queue.coalesce.unwrap_or(0) && needed <= queue.available() as usize;
        if segment.flags & PSH != 0 || !room {
            return false;
        }
        let Some(close_at) = self.interrupts.coalescing_ends(&self.regs, now, index) else {
            self.report.add(Violation::CoalescingInterval, || format!("receive queue {index}: segments are not coalesced"));
            return false;
        };
        let i = self.free_context(host, now);
        let ip_at = trimmed.offset(arrival.parsed.network_offset) as u64;
        let findings =
            Findings { frame, parsed: &arrival.parsed, accepted: arrival.accepted, choice: &arrival.choice, checks, tag: trimmed.tag };
        let words = findings.advanced(&self.regs);
        // The next segment's payload must follow this datagram directly, so this frame's padding is not written.
        let padding = frame.len() - (segment.payload_at + segment.payload_bytes);
        let unpadded = &frame[..frame.len() - padding];
        let trimmed = Trimmed::new(unpadded, &arrival.parsed, queue.strip_vlan, false);
        let mut fill = Fill::new(split);
        if let Err(fault) = fill.frame(host, &mut self.receive_queues[index], trimmed) {
            self.receive_fault(host, now, index, fault);
            return true;
        }
        let at = arrival.parsed.network_offset;
        self.rsc.contexts[i] = Context {
            connection,
            first: segment,
            last: segment,
            next_sequence: segment.sequence.wrapping_add(segment.payload_bytes as u32),
            frames: 1,
            ip: std::array::from_fn(|byte| frame[at + byte]),
            datagram_bytes: IP_HEADER + arrival.parsed.transport_length,
            ip_address: fill.start.wrapping_add(ip_at),
            fill,
            words,
            close_at,
        };
        self.rsc.open |= 1 << i;
        self.rsc.update_earliest();
        true
    }

    fn free_context(&mut self, host: &mut impl Host, now: Nanoseconds) -> usize {
        if self.rsc.open == u32::MAX {
            let victim = self.rsc.victim;
            self.rsc.victim = (victim + 1) % CONTEXTS;
            self.close_coalescing(host, now, victim);
        }
        (!self.rsc.open).trailing_zeros() as usize
    }

    /// Writes the coalesced frame back to the driver.
    fn close_coalescing(&mut self, host: &mut impl Host, now: Nanoseconds, i: usize) {
        let context = self.rsc.contexts[i];
        let index = usize::from(context.connection.queue);
        self.rsc.open &= !(1 << i);
        self.rsc.update_earliest();
        if !self.may_do_dma() {
            // Bus mastering was disabled meanwhile; the coalesced frame is lost.
            return self.statistics.dropped(&mut self.regs, index);
        }
        let several = context.frames > 1;
        let mut result = if several { context.update_headers(host) } else { Ok(()) };
        if result.is_ok() {
            let queue = self.receive_queues[index];
            result = context.fill.write_back(host, &mut self.faults, now, (index, &queue), context.words, several);
        }
        if let Err(fault) = result {
            return self.receive_fault(host, now, index, fault);
        }
        if several {
            self.rsc.coalesced_frames += 1;
            self.rsc.joined_segments += u64::from(context.frames);
        }
        self.receive_queues[index].count_hints(&context.fill);
        self.statistics.delivered(&mut self.regs, index, context.frames, context.fill.bytes());
        self.queue_event(host, now, Direction::Receive, index);
    }

    /// Closes the contexts of a queue that stops, or whose ring has no descriptors left.
    pub(crate) fn close_coalescings_of(&mut self, host: &mut impl Host, now: Nanoseconds, index: usize) {
        for i in self.rsc.open_ones() {
            if usize::from(self.rsc.contexts[i].connection.queue) == index {
                self.close_coalescing(host, now, i);
            }
        }
    }

    pub(crate) fn close_due_coalescings(&mut self, host: &mut impl Host, now: Nanoseconds) {
        if self.rsc.next_deadline().is_some_and(|at| at <= now) {
            for i in self.rsc.open_ones() {
                if self.rsc.contexts[i].close_at <= now {
                    self.close_coalescing(host, now, i);
                }
            }
        }
    }
}
