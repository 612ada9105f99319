// SPDX-License-Identifier: BSL-1.0
//! The guest's memory as mapped by the client, with bounds-checked copies into and out of it.
//!
//! All access is by copying through raw pointers: the guest's CPUs may change this memory at any time, so it never becomes a Rust
//! reference. An address is looked up in a sorted list of the mapped pieces. The piece of the last look-up is tried first, because
//! descriptors and buffers are usually in the same piece.

use card::DmaFault;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Largest number of pieces; an IOMMU creates some thousands.
const PIECES_MAX: usize = 65_536;

struct Piece {
    address: u64,
    bytes: u64,
    mapping: *mut u8,
    readable: bool,
    writable: bool,
}

impl Piece {
    /// Returns the piece's last address. A piece is never empty, and never extends beyond address 2^64 - 1.
    fn last(&self) -> u64 {
        self.address + (self.bytes - 1)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.mapping.is_null() {
            // SAFETY: mapping came from mmap with this length, and no pointers into it are kept.
            unsafe { libc::munmap(self.mapping.cast(), self.bytes as usize) };
        }
    }
}

#[derive(Default)]
pub struct GuestMemory {
    /// The pieces are sorted by address and do not overlap.
    pieces: Vec<Piece>,
    last_hit: usize,
}

impl GuestMemory {
    /// Adds a piece. If the client does not share its memory, `file` is None: the addresses are then known but cannot be accessed.
    pub fn map(&mut self, address: u64, bytes: u64, file: Option<File>, offset: u64, readable: bool, writable: bool) -> io::Result<()> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_string());
        if bytes == 0 || address.checked_add(bytes - 1).is_none() || usize::try_from(bytes).is_err() {
            return Err(invalid("a piece of memory that is empty or wraps"));
        }
        if self.pieces.len() >= PIECES_MAX {
            return Err(invalid("too many pieces of memory"));
        }
        let place = self.pieces.partition_point(|piece| piece.address < address);
        let overlaps = self.pieces.get(place).is_some_and(|next| next.address <= address + (bytes - 1))
            || place > 0 && self.pieces[place - 1].last() >= address;
        if overlaps {
            return Err(invalid("a piece of memory that overlaps another"));
        }
        let mapping = match file {
            Some(file) => map_file(&file, bytes, offset, writable)?,
            None => std::ptr::null_mut(),
        };
        self.pieces.insert(place, Piece { address, bytes, mapping, readable, writable });
        Ok(())
    }

    /// Removes the pieces inside a range. A piece that is only partly inside is an error.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> io::Result<()> {
        let Some(last) = bytes.checked_sub(1).and_then(|b| address.checked_add(b)) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty or wrapping range"));
        };
        let inside = |piece: &Piece| piece.address >= address && piece.last() <= last;
        let touches = |piece: &Piece| piece.address <= last && piece.last() >= address;
        if self.pieces.iter().any(|piece| touches(piece) && !inside(piece)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a range that cuts a piece of memory"));
        }
        self.pieces.retain(|piece| !inside(piece));
        self.last_hit = 0;
        Ok(())
    }

    pub fn clear(&mut self) {
        self.pieces.clear();
        self.last_hit = 0;
    }

    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the pointer for an address, and the number of bytes from there to the piece's end.
    fn find(&mut self, address: u64, write: bool) -> Option<(*mut u8, usize)> {
        let hit = |piece: &Piece| piece.address <= address && address <= piece.last();
        if !self.pieces.get(self.last_hit).is_some_and(hit) {
            let place = self.pieces.partition_point(|piece| piece.address <= address).checked_sub(1)?;
            if !hit(&self.pieces[place]) {
                return None;
            }
            self.last_hit = place;
        }
        let piece = &self.pieces[self.last_hit];
        if piece.mapping.is_null() || !(if write { piece.writable } else { piece.readable }) {
            return None;
        }
        let inside = address - piece.address;
        // SAFETY: inside is below the mapping's length.
        Some((unsafe { piece.mapping.add(inside as usize) }, (piece.bytes - inside) as usize))
    }

    pub fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let length = into.len();
        let (mut at, mut rest) = (address, into);
        while !rest.is_empty() {
            let (from, room) = self.find(at, false).ok_or(DmaFault { address: at, length })?;
            let part = room.min(rest.len());
            // SAFETY: `part` bytes from `from` on are in a live mapping, which no Rust object overlaps. The guest may change these bytes
            // meanwhile. Then the copy has old or new bytes. The card must accept any bytes in any case.
            unsafe { std::ptr::copy_nonoverlapping(from, rest.as_mut_ptr(), part) };
            rest = &mut rest[part..];
            at = at.wrapping_add(part as u64);
        }
        Ok(())
    }

    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        let length = from.len();
        let (mut at, mut rest) = (address, from);
        while !rest.is_empty() {
            let (to, room) = self.find(at, true).ok_or(DmaFault { address: at, length })?;
            let part = room.min(rest.len());
            // SAFETY: the same as in `read`.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), to, part) };
            rest = &rest[part..];
            at = at.wrapping_add(part as u64);
        }
        Ok(())
    }

    /// Stores atomically with release order.
    pub fn publish_u64(&mut self, address: u64, value: u64) -> Result<(), DmaFault> {
        match self.find(address, true) {
            Some((to, room)) if room >= 8 && to as usize % 8 == 0 => {
                // SAFETY: `to` is aligned, and 8 bytes of a live mapping are there; only atomics and copies access them.
                unsafe { AtomicU64::from_ptr(to.cast()) }.store(value.to_le(), Ordering::Release);
                Ok(())
            }
            Some(_) => {
                std::sync::atomic::fence(Ordering::Release);
                self.write(address, &value.to_le_bytes())
            }
            None => Err(DmaFault { address, length: 8 }),
        }
    }

    pub fn publish_u32(&mut self, address: u64, value: u32) -> Result<(), DmaFault> {
        match self.find(address, true) {
            Some((to, room)) if room >= 4 && to as usize % 4 == 0 => {
                // SAFETY: the same as in `publish_u64`.
                unsafe { AtomicU32::from_ptr(to.cast()) }.store(value.to_le(), Ordering::Release);
                Ok(())
            }
            Some(_) => {
                std::sync::atomic::fence(Ordering::Release);
                self.write(address, &value.to_le_bytes())
            }
            None => Err(DmaFault { address, length: 4 }),
        }
    }
}

fn map_file(file: &File, bytes: u64, offset: u64, writable: bool) -> io::Result<*mut u8> {
    let metadata = file.metadata()?;
    // An access beyond the end of the mapped file raises SIGBUS.
    if metadata.is_file() && offset.checked_add(bytes).is_none_or(|end| end > metadata.len()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a piece of memory beyond the end of its file"));
    }
    let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    // SAFETY: a new shared mapping at an address that the kernel chooses; the result is checked.
    let mapping =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, protection, libc::MAP_SHARED, file.as_raw_fd(), offset as libc::off_t) };
    if mapping == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(mapping.cast())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(bytes: u64) -> File {
        let path = std::env::temp_dir().join(format!("soft82599-test-{}-{:p}", std::process::id(), &bytes));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&vec![0; bytes as usize]).unwrap();
        file
    }

    #[test]
    fn copies_cross_adjacent_pieces_and_stop_at_unmapped_memory() {
        let mut memory = GuestMemory::default();
        memory.map(0x10000, 0x1000, Some(file_of(0x1000)), 0, true, true).unwrap();
        memory.map(0x11000, 0x1000, Some(file_of(0x2000)), 0x1000, true, true).unwrap();
        let bytes: Vec<u8> = (0..100).collect();
        memory.write(0x10FF0, &bytes).unwrap();
        let mut back = [0; 100];
        memory.read(0x10FF0, &mut back).unwrap();
        assert_eq!(back[..], bytes[..]);
        assert!(memory.read(0x11FFF, &mut back).is_err());
        assert!(memory.write(0xFFFF, &bytes).is_err());
        assert!(memory.read(u64::MAX, &mut back).is_err());
        assert!(memory.publish_u64(0x11FFC, 1).is_err());
        memory.publish_u64(0x10FFC, 0x0807_0605_0403_0201).unwrap();
        memory.read(0x10FFC, &mut back[..8]).unwrap();
        assert_eq!(back[..8], [1, 2, 3, 4, 5, 6, 7, 8], "unaligned and across the boundary");
    }

    #[test]
    fn overlaps_and_ranges_beyond_a_file_are_refused() {
        let mut memory = GuestMemory::default();
        memory.map(0x1000, 0x1000, Some(file_of(0x1000)), 0, true, false).unwrap();
        assert!(memory.map(0x1800, 0x1000, None, 0, true, true).is_err());
        assert!(memory.map(0x0800, 0x0801, None, 0, true, true).is_err());
        assert!(memory.map(0x3000, 0x2000, Some(file_of(0x1000)), 0, true, true).is_err());
        assert!(memory.map(u64::MAX, 2, None, 0, true, true).is_err());
        assert!(memory.write(0x1000, &[1]).is_err(), "read only");
        assert!(memory.unmap(0x1000, 0x800).is_err());
        memory.unmap(0, 0x10000).unwrap();
        assert!(memory.read(0x1000, &mut [0]).is_err());
    }
}
