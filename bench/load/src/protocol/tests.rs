// SPDX-License-Identifier: BSL-1.0
//! Tests with right and wrong replies in the three protocols.

use super::udp::{Datagram, Reassembly};
use super::*;
use crate::workload::{Key, Mix, Operation};

const CHECKS: Checks = Checks { bytes: true };
const OPAQUE: u32 = 77;
const PROTOCOLS: [ProtocolName; 3] = [ProtocolName::Text, ProtocolName::Meta, ProtocolName::Binary];

fn request(operation: Operation) -> Request {
    Request { operation, key: Key::new(42, 12), value_bytes: Some(9), expiry_s: 60 }
}

fn value() -> Vec<u8> {
    let mut bytes = Vec::new();
    request(Operation::Get).key.write_value(9, &mut bytes);
    bytes
}

/// Returns the reply of a server that has `value` under `key`.
fn found(protocol: ProtocolName, key: &str, value: &[u8]) -> Vec<u8> {
    let length = value.len();
    match protocol {
        ProtocolName::Text => [format!("VALUE {key} 0 {length}\r\n").as_bytes(), value, b"\r\nEND\r\n"].concat(),
        ProtocolName::Meta => [format!("VA {length} k{key} O{OPAQUE}\r\n").as_bytes(), value, b"\r\n"].concat(),
        ProtocolName::Binary => binary(0x0C, 0, &[&[0; 4], key.as_bytes(), value]),
        ProtocolName::Http | ProtocolName::Tpcc => unreachable!(),
    }
}

fn binary(opcode: u8, status: u16, body: &[&[u8]; 3]) -> Vec<u8> {
    let bytes: usize = body.iter().map(|part| part.len()).sum();
    let mut out = vec![0x81, opcode];
    out.extend((body[1].len() as u16).to_be_bytes());
    out.extend([body[0].len() as u8, 0]);
    out.extend(status.to_be_bytes());
    out.extend((bytes as u32).to_be_bytes());
    out.extend(OPAQUE.to_be_bytes());
    out.extend([0; 8]);
    out.extend(body.concat());
    out
}

fn decode(protocol: ProtocolName, operation: Operation, input: &[u8]) -> Decoded {
    protocol.of_memcached().unwrap().decode(input, &request(operation), OPAQUE, CHECKS)
}

#[test]
fn requests_are_encoded_as_the_protocol_says() {
    let encoded = |protocol: ProtocolName, operation| {
        let mut out = Vec::new();
        protocol.of_memcached().unwrap().encode(&request(operation), OPAQUE, &mut out);
        out
    };
    let value = value();
    assert_eq!(encoded(ProtocolName::Text, Operation::Get), b"get 000000000042\r\n");
    assert_eq!(encoded(ProtocolName::Text, Operation::Delete), b"delete 000000000042\r\n");
    assert_eq!(encoded(ProtocolName::Text, Operation::Set), [b"set 000000000042 0 60 9\r\n", value.as_slice(), b"\r\n"].concat());
    assert_eq!(encoded(ProtocolName::Meta, Operation::Get), b"mg 000000000042 v k O77\r\n");
    assert_eq!(encoded(ProtocolName::Meta, Operation::Set), [b"ms 000000000042 9 T60 O77\r\n", value.as_slice(), b"\r\n"].concat());
    let set = encoded(ProtocolName::Binary, Operation::Set);
    assert_eq!(set[..24], [0x80, 1, 0, 12, 8, 0, 0, 0, 0, 0, 0, 29, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(set[24..], [&[0, 0, 0, 0, 0, 0, 0, 60], b"000000000042".as_slice(), &value].concat());
    assert_eq!(encoded(ProtocolName::Binary, Operation::Get)[..12], [0x80, 0x0C, 0, 12, 0, 0, 0, 0, 0, 0, 0, 12]);
}

#[test]
fn a_value_is_checked_by_key_length_and_bytes() {
    let mut wrong = value();
    wrong[8] ^= 1;
    for protocol in PROTOCOLS {
        for (key, value, outcome) in [
            ("000000000042", value(), Outcome::Hit),
            ("000000000043", value(), Outcome::WrongKey),
            ("00000000042", value(), Outcome::WrongKey),
            ("000000000042", value()[..8].to_vec(), Outcome::WrongLength),
            ("000000000042", wrong.clone(), Outcome::WrongBytes),
        ] {
            let input = found(protocol, key, &value);
            assert_eq!(decode(protocol, Operation::Get, &input), Ok(Some(Reply::new(input.len(), outcome))), "{protocol} {key}");
        }
        let input = found(protocol, "000000000042", &wrong);
        let memcached = protocol.of_memcached().unwrap();
        let unchecked = memcached.decode(&input, &request(Operation::Get), OPAQUE, Checks { bytes: false });
        assert_eq!(unchecked.unwrap().unwrap().outcome, Outcome::Hit, "{protocol}");
    }
}

#[test]
fn a_reply_is_decoded_as_soon_as_it_is_complete() {
    for protocol in PROTOCOLS {
        let reply = found(protocol, "000000000042", &value());
        for end in 0..reply.len() {
            assert_eq!(decode(protocol, Operation::Get, &reply[..end]), Ok(None), "{protocol} {end}");
        }
        let two = [reply.clone(), reply.clone()].concat();
        assert_eq!(decode(protocol, Operation::Get, &two).unwrap().unwrap().bytes, reply.len());
    }
}

#[test]
fn each_reply_has_its_outcome() {
    use Operation::{Delete, Get, Set};
    let none: &[&[u8]; 3] = &[&[], &[], &[]];
    let text = |line: &str| line.as_bytes().to_vec();
    for (protocol, operation, input, outcome) in [
        (ProtocolName::Text, Get, text("END\r\n"), Outcome::Miss),
        (ProtocolName::Text, Set, text("STORED\r\n"), Outcome::Done),
        (ProtocolName::Text, Set, text("NOT_STORED\r\n"), Outcome::Declined),
        (ProtocolName::Text, Delete, text("DELETED\r\n"), Outcome::Done),
        (ProtocolName::Text, Delete, text("NOT_FOUND\r\n"), Outcome::Miss),
        (ProtocolName::Text, Get, text("SERVER_ERROR out of memory\r\n"), Outcome::ServerError),
        (ProtocolName::Text, Get, text("STORED\r\n"), Outcome::WrongReply),
        (ProtocolName::Text, Set, found(ProtocolName::Text, "000000000042", b"x"), Outcome::WrongReply),
        (ProtocolName::Meta, Get, text("EN\r\n"), Outcome::Miss),
        (ProtocolName::Meta, Set, text("HD O77\r\n"), Outcome::Done),
        (ProtocolName::Meta, Set, text("HD O78\r\n"), Outcome::WrongReply),
        (ProtocolName::Meta, Set, text("NS O77\r\n"), Outcome::Declined),
        (ProtocolName::Meta, Delete, text("NF O77\r\n"), Outcome::Miss),
        (ProtocolName::Meta, Delete, text("CLIENT_ERROR bad command\r\n"), Outcome::ServerError),
        (ProtocolName::Binary, Get, binary(0x0C, 1, &[&[], &[], b"Not found"]), Outcome::Miss),
        (ProtocolName::Binary, Set, binary(1, 0, none), Outcome::Done),
        (ProtocolName::Binary, Set, binary(1, 5, none), Outcome::Declined),
        (ProtocolName::Binary, Set, binary(1, 0x82, &[&[], &[], b"Out of memory"]), Outcome::ServerError),
        (ProtocolName::Binary, Delete, binary(4, 1, none), Outcome::Miss),
        (ProtocolName::Binary, Delete, binary(1, 0, none), Outcome::WrongReply),
    ] {
        let expected = Ok(Some(Reply::new(input.len(), outcome)));
        assert_eq!(decode(protocol, operation, &input), expected, "{protocol} {}", String::from_utf8_lossy(&input));
    }
}

#[test]
fn noise_is_detected_within_bounded_input() {
    let long = [b'x'; LINE_BYTES_MAX];
    for (protocol, input) in [
        (ProtocolName::Text, b"HELLO\r\n".to_vec()),
        (ProtocolName::Text, b"END\n".to_vec()),
        (ProtocolName::Text, b"VALUE 000000000042 0 -1\r\n".to_vec()),
        (ProtocolName::Text, b"VALUE 000000000042 0 99999999999999999999\r\n".to_vec()),
        (ProtocolName::Text, b"VALUE 000000000042 0 1\r\nxxxxxxxxxx".to_vec()),
        (ProtocolName::Text, long.to_vec()),
        (ProtocolName::Meta, b"XX\r\n".to_vec()),
        (ProtocolName::Meta, b"VA\r\n".to_vec()),
        (ProtocolName::Meta, b"VA 1 k\r\nxyz".to_vec()),
        (ProtocolName::Meta, long.to_vec()),
        (ProtocolName::Binary, b"END\r\n".to_vec()),
        (ProtocolName::Binary, [&[0x81, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 8], [0u8; 12].as_slice()].concat()),
        (ProtocolName::Binary, [&[0x81, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0, 0, 0], [0u8; 12].as_slice()].concat()),
    ] {
        assert_eq!(decode(protocol, Operation::Get, &input), Err(Garbage), "{protocol} {}", String::from_utf8_lossy(&input));
    }
}

#[test]
fn datagrams_are_reassembled_in_any_order() {
    let datagram = |sequence: u8, parts: u8, payload: &[u8]| [&[0, 7, 0, sequence, 0, parts, 0, 0], payload].concat();
    let mut reassembly = Reassembly::default();
    let mut add = |bytes: &[u8]| reassembly.add(&Datagram::parse(bytes).unwrap());
    assert_eq!(add(&datagram(2, 3, b"c")), None);
    assert_eq!(add(&datagram(0, 3, b"a")), None);
    assert_eq!(add(&datagram(0, 3, b"z")), None);
    assert_eq!(add(&datagram(9, 10, b"z")), None);
    assert_eq!(add(&datagram(1, 3, b"b")), Some(b"abc".to_vec()));
    assert_eq!(Datagram::parse(&datagram(0, 0, b"x")), None);
    assert_eq!(Datagram::parse(&[0; 7]), None);
}

#[test]
fn a_udp_request_carries_its_number() {
    let mut out = Vec::new();
    udp::write_header(0x1234, &mut out);
    out.extend(b"get a\r\n");
    assert_eq!(Datagram::parse(&out), Some(Datagram { number: 0x1234, sequence: 0, parts: 1, payload: b"get a\r\n" }));
}

/// The answer of a transaction is not known beforehand. A miss would mean that no transaction ran.
#[test]
fn a_transaction_has_an_answer_of_any_length() {
    let request = Mix::preset("tpcc").unwrap().request(Operation::Get, 42);
    let protocol = Protocol::Tpcc;
    assert!(!protocol.has_keys());
    let mut sent = Vec::new();
    protocol.encode(&request, 0, &mut sent);
    assert_eq!(sent, b"get 000000000000000000000000000042\r\n");
    let outcome = |input: &[u8]| protocol.decode(input, &request, 0, Checks { bytes: true }).map(|reply| reply.map(|reply| reply.outcome));
    assert_eq!(outcome(b"VALUE 000000000000000000000000000042 0 7\r\npayment\r\nEND\r\n"), Ok(Some(Outcome::Hit)));
    assert_eq!(outcome(b"VALUE 000000000000000000000000000043 0 7\r\npayment\r\nEND\r\n"), Ok(Some(Outcome::WrongKey)));
    assert_eq!(outcome(b"VALUE 000000000000000000000000000042 0 7\r\npayment\r\nEN"), Ok(None));
    assert_eq!(outcome(b"SERVER_ERROR conflict\r\n"), Ok(Some(Outcome::ServerError)));
    assert_eq!(outcome(b"END\r\n"), Ok(Some(Outcome::WrongReply)));
}
