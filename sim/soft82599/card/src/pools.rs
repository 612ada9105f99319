// SPDX-License-Identifier: BSL-1.0
//! Virtualisation without virtual functions: the pools of a frame (datasheet 7.1.2.2, 7.10.3).
//!
//! With VT_CTL.enable the queues are divided into pools. Each pool has its own addresses (MPSAR), VLANs (VLVF, VLVFB) and kinds of frames
//! (VMOLR). Drivers use pools for devices stacked on the card (macvlan). A frame goes to every pool that accepts it, or to the default pool
//! if none does. Virtual functions (mailboxes, spoof checks, mirroring, local switching) are not modelled.

use crate::l2_filter::Accepted;
use crate::parse::Parsed;
use crate::registers::{field, Register, RegisterFile};

pub const POOLS: usize = 64;

pub struct Pools {
    enabled: bool,
    /// VLAN and its pools, for the enabled filters.
    vlans: Vec<(u16, u64)>,
    untagged: u64,
    multicast_table: u64,
    broadcast: u64,
    all_multicast: u64,
    all_unicast: u64,
    receiving: u64,
}

impl Pools {
    pub fn new() -> Self {
        Self {
            enabled: false,
            vlans: Vec::new(),
            untagged: 0,
            multicast_table: 0,
            broadcast: 0,
            all_multicast: 0,
            all_unicast: 0,
            receiving: 0,
        }
    }

    /// MUST be called after each change of VT_CTL, VMOLR, VLVF, VLVFB or VFRE.
    pub fn update(&mut self, regs: &RegisterFile) {
        self.enabled = field::vt_ctl::ENABLE.is_set(regs.get(Register::VtCtl));
        let set = |flag: crate::registers::Field| {
            (0..POOLS).filter(|&pool| flag.is_set(regs.get_at(Register::Vmolr, pool))).fold(0u64, |all, pool| all | 1 << pool)
        };
        self.untagged = set(field::vmolr::UNTAGGED);
        self.multicast_table = set(field::vmolr::MULTICAST_TABLE);
        self.broadcast = set(field::vmolr::BROADCAST);
        self.all_multicast = set(field::vmolr::MULTICAST_PROMISCUOUS);
        self.all_unicast = set(field::vmolr::UNICAST_PROMISCUOUS);
        let pair = |register: Register, i: usize| u64::from(regs.get_at(register, i)) | u64::from(regs.get_at(register, i + 1)) << 32;
        self.receiving = pair(Register::Vfre, 0);
        self.vlans.clear();
        for i in 0..Register::Vlvf.info().count as usize {
            let filter = regs.get_at(Register::Vlvf, i);
            if field::vlvf::ENABLE.is_set(filter) {
                self.vlans.push((field::vlvf::VLAN.get(filter) as u16, pair(Register::Vlvfb, 2 * i)));
            }
        }
        self.vlans.sort_unstable();
    }

    pub fn enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the pools of a frame; 0 if no pool accepts it.
    pub fn of(&self, regs: &RegisterFile, frame: &[u8], parsed: &Parsed, accepted: Accepted) -> u64 {
        let by_address = match accepted {
            Accepted::Exact(pools) => pools,
            Accepted::Broadcast => self.broadcast,
            Accepted::Hash => self.multicast_table | self.all_multicast,
            Accepted::Promiscuous if frame[0] & 1 != 0 => self.all_multicast,
            Accepted::Promiscuous => self.all_unicast,
        };
        let by_vlan = match parsed.vlan {
            None => self.untagged,
            Some(tag) => {
                let from = self.vlans.partition_point(|entry| entry.0 < tag & 0xFFF);
                self.vlans[from..].iter().take_while(|entry| entry.0 == tag & 0xFFF).fold(0, |pools, entry| pools | entry.1)
            }
        };
        let control = regs.get(Register::VtCtl);
        let mut pools = by_address & by_vlan;
        if pools == 0 && !field::vt_ctl::DEFAULT_POOL_DISABLE.is_set(control) {
            pools = 1 << field::vt_ctl::DEFAULT_POOL.get(control);
        }
        pools &= self.receiving;
        if !field::vt_ctl::REPLICATE.is_set(control) {
            // Without replication only the first pool gets the frame.
            pools &= pools.wrapping_neg();
        }
        pools
    }
}
