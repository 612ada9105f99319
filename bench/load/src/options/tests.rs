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
        "h --requests 0",
        "h --requests 5 --seconds 1",
        "h --requests 5 --measure-connections 1",
        "h --requests 5 --rate-file f",
        "h --body-size 63",
    ] {
        assert!(options(line).is_err(), "{line}");
    }
}

#[test]
fn the_port_of_an_address_is_optional() {
    assert_eq!(address("127.0.0.1", DEFAULT_PORT).unwrap().to_string(), "127.0.0.1:11211");
    assert_eq!(address("127.0.0.1:5", DEFAULT_PORT).unwrap().to_string(), "127.0.0.1:5");
    assert_eq!(address("::1", DEFAULT_PORT).unwrap().to_string(), "[::1]:11211");
    assert_eq!(address("[::1]", DEFAULT_PORT).unwrap().to_string(), "[::1]:11211");
    assert_eq!(address("[::1]:9", DEFAULT_PORT).unwrap().to_string(), "[::1]:9");
    assert!(address("127.0.0.1:many", DEFAULT_PORT).is_err());
    for (words, server) in [
        ("http://127.0.0.1/a/b", "127.0.0.1:80"),
        ("http://[::1]", "[::1]:80"),
        ("127.0.0.1:8080 --protocol http", "127.0.0.1:8080"),
        ("127.0.0.1 --preset json", "127.0.0.1:80"),
    ] {
        assert_eq!(options(words).unwrap().load((0, 1)).unwrap().settings.server.to_string(), server, "{words}");
    }
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
    assert_eq!((agent.process(), agent.seconds, agent.warm_up), (master.process(), Some(3.5), master.warm_up));
    // The master has only the connections of the measuring client.
    assert_eq!((ours.connections, theirs.connections), (0, 24));
    assert_eq!((ours.measuring.map(|client| client.connections), theirs.measuring.map(|client| client.connections)), (Some(32), None));
    assert_eq!((master.loaders(), options("h --agents a:1 -c 4").unwrap().loaders()), (2, 2));
    assert!(options("h -c 0").unwrap().load((0, 1)).is_err());
}

#[test]
fn an_agent_loads_a_web_server_as_its_master_would() {
    for line in [
        "http://127.0.0.1:8080/a?b --agents a:1",
        "127.0.0.1:8080 --preset json --path /j --body-size 2000 --agents a:1 --rate 9 -s 3",
        "127.0.0.1:8080 --preset study --agents a:1",
        "127.0.0.1:8080 --preset hello --requests 77 --agents a:1",
    ] {
        let master = options(line).unwrap();
        let agent = Options::try_parse_from(std::iter::once("neap-load".to_string()).chain(master.for_agents())).unwrap();
        let (ours, theirs) = (master.load((0, 1)).unwrap(), agent.load((0, 1)).unwrap());
        assert_eq!((ours.mix, format!("{:?}", ours.settings)), (theirs.mix, format!("{:?}", theirs.settings)), "{line}");
        let order = master.order(None).unwrap();
        let (ours, theirs) = (master.run_of(&order).unwrap(), agent.run_of(&order).unwrap());
        assert_eq!(
            (ours.measured_ns, ours.requests, ours.asked_rate()),
            (theirs.measured_ns, theirs.requests, theirs.asked_rate()),
            "{line}"
        );
    }
}

#[test]
fn the_studies_run_is_a_number_of_requests_in_a_closed_loop_unless_options_say_otherwise() {
    for (words, requests, is_closed) in [
        ("", Some(100_000), true),
        ("--requests 5", Some(5), true),
        ("--rate 10", Some(100_000), false),
        ("--rate 10 -s 3", None, false),
        ("--scan 1:3:1", Some(100_000), false),
        ("--closed -s 3", None, true),
    ] {
        let options = options(&format!("h --preset study {words}")).unwrap();
        assert_eq!((options.requests(), options.is_closed()), (requests, is_closed), "{words}");
    }
    let hello = options("h --preset hello").unwrap();
    assert_eq!((hello.requests(), hello.is_closed()), (None, false));
}

#[test]
fn options_of_the_other_protocol_are_named() {
    for (words, named) in [
        ("127.0.0.1 --protocol http --keys 5", "--keys"),
        ("http://127.0.0.1 --udp", "--udp"),
        ("127.0.0.1 --preset json --value-size 5", "--value-size"),
        ("127.0.0.1 --preset hello --check-bytes", "--check-bytes"),
        ("127.0.0.1 --preset hello --trace f", "--trace"),
        ("127.0.0.1 --preset hello --no-preload", "--no-preload"),
        ("127.0.0.1 --protocol http --preset etc", "--preset etc"),
        ("127.0.0.1 --protocol text --preset study", "--preset study"),
        ("http://127.0.0.1/ --protocol binary", "http://127.0.0.1/"),
        ("127.0.0.1 --path /a", "--path"),
        ("127.0.0.1 --preset usr --body-size 100", "--body-size"),
        ("https://127.0.0.1/", "https"),
        ("http://127.0.0.1/ --path a", "path a"),
        ("http:///a", "host"),
    ] {
        let why = options(words).unwrap().load((0, 1)).err().unwrap_or_default();
        assert!(why.contains(named), "{words}: {why}");
    }
}
