// SPDX-License-Identifier: BSL-1.0
//! Translates the driver's register table to Rust, so that card and driver use the same offsets.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let output = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("registers.rs");
    let driver = here.join("../../../drivers/ixgbe");
    let generator = driver.join("generate_registers.py");
    for part in ["generate_registers.py", "register_table.py", "registers.toml"] {
        println!("cargo:rerun-if-changed={}", driver.join(part).display());
    }
    println!("cargo:rerun-if-env-changed=NEAP_PYTHON");
    let python = std::env::var("NEAP_PYTHON").unwrap_or_else(|_| "python3".into());
    let status = Command::new(&python)
        .arg(&generator)
        .arg("--rust")
        .arg(&output)
        .status()
        .unwrap_or_else(|error| panic!("cannot run {python} (Python 3.11 or newer): {error}"));
    assert!(status.success(), "the register table was refused; see the line above");
}
