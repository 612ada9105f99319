// SPDX-License-Identifier: BSL-1.0
//! A frame by which a machine sets the network between two machines.
//!
//! Linux boots longer than most transfers last, so one boot has to serve many networks. A program on a machine knows when a transfer has
//! ended, and the world does not. So the program sends a frame to the switch itself, at a moment of virtual time: the run repeats. The
//! frame has the EtherType for local experiments (IEEE 802, 9.2.3, Table 9-2), and a text up to its first zero byte: the seed of the
//! network's random numbers, a space, and a list as of `--network`. It reaches no machine.

use crate::switch::NetworkOptions;

/// The switch's own address, local and not a group's.
pub const SWITCH_ADDRESS: [u8; 6] = [0x02, 0x82, 0x59, 0x90, 0xFF, 0x01];
pub const ETHER_TYPE: [u8; 2] = [0x88, 0xB5];
const HEADER_BYTES: usize = 14;

#[derive(Clone, Debug, PartialEq)]
pub struct NetworkChange {
    pub seed: u64,
    pub options: NetworkOptions,
}

/// None: it is another frame. Err: one line that says what is wrong.
pub fn read(frame: &[u8]) -> Option<Result<NetworkChange, String>> {
    if !frame.starts_with(&SWITCH_ADDRESS) || frame.get(12..HEADER_BYTES)? != ETHER_TYPE {
        return None;
    }
    let text = frame[HEADER_BYTES..].split(|&byte| byte == 0).next().unwrap_or_default();
    Some(change(&String::from_utf8_lossy(text)).map_err(|why| format!("a machine's frame for the network: {why}")))
}

fn change(text: &str) -> Result<NetworkChange, String> {
    let (seed, list) = text.split_once(' ').unwrap_or((text, ""));
    let seed = seed.parse().map_err(|_| format!("'{seed}' is no seed"))?;
    Ok(NetworkChange { seed, options: list.parse()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: [u8; 6], text: &str) -> Vec<u8> {
        [&to[..], &[2, 0, 0, 0, 0, 1], &ETHER_TYPE, text.as_bytes(), &[0; 40]].concat()
    }

    #[test]
    fn a_frame_to_the_switch_has_a_seed_and_a_list() {
        let change = read(&frame(SWITCH_ADDRESS, "7 rate_mbps=100,loss=0.01")).unwrap().unwrap();
        assert_eq!((change.seed, change.options.rate_mbps, change.options.impairments.loss), (7, 100, 0.01));
        assert_eq!(read(&frame(SWITCH_ADDRESS, "8")).unwrap().unwrap().options, NetworkOptions::default());
    }

    #[test]
    fn other_frames_are_not_read_and_wrong_text_is_named() {
        assert!(read(&frame([2, 0, 0, 0, 0, 9], "7 loss=0.01")).is_none());
        assert!(read(&SWITCH_ADDRESS).is_none());
        for text in ["", "x loss=0.1", "7 speed=1", "7  loss=0.1"] {
            assert!(read(&frame(SWITCH_ADDRESS, text)).unwrap().is_err(), "{text}");
        }
    }
}
