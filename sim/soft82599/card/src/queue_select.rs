// SPDX-License-Identifier: BSL-1.0
//! Queue selection for received frames (datasheet 7.1.2, 7.1.2.1 to 7.1.2.6).
//!
//! The first match decides: ethertype filter, five-tuple filters and SYN filter (in the order that SYNQF.priority gives), flow director.
//! For other frames MRQC's mode decides. The mode selects the queues of the frame's pool (VMDq) or traffic class (DCB), of which RSS
//! selects one if the mode has RSS bits. Filters are prepared for comparison when a driver changes a register; a frame costs one comparison
//! per enabled filter.

use crate::flow_director::{FlowDirector, Found};
use crate::model::Row;
use crate::parse::{Network, Parsed, Transport};
use crate::registers::{field, Register, RegisterFile};
use crate::rss::{Hash, Rss};

pub struct QueueSelect {
    pub rss: Rss,
    pub flow_director: FlowDirector,
    /// Sorted: highest priority first; within a priority, lowest number first.
    five_tuples: Vec<FiveTuple>,
    ethertypes: Vec<Ethertype>,
    syn: Option<Syn>,
    /// RETA and, on X550, ERETA.
    redirection: Vec<u8>,
    redirection_mask: u8,
    spread: Spread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub queue: usize,
    pub class: usize,
    pub hash: Hash,
    pub ethertype_filter: Option<u8>,
    pub flow: Found,
    pub low_latency: bool,
}

/// One filter. It matches a frame if its `flow_bits`, ANDed with `mask`, equal `value`.
struct FiveTuple {
    mask: u128,
    value: u128,
    priority: u32,
    pool: Option<usize>,
    queue: usize,
    low_latency: bool,
    any_size: bool,
}

struct Ethertype {
    number: u8,
    ethertype: u16,
    pool: Option<usize>,
    queue: Option<usize>,
    low_latency: bool,
}

#[derive(Clone, Copy)]
struct Syn {
    queue: usize,
    first: bool,
}

/// MRQC.mode (8.2.3.7.12): the parts of a queue's number (pool, class, RSS index).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spread {
    rss: bool,
    classes: Option<Classes>,
    /// Number of queues of a pool.
    pool_queues: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Classes {
    count: usize,
    /// Number of queues of a class; 0 if each pool has queues of all classes.
    queues: usize,
}

impl Spread {
    /// Returns None if the mode does not exist.
    fn of(mode: u32) -> Option<Self> {
        let classes = |count, queues| Some(Classes { count, queues });
        Some(match mode {
            0 => Self::default(),
            1 => Self { rss: true, ..Self::default() },
            2 => Self { classes: classes(8, 16), ..Self::default() },
            3 => Self { classes: classes(4, 32), ..Self::default() },
            4 => Self { rss: true, classes: classes(8, 16), ..Self::default() },
            5 => Self { rss: true, classes: classes(4, 32), ..Self::default() },
            8 => Self { pool_queues: Some(2), ..Self::default() },
            10 => Self { rss: true, pool_queues: Some(4), ..Self::default() },
            11 => Self { rss: true, pool_queues: Some(2), ..Self::default() },
            12 => Self { classes: classes(8, 0), pool_queues: Some(8), ..Self::default() },
            13 => Self { classes: classes(4, 0), pool_queues: Some(4), ..Self::default() },
            _ => return None,
        })
    }
}

pub fn mode_exists(mode: u32) -> bool {
    Spread::of(mode).is_some()
}

/// Bit positions in the result of `flow_bits`.
const SOURCE_SHIFT: u32 = 0;
const DESTINATION_SHIFT: u32 = 32;
const SOURCE_PORT_SHIFT: u32 = 64;
const DESTINATION_PORT_SHIFT: u32 = 80;
const PROTOCOL_SHIFT: u32 = 96;
const HAS_PORTS: u128 = 1 << 127;

/// Returns addresses and ports with the first byte lowest, like the filters' registers, and the protocol as FTQF encodes it.
fn flow_bits(frame: &[u8], parsed: &Parsed) -> u128 {
    let addresses = parsed.addresses(frame);
    let word = |at: usize| u128::from(u32::from_le_bytes([addresses[at], addresses[at + 1], addresses[at + 2], addresses[at + 3]]));
    let protocol: u128 = match parsed.transport {
        Transport::Tcp => 0,
        Transport::Udp => 1,
        Transport::Sctp => 2,
        Transport::Other => 3,
    };
    let ports = if parsed.transport == Transport::Other { 0 } else { HAS_PORTS };
    word(0) << SOURCE_SHIFT
        | word(4) << DESTINATION_SHIFT
        | u128::from(u32::from_le_bytes(parsed.ports(frame))) << SOURCE_PORT_SHIFT
        | protocol << PROTOCOL_SHIFT
        | ports
}

impl FiveTuple {
    fn of(regs: &RegisterFile, i: usize) -> Option<Self> {
        use field::ftqf::*;
        let filter = regs.get_at(Register::Ftqf, i);
        let action = regs.get_at(Register::L34timir, i);
        let ports = regs.get_at(Register::Sdpqf, i);
        let mut mask = 0u128;
        if !MASK_SOURCE_ADDRESS.is_set(filter) {
            mask |= 0xFFFF_FFFF << SOURCE_SHIFT;
        }
        if !MASK_DESTINATION_ADDRESS.is_set(filter) {
            mask |= 0xFFFF_FFFF << DESTINATION_SHIFT;
        }
        if !MASK_SOURCE_PORT.is_set(filter) {
            mask |= 0xFFFF << SOURCE_PORT_SHIFT | HAS_PORTS;
        }
        if !MASK_DESTINATION_PORT.is_set(filter) {
            mask |= 0xFFFF << DESTINATION_PORT_SHIFT | HAS_PORTS;
        }
        if !MASK_PROTOCOL.is_set(filter) {
            mask |= 3 << PROTOCOL_SHIFT;
        }
        let value = u128::from(regs.get_at(Register::Saqf, i)) << SOURCE_SHIFT
            | u128::from(regs.get_at(Register::Daqf, i)) << DESTINATION_SHIFT
            | u128::from(ports) << SOURCE_PORT_SHIFT
            | u128::from(PROTOCOL.get(filter)) << PROTOCOL_SHIFT
            | HAS_PORTS;
        ENABLE.is_set(filter).then(|| Self {
            mask,
            value: value & mask,
            priority: PRIORITY.get(filter),
            pool: (!MASK_POOL.is_set(filter)).then(|| POOL.get(filter) as usize),
            queue: field::l34timir::RX_QUEUE.get(action) as usize,
            low_latency: field::l34timir::LOW_LATENCY.is_set(action),
            any_size: field::l34timir::SIZE_BYPASS.is_set(action),
        })
    }
}

impl Ethertype {
    fn of(regs: &RegisterFile, i: usize) -> Option<Self> {
        let filter = regs.get_at(Register::Etqf, i);
        let action = regs.get_at(Register::Etqs, i);
        field::etqf::ENABLE.is_set(filter).then(|| Self {
            number: i as u8,
            ethertype: field::etqf::ETHERTYPE.get(filter) as u16,
            pool: field::etqf::POOL_ENABLE.is_set(filter).then(|| field::etqf::POOL.get(filter) as usize),
            queue: field::etqs::QUEUE_ENABLE.is_set(action).then(|| field::etqs::RX_QUEUE.get(action) as usize),
            low_latency: field::etqs::LOW_LATENCY.is_set(action),
        })
    }
}

impl QueueSelect {
    pub fn new(model: &Row) -> Self {
        Self {
            rss: Rss::new(),
            flow_director: FlowDirector::new(),
            five_tuples: Vec::new(),
            ethertypes: Vec::new(),
            syn: None,
            redirection: vec![0; model.redirection_entries],
            redirection_mask: (1 << model.redirection_bits) - 1,
            spread: Spread::default(),
        }
    }

    pub fn reset(&mut self, regs: &RegisterFile) {
        self.rss.key_changed();
        self.flow_director.reset(regs);
        self.update_five_tuples(regs);
        self.update(regs);
        self.redirection.fill(0); // as after a reset of RETA
    }

    /// MUST be called after each change of SAQF, DAQF, SDPQF, FTQF or L34TIMIR.
    pub fn update_five_tuples(&mut self, regs: &RegisterFile) {
        self.five_tuples.clear();
        self.five_tuples.extend((0..128).filter_map(|i| FiveTuple::of(regs, i)));
        self.five_tuples.sort_by_key(|filter| std::cmp::Reverse(filter.priority));
    }

    /// MUST be called after each change of ETQF, ETQS, SYNQF or MRQC.
    pub fn update(&mut self, regs: &RegisterFile) {
        self.ethertypes.clear();
        self.ethertypes.extend((0..8).filter_map(|i| Ethertype::of(regs, i)));
        let syn = regs.get(Register::Synqf);
        self.syn = field::synqf::ENABLE
            .is_set(syn)
            .then(|| Syn { queue: field::synqf::RX_QUEUE.get(syn) as usize, first: field::synqf::PRIORITY.is_set(syn) });
        self.spread = Spread::of(field::mrqc::MODE.get(regs.get(Register::Mrqc))).unwrap_or_default();
    }

    /// MUST be called after each change of an entry of RETA or, on a model that has it, ERETA.
    pub fn update_redirection(&mut self, regs: &RegisterFile, register: Register, index: usize) {
        let first = if register == Register::Ereta { Register::Reta.info().count as usize } else { 0 };
        let at = 4 * (first + index);
        for (entry, byte) in self.redirection[at..at + 4].iter_mut().zip(regs.get_at(register, index).to_le_bytes()) {
            *entry = byte & self.redirection_mask;
        }
    }

    /// `pool`: the frame's pool, if virtualisation is on.
    pub fn choose(&mut self, regs: &mut RegisterFile, frame: &[u8], parsed: &Parsed, pool: Option<usize>) -> Choice {
        let hash = if self.spread.rss { self.rss.hash(regs, frame, parsed) } else { Hash::default() };
        let class = self.class_of(regs, parsed);
        let ethertype =
            self.ethertypes.iter().find(|filter| filter.ethertype == parsed.ethertype && (filter.pool.is_none() || filter.pool == pool));
        let decided = ethertype.is_some_and(|filter| filter.queue.is_some());
        let five_tuple = if decided { None } else { self.five_tuple(frame, parsed, pool) };
        let syn = self.syn.filter(|_| is_syn(frame, parsed));
        let flow = self.flow_director.find(regs, frame, parsed);
        let by_five_tuple = five_tuple.map(|filter| filter.queue);
        let by_filter = match syn {
            Some(syn) if syn.first => Some(syn.queue),
            Some(syn) => by_five_tuple.or(Some(syn.queue)),
            None => by_five_tuple,
        };
        let small = frame.len() < field::llithresh::SIZE_THRESHOLD.get(regs.get(Register::Llithresh)) as usize;
        let low_latency = ethertype.is_some_and(|filter| filter.low_latency)
            || five_tuple.is_some_and(|filter| filter.low_latency && (filter.any_size || small))
            || flow.low_latency
            || urgent_by_priority(regs, parsed);
        let queue = ethertype
            .and_then(|filter| filter.queue)
            .or(by_filter)
            .or(flow.queue)
            .unwrap_or_else(|| self.queue_by_mode(regs, pool.unwrap_or(0), class, hash));
        Choice {
            queue: queue % crate::receive_queue::QUEUES,
            class,
            hash,
            ethertype_filter: ethertype.map(|filter| filter.number),
            flow,
            low_latency,
        }
    }

    fn five_tuple(&self, frame: &[u8], parsed: &Parsed, pool: Option<usize>) -> Option<&FiveTuple> {
        if self.five_tuples.is_empty() || parsed.network != Network::Ipv4 || parsed.fragment {
            return None;
        }
        let flow = flow_bits(frame, parsed);
        self.five_tuples
            .iter()
            .find(|filter| flow & filter.mask == filter.value && (filter.pool.is_none() || pool.is_none() || filter.pool == pool))
    }

    /// Returns the traffic class: from the VLAN tag's priority (an untagged frame has priority 0); always 0 without DCB.
    fn class_of(&self, regs: &RegisterFile, parsed: &Parsed) -> usize {
        let Some(classes) = self.spread.classes else { return 0 };
        let priority = parsed.vlan.unwrap_or(0) >> 13;
        let class = regs.get(Register::Rtrup2tc) >> (3 * priority) & 7;
        class as usize % classes.count
    }

    fn queue_by_mode(&self, regs: &RegisterFile, pool: usize, class: usize, hash: Hash) -> usize {
        let index = if hash.kind != 0 { usize::from(self.redirection[hash.value as usize % self.redirection.len()]) } else { 0 };
        match (self.spread.pool_queues, self.spread.classes) {
            (Some(queues), Some(_)) => pool * queues + class,
            (Some(queues), None) => {
                let bits = field::psrtype::RSS_QUEUE_BITS.get(regs.get_at(Register::Psrtype, pool % 64));
                pool * queues + (index & ((1 << bits) - 1)) % queues
            }
            (None, Some(classes)) => {
                let bits = regs.get(Register::Rqtc) >> (4 * class) & 7;
                class * classes.queues + (index & ((1 << bits) - 1))
            }
            (None, None) => index,
        }
    }
}

fn is_syn(frame: &[u8], parsed: &Parsed) -> bool {
    const SYN: u8 = 2;
    parsed.transport == Transport::Tcp && frame[parsed.transport_offset + 13] & SYN != 0
}

/// True if the frame's VLAN priority requests a low-latency interrupt by IMIRVP.
fn urgent_by_priority(regs: &RegisterFile, parsed: &Parsed) -> bool {
    let rule = regs.get(Register::Imirvp);
    field::imirvp::PRIORITY_ENABLE.is_set(rule) && parsed.vlan.is_some_and(|tag| u32::from(tag >> 13) >= field::imirvp::PRIORITY.get(rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{parse, TagTypes};

    fn frame(protocol: u8, ports: (u16, u16), priority: Option<u16>) -> Vec<u8> {
        let mut frame = vec![0u8; 12];
        if let Some(priority) = priority {
            frame.extend([0x81, 0x00]);
            frame.extend((priority << 13).to_be_bytes());
        }
        frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(ports.0.to_be_bytes());
        frame.extend(ports.1.to_be_bytes());
        frame.resize(80, 0);
        frame
    }

    struct Bench {
        regs: RegisterFile,
        select: QueueSelect,
    }
    impl Bench {
        fn new(mode: u32) -> Self {
            let mut regs = RegisterFile::new();
            regs.set(Register::Mrqc, mode | field::mrqc::RSS_IPV4_TCP.ones());
            for i in 0..32 {
                regs.set_at(Register::Reta, i, 0x0F0E_0D0C);
            }
            for i in 0..10 {
                regs.set_at(Register::Rssrk, i, 0x1234_5679 * (i as u32 + 3));
            }
            let mut select = QueueSelect::new(crate::Model::I82599.row());
            select.reset(&regs);
            Self { regs, select }
        }
        fn choose(&mut self, frame: &[u8], pool: Option<usize>) -> Choice {
            let parsed = parse(frame, TagTypes::default());
            self.select.choose(&mut self.regs, frame, &parsed, pool)
        }
    }

    #[test]
    fn redirection_uses_four_bits_of_an_entry() {
        let mut bench = Bench::new(1);
        bench.regs.set_at(Register::Reta, 31, 0xFA00_0000);
        bench.select.update_redirection(&bench.regs, Register::Reta, 31);
        assert_eq!(bench.select.redirection[127], 10);
        let chosen = bench.choose(&frame(6, (1, 2), None), None);
        assert_eq!(chosen.queue, usize::from(bench.select.redirection[chosen.hash.value as usize & 127]));
    }

    #[test]
    fn every_mode_keeps_a_frame_in_its_pool_and_class() {
        for (mode, pool_queues, classes) in
            [(2, 0, 8), (3, 0, 4), (4, 0, 8), (5, 0, 4), (8, 2, 0), (10, 4, 0), (11, 2, 0), (12, 8, 8), (13, 4, 4)]
        {
            let mut bench = Bench::new(mode);
            bench.regs.set(Register::Rtrup2tc, 0o7654_3210);
            for pool in 0..64 {
                bench.regs.set_at(Register::Psrtype, pool, field::psrtype::RSS_QUEUE_BITS.put(2));
            }
            for pool in 0..if pool_queues == 0 { 1 } else { 128 / pool_queues } {
                for priority in 0..8 {
                    let chosen = bench.choose(&frame(6, (77, 80), Some(priority)), Some(pool));
                    let class = if classes == 0 { 0 } else { usize::from(priority) % classes };
                    let (first, queues) = match (pool_queues, classes) {
                        (0, classes) => (class * (128 / classes), 128 / classes),
                        (queues, 0) => (pool * queues, queues),
                        (queues, _) => (pool * queues + class, 1),
                    };
                    assert!((first..first + queues).contains(&chosen.queue), "mode {mode} pool {pool} priority {priority}: {chosen:?}");
                    assert_eq!(chosen.class, class);
                }
            }
        }
        assert!(!mode_exists(6) && !mode_exists(9) && !mode_exists(15));
    }

    #[test]
    fn filters_apply_in_their_order() {
        let mut bench = Bench::new(1);
        let syn = {
            let mut frame = frame(6, (1000, 80), None);
            frame[14 + 20 + 13] = 0x02;
            frame
        };
        use field::ftqf::*;
        let only_port =
            ENABLE.ones() | MASK_SOURCE_ADDRESS.ones() | MASK_DESTINATION_ADDRESS.ones() | MASK_SOURCE_PORT.ones() | MASK_POOL.ones();
        bench.regs.set_at(Register::Sdpqf, 3, field::sdpqf::DESTINATION_PORT.put(u32::from(80u16.to_be())));
        bench.regs.set_at(Register::Ftqf, 3, only_port);
        bench.regs.set_at(Register::L34timir, 3, field::l34timir::RX_QUEUE.put(33));
        bench.select.update_five_tuples(&bench.regs);
        assert_eq!(bench.choose(&syn, None).queue, 33, "a filter before RSS");

        bench.regs.set_at(Register::Ftqf, 100, (only_port | MASK_DESTINATION_PORT.ones()) | PRIORITY.put(5));
        bench.regs.set_at(Register::L34timir, 100, field::l34timir::RX_QUEUE.put(44));
        bench.select.update_five_tuples(&bench.regs);
        assert_eq!(bench.choose(&syn, None).queue, 44, "a higher priority first");

        bench.regs.set(Register::Synqf, field::synqf::ENABLE.ones() | field::synqf::RX_QUEUE.put(55));
        bench.select.update(&bench.regs);
        assert_eq!(bench.choose(&syn, None).queue, 44, "the SYN filter behind five-tuples");
        bench.regs.set(Register::Synqf, bench.regs.get(Register::Synqf) | field::synqf::PRIORITY.ones());
        bench.select.update(&bench.regs);
        assert_eq!(bench.choose(&syn, None).queue, 55, "or in front");
        assert_eq!(bench.choose(&frame(6, (1000, 80), None), None).queue, 44, "no SYN");

        bench.regs.set_at(Register::Etqf, 2, field::etqf::ETHERTYPE.put(0x0800) | field::etqf::ENABLE.ones());
        bench.regs.set_at(
            Register::Etqs,
            2,
            field::etqs::QUEUE_ENABLE.ones() | field::etqs::RX_QUEUE.put(66) | field::etqs::LOW_LATENCY.ones(),
        );
        bench.select.update(&bench.regs);
        let chosen = bench.choose(&syn, None);
        assert_eq!((chosen.queue, chosen.ethertype_filter, chosen.low_latency), (66, Some(2), true));
    }

    #[test]
    fn five_tuple_filters_agree_with_comparing_fields() {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let mut bench = Bench::new(0);
            let (protocol, named) = [(6, 0), (17, 1), (132, 2), (1, 3)][next(4) as usize];
            let ports = (next(2) as u16 + 1, next(2) as u16 + 1);
            let wanted = [next(4), next(2), next(2), next(2) + 1, next(2) + 1];
            let ignored = next(32) as u32;
            use field::ftqf::*;
            bench.regs.set_at(Register::Saqf, 0, u32::from_le_bytes([10, 0, 0, 1 + wanted[1] as u8]));
            bench.regs.set_at(Register::Daqf, 0, u32::from_le_bytes([10, 0, 0, 2 + wanted[2] as u8]));
            let port = |number: u64| u32::from((number as u16).to_be());
            bench.regs.set_at(Register::Sdpqf, 0, port(wanted[3]) | port(wanted[4]) << 16);
            bench.regs.set_at(Register::Ftqf, 0, ENABLE.ones() | MASK_POOL.ones() | ignored << 25 | PROTOCOL.put(wanted[0] as u32));
            bench.regs.set_at(Register::L34timir, 0, field::l34timir::RX_QUEUE.put(9));
            bench.select.update_five_tuples(&bench.regs);
            let has_ports = protocol != 1;
            let fits = (ignored & 1 != 0 || wanted[1] == 0)
                && (ignored & 2 != 0 || wanted[2] == 0)
                && (ignored & 4 != 0 || has_ports && u64::from(ports.0) == wanted[3])
                && (ignored & 8 != 0 || has_ports && u64::from(ports.1) == wanted[4])
                && (ignored & 16 != 0 || named == wanted[0]);
            assert_eq!(bench.choose(&frame(protocol, ports, None), None).queue == 9, fits, "{wanted:?} ignored {ignored:b}");
        }
    }
}
