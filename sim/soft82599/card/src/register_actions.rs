// SPDX-License-Identifier: BSL-1.0
//! The effects of register reads and writes.
//!
//! Most registers only store the written value. The two `match` lists below, for reading and for writing, name every other register, and
//! the function of its block that handles the access. They serve as an index to the other files.

use crate::card::Card;
use crate::host::{Host, Nanoseconds};
use crate::interrupts::TCP_TIMER;
use crate::phy::{self, Outcome};
use crate::queue_select::mode_exists;
use crate::registers::{field, Place, Register};
use crate::report::Violation;
use crate::reset::Kind;
use crate::semaphores;

impl Card {
    pub(crate) fn read_register(&mut self, host: &mut impl Host, now: Nanoseconds, place: Place) -> u32 {
        use Register::*;
        let index = place.index as usize;
        match place.register {
            Status => self.regs.get(Status) & !if self.may_do_dma_by_control() { 0 } else { field::status::PCIE_MASTER_ENABLE.ones() },
            Links => self.link.read_links(&mut self.regs),
            Rttdt1c | Rttbcnrc | Rttbcnrd => self.read_queue_setting(place),
            Frtimer => ((now - self.started) / 1000) as u32,
            I2cctl => self.i2c.read(self.regs.get(I2cctl)),
            Swsm => semaphores::read_swsm(&mut self.regs),
            SwFwSync => self.read_sw_fw_sync(),
            Eicr => self.interrupts.read_eicr(&self.regs, host),
            Eics => self.interrupts.causes(),
            Eims => self.interrupts.read_eims(),
            EimsEx => self.interrupts.read_eims_ex(place.index),
            EiamEx => self.interrupts.read_eiam_ex(place.index),
            Eitr => self.interrupts.read_eitr(now, index, self.regs.read(place)),
            Rxmemwrap => self.packet_buffer.emptiness(),
            Tfcs => field::tfcs::XON.put(u32::from(self.flow_control.held_queues() == 0)),
            Rdh => self.receive_queues[index].head,
            Rdt => self.receive_queues[index].tail,
            Tdh => self.transmit_queues[index].head,
            Tdt => self.transmit_queues[index].tail,
            _ => match self.statistics.read_low(&mut self.regs, place) {
                Some(value) => value,
                None => self.regs.read(place),
            },
        }
    }

    fn may_do_dma_by_control(&self) -> bool {
        !field::ctrl::PCIE_MASTER_DISABLE.is_set(self.regs.get(Register::Ctrl))
    }

    pub(crate) fn write_register(&mut self, host: &mut impl Host, now: Nanoseconds, place: Place, value: u32) {
        use Register::*;
        let index = place.index as usize;
        match place.register {
            Rdt => return self.write_rdt(host, now, index, value),
            Tdt => return self.write_tdt(host, now, index, value),
            Rdh => return self.write_rdh(index, value),
            Tdh => return self.transmit_queues[index].head = field::tdh::HEAD.get(value),
            Eicr => return self.interrupts.write_eicr(&self.regs, host, value),
            Eics => return self.interrupts.write_eics(&self.regs, host, now, value),
            EicsEx => return self.interrupts.write_eics_ex(&self.regs, host, now, place.index, value),
            Eims => return self.interrupts.write_eims(&self.regs, host, now, value),
            EimsEx => return self.interrupts.write_eims_ex(&self.regs, host, now, place.index, value),
            Eimc => return self.interrupts.write_eimc(&self.regs, host, value),
            EimcEx => return self.interrupts.write_eimc_ex(place.index, value),
            EiamEx => return self.interrupts.write_eiam_ex(place.index, value),
            Ctrl => return self.write_ctrl(host, now, value),
            Swsm => return semaphores::write_swsm(&mut self.regs, value),
            SwFwSync if self.model.sync_guard => return self.write_sw_fw_sync(value),
            Hicr if self.model.firmware => return self.write_hicr(value),
            Mtqc => self.write_mtqc(value),
            Msca => return self.write_msca(host, now, value),
            Fdirctrl => return self.queue_select.flow_director.write_control(&mut self.regs, value),
            Fdircmd => return self.write_fdircmd(host, now, value),
            Qde => return self.write_qde(value),
            Eerd => {
                if field::eerd::START.is_set(value) {
                    self.require_owner(field::sw_fw_sync::SW_EEPROM, "EERD.start");
                }
                return self.regs.set(Eerd, self.eeprom.write_eerd(value));
            }
            Eewr => {
                if field::eewr::START.is_set(value) {
                    self.require_owner(field::sw_fw_sync::SW_EEPROM, "EEWR.start");
                }
                return self.regs.set(Eewr, self.eeprom.write_eewr(value));
            }
            Eec => {
                let fixed = self.model.initial(Place { register: Eec, index: 0 }) & !field::eec::GRANT.ones();
                return self.regs.set(Eec, self.eeprom_pins.write(&mut self.eeprom, value, fixed));
            }
            I2cctl => {
                self.i2c.slaves.show_light(self.link.laser_is_on(), self.link.has_peer());
                let wires = self.i2c.write(value);
                return self.regs.set(I2cctl, wires);
            }
            _ => {}
        }
        self.regs.write(place, value);
        match place.register {
            Eiam => self.interrupts.write_eiam(value),
            Eitr => {
                self.interrupts.write_eitr(&self.regs, host, now, index, value);
                self.reschedule_write_backs(host, now);
            }
            Gpie => self.interrupts.write_gpie(&self.regs, host, now, value),
            Tcptimer if self.tcp_timer.write(value, now) => self.interrupts.other_event(&self.regs, host, now, TCP_TIMER),
            Ivar => {
                self.interrupts.write_ivar(index, value);
                self.reschedule_write_backs(host, now);
            }
            IvarMisc => self.interrupts.write_ivar_misc(value),
            Ral | Rah | MpsarLo | MpsarHi => self.l2_filter.update(&self.regs),
            VtCtl | Vmolr | Vlvf | Vlvfb | Vfre => self.pools.update(&self.regs),
            Ftqf | Saqf | Daqf | Sdpqf | L34timir => self.queue_select.update_five_tuples(&self.regs),
            Etqf | Etqs | Synqf => self.queue_select.update(&self.regs),
            Mrqc => self.write_mrqc(value),
            Reta | Ereta => self.queue_select.update_redirection(&self.regs, place.register, index),
            Rssrk => self.queue_select.rss.key_changed(),
            Fdirhkey | Fdirskey => self.queue_select.flow_director.keys_changed(&self.regs),
            Fdirm | Fdirsip4m | Fdirdip4m | Fdirip6m | Fdirtcpm | Fdirudpm | Fdirsctpm => {
                self.queue_select.flow_director.masks_changed(&self.regs);
            }
            Rdbal | Rdbah | Rdlen | Srrctl | Rscctl => self.ring_register_written(index),
            DcaRxctrl => self.hints_written(index..index + 1),
            DcaCtrl => self.hints_written(0..crate::receive_queue::QUEUES),
            Rxdctl => self.write_rxdctl(host, now, index, value),
            Tdbal | Tdbah | Tdlen | Tdwbal | Tdwbah | DcaTxctrl => self.transmit_queues[index].configure(&self.regs, index),
            Txdctl => self.write_txdctl(host, now, index, value),
            Rttdt1c | Rttbcnrc | Rttbcnrd => self.write_queue_setting(host, now, place, value),
            Dmatxctl => {
                self.transmit(host, now);
            }
            Rdrxctl => {
                let value = self.regs.get(Rdrxctl) | field::rdrxctl::DMA_INIT_DONE.ones();
                self.regs.set(Rdrxctl, value);
            }
            Autoc if self.phy.is_none() => self.write_autoc(host, now, value),
            Macc if self.phy.is_some() => self.write_macc(host, now),
            Esdp if self.phy.is_none() => self.write_esdp(host, now),
            _ => {}
        }
    }

    fn write_ctrl(&mut self, host: &mut impl Host, now: Nanoseconds, value: u32) {
        use field::ctrl::*;
        if LRST.is_set(value) {
            self.reset(host, now, Kind::Link);
        } else if RST.is_set(value) {
            self.reset(host, now, Kind::Software);
        } else {
            self.regs.set(Register::Ctrl, value & PCIE_MASTER_DISABLE.ones());
        }
    }

    /// Handles a write to ESDP on a card with a module. Pin 2 is an input that reports that the module is present. Pin 3 is an output that
    /// turns the module's laser off. The other pins keep the driven value.
    fn write_esdp(&mut self, host: &mut impl Host, now: Nanoseconds) {
        let pin = field::esdp::SDP2_DATA;
        let value = self.regs.get(Register::Esdp) & !pin.ones();
        self.regs.set(Register::Esdp, value | pin.ones());
        if self.link.set_laser(&mut self.regs, now, !field::esdp::SDP3_DATA.is_set(value)) {
            self.link_changed(host, now);
        }
    }

    fn write_autoc(&mut self, host: &mut impl Host, now: Nanoseconds, value: u32) {
        let was_up = self.link.is_up();
        self.link.configure(&mut self.regs, now);
        if field::autoc::RESTART_AN.is_set(value) {
            self.link.restart(&mut self.regs, now);
        }
        if self.link.is_up() != was_up {
            self.link_changed(host, now);
        }
    }

    /// Handles a write to MACC, by which a driver of a 10GBASE-T card forces the link up.
    fn write_macc(&mut self, host: &mut impl Host, now: Nanoseconds) {
        if self.link.configure(&mut self.regs, now) {
            self.link_changed(host, now);
        }
    }

    /// Handles a command to the PHY. The bus is slow on a real card; here the command is done at once.
    fn write_msca(&mut self, host: &mut impl Host, now: Nanoseconds, value: u32) {
        use field::msca::*;
        self.regs.set(Register::Msca, value & !COMMAND.ones() & !IN_PROGRESS.ones());
        if !COMMAND.is_set(value) {
            return;
        }
        self.require_owner(field::sw_fw_sync::SW_PHY0, "MSCA.command");
        let Some(phy) = &mut self.phy else { return phy::command_without_phy(&mut self.regs) };
        let outcome = phy.command(&mut self.regs, value, self.link.negotiated_speed());
        let speed = phy.speed();
        let changed = match outcome {
            Outcome::Nothing => false,
            Outcome::Restart => self.link.negotiate(&mut self.regs, now, speed),
            Outcome::Power => self.link.set_power(&mut self.regs, now, speed),
        };
        if changed {
            self.link_changed(host, now);
        }
    }

    fn write_mrqc(&mut self, value: u32) {
        let mode = field::mrqc::MODE.get(value);
        if !mode_exists(mode) {
            self.report.add(Violation::ReservedQueueMode, || format!("MRQC.MRQE = {mode}"));
        }
        self.queue_select.update(&self.regs);
    }

    fn write_fdircmd(&mut self, host: &mut impl Host, now: Nanoseconds, value: u32) {
        if field::fdircmd::COMMAND.get(value) != 0 && !self.queue_select.flow_director.is_on() {
            self.report.add(Violation::FlowDirectorOff, || format!("FDIRCMD = {value:#x}"));
        }
        if self.queue_select.flow_director.write_command(&mut self.regs, value) {
            self.interrupts.other_event(&self.regs, host, now, field::eicr::FLOW_DIRECTOR.ones());
        }
    }
}
