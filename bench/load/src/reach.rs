// SPDX-License-Identifier: BSL-1.0
//! From a name to somebody who answers.
//!
//! A name may stand for several addresses (localhost for ::1 and 127.0.0.1), and a server need not listen on all of them.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Of NAME:PORT, at least one. Err: why there are none.
pub fn addresses(name: &str) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = name.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    if found.is_empty() {
        return Err("no address".into());
    }
    Ok(found)
}

/// Connects to the first address that answers, each within `patience`. Err: why the last one did not.
pub fn connect(name: &str, patience: Duration) -> Result<TcpStream, String> {
    let mut reached = Err(String::new());
    for address in addresses(name)? {
        reached = TcpStream::connect_timeout(&address, patience).map_err(|error| error.to_string());
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
    fn a_name_is_reached_by_whichever_of_its_addresses_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = connect(&format!("localhost:{port}"), Duration::from_secs(30)).unwrap();
        assert_eq!(stream.peer_addr().unwrap().to_string(), format!("127.0.0.1:{port}"));
        drop(listener);
        assert!(connect(&format!("127.0.0.1:{port}"), Duration::from_secs(30)).is_err());
        assert!(addresses("127.0.0.1").is_err() && addresses("127.0.0.1:many").is_err());
    }
}
