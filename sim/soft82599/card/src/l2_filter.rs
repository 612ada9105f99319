// SPDX-License-Identifier: BSL-1.0
//! The L2 filters: unicast addresses, the multicast table, broadcast, promiscuous modes, VLAN table (datasheet 7.1.1).
//!
//! The valid unicast filters are kept as a sorted list, which is rebuilt when a driver changes a filter. So a frame costs only a few
//! comparisons. Pause frames and other MAC control frames (802.3 clause 31) are handled earlier: they are dropped in the MAC unless MFLCN
//! passes them on.

use crate::registers::{field, Register, RegisterFile};

pub struct L2Filter {
    /// Address (its first byte is the lowest) and pools, sorted by address.
    addresses: Vec<(u64, u64)>,
}

/// The reason why a frame was accepted. The receive descriptor reports part of this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Accepted by an exact address, which selects these pools.
    Exact(u64),
    /// Accepted by the multicast table: the descriptor's non_unicast ("passed inexact filter") bit is set.
    Hash,
    Broadcast,
    Promiscuous,
}

const BROADCAST: u64 = 0xFFFF_FFFF_FFFF;

impl L2Filter {
    pub fn new() -> Self {
        Self { addresses: Vec::new() }
    }

    /// MUST be called after each change of RAL, RAH or MPSAR.
    pub fn update(&mut self, regs: &RegisterFile) {
        self.addresses.clear();
        for i in 0..Register::Rah.info().count as usize {
            let high = regs.get_at(Register::Rah, i);
            if field::rah::VALID.is_set(high) {
                let address = u64::from(regs.get_at(Register::Ral, i)) | u64::from(field::rah::ADDRESS_HIGH.get(high)) << 32;
                let pools = u64::from(regs.get_at(Register::MpsarLo, i)) | u64::from(regs.get_at(Register::MpsarHi, i)) << 32;
                self.addresses.push((address, pools));
            }
        }
        self.addresses.sort_unstable();
        // If several filters have the same address, that address selects the pools of all of them.
        self.addresses.dedup_by(|later, first| {
            let same = later.0 == first.0;
            first.1 |= if same { later.1 } else { 0 };
            same
        });
    }

    fn pools_of(&self, address: u64) -> Option<u64> {
        self.addresses.binary_search_by_key(&address, |entry| entry.0).ok().map(|at| self.addresses[at].1)
    }

    /// `frame` MUST have at least the 14 bytes of an Ethernet header.
    pub fn accepts(&self, regs: &RegisterFile, frame: &[u8], vlan: Option<u16>) -> Option<Accepted> {
        if let Some(tag) = vlan {
            if !vlan_accepted(regs, tag) {
                return None;
            }
        }
        let control = regs.get(Register::Fctrl);
        let destination = u64::from_le_bytes([frame[0], frame[1], frame[2], frame[3], frame[4], frame[5], 0, 0]);
        if destination == BROADCAST {
            return field::fctrl::BROADCAST_ACCEPT.is_set(control).then_some(Accepted::Broadcast);
        }
        if let Some(pools) = self.pools_of(destination) {
            return Some(Accepted::Exact(pools));
        }
        if frame[0] & 1 != 0 {
            if field::fctrl::MULTICAST_PROMISCUOUS.is_set(control) {
                return Some(Accepted::Promiscuous);
            }
            return multicast_hit(regs, frame).then_some(Accepted::Hash);
        }
        field::fctrl::UNICAST_PROMISCUOUS.is_set(control).then_some(Accepted::Promiscuous)
    }
}

/// True if the multicast filter is on and the table's bit for the frame is set.
fn multicast_hit(regs: &RegisterFile, frame: &[u8]) -> bool {
    let control = regs.get(Register::Mcstctrl);
    field::mcstctrl::FILTER_ENABLE.is_set(control) && {
        let hash = multicast_hash(field::mcstctrl::OFFSET.get(control), frame[4], frame[5]);
        regs.get_at(Register::Mta, usize::from(hash >> 5)) >> (hash & 31) & 1 != 0
    }
}

/// Returns twelve bits of the address's last two bytes (8.2.3.7.3). Offset 0 selects the highest twelve.
fn multicast_hash(offset: u32, byte4: u8, byte5: u8) -> u16 {
    let shift = [4, 3, 2, 0][offset as usize & 3];
    (u16::from_le_bytes([byte4, byte5]) >> shift) & 0xFFF
}

fn vlan_accepted(regs: &RegisterFile, tag: u16) -> bool {
    let control = regs.get(Register::Vlnctrl);
    if !field::vlnctrl::FILTER_ENABLE.is_set(control) {
        return true;
    }
    if field::vlnctrl::CFI_ENABLE.is_set(control) && u32::from(tag >> 12 & 1) != field::vlnctrl::CFI.get(control) {
        return false;
    }
    let id = tag & 0xFFF;
    regs.get_at(Register::Vfta, usize::from(id >> 5)) >> (id & 31) & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(destination: [u8; 6]) -> Vec<u8> {
        let mut frame = destination.to_vec();
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn only_the_own_address_passes_the_exact_filter() {
        let mut regs = RegisterFile::new();
        regs.set_at(Register::Ral, 5, u32::from_le_bytes([2, 1, 2, 3]));
        regs.set_at(Register::Rah, 5, u32::from(u16::from_le_bytes([4, 5])) | field::rah::VALID.ones());
        let mut filter = L2Filter::new();
        filter.update(&regs);
        assert_eq!(filter.accepts(&regs, &to([2, 1, 2, 3, 4, 5]), None), Some(Accepted::Exact(0)));
        assert_eq!(filter.accepts(&regs, &to([2, 1, 2, 3, 4, 6]), None), None);
        assert_eq!(filter.accepts(&regs, &to([0xFF; 6]), None), None);
        regs.set(Register::Fctrl, field::fctrl::BROADCAST_ACCEPT.ones());
        assert_eq!(filter.accepts(&regs, &to([0xFF; 6]), None), Some(Accepted::Broadcast));
        regs.set(Register::Fctrl, field::fctrl::UNICAST_PROMISCUOUS.ones());
        assert_eq!(filter.accepts(&regs, &to([2, 1, 2, 3, 4, 6]), None), Some(Accepted::Promiscuous));
        assert_eq!(filter.accepts(&regs, &to([1, 1, 2, 3, 4, 6]), None), None);
    }

    #[test]
    fn the_offset_selects_the_bits_of_the_multicast_hash() {
        let mut regs = RegisterFile::new();
        let filter = L2Filter::new();
        let group = to([0x01, 0x00, 0x5E, 0x12, 0x34, 0x56]);
        for (offset, hash) in [(0u32, 0x563usize), (1, 0xAC6), (2, 0x58D), (3, 0x634)] {
            regs.reset();
            regs.set(Register::Mcstctrl, field::mcstctrl::FILTER_ENABLE.ones() | offset);
            assert_eq!(filter.accepts(&regs, &group, None), None);
            regs.set_at(Register::Mta, hash >> 5, 1 << (hash & 31));
            assert_eq!(filter.accepts(&regs, &group, None), Some(Accepted::Hash), "offset {offset}");
        }
    }

    #[test]
    fn the_vlan_table_only_applies_when_enabled() {
        let mut regs = RegisterFile::new();
        regs.set(Register::Fctrl, field::fctrl::BROADCAST_ACCEPT.ones());
        let filter = L2Filter::new();
        assert!(filter.accepts(&regs, &to([0xFF; 6]), Some(0x2007)).is_some());
        regs.set(Register::Vlnctrl, field::vlnctrl::FILTER_ENABLE.ones());
        assert!(filter.accepts(&regs, &to([0xFF; 6]), Some(0x2007)).is_none());
        regs.set_at(Register::Vfta, 0, 1 << 7);
        assert!(filter.accepts(&regs, &to([0xFF; 6]), Some(0x2007)).is_some());
    }

    #[test]
    fn a_full_table_finds_every_address_and_unites_its_pools() {
        let mut regs = RegisterFile::new();
        let address = |i: usize| [2, 0, (i * 7) as u8, (i * 31) as u8, 0, i as u8 / 2];
        for i in 0..128 {
            let bytes = address(i / 2 * 2);
            regs.set_at(Register::Ral, i, u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            regs.set_at(Register::Rah, i, u32::from(u16::from_le_bytes([bytes[4], bytes[5]])) | field::rah::VALID.ones());
            regs.set_at(Register::MpsarHi, i, 1 << (i % 2));
        }
        let mut filter = L2Filter::new();
        filter.update(&regs);
        for i in (0..128).step_by(2) {
            assert_eq!(filter.accepts(&regs, &to(address(i)), None), Some(Accepted::Exact(3 << 32)), "place {i}");
        }
        assert_eq!(filter.accepts(&regs, &to([2, 0, 0, 0, 0, 99]), None), None);
    }
}
