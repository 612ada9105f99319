// SPDX-License-Identifier: BSL-1.0
//! The same server with HTTP: the pages of apps/webserver/scripts, with heads as Node writes them.

use super::answer::{damaged, After, ENDLESS_BYTES};
use super::Fault;

const DATE: &str = "Date: Mon, 02 Jan 2006 15:04:05 GMT\r\n";

/// Returns the length of the input's first request, and its body. None if that request is not complete.
pub fn request(input: &[u8]) -> Option<(usize, Option<&[u8]>)> {
    let end = input.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&input[..end]).ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
    Some((end + length, Some(input.get(end..end + length)?)))
}

/// Returns the answer and the action after it. Without a `fault` the answer is correct; otherwise it has that fault.
pub fn answer(preset: &str, posted: &[u8], fault: Option<Fault>) -> (Vec<u8>, After) {
    let (mut body, kind) = match preset {
        "study" => (b"Hello from a server.\r\n".to_vec(), "text/plain"),
        "json" => (posted.to_vec(), "application/json"),
        _ => (b"Hello World\n".to_vec(), "text/plain"),
    };
    match fault {
        Some(Fault::WrongLength) => body.push(b' '),
        // In the JSON of neap-load, this is the last digit of the body's number.
        Some(Fault::WrongKey | Fault::WrongBytes) => body[posted.len().min(18)] ^= 1,
        _ => {}
    }
    let status = match fault {
        Some(Fault::ServerError) => "500 Internal Server Error",
        Some(Fault::Miss) => "404 Not Found",
        _ => "200 OK",
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n");
    let length = body.len();
    let whole = match (preset, fault) {
        (_, Some(Fault::Endless)) => {
            let mut endless = format!("{head}Transfer-Encoding: chunked\r\n\r\n3000000\r\n").into_bytes();
            endless.resize(endless.len() + ENDLESS_BYTES, b'x');
            endless
        }
        (_, Some(Fault::LastReply)) => {
            let last = [format!("{head}Connection: close\r\nContent-Length: {length}\r\n\r\n").as_bytes(), &body].concat();
            return (last, After::Close);
        }
        ("study", _) => [format!("{head}Content-Length: {length}\r\nConnection: keep-alive\r\n{DATE}\r\n").as_bytes(), &body].concat(),
        ("json", _) => [format!("{head}Content-Length: {length}\r\n{DATE}Connection: keep-alive\r\n\r\n").as_bytes(), &body].concat(),
        _ => {
            let (head, chunk) = (format!("{head}{DATE}Transfer-Encoding: chunked\r\n\r\n"), format!("{length:x}\r\n"));
            [head.as_bytes(), chunk.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat()
        }
    };
    damaged(whole, fault)
}
