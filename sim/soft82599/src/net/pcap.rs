// SPDX-License-Identifier: BSL-1.0
//! Records every frame in both directions, in the pcap format with nanosecond times, which tcpdump and Wireshark read.
//!
//! The recording shows the card's view: frames that a wire fault lost or corrupted are recorded as the card sent or received them. Times
//! are the card's clock, counted from the start of the program. A recording may be bounded in bytes. A bounded recording ends with a whole
//! frame, and the missing frames are counted.

use card::Nanoseconds;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const MAGIC_NANOSECONDS: u32 = 0xA1B2_3C4D;
const LINKTYPE_ETHERNET: u32 = 1;
const SNAP_BYTES: u32 = 262_144;
const HEADER_BYTES: u64 = 24;
const FRAME_HEADER_BYTES: u64 = 16;

pub struct Recording {
    file: BufWriter<File>,
    epoch: u64,
    written: u64,
    limit: u64,
    broken: bool,
    pub frames: u64,
    /// Number of frames that did not fit below the limit, or on the disk.
    pub missed: u64,
}

impl Recording {
    /// Creates a file of at most `limit` bytes (None: no bound). An existing file is replaced.
    pub fn create(path: &Path, limit: Option<u64>) -> io::Result<Self> {
        Self::create_from(path, limit, SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64))
    }

    /// Like `create`, but the card's clock started `epoch` nanoseconds after the beginning of 1970.
    pub fn create_from(path: &Path, limit: Option<u64>, epoch: u64) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot record to {}: {error}", path.display()));
        let file = BufWriter::new(File::create(path).map_err(named)?);
        let limit = limit.unwrap_or(u64::MAX);
        let mut recording = Self { file, epoch, written: HEADER_BYTES, limit, broken: false, frames: 0, missed: 0 };
        let words = [MAGIC_NANOSECONDS, 2 | 4 << 16, 0, 0, SNAP_BYTES, LINKTYPE_ETHERNET];
        words.iter().try_for_each(|word| recording.file.write_all(&word.to_le_bytes())).map_err(named)?;
        recording.file.flush().map_err(named)?;
        Ok(recording)
    }

    pub fn frame(&mut self, now: Nanoseconds, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let needed = FRAME_HEADER_BYTES + bytes as u64;
        if self.broken || self.written.saturating_add(needed) > self.limit {
            self.missed += 1;
            // Later, shorter frames are not recorded either, because a reader cannot see that frames before them are missing.
            self.broken = true;
            return;
        }
        let at = self.epoch.saturating_add(now);
        let words = [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, bytes as u32, bytes as u32];
        let header = words.iter().try_for_each(|word| self.file.write_all(&word.to_le_bytes()));
        if header.and_then(|()| parts.iter().try_for_each(|part| self.file.write_all(part))).is_err() {
            self.missed += 1;
            self.broken = true;
            return;
        }
        self.written += needed;
        self.frames += 1;
    }

    /// Writes the recorded frames to the file, so that another reader sees whole frames.
    pub fn flush(&mut self) {
        if !self.file.buffer().is_empty() && self.file.flush().is_err() {
            self.broken = true;
        }
    }
}
