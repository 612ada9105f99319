// SPDX-License-Identifier: BSL-1.0
//! Tests with right and wrong replies of a web server.

use super::*;
use crate::protocol::Garbage;
use crate::workload::Operation;

const STUDY: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 22\r\nConnection: keep-alive\r\nDate: Mon, 02 Jan 2006 \
                     15:04:05 GMT\r\n\r\nHello from a server.\r\n";
const HELLO: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc\r\nHello World\n\r\n0\r\n\r\n";

fn page(preset: &str) -> Page {
    Page::new(&PageWords { preset: Some(preset.into()), ..PageWords::default() }, "10.0.0.2:8080").unwrap()
}

fn request(number: u64) -> Request {
    Request { operation: Operation::Get, key: Key::new(number, 12), value_bytes: Some(0), expiry_s: 0 }
}

fn encoded(page: &Page, number: u64) -> String {
    let mut out = Vec::new();
    page.encode(&request(number), &mut out);
    String::from_utf8(out).unwrap()
}

fn outcome(preset: &str, input: &str) -> Result<Option<Outcome>, Garbage> {
    page(preset).decode(input.as_bytes(), &request(0)).map(|reply| reply.map(|reply| reply.outcome))
}

fn of_length(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn requests_are_those_of_the_preset() {
    assert_eq!(encoded(&page("study"), 7), "GET / HTTP/1.1\r\nHost: 10.0.0.2:8080\r\n\r\n");
    let words = PageWords { preset: None, path: Some("/a?b=1".into()), body_bytes: Some(100) };
    let text = encoded(&Page::new(&words, "[::1]:80").unwrap(), 42);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /a?b=1 HTTP/1.1\r\nHost: [::1]:80\r\n") && head.ends_with("Content-Length: 100"), "{head}");
    assert!(body.len() == 100 && body.starts_with("{\"id\":\"000000000042\","), "{body}");
}

#[test]
fn invalid_pages_are_refused() {
    for (path, bytes) in [("a", None), ("/a b", None), ("/\r\nX: y", None), ("", None), ("/", Some(63)), ("/", Some((1 << 20) + 1))] {
        let words = PageWords { preset: None, path: Some(path.into()), body_bytes: bytes };
        assert!(Page::new(&words, "h").is_err(), "{path} {bytes:?}");
    }
    assert!(Page::new(&PageWords::default(), "").is_err());
    assert!(Page::new(&PageWords { preset: Some("etc".into()), ..PageWords::default() }, "h").is_err());
}

// A server that parses the body and writes the value again must come to the same text.
#[test]
fn bodies_are_json_in_its_shortest_form() {
    for bytes in (64..400).chain([1024, 4096, 65_537, 1 << 20]) {
        let body = JsonBody::new(bytes).unwrap();
        let mut text = Vec::new();
        body.write(123, &mut text);
        assert_eq!(text.len(), bytes as usize);
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["id"], "000000000123");
        assert!(body.matches(123, &text) && !body.matches(124, &text));
        let blanks = text.split(|&byte| byte == b'"').step_by(2).flatten().filter(|byte| byte.is_ascii_whitespace()).count();
        assert_eq!(blanks, 0, "no blank outside of a text");
    }
}

#[test]
fn a_right_reply_is_done_however_it_is_framed() {
    assert_eq!(STUDY.len(), STUDY_REPLY_BYTES);
    assert_eq!(outcome("study", STUDY), Ok(Some(Outcome::Done)));
    let interim = format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{}", of_length("Hello World\n"));
    let pieces =
        "HTTP/1.0 200 \r\ntransfer-ENCODING:  Chunked \r\n\r\n5;a=b\r\nHello\r\n6 \r\n World\r\n01\r\n\n\r\n000\r\nDate: x\r\n\r\n";
    let no_reason = "HTTP/1.1 200\r\ncontent-length: 12\r\nContent-Length:12\r\n\r\nHello World\n";
    for text in [HELLO, &of_length("Hello World\n"), &interim, pieces, no_reason] {
        assert_eq!(outcome("hello", text), Ok(Some(Outcome::Done)), "{text}");
    }
}

#[test]
fn every_part_of_a_reply_is_awaited() {
    let next = "HTTP/1.1 500 Sorry\r\n";
    for text in [STUDY, HELLO] {
        let page = page(if text == STUDY { "study" } else { "hello" });
        for end in 0..text.len() {
            assert!(page.decode(&text.as_bytes()[..end], &request(0)).unwrap().is_none(), "{}", &text[..end]);
        }
        let reply = page.decode(format!("{text}{next}").as_bytes(), &request(0)).unwrap().unwrap();
        assert_eq!((reply.bytes, reply.outcome), (text.len(), Outcome::Done));
    }
}

#[test]
fn a_wrong_reply_is_told_from_garbage() {
    for (preset, text, expected) in [
        ("hello", of_length("Hello World!"), Outcome::WrongBytes),
        ("hello", of_length("Hello World"), Outcome::WrongLength),
        ("hello", of_length(""), Outcome::WrongLength),
        ("study", STUDY.replace("server.", "Server."), Outcome::WrongBytes),
        ("study", STUDY.replace("Connection: keep-alive\r\n", ""), Outcome::WrongLength),
        ("hello", HELLO.replace("200", "201"), Outcome::WrongReply),
        ("hello", HELLO.replace("200", "404"), Outcome::WrongReply),
        ("hello", HELLO.replace("200", "503"), Outcome::ServerError),
        ("hello", "HTTP/1.1 204 No Content\r\n\r\n".into(), Outcome::WrongReply),
    ] {
        assert_eq!(outcome(preset, &text), Ok(Some(expected)), "{text}");
    }
    let long = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(3000));
    for text in [
        "x",
        "HTTP/2 200\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\n: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        &HELLO.replace("\r\nc\r\n", "\r\n\r\n"),
        &HELLO.replace("\r\nc\r\n", "\r\ng\r\n"),
        &HELLO.replace("\r\nc\r\n", "\r\nb\r\n"),
        &HELLO.replace("\r\nc\r\n", "\r\nfffffffff\r\n"),
        &HELLO.replace("\r\nc\r\n", "\r\nfffffff\r\n"),
        &long,
    ] {
        assert_eq!(outcome("hello", text), Err(Garbage), "{text}");
    }
}

#[test]
fn a_reply_says_whether_the_connection_is_kept() {
    for (version, line, is_last) in [
        ("1.1", "", false),
        ("1.1", "connection: Close\r\n", true),
        ("1.1", "Connection: foo , close\r\n", true),
        ("1.1", "Connection: keep-alive\r\n", false),
        ("1.0", "", true),
        ("1.0", "Connection: Keep-Alive\r\n", false),
    ] {
        let text = format!("HTTP/{version} 200 OK\r\n{line}Content-Length: 0\r\n\r\n");
        assert_eq!(page("http").decode(text.as_bytes(), &request(0)).unwrap().unwrap().is_last, is_last, "{text}");
    }
}

#[test]
fn the_first_reply_is_the_measure_of_the_others() {
    let page = page("http");
    let outcome = |text: &str| page.decode(of_length(text).as_bytes(), &request(0)).unwrap().unwrap().outcome;
    assert_eq!((outcome("abc"), outcome("abc")), (Outcome::Done, Outcome::Done));
    assert_eq!((outcome("abd"), outcome("ab"), outcome("abc")), (Outcome::WrongBytes, Outcome::WrongLength, Outcome::Done));
}

#[test]
fn a_reply_with_another_requests_body_is_noticed() {
    let page = page("json");
    let reply = |number: u64| of_length(encoded(&page, number).split_once("\r\n\r\n").unwrap().1);
    let outcome = |text: String| page.decode(text.as_bytes(), &request(5)).unwrap().unwrap().outcome;
    assert_eq!((outcome(reply(5)), outcome(reply(6))), (Outcome::Done, Outcome::WrongBytes));
    let mix = page.mix();
    assert_eq!((mix.update_ratio, mix.value_bytes(3), mix.key(9_999).number), (1.0, 1024, 9_999));
    assert!(mix.keys > 1);
}
