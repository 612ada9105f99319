// SPDX-License-Identifier: BSL-1.0
//! Which queue a frame goes to (datasheet 7.1.2): ethertype filters first, then five-tuple filters, then RSS, else queue 0.
//!
//! Flow director, SYN filter and the pools of virtualisation and DCB modes are not decided here yet: in those modes frames go by RSS alone.

use crate::parse::{Network, Parsed, Transport};
use crate::registers::{field, Register, RegisterFile};
use crate::rss::{redirect, Hash, Rss};

pub struct QueueSelect {
    pub rss: Rss,
    /// Numbers of the five-tuple filters that are on, best priority first.
    five_tuples: Vec<usize>,
    ethertypes: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub queue: usize,
    pub hash: Hash,
    pub ethertype_filter: Option<usize>,
}

impl QueueSelect {
    pub fn new() -> Self {
        Self { rss: Rss::new(), five_tuples: Vec::new(), ethertypes: Vec::new() }
    }

    /// To be called when FTQF or ETQF changed.
    pub fn update(&mut self, regs: &RegisterFile) {
        self.five_tuples = (0..128).filter(|&i| field::ftqf::ENABLE.is_set(regs.get_at(Register::Ftqf, i))).collect();
        self.five_tuples.sort_by_key(|&i| std::cmp::Reverse(field::ftqf::PRIORITY.get(regs.get_at(Register::Ftqf, i))));
        self.ethertypes = (0..8).filter(|&i| field::etqf::ENABLE.is_set(regs.get_at(Register::Etqf, i))).collect();
    }

    pub fn choose(&mut self, regs: &RegisterFile, frame: &[u8], parsed: &Parsed) -> Choice {
        let ethertype_filter = self
            .ethertypes
            .iter()
            .copied()
            .find(|&i| field::etqf::ETHERTYPE.get(regs.get_at(Register::Etqf, i)) == u32::from(parsed.ethertype));
        let hash = self.rss.hash(regs, frame, parsed);
        let mode = field::mrqc::MODE.get(regs.get(Register::Mrqc));
        let by_rss = if mode != 0 && hash.kind != 0 { redirect(regs, hash.value) } else { 0 };
        let queue = ethertype_filter
            .and_then(|i| ethertype_queue(regs, i))
            .or_else(|| self.five_tuples.iter().find(|&&i| five_tuple_fits(regs, i, frame, parsed)).map(|&i| five_tuple_queue(regs, i)))
            .unwrap_or(by_rss);
        Choice { queue, hash, ethertype_filter }
    }
}

fn ethertype_queue(regs: &RegisterFile, i: usize) -> Option<usize> {
    let select = regs.get_at(Register::Etqs, i);
    field::etqs::QUEUE_ENABLE.is_set(select).then(|| field::etqs::RX_QUEUE.get(select) as usize)
}

fn five_tuple_queue(regs: &RegisterFile, i: usize) -> usize {
    field::l34timir::RX_QUEUE.get(regs.get_at(Register::L34timir, i)) as usize
}

fn five_tuple_fits(regs: &RegisterFile, i: usize, frame: &[u8], parsed: &Parsed) -> bool {
    use field::ftqf::*;
    if parsed.network != Network::Ipv4 || parsed.fragment {
        return false;
    }
    let filter = regs.get_at(Register::Ftqf, i);
    let addresses = parsed.addresses(frame);
    let part = |at: usize| u32::from_le_bytes([addresses[at], addresses[at + 1], addresses[at + 2], addresses[at + 3]]);
    if !MASK_SOURCE_ADDRESS.is_set(filter) && part(0) != regs.get_at(Register::Saqf, i) {
        return false;
    }
    if !MASK_DESTINATION_ADDRESS.is_set(filter) && part(4) != regs.get_at(Register::Daqf, i) {
        return false;
    }
    let protocol = match parsed.transport {
        Transport::Tcp => 0,
        Transport::Udp => 1,
        Transport::Sctp => 2,
        Transport::Other => 3,
    };
    if !MASK_PROTOCOL.is_set(filter) && protocol != PROTOCOL.get(filter) {
        return false;
    }
    let ports_matter = !MASK_SOURCE_PORT.is_set(filter) || !MASK_DESTINATION_PORT.is_set(filter);
    if !ports_matter {
        return true;
    }
    if parsed.transport == Transport::Other {
        return false;
    }
    let at = parsed.transport_offset;
    let ports = regs.get_at(Register::Sdpqf, i);
    let source = u32::from(u16::from_le_bytes([frame[at], frame[at + 1]]));
    let destination = u32::from(u16::from_le_bytes([frame[at + 2], frame[at + 3]]));
    (MASK_SOURCE_PORT.is_set(filter) || source == field::sdpqf::SOURCE_PORT.get(ports))
        && (MASK_DESTINATION_PORT.is_set(filter) || destination == field::sdpqf::DESTINATION_PORT.get(ports))
}
