// SPDX-License-Identifier: BSL-1.0
//! Connects to a name.
//!
//! A name may have several addresses (localhost is ::1 and 127.0.0.1), and a server may listen only on some of them.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Returns the addresses of NAME:PORT, at least one. An error is the reason why there are none.
pub fn addresses(name: &str) -> Result<Vec<SocketAddr>, String> {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    name_services::use_built_in();
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

/// Name services of a static program.
///
/// glibc loads a shared library for most services of /etc/nsswitch.conf. In a static program, that library needs the very glibc that was
/// linked; with another version it fails or crashes. The services `files` (/etc/hosts) and `dns` are part of the program.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
mod name_services {
    use std::ffi::{c_char, c_int};
    use std::sync::Once;

    unsafe extern "C" {
        /// glibc, nss.h: replaces the line of /etc/nsswitch.conf for a database, in this process.
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }

    pub fn use_built_in() {
        static ONCE: Once = Once::new();
        // SAFETY: both arguments are strings that end with a zero byte. glibc copies them.
        ONCE.call_once(|| unsafe {
            // A failure leaves the line of nsswitch.conf in use, so names may then not be found; numeric addresses need no name service.
            let _ = __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr());
        });
    }
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
