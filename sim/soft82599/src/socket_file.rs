// SPDX-License-Identifier: BSL-1.0
//! A listening UNIX socket and its file. A file left behind by an ended program is replaced. A file with a listener, or one that is not a
//! socket, is an error.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
}

impl SocketFile {
    pub fn listen(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {}: {error}", path.display()));
        remove_stale(path).map_err(named)?;
        let listener = UnixListener::bind(path).map_err(named)?;
        listener.set_nonblocking(true).map_err(named)?;
        Ok(Self { listener, path: path.to_path_buf() })
    }

    pub fn descriptor(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    pub fn accept(&self) -> Option<UnixStream> {
        self.listener.accept().ok().map(|(stream, _)| stream)
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is not a socket"))
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            Err(error) => Err(error),
        },
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unused_socket_file_is_replaced() {
        let directory = std::env::temp_dir().join(format!("soft82599-sockets-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.sock");
        let first = SocketFile::listen(&path).unwrap();
        assert_eq!(SocketFile::listen(&path).err().unwrap().kind(), io::ErrorKind::AddrInUse);
        // The state after a killed program: the listener is closed, but the file exists.
        drop(first);
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(SocketFile::listen(&path).unwrap());
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(SocketFile::listen(&path).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
