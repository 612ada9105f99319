// SPDX-License-Identifier: BSL-1.0
//! The guest's end of the card: one vfio-user connection.

use soft82599::log::Log;
use soft82599::rig::Rig;
use soft82599::socket_file::SocketFile;
use soft82599::vfio::connection::{Connection, Input};
use soft82599::vfio::server::{handle, Command};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

pub struct Guest {
    listener: SocketFile,
    connection: Option<Connection>,
    log: Log,
}

impl Guest {
    pub fn listen(path: &Path, log: Log) -> io::Result<Self> {
        Ok(Self { listener: SocketFile::listen(path)?, connection: None, log })
    }

    /// Readable if `receive` has work.
    pub fn descriptor(&self) -> RawFd {
        self.connection.as_ref().map_or(self.listener.descriptor(), Connection::descriptor)
    }

    /// Accepts a guest, or reads. True: there are messages for `handle`. A connection that has ended resets the card.
    pub fn receive(&mut self, rig: &mut Rig) -> bool {
        let Some(connection) = &mut self.connection else {
            if let Some(stream) = self.listener.accept() {
                self.log.info(|| "a guest has connected".into());
                self.connection = Connection::new(stream).ok();
            }
            return false;
        };
        match connection.fill() {
            Ok(Input::Some) => return true,
            Ok(Input::Nothing) => {}
            Ok(Input::Closed) => self.disconnect(rig, None),
            Err(error) => self.disconnect(rig, Some(error)),
        }
        false
    }

    /// Handles the messages. Their answers wait until `answer`.
    pub fn handle(&mut self, rig: &mut Rig) {
        let Some(connection) = &mut self.connection else { return };
        if let Err(error) = handle_messages(rig, connection, &self.log) {
            self.disconnect(rig, Some(error));
        }
    }

    pub fn answer(&mut self, rig: &mut Rig) {
        let Some(connection) = &mut self.connection else { return };
        if let Err(error) = connection.flush() {
            self.disconnect(rig, Some(error));
        }
    }

    /// Ends the connection of a guest whose machine has ended, if it is still there.
    pub fn end(&mut self, rig: &mut Rig) {
        if self.connection.is_some() {
            self.disconnect(rig, None);
        }
    }

    fn disconnect(&mut self, rig: &mut Rig, error: Option<io::Error>) {
        self.connection = None;
        if let Some(error) = error {
            self.log.warn(|| format!("the guest's connection ended: {error}"));
        }
        // The memory is unmapped first, so that the reset does not access the memory of a guest that has ended.
        rig.host.remove_guest();
        let now = rig.now();
        rig.card.function_reset(&mut rig.host, now);
    }
}

fn handle_messages(rig: &mut Rig, connection: &mut Connection, log: &Log) -> io::Result<()> {
    let mut output = std::mem::take(&mut connection.output);
    while let Some(message) = connection.next()? {
        let command = Command { header: message.header, body: connection.body(message.range), descriptors: message.descriptors };
        let now = rig.now();
        handle(&mut rig.card, &mut rig.host, now, log, command, &mut output);
    }
    connection.output = output;
    Ok(())
}
