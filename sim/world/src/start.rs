// SPDX-License-Identifier: BSL-1.0
//! Builds the world that the options describe.

use crate::clients::{client_mac, Host};
use crate::experiment::Experiment;
use crate::incidents::Incidents;
use crate::machine::{CardMachine, Machine};
use crate::neap_control::NeapControl;
use crate::options::{Options, Stream};
use crate::pair::Pair;
use crate::steering::Steering;
use crate::switch::Switch;
use crate::world::World;
use card::{Card, Configuration};
use soft82599::cable::Cable;
use soft82599::card_host::CardHost;
use soft82599::clock::Clock;
use soft82599::log::Log;
use soft82599::net::pcap::Recording;
use soft82599::net::supplied::Supplied;
use soft82599::net::Wire;
use soft82599::rig::Rig;
use soft82599::vfio::interrupts::Eventfds;

/// Entries of the interrupt trace that a run keeps, 40 MB. A run with more of them fails.
const INTERRUPTS_MAX: usize = 1_000_000;

/// The soft card on the world's clock and wire.
pub fn card(options: &Options) -> Result<CardMachine, String> {
    card_with(options, options.mac)
}

fn card_with(options: &Options, mac: [u8; 6]) -> Result<CardMachine, String> {
    let mut eventfds = Eventfds::default();
    eventfds.collect_messages();
    // Recorded times count from 1970, so that they are the virtual times.
    let recording = options.pcap.as_deref().map(|path| Recording::create_from(path, options.pcap_limit, 0)).transpose();
    let mut host = CardHost {
        memory: Default::default(),
        eventfds,
        wire: Wire::Supplied(Supplied::default()),
        partner: Default::default(),
        clock: Clock::driven(),
        recording: recording.map_err(|error| error.to_string())?,
        receive_faults: Default::default(),
        transmit_faults: Default::default(),
        log: Log::new(options.log_level),
    };
    let mut card = Card::new(&Configuration { mac, link: true, ..Default::default() }, &mut host, 0);
    if options.interrupts.is_some() {
        card.start_interrupt_trace(0, INTERRUPTS_MAX);
    }
    Ok(CardMachine::new(Rig { card, host, cable: Cable::new() }))
}

/// Two machines, and the switch between their cards.
pub fn pair(options: &Options) -> Result<Pair<CardMachine>, String> {
    if options.mac == options.peer_mac {
        return Err("--peer-mac: the machines have the same address".into());
    }
    let path = |to, stream| Switch::new(options.network.clone(), vec![to], options.stream_seed(stream, 0));
    let machines = [card_with(options, options.mac)?, card_with(options, options.peer_mac)?];
    Ok(Pair::new(machines, [path(options.peer_mac, Stream::Switch), path(options.mac, Stream::Back)]))
}

/// `machine` and its network, clients and load. Err: one line that says what is wrong.
pub fn world<M: Machine>(options: &Options, machine: M) -> Result<World<M>, String> {
    let clients = options.clients as usize;
    let client = |client| Host::client(client, options.server(), options.stream_seed(Stream::Clients, client as u64));
    let hosts: Vec<Host> = (0..clients).map(client).collect();
    let addresses = (0..clients).map(client_mac).collect();
    let switch = Switch::new(options.network.clone(), addresses, options.stream_seed(Stream::Switch, 0));
    let experiment = Experiment::new(options.experiment()?, clients, NeapControl::new(options.server));
    let incidents = Incidents::new(options.incidents()?);
    Ok(World::new((machine, options.server()), hosts, switch, experiment, incidents, Steering::new(NeapControl::new(options.server))))
}
