// SPDX-License-Identifier: BSL-1.0
//! Flow director: a table of flows with the queue of each, maintained by the driver (datasheet 7.1.2.7).
//!
//! A frame's flow is its kind, pool, VLAN tag, addresses, ports, and two bytes at an offset that the driver chooses. Bits that the driver
//! masks are not compared. The flow's hash selects a bucket, a list of filters. In perfect mode, a filter contains the flow itself and a
//! number that the driver assigns. In signature mode, a filter contains only a second hash, so two flows with equal hashes are not
//! distinguished. To add, remove or query a filter, the driver gives its bucket and its number or signature, so it must compute the same
//! hashes.
//!
//! Both hashes are linear in the flow's bits. The flow is first folded into two words. One word contains kind, pool and VLAN; the other is
//! the XOR of all other parts. Each of the words' eight bytes has a table of 256 entries, computed when a key changes. So both hashes
//! together take eight look-ups. A frame's cost depends only on the length of one bucket's list.
//!
//! Perfect filters match only IPv4 here. The card's perfect match on IPv6 is not modelled, because no public driver uses it.

use crate::parse::{Network, Parsed, Transport};
use crate::registers::{field, Register, RegisterFile};

const ADD: u32 = 1;
const REMOVE: u32 = 2;
const QUERY: u32 = 3;
/// Mask of a hash, which has 15 bits. The number of bits that select a bucket depends on the size of the table.
const HASH_BITS: u32 = 0x7FFF;
/// Unit of FDIRCTRL's threshold, in filters.
const FULL_THRESHOLD_UNIT: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flow {
    /// Bits 0 and 1: UDP 1, TCP 2, SCTP 3; bit 2: IPv6. FDIRCMD's l4_type and ipv6 have the same layout.
    kind: u8,
    vlan: u16,
    source: [u32; 4],
    destination: [u32; 4],
    /// Source port in the upper half.
    ports: u32,
    /// The two bytes at the offset that the driver chose, in network order.
    flexible: u16,
}

/// The bits of a flow that are compared. The driver's mask registers name the other bits: those that are not compared.
#[derive(Clone, Copy, Debug)]
struct Masks {
    vlan: u16,
    kind: u8,
    flexible: u16,
    source_ipv4: u32,
    destination_ipv4: u32,
    source_ipv6: [u32; 4],
    destination_ipv6: [u32; 4],
    tcp_ports: u32,
    udp_ports: u32,
    sctp_ports: u32,
}

#[derive(Clone, Copy, Debug)]
struct Filter {
    /// The signature, or in perfect mode the number that the driver assigned.
    id: u16,
    command: u32,
    /// The flow to match; all zeros in signature mode.
    flow: Flow,
    /// True if the bucket's list had already reached FDIRCTRL's limit when this filter was added.
    too_long: bool,
}

pub struct FlowDirector {
    on: bool,
    perfect: bool,
    capacity: usize,
    filters: usize,
    bucket_bits: u32,
    buckets: Vec<Vec<Filter>>,
    /// The low half of an entry is for the bucket hash, the high half for the signature.
    tables: Vec<[u32; 256]>,
    masks: Masks,
}

/// The result of a frame's look-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub matched: bool,
    pub queue: Option<usize>,
    pub low_latency: bool,
    /// Value for the descriptor's hash field: the filter's number in the lower half, the bucket in the upper half.
    pub report: Option<u32>,
    /// FDIRERR of the descriptor: length, drop, collision.
    pub errors: u8,
}

const ERROR_LENGTH: u8 = 1;
const ERROR_DROP: u8 = 2;

impl FlowDirector {
    pub fn new() -> Self {
        Self {
            on: false,
            perfect: false,
            capacity: 0,
            filters: 0,
            bucket_bits: 0,
            buckets: Vec::new(),
            tables: vec![[0; 256]; 8],
            masks: Masks::of(&RegisterFile::new()),
        }
    }

    pub fn reset(&mut self, regs: &RegisterFile) {
        *self = Self { tables: std::mem::take(&mut self.tables), ..Self::new() };
        self.keys_changed(regs);
    }

    pub fn is_on(&self) -> bool {
        self.on
    }
    pub fn filters(&self) -> usize {
        self.filters
    }

    /// A write to FDIRCTRL clears the table and configures it. A real card needs some microseconds; here the table is ready at once.
    pub fn write_control(&mut self, regs: &mut RegisterFile, value: u32) {
        use field::fdirctrl::*;
        let room = BUFFER_ALLOCATION.get(value);
        self.on = room != 0;
        self.perfect = PERFECT_MATCH.is_set(value);
        // The table has 64, 128 or 256 KiB. A filter with a signature takes 8 bytes, a perfect filter takes 32. One place always stays
        // free.
        let places = (32 * 1024usize << room) / if self.perfect { 32 } else { 8 };
        self.capacity = if self.on { places - 1 } else { 0 };
        self.bucket_bits = places as u32 - 1;
        self.filters = 0;
        self.buckets.clear();
        if self.on {
            self.buckets.resize_with(places, Vec::new);
        }
        regs.set(Register::Fdirctrl, (value & Register::Fdirctrl.info().mask) | INIT_DONE.ones());
        self.show_free(regs);
        regs.set(Register::Fdirlen, 0);
    }

    fn show_free(&self, regs: &mut RegisterFile) {
        regs.set(Register::Fdirfree, field::fdirfree::FREE.put((self.capacity - self.filters) as u32));
    }

    /// MUST be called after each change of FDIRHKEY or FDIRSKEY.
    pub fn keys_changed(&mut self, regs: &RegisterFile) {
        let (bucket, signature) = (regs.get(Register::Fdirhkey), regs.get(Register::Fdirskey));
        for (position, table) in self.tables.iter_mut().enumerate() {
            let single: [u32; 8] = std::array::from_fn(|bit| {
                let word = 1u64 << (position * 8 + bit);
                hash(bucket, word) | hash(signature, word) << 16
            });
            for (byte, result) in table.iter_mut().enumerate() {
                *result = single.iter().enumerate().filter(|(bit, _)| byte >> bit & 1 != 0).fold(0, |sum, (_, one)| sum ^ one);
            }
        }
    }

    /// MUST be called after each change of a mask register.
    pub fn masks_changed(&mut self, regs: &RegisterFile) {
        self.masks = Masks::of(regs);
    }

    /// Executes a write to FDIRCMD at once. The register then reads back with command 0. Returns true if the table has become nearly full.
    pub fn write_command(&mut self, regs: &mut RegisterFile, value: u32) -> bool {
        use field::fdircmd::*;
        let name = regs.get(Register::Fdirhash);
        let bucket = (field::fdirhash::BUCKET.get(name) & self.bucket_bits) as usize;
        let id = field::fdirhash::ID.get(name) as u16;
        let mut answer = value & !COMMAND.ones() & !FILTER_VALID.ones();
        let mut nearly_full = false;
        match COMMAND.get(value) {
            ADD => nearly_full = self.add(regs, bucket, id, value),
            REMOVE => self.remove(regs, bucket, id),
            QUERY => {
                if let Some(filter) = self.buckets.get(bucket).and_then(|list| list.iter().find(|filter| filter.id == id)) {
                    answer = (filter.command & !COMMAND.ones()) | FILTER_VALID.ones();
                }
            }
            _ => {}
        }
        regs.set(Register::Fdircmd, answer & Register::Fdircmd.info().mask);
        nearly_full
    }

    fn add(&mut self, regs: &mut RegisterFile, bucket: usize, id: u16, command: u32) -> bool {
        let flow = if self.perfect { flow_in_registers(regs, command).masked(&self.masks) } else { Flow::default() };
        let Some(list) = self.buckets.get_mut(bucket) else {
            count_failure(regs, field::fdirfstat::ADD_FAILED);
            return false;
        };
        if let Some(there) = list.iter_mut().find(|filter| filter.id == id) {
            if field::fdircmd::FILTER_UPDATE.is_set(command) {
                *there = Filter { flow, command, ..*there };
            } else {
                count_failure(regs, field::fdirfstat::ADD_FAILED);
            }
            return false;
        }
        if self.filters >= self.capacity {
            count_failure(regs, field::fdirfstat::ADD_FAILED);
            return false;
        }
        let control = regs.get(Register::Fdirctrl);
        // The unit of the limit is two filters. A longer list still works, but descriptors report a match with a filter beyond the limit.
        let too_long = list.len() > field::fdirctrl::MAX_LENGTH.get(control) as usize * 2;
        list.push(Filter { id, command, flow, too_long });
        let length = list.len() as u32;
        if length > field::fdirlen::MAX_LENGTH.get(regs.get(Register::Fdirlen)) {
            let shown = length.min(field::fdirlen::MAX_LENGTH.ones());
            regs.set(Register::Fdirlen, field::fdirlen::MAX_LENGTH.put(shown) | field::fdirlen::MAX_HASH.put(bucket as u32));
        }
        self.filters += 1;
        self.show_free(regs);
        count(regs, Register::Fdirustat, field::fdirustat::ADDED);
        self.capacity - self.filters <= field::fdirctrl::FULL_THRESHOLD.get(control) as usize * FULL_THRESHOLD_UNIT
    }

    fn remove(&mut self, regs: &mut RegisterFile, bucket: usize, id: u16) {
        let list = self.buckets.get_mut(bucket);
        let Some((list, at)) = list.and_then(|list| list.iter().position(|filter| filter.id == id).map(|at| (list, at))) else {
            return count_failure(regs, field::fdirfstat::REMOVE_FAILED);
        };
        list.remove(at);
        self.filters -= 1;
        self.show_free(regs);
        count(regs, Register::Fdirustat, field::fdirustat::REMOVED);
    }

    /// Looks up the filter that a frame matches, and counts a match or a miss.
    pub fn find(&self, regs: &mut RegisterFile, frame: &[u8], parsed: &Parsed) -> Found {
        if !self.on || parsed.network == Network::Other {
            return Found::default();
        }
        use field::fdirctrl::*;
        let control = regs.get(Register::Fdirctrl);
        let flow = flow_of(frame, parsed, FLEX_OFFSET.get(control) as usize * 2).masked(&self.masks);
        let both = self.hashes(flow.folded());
        let bucket = both & self.bucket_bits & HASH_BITS;
        let signature = (both >> 16 & HASH_BITS) as u16;
        let list = &self.buckets[bucket as usize];
        let found = if self.perfect {
            list.iter().find(|filter| parsed.network == Network::Ipv4 && filter.flow == flow)
        } else {
            list.iter().find(|filter| filter.id == signature)
        };
        let Some(filter) = found else {
            regs.count(Register::Fdirmiss, 0, 1);
            let report = REPORT_STATUS_ALWAYS.is_set(control).then_some(bucket << 16);
            return Found { report, ..Found::default() };
        };
        regs.count(Register::Fdirmatch, 0, 1);
        let drop = field::fdircmd::DROP.is_set(filter.command);
        let queue = if drop { DROP_QUEUE.get(control) } else { field::fdircmd::RX_QUEUE.get(filter.command) } as usize;
        Found {
            matched: true,
            queue: (drop || field::fdircmd::QUEUE_ENABLE.is_set(filter.command)).then_some(queue),
            low_latency: field::fdircmd::INTERRUPT.is_set(filter.command),
            report: (REPORT_STATUS.is_set(control) || REPORT_STATUS_ALWAYS.is_set(control)).then_some(bucket << 16 | u32::from(filter.id)),
            errors: if filter.too_long { ERROR_LENGTH } else { 0 } | if drop { ERROR_DROP } else { 0 },
        }
    }

    fn hashes(&self, word: u64) -> u32 {
        word.to_le_bytes().iter().zip(&self.tables).fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
    }
}

/// Returns the hash of a folded flow, whose upper word has kind, pool and VLAN. Bits 0 to 14 of the hash are used. A set bit n below 16 of
/// the key XORs `low(n) >> n` into the hash, and a set bit n + 16 XORs `high >> n`. `low(0)` does not include the VLAN.
fn hash(key: u32, folded: u64) -> u32 {
    let (flow, common) = ((folded >> 32) as u32, folded as u32);
    let high = common ^ flow ^ flow >> 16;
    let swapped = common.rotate_left(16);
    let low = |shift: u32| if shift == 0 { swapped } else { swapped ^ flow ^ flow << 16 };
    let sum = (0..16).fold(0, |sum, shift| {
        let from_low = if key >> shift & 1 != 0 { low(shift) >> shift } else { 0 };
        let from_high = if key >> (shift + 16) & 1 != 0 { high >> shift } else { 0 };
        sum ^ from_low ^ from_high
    });
    sum & 0xFFFF
}

fn count(regs: &mut RegisterFile, register: Register, part: crate::registers::Field) {
    let old = regs.get(register);
    let value_max = part.get(part.ones());
    regs.set(register, (old & !part.ones()) | part.put((part.get(old) + 1).min(value_max)));
}

fn count_failure(regs: &mut RegisterFile, part: crate::registers::Field) {
    count(regs, Register::Fdirfstat, part);
}

fn kind_of(parsed: &Parsed) -> u8 {
    let transport = match parsed.transport {
        Transport::Other => 0,
        Transport::Udp => 1,
        Transport::Tcp => 2,
        Transport::Sctp => 3,
    };
    transport | if parsed.network == Network::Ipv6 { 4 } else { 0 }
}

fn flow_of(frame: &[u8], parsed: &Parsed, flexible_at: usize) -> Flow {
    let addresses = parsed.addresses(frame);
    let half = addresses.len() / 2;
    let words = |bytes: &[u8]| {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        words
    };
    Flow {
        kind: kind_of(parsed),
        vlan: parsed.vlan.unwrap_or(0),
        source: words(&addresses[..half]),
        destination: words(&addresses[half..]),
        ports: u32::from_be_bytes(parsed.ports(frame)),
        flexible: frame.get(flexible_at..flexible_at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]])),
    }
}

/// Returns the flow that the driver has written to FDIRIPSA and the following registers for a command. The first byte of an address, or of
/// the flexible bytes, is the lowest byte of its register; ports and VLAN tag are numbers.
fn flow_in_registers(regs: &RegisterFile, command: u32) -> Flow {
    let ports = regs.get(Register::Fdirport);
    let other = regs.get(Register::Fdirvlan);
    Flow {
        kind: (field::fdircmd::L4_TYPE.get(command) | field::fdircmd::IPV6.get(command) << 2) as u8,
        vlan: field::fdirvlan::VLAN.get(other) as u16,
        source: [regs.get(Register::Fdiripsa).swap_bytes(), 0, 0, 0],
        destination: [regs.get(Register::Fdiripda).swap_bytes(), 0, 0, 0],
        ports: field::fdirport::SOURCE.get(ports) << 16 | field::fdirport::DESTINATION.get(ports),
        flexible: (field::fdirvlan::FLEXIBLE.get(other) as u16).swap_bytes(),
    }
}

impl Flow {
    fn masked(self, masks: &Masks) -> Self {
        let and = |words: [u32; 4], mask: [u32; 4]| std::array::from_fn(|i| words[i] & mask[i]);
        let ports = match self.kind & 3 {
            1 => masks.udp_ports,
            2 => masks.tcp_ports,
            3 => masks.sctp_ports,
            _ => 0,
        };
        let ipv6 = self.kind & 4 != 0;
        Self {
            kind: self.kind & masks.kind,
            vlan: self.vlan & masks.vlan,
            source: and(self.source, if ipv6 { masks.source_ipv6 } else { [masks.source_ipv4, 0, 0, 0] }),
            destination: and(self.destination, if ipv6 { masks.destination_ipv6 } else { [masks.destination_ipv4, 0, 0, 0] }),
            // Ports are compared only if the protocol is compared, too.
            ports: if masks.kind & 3 == 0 { 0 } else { self.ports & ports },
            flexible: self.flexible & masks.flexible,
        }
    }

    /// Returns kind and VLAN in the upper word, and the XOR of everything else in the lower word.
    fn folded(&self) -> u64 {
        let own = u64::from(self.kind) << 16 | u64::from(self.vlan);
        let common = self.source.iter().chain(&self.destination).fold(self.ports ^ u32::from(self.flexible) << 16, |sum, word| sum ^ word);
        own << 32 | u64::from(common)
    }
}

impl Masks {
    fn of(regs: &RegisterFile) -> Self {
        use field::fdirm::*;
        let general = regs.get(Register::Fdirm);
        let keep = |masked: bool, bits: u16| if masked { 0 } else { bits };
        // In the port masks the bits of each half are reversed.
        let ports = |register: Register| {
            let value = regs.get(register);
            !(u32::from((value as u16).reverse_bits()) << 16 | u32::from(((value >> 16) as u16).reverse_bits()))
        };
        let ipv6 = regs.get(Register::Fdirip6m);
        let bytes = |bits: u32| {
            std::array::from_fn(|word| (0..4).fold(0, |mask, i| mask << 8 | if bits >> (word * 4 + i) & 1 != 0 { 0 } else { 0xFF }))
        };
        Self {
            vlan: keep(VLAN_ID.is_set(general), 0x0FFF) | keep(VLAN_PRIORITY.is_set(general), 0xE000),
            kind: if L4_PROTOCOL.is_set(general) { 4 } else { 7 },
            flexible: keep(FLEXIBLE.is_set(general), 0xFFFF),
            source_ipv4: !regs.get(Register::Fdirsip4m).swap_bytes(),
            destination_ipv4: !regs.get(Register::Fdirdip4m).swap_bytes(),
            source_ipv6: bytes(ipv6),
            destination_ipv6: if DESTINATION_IPV6.is_set(general) { [0; 4] } else { bytes(ipv6 >> 16) },
            tcp_ports: ports(Register::Fdirtcpm),
            udp_ports: ports(Register::Fdirudpm),
            sctp_ports: ports(Register::Fdirsctpm),
        }
    }
}
