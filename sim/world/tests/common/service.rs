// SPDX-License-Identifier: BSL-1.0
//! The programs of a test's guest: a small memcached, a small web server and a small control on a host's stack.

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use std::collections::BTreeMap;
use world::clients::{Host, Server};

const LISTENERS: usize = 40;
const BUFFER_BYTES: usize = 64 << 10;
const MEMCACHED: u16 = 11211;
const HTTP: u16 = 8080;
const HTTP_LISTENERS: usize = 20;
const CONTROL: u16 = 5002;

struct Session {
    socket: SocketHandle,
    port: u16,
    input: Vec<u8>,
    output: Vec<u8>,
    ends: bool,
}

pub struct Service {
    pub host: Host,
    sessions: Vec<Session>,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Lines that control has got.
    pub commands: Vec<String>,
}

impl Service {
    pub fn new(server: Server) -> Self {
        let host = Host::new(server.mac, server.address, 77);
        let mut service = Self { host, sessions: Vec::new(), store: BTreeMap::new(), commands: Vec::new() };
        for (port, listeners) in [(MEMCACHED, LISTENERS), (CONTROL, 4), (HTTP, HTTP_LISTENERS)] {
            (0..listeners).for_each(|_| service.listen(port));
        }
        service
    }

    fn listen(&mut self, port: u16) {
        let socket = self.host.listen(port, BUFFER_BYTES, BUFFER_BYTES).unwrap();
        self.sessions.push(Session { socket, port, input: Vec::new(), output: Vec::new(), ends: false });
    }

    /// Handles everything that has arrived.
    pub fn work(&mut self, now_ns: u64) {
        self.host.poll(now_ns);
        for place in 0..self.sessions.len() {
            let session = &mut self.sessions[place];
            let mut input = std::mem::take(&mut session.input);
            self.host.read(session.socket, &mut input);
            let mut output = std::mem::take(&mut session.output);
            let ends = match session.port {
                MEMCACHED => {
                    serve_memcached(&mut input, &mut output, &mut self.store);
                    false
                }
                HTTP => {
                    serve_http(&mut input, &mut output);
                    false
                }
                _ => serve_control(&mut input, &mut output, &mut self.commands),
            };
            let session = &mut self.sessions[place];
            session.ends |= ends;
            let written = self.host.write(session.socket, &output);
            output.drain(..written);
            (session.input, session.output) = (input, output);
            let closed = match self.host.state(session.socket) {
                tcp::State::Closed | tcp::State::CloseWait => true,
                _ => session.ends && session.output.is_empty(),
            };
            if closed {
                let (socket, port) = (session.socket, session.port);
                self.host.retire(socket, false);
                self.sessions.remove(place);
                self.listen(port);
                self.sessions.rotate_right(1);
            }
        }
        self.host.poll(now_ns);
    }
}

fn take_line(input: &mut Vec<u8>) -> Option<String> {
    let end = input.iter().position(|&byte| byte == b'\n')?;
    let line: Vec<u8> = input.drain(..=end).collect();
    Some(String::from_utf8(line).unwrap().trim_end().to_string())
}

fn serve_memcached(input: &mut Vec<u8>, output: &mut Vec<u8>, store: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    while let Some(end) = input.iter().position(|&byte| byte == b'\n') {
        let line = String::from_utf8(input[..end].to_vec()).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["get", key] => {
                input.drain(..=end);
                if let Some(value) = store.get(key.as_bytes()) {
                    output.extend(format!("VALUE {key} 0 {}\r\n", value.len()).bytes());
                    output.extend_from_slice(value);
                    output.extend(b"\r\n");
                }
                output.extend(b"END\r\n");
            }
            ["set", key, _, _, bytes] => {
                let bytes: usize = bytes.parse().unwrap();
                if input.len() < end + 1 + bytes + 2 {
                    return;
                }
                store.insert(key.as_bytes().to_vec(), input[end + 1..end + 1 + bytes].to_vec());
                input.drain(..end + 1 + bytes + 2);
                output.extend(b"STORED\r\n");
            }
            _ => panic!("{line:?}"),
        }
    }
}

/// Answers a POST with its body, and a GET with one of two pages.
fn serve_http(input: &mut Vec<u8>, output: &mut Vec<u8>) {
    while let Some(end) = input.windows(4).position(|end| end == b"\r\n\r\n") {
        let head = String::from_utf8(input[..end].to_vec()).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).map_or(0, |text| text.parse().unwrap());
        let whole = end + 4 + length;
        if input.len() < whole {
            return;
        }
        assert!(head.contains("\r\nHost: 10.0.0.2:8080"), "{head}");
        let body = input[end + 4..whole].to_vec();
        input.drain(..whole);
        let path = head.split(' ').nth(1).unwrap();
        match (body.is_empty(), path) {
            (false, _) => {
                output.extend(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").bytes());
                output.extend(body);
            }
            (true, "/") => output.extend(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc\r\nHello World\n\r\n0\r\n\r\n"),
            (true, _) => output.extend(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        }
    }
}

/// True after a log, which ends the connection.
fn serve_control(input: &mut Vec<u8>, output: &mut Vec<u8>, commands: &mut Vec<String>) -> bool {
    while let Some(line) = take_line(input) {
        match line.as_str() {
            "status" => output.extend(b"ok application=memcached; cores=2; run=0\n"),
            "itr,900us" => output.extend(b"error: itr: \"900us\" is not accepted\n"),
            _ if line.starts_with("get,") => {
                output.extend(b"NEAPLOG\n");
                output.resize(4096 + 64 * 3000, line.as_bytes()[4]);
            }
            _ => output.extend(format!("ok {line}\n").bytes()),
        }
        let log = line.starts_with("get,");
        commands.push(line);
        if log {
            return true;
        }
    }
    false
}
