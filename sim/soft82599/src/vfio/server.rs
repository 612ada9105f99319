// SPDX-License-Identifier: BSL-1.0
//! Executes vfio-user commands on the card.
//!
//! An invalid command gets an error reply and changes nothing. A stream that is not vfio-user ends the connection.

use super::interrupts::Eventfds;
use super::protocol::{command, flag, irq, region, reply, Body, Header, MESSAGE_DESCRIPTORS_MAX, TRANSFER_BYTES_MAX};
use crate::card_host::CardHost;
use crate::log::Log;
use card::{name_at, Card, Nanoseconds, BAR_BYTES, CONFIG_SPACE_BYTES};
use std::fs::File;
use std::os::fd::OwnedFd;

const MSIX_BAR_BYTES: u64 = 16 * 1024;
/// The minor version of protocol 0.1.
const MINOR_MAX: u16 = 1;

pub struct Command<'m> {
    pub header: Header,
    pub body: &'m [u8],
    pub descriptors: Vec<OwnedFd>,
}

type Answer = Result<Vec<u8>, i32>;

/// Executes a command and appends a reply, if the command requests one.
pub fn handle(card: &mut Card, host: &mut CardHost, now: Nanoseconds, log: &Log, message: Command, out: &mut Vec<u8>) {
    let header = message.header;
    let answer = dispatch(card, host, now, log, message);
    if let Err(error) = answer {
        log.warn(|| format!("vfio-user: command {} refused (errno {error})", header.command));
    }
    if header.wants_reply() {
        match answer {
            Ok(body) => reply(out, &header, 0, &body),
            Err(error) => reply(out, &header, error, &[]),
        }
    }
}

fn dispatch(card: &mut Card, host: &mut CardHost, now: Nanoseconds, log: &Log, message: Command) -> Answer {
    let mut body = Body::new(message.body);
    match message.header.command {
        command::REGION_WRITE => region_write(card, host, now, log, &mut body),
        command::REGION_READ => region_read(card, host, now, log, &mut body),
        command::VERSION => version(&mut body),
        command::DMA_MAP => dma_map(host, log, &mut body, message.descriptors),
        command::DMA_UNMAP => dma_unmap(host, log, &mut body),
        command::DEVICE_GET_INFO => device_info(),
        command::DEVICE_GET_REGION_INFO => region_info(&mut body),
        command::DEVICE_GET_IRQ_INFO => irq_info(&mut body),
        command::DEVICE_SET_IRQS => set_irqs(host, log, &mut body, message.descriptors),
        command::DEVICE_RESET => {
            log.info(|| "device reset".into());
            card.function_reset(host, now);
            Ok(Vec::new())
        }
        _ => Err(libc::ENOTSUP),
    }
}

fn version(body: &mut Body) -> Answer {
    let (major, minor) = body.u16().zip(body.u16()).ok_or(libc::EINVAL)?;
    if major != 0 {
        return Err(libc::EINVAL);
    }
    // Client and server use the lower of their two minor versions.
    let minor = minor.min(MINOR_MAX);
    let capabilities = format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{MESSAGE_DESCRIPTORS_MAX},\
         \"max_data_xfer_size\":{TRANSFER_BYTES_MAX},\"pgsizes\":4096}}}}\0"
    );
    let mut answer = Vec::new();
    answer.extend(0u16.to_le_bytes());
    answer.extend(minor.to_le_bytes());
    answer.extend(capabilities.bytes());
    Ok(answer)
}

fn dma_map(host: &mut CardHost, log: &Log, body: &mut Body, descriptors: Vec<OwnedFd>) -> Answer {
    let mut fields = || Some((body.u32()?, body.u32()?, body.u64()?, body.u64()?, body.u64()?));
    let (_, flags, offset, address, bytes) = fields().ok_or(libc::EINVAL)?;
    let file = descriptors.into_iter().next().map(File::from);
    let (readable, writable) = (flags & flag::DMA_READ != 0, flags & flag::DMA_WRITE != 0);
    log.debug(|| format!("map {address:#x} +{bytes:#x} file {} read {readable} write {writable}", file.is_some()));
    host.memory.map(address, bytes, file, offset, readable, writable).map_err(|error| {
        log.warn(|| format!("cannot map guest memory at {address:#x}: {error}"));
        error.raw_os_error().unwrap_or(libc::EINVAL)
    })?;
    Ok(Vec::new())
}

fn dma_unmap(host: &mut CardHost, log: &Log, body: &mut Body) -> Answer {
    let mut fields = || Some((body.u32()?, body.u32()?, body.u64()?, body.u64()?));
    let (size, flags, address, bytes) = fields().ok_or(libc::EINVAL)?;
    log.debug(|| format!("unmap {address:#x} +{bytes:#x} flags {flags:#x}"));
    if flags & flag::DMA_UNMAP_ALL != 0 {
        host.memory.clear();
    } else {
        host.memory.unmap(address, bytes).map_err(|_| libc::EINVAL)?;
    }
    let mut answer = Vec::new();
    answer.extend(size.to_le_bytes());
    answer.extend(flags.to_le_bytes());
    answer.extend(address.to_le_bytes());
    answer.extend(bytes.to_le_bytes());
    Ok(answer)
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn device_info() -> Answer {
    Ok(words(&[16, flag::DEVICE_RESETS | flag::DEVICE_PCI, region::COUNT, irq::COUNT]))
}

fn region_bytes(index: u32) -> u64 {
    match index {
        region::BAR0 => u64::from(BAR_BYTES),
        region::BAR2 => u64::from(Card::io_bar_bytes()),
        region::BAR4 => MSIX_BAR_BYTES,
        region::CONFIG => CONFIG_SPACE_BYTES as u64,
        _ => 0,
    }
}

fn region_info(body: &mut Body) -> Answer {
    let mut fields = || Some((body.u32()?, body.u32()?, body.u32()?));
    let (_, _, index) = fields().ok_or(libc::EINVAL)?;
    if index >= region::COUNT {
        return Err(libc::EINVAL);
    }
    let bytes = region_bytes(index);
    let flags = if bytes != 0 { flag::REGION_READ | flag::REGION_WRITE } else { 0 };
    let mut answer = words(&[32, flags, index, 0]);
    answer.extend(bytes.to_le_bytes());
    answer.extend(0u64.to_le_bytes());
    Ok(answer)
}

fn irq_info(body: &mut Body) -> Answer {
    let mut fields = || Some((body.u32()?, body.u32()?, body.u32()?));
    let (_, _, index) = fields().ok_or(libc::EINVAL)?;
    if index >= irq::COUNT {
        return Err(libc::EINVAL);
    }
    let (flags, count) = Eventfds::info(index);
    Ok(words(&[16, flags, index, count]))
}

fn set_irqs(host: &mut CardHost, log: &Log, body: &mut Body, descriptors: Vec<OwnedFd>) -> Answer {
    let mut fields = || Some((body.u32()?, body.u32()?, body.u32()?, body.u32()?, body.u32()?));
    let (_, flags, index, start, count) = fields().ok_or(libc::EINVAL)?;
    log.debug(|| format!("irqs {index}: flags {flags:#x} from {start} count {count} descriptors {}", descriptors.len()));
    if host.eventfds.set(index, flags, start, count, descriptors) {
        Ok(Vec::new())
    } else {
        Err(libc::EINVAL)
    }
}

fn access(body: &mut Body) -> Result<(u64, u32, usize), i32> {
    let mut fields = || Some((body.u64()?, body.u32()?, body.u32()? as usize));
    let (offset, index, count) = fields().ok_or(libc::EINVAL)?;
    let bytes = region_bytes(index);
    if count > TRANSFER_BYTES_MAX || offset.checked_add(count as u64).is_none_or(|end| end > bytes) {
        return Err(libc::EINVAL);
    }
    Ok((offset, index, count))
}

fn answer_access(offset: u64, index: u32, count: usize) -> Vec<u8> {
    let mut answer = Vec::with_capacity(16 + count);
    answer.extend(offset.to_le_bytes());
    answer.extend(index.to_le_bytes());
    answer.extend((count as u32).to_le_bytes());
    answer
}

fn region_read(card: &mut Card, host: &mut CardHost, now: Nanoseconds, log: &Log, body: &mut Body) -> Answer {
    let (offset, index, count) = access(body)?;
    let mut answer = answer_access(offset, index, count);
    answer.resize(16 + count, 0);
    let into = &mut answer[16..];
    match index {
        region::BAR0 => {
            card.bar_read(host, now, offset, into);
            log.debug(|| format!("{now:>12} read  {} = {}", name_at(offset as u32), hex(into)));
        }
        region::BAR2 => card.io_read(host, now, offset, into),
        region::CONFIG => {
            card.config_read(offset as usize, into);
            log.debug(|| format!("{now:>12} config read {offset:#x} = {}", hex(into)));
        }
        // The MSI-X table is in the client. The pending bits in this region are never set, because messages are sent at once.
        _ => {}
    }
    Ok(answer)
}

fn region_write(card: &mut Card, host: &mut CardHost, now: Nanoseconds, log: &Log, body: &mut Body) -> Answer {
    let (offset, index, count) = access(body)?;
    let data = body.bytes(count).ok_or(libc::EINVAL)?;
    match index {
        region::BAR0 => {
            log.debug(|| format!("{now:>12} write {} = {}", name_at(offset as u32), hex(data)));
            card.bar_write(host, now, offset, data);
        }
        region::BAR2 => card.io_write(host, now, offset, data),
        region::CONFIG => {
            log.debug(|| format!("{now:>12} config write {offset:#x} = {}", hex(data)));
            card.config_write(host, now, offset as usize, data);
        }
        _ => {}
    }
    Ok(answer_access(offset, index, count))
}

/// Returns little-endian bytes as one hexadecimal number, like a register's value.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().rev().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}
