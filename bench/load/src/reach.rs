// SPDX-License-Identifier: BSL-1.0
//! Connects to a name.
//!
//! A name may have several addresses (localhost is ::1 and 127.0.0.1), and a server may listen only on some of them.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Returns the addresses of NAME:PORT, at least one. An error is the reason why there are none.
pub fn addresses(name: &str) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = name.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    if found.is_empty() {
        return Err("no address".into());
    }
    Ok(found)
}

/// Connects to the first address that answers; `time_out` is the limit for each attempt. If none answers, returns the error of the last
/// address.
pub fn connect(name: &str, time_out: Duration) -> Result<TcpStream, String> {
    let mut reached = Err(String::new());
    for address in addresses(name)? {
        reached = TcpStream::connect_timeout(&address, time_out).map_err(|error| error.to_string());
        if reached.is_ok() {
            break;
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn connecting_to_a_name_tries_all_its_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = connect(&format!("localhost:{port}"), Duration::from_secs(30)).unwrap();
        assert_eq!(stream.peer_addr().unwrap().to_string(), format!("127.0.0.1:{port}"));
        drop(listener);
        assert!(connect(&format!("127.0.0.1:{port}"), Duration::from_secs(30)).is_err());
        assert!(addresses("127.0.0.1").is_err() && addresses("127.0.0.1:many").is_err());
    }
}
