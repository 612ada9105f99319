// SPDX-License-Identifier: BSL-1.0
//! The answer to --print-capabilities, for programs that manage machines and their devices.
//!
//! It has the form that QEMU's vhost-user.rst defines for back-ends ("Backend program conventions"): an object with `type` and `features`.
//! A feature is an optional option of the command line, by its name. `protocol` says that the back-end is none of vhost-user. `version` is
//! the version of the program, and `models` has the PCI ids by the names that --model takes.

use crate::options::FEATURES;
use card::Model;

/// Returns one line of JSON, without its end.
pub fn as_json() -> String {
    let quoted: Vec<String> = FEATURES.iter().map(|name| format!("\"{name}\"")).collect();
    let models: Vec<String> = Model::all().map(|model| format!("\"{}\": \"8086:{:04x}\"", model.name(), model.device_id())).collect();
    format!(
        "{{\"type\": \"net\", \"protocol\": \"vfio-user\", \"version\": \"{}\", \"features\": [{}], \"models\": {{{}}}}}",
        env!("CARGO_PKG_VERSION"),
        quoted.join(", "),
        models.join(", "),
    )
}
