// SPDX-License-Identifier: BSL-1.0
//! Tests of the command line.

use super::*;

fn options(line: &str) -> Result<Options, clap::Error> {
    Options::try_parse_from(std::iter::once("neap-load").chain(line.split_whitespace()))
}

#[test]
fn single_options_override_a_preset() {
    let options = options("127.0.0.1 --preset etc --keys 50 --update 30:1 --value-size 64").unwrap();
    let mix = options.mix();
    assert_eq!((mix.keys, mix.value_size.to_string(), mix.update_ratio), (50, "fixed:64".into(), 1.0 / 31.0));
    assert_eq!(mix.key_size.to_string(), "gev:30.7984:8.20449:0.078688");
    assert_eq!(options.process(), Process::Pareto(arrivals::ETC_GAPS));
}

#[test]
fn conflicting_paces_and_invalid_values_are_refused() {
    for line in [
        "",
        "h --rate 0",
        "h --rate 5 --closed",
        "h --scan 1:2:1 --search p99<5us",
        "h --scan 5:1:1",
        "h --preset mixed",
        "h --update 2",
        "h --update 0:0",
        "h --depth 0",
        "h --threads 0",
        "h --seconds 0",
        "h --seconds nan",
        "h --protocol json",
        "h --control-token-file f",
        "h --log-from warm-up",
        "h --control c:1 --log-from lunch",
        "h --frobnicate",
    ] {
        assert!(options(line).is_err(), "{line}");
    }
}

#[test]
fn the_port_of_an_address_is_optional() {
    assert_eq!(address("127.0.0.1").unwrap().to_string(), "127.0.0.1:11211");
    assert_eq!(address("127.0.0.1:5").unwrap().to_string(), "127.0.0.1:5");
    assert_eq!(address("::1").unwrap().to_string(), "[::1]:11211");
    assert_eq!(address("[::1]").unwrap().to_string(), "[::1]:11211");
    assert_eq!(address("[::1]:9").unwrap().to_string(), "[::1]:9");
    assert!(address("127.0.0.1:many").is_err());
}

#[test]
fn an_agent_loads_as_its_master_would() {
    let line = "127.0.0.1 --preset etc --keys 50 --popularity zipf:1.2 --agents a:1,b:2 --measure-connections 32 -d 4 -t 2 --seed 9 --udp \
                --protocol binary --arrivals bursts:8 --agent-connections 24 -s 3.5 --json j --histogram h --control c:1";
    let master = options(line).unwrap();
    let words = master.for_agents();
    let agent = Options::try_parse_from(std::iter::once("neap-load".to_string()).chain(words)).unwrap();
    assert!(agent.refuse_files().is_ok() && master.refuse_files().is_err());
    let (ours, theirs) = (master.load((0, 2)).unwrap(), agent.load((0, 2)).unwrap());
    assert_eq!((ours.mix, ours.seed, ours.threads), (theirs.mix, theirs.seed, theirs.threads));
    assert_eq!(format!("{:?}", ours.settings), format!("{:?}", theirs.settings));
    assert_eq!((agent.process(), agent.seconds, agent.warm_up), (master.process(), 3.5, master.warm_up));
    // The master has only the connections of the measuring client.
    assert_eq!((ours.connections, theirs.connections), (0, 24));
    assert_eq!((ours.measuring.map(|client| client.connections), theirs.measuring.map(|client| client.connections)), (Some(32), None));
    assert_eq!((master.loaders(), options("h --agents a:1 -c 4").unwrap().loaders()), (2, 2));
    assert!(options("h -c 0").unwrap().load((0, 1)).is_err());
}
