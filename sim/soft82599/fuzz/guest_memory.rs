// SPDX-License-Identifier: BSL-1.0
//! Checks guest_memory.rs of the program against a map of bytes. Only that file uses pointers to guest memory. Reads and writes of mapped
//! memory must have the same results as in the map, and no other memory may change. Guard bytes in the file, before and after each mapped
//! piece, detect writes beyond the piece.
#![no_main]

#[allow(dead_code)]
#[path = "../src/guest_memory.rs"]
mod guest_memory;
mod tally;

use guest_memory::GuestMemory;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
const PAGES: u64 = 16;
const GUARD: u8 = 0xA5;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tally::add(run(data)));

fn memory_file() -> File {
    // SAFETY: the name is a C string; the descriptor is checked and has no other owner.
    let file = unsafe {
        let descriptor = libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC);
        assert!(descriptor >= 0);
        File::from_raw_fd(descriptor)
    };
    file.write_all_at(&vec![GUARD; (PAGES * PAGE) as usize], 0).unwrap();
    file
}

struct Model {
    /// For each mapped guest page number: the page number in the file, and true if the page is writable.
    pages: BTreeMap<u64, (u64, bool)>,
    /// Expected contents of the file.
    bytes: Vec<u8>,
}

impl Model {
    fn place(&self, address: u64, write: bool) -> Option<usize> {
        let (page, writable) = self.pages.get(&(address / PAGE))?;
        (!write || *writable).then_some((page * PAGE + address % PAGE) as usize)
    }
}

fn run(data: &[u8]) -> u64 {
    let file = memory_file();
    let mut memory = GuestMemory::default();
    let mut model = Model { pages: BTreeMap::new(), bytes: vec![GUARD; (PAGES * PAGE) as usize] };
    let mut operations = 0;
    for step in data.chunks_exact(8) {
        operations += 1;
        let page = u64::from(step[1] % 32);
        let address = page * PAGE + u64::from(u16::from_le_bytes([step[2], step[3]])) % PAGE;
        let length = usize::from(u16::from_le_bytes([step[4], step[5]])) % 9000;
        match step[0] % 8 {
            0 | 1 => map(&mut memory, &mut model, &file, page, &step[4..]),
            2 => unmap(&mut memory, &mut model, page, u64::from(step[4] % 4)),
            3 | 4 => read(&mut memory, &model, address, length),
            5 | 6 => write(&mut memory, &mut model, address, &vec![step[6]; length]),
            _ => publish(&mut memory, &mut model, address, step),
        }
    }
    let mut now = vec![0; (PAGES * PAGE) as usize];
    file.read_exact_at(&mut now, 0).unwrap();
    assert!(now == model.bytes, "the file differs from what was written");
    operations
}

fn map(memory: &mut GuestMemory, model: &mut Model, file: &File, page: u64, rest: &[u8]) {
    let (from, count, writable) = (u64::from(rest[0]) % 20, u64::from(rest[1]) % 6, rest[2] & 1 != 0);
    let fits = count != 0 && from + count <= PAGES && !(page..page + count).any(|page| model.pages.contains_key(&page));
    let result = memory.map(page * PAGE, count * PAGE, Some(file.try_clone().unwrap()), from * PAGE, true, writable);
    assert_eq!(result.is_ok(), fits, "map of {count} pages at {page}");
    if fits {
        model.pages.extend((0..count).map(|i| (page + i, (from + i, writable))));
    }
}

/// The program refuses a range that covers only a part of a piece. The model has no pieces, so it removes the range only if the program
/// accepted it.
fn unmap(memory: &mut GuestMemory, model: &mut Model, page: u64, count: u64) {
    if memory.unmap(page * PAGE, count * PAGE).is_ok() {
        model.pages.retain(|at, _| !(page..page + count).contains(at));
    }
}

fn read(memory: &mut GuestMemory, model: &Model, address: u64, length: usize) {
    let mut got = vec![0; length];
    let expected: Option<Vec<u8>> = (address..address + length as u64).map(|at| model.place(at, false).map(|at| model.bytes[at])).collect();
    match (memory.read(address, &mut got), expected) {
        (Ok(()), Some(expected)) => assert!(got == expected, "a read at {address:#x} differs"),
        (Err(_), None) => {}
        (result, expected) => panic!("read of {length} at {address:#x}: {result:?}, expected {}", expected.is_some()),
    }
}

fn write(memory: &mut GuestMemory, model: &mut Model, address: u64, from: &[u8]) {
    let result = memory.write(address, from);
    let mut whole = true;
    for (i, byte) in from.iter().enumerate() {
        match model.place(address + i as u64, true) {
            Some(at) => model.bytes[at] = *byte,
            None => {
                whole = false;
                break;
            }
        }
    }
    assert_eq!(result.is_ok(), whole, "write of {} at {address:#x}", from.len());
}

fn publish(memory: &mut GuestMemory, model: &mut Model, address: u64, step: &[u8]) {
    let value = u64::from_le_bytes(step.try_into().unwrap());
    if step[6] & 1 != 0 {
        let bytes = value.to_le_bytes();
        let ok = memory.publish_u64(address, value).is_ok();
        follow_publish(model, address, &bytes, ok);
    } else {
        let bytes = (value as u32).to_le_bytes();
        let ok = memory.publish_u32(address, value as u32).is_ok();
        follow_publish(model, address, &bytes, ok);
    }
}

fn follow_publish(model: &mut Model, address: u64, bytes: &[u8], ok: bool) {
    let places: Option<Vec<usize>> = (0..bytes.len() as u64).map(|i| model.place(address + i, true)).collect();
    assert_eq!(ok, places.is_some(), "publish at {address:#x}");
    for (i, byte) in bytes.iter().enumerate() {
        match model.place(address + i as u64, true) {
            Some(at) => model.bytes[at] = *byte,
            None => break,
        }
    }
}
