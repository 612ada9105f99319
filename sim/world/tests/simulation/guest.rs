// SPDX-License-Identifier: BSL-1.0
//! A guest without a card and without a CPU: it works a fixed time after a frame.

use crate::service::Service;
use std::collections::VecDeque;
use world::clients::Server;
use world::machine::Machine;

const WORK_NS: u64 = 5000;

pub struct Guest {
    pub service: Service,
    work_ns: Option<u64>,
    sent: VecDeque<Vec<u8>>,
    /// The link comes up then.
    up_ns: u64,
    now_ns: u64,
}

impl Guest {
    pub fn new(server: Server, up_ns: u64) -> Self {
        Self { service: Service::new(server), work_ns: Some(up_ns), sent: VecDeque::new(), up_ns, now_ns: 0 }
    }
}

impl Machine for Guest {
    fn next_ns(&self) -> Option<u64> {
        let timer = self.service.host.next_ns().filter(|_| self.now_ns >= self.up_ns);
        self.work_ns.into_iter().chain(timer).min()
    }
    fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.work_ns = None;
            self.service.work(now_ns);
            let host = &mut self.service.host;
            self.sent.extend(std::iter::from_fn(|| host.take_frame()));
        }
    }
    fn receive(&mut self, now_ns: u64, frame: Vec<u8>) {
        if now_ns >= self.up_ns {
            self.service.host.receive(frame);
            self.work_ns.get_or_insert(now_ns + WORK_NS);
        }
    }
    fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.sent.pop_front()
    }
    fn waits_for_wire(&self) -> bool {
        !self.sent.is_empty()
    }
    fn link_is_up(&self) -> bool {
        self.now_ns >= self.up_ns
    }
}
