// SPDX-License-Identifier: BSL-1.0
//! Tests of the conventions that programs rely on which start, inspect and end the card: options, descriptors, signals, exit status.

use crate::common::{program, Client, Server, TIME_OUT};
use crate::driver::STATUS;
use soft82599::options::USAGE;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The number of the descriptor that tests pass: the one of socket activation.
const PASSED: RawFd = 3;

/// A folder of its own for a test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("soft82599-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Makes the program inherit a descriptor as `PASSED`.
fn pass(mut command: Command, descriptor: &impl AsRawFd) -> Command {
    let descriptor = descriptor.as_raw_fd();
    // SAFETY: the closure makes two system calls, which are allowed between fork and exec. dup2 leaves the close-on-exec flag off, but has
    // no effect on a descriptor that has this number already.
    unsafe {
        command.pre_exec(move || {
            let done = if descriptor == PASSED { libc::fcntl(PASSED, libc::F_SETFD, 0) } else { libc::dup2(descriptor, PASSED) };
            if done < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command
}

/// Starts a command and waits for the line that the card prints when it is ready.
fn start(mut command: Command, directory: PathBuf) -> Server {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let server = Server { directory, child };
    assert_eq!(line, "soft82599: ready\n");
    server
}

fn signal(server: &Server, number: i32) {
    // SAFETY: a signal to a child of ours, which was not waited for.
    assert_eq!(unsafe { libc::kill(server.child.id() as i32, number) }, 0);
}

/// Returns the exit status, stdout and stderr of a program that ends by itself.
fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

// If another option had an effect, a management program could not ask a program of which it knows nothing yet.
#[test]
fn capabilities_are_printed_whatever_the_other_options_are() {
    let socket = folder("capabilities").join("card.sock");
    let (status, out, error) = outcome(&mut program("--print-capabilities"));
    assert_eq!((status, error.as_str(), out.lines().count()), (0, "", 1));
    assert!(out.starts_with("{\"type\": \"net\", \"protocol\": \"vfio-user\", ") && out.ends_with("}\n"), "{out}");
    assert!(out.contains(&format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"))), "{out}");
    assert!(out.contains("\"features\": [\"control\", ") && out.contains("\"x550\": \"8086:1563\""), "{out}");
    let others = format!("--frobnicate --socket-path={} --mac 1 --help --print-capabilities --fd", socket.display());
    assert_eq!(outcome(&mut program(&others)), (0, out, String::new()));
    assert!(!socket.exists(), "the program has served");
    std::fs::remove_dir_all(socket.parent().unwrap()).unwrap();
}

#[test]
fn help_and_version_are_printed_to_stdout() {
    let version = format!("soft82599 {}\n", env!("CARGO_PKG_VERSION"));
    for option in ["--version", "-V"] {
        assert_eq!(outcome(&mut program(option)), (0, version.clone(), String::new()));
    }
    for option in ["--help", "-h"] {
        let (status, out, error) = outcome(&mut program(option));
        assert!(status == 0 && out.starts_with("usage: soft82599 --socket-path=PATH ") && error.is_empty(), "{out}{error}");
    }
}

#[test]
fn an_argument_that_is_not_utf8_is_wrong_usage() {
    let mut command = program("--socket-path");
    command.arg(OsString::from_vec(b"/tmp/\xFF".to_vec()));
    let (status, _, error) = outcome(&mut command);
    assert!(status == 2 && error.starts_with("soft82599: ") && error.lines().count() == 1, "{status} {error}");
}

// A file that stays behind makes a management program believe that the card still runs.
#[test]
fn a_signal_ends_the_program_in_order_with_and_without_a_guest() {
    for number in [libc::SIGTERM, libc::SIGINT] {
        for connected in [false, true] {
            let mut server = Server::start(&format!("signal-{number}-{connected}"), "--net listen:DIR/net.sock");
            let guest = connected.then(|| server.connect());
            signal(&server, number);
            assert_eq!(server.wait(), 0, "signal {number}");
            for name in ["card.sock", "control.sock", "net.sock"] {
                assert!(!server.path(name).exists(), "signal {number} leaves {name}");
            }
            drop(guest);
        }
    }
}

#[test]
fn an_inherited_listener_serves_one_guest_after_the_other_and_keeps_its_file() {
    let directory = folder("listener");
    let path = directory.join("card.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut server = start(pass(program(&format!("--fd={PASSED}")), &listener), directory);
    for _ in 0..3 {
        let mut guest = Client::connect(&path);
        assert_eq!(guest.register(STATUS) >> 19 & 1, 1);
    }
    signal(&server, libc::SIGTERM);
    assert_eq!(server.wait(), 0);
    assert!(path.exists(), "the file belongs to the program that has made it");
}

#[test]
fn an_inherited_connection_is_the_only_guest() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut server = start(pass(program(&format!("--fd {PASSED}")), &theirs), folder("connection"));
    drop(theirs);
    let mut guest = Client::on(ours);
    assert_eq!(guest.register(STATUS) >> 19 & 1, 1);
    drop(guest);
    assert_eq!(server.wait(), 0, "no other guest can come");

    // A guest that leaves before its first message ends the program, too.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut server = start(pass(program(&format!("--fd {PASSED}")), &theirs), folder("connection"));
    drop((ours, theirs));
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_descriptor_that_is_no_guests_socket_is_a_failure() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let datagrams = UnixDatagram::unbound().unwrap();
    // SAFETY: plain call; the result is checked and has no other owner.
    let unconnected = unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(descriptor >= 0);
        OwnedFd::from_raw_fd(descriptor)
    };
    let descriptors: [&dyn AsRawFd; 4] = [&file, &tcp, &datagrams, &unconnected];
    for (place, descriptor) in descriptors.iter().enumerate() {
        let (status, out, error) = outcome(&mut pass(program(&format!("--fd={PASSED}")), &descriptor.as_raw_fd()));
        assert!(status == 1 && out.is_empty() && error.lines().count() == 1, "{place}: {status} {out} {error}");
        assert!(error.starts_with("soft82599: error: cannot use descriptor 3 "), "{place}: {error}");
    }
    let (status, _, error) = outcome(&mut program("--fd=1000"));
    assert!(status == 1 && error.contains("1000") && error.lines().count() == 1, "{status} {error}");
}

/// A command that starts the program with the variables of socket activation. `id` is a word of the shell.
fn activated(id: &str, count: u32) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("LISTEN_PID={id} LISTEN_FDS={count} exec \"$0\"")).arg(env!("CARGO_BIN_EXE_soft82599"));
    command.stdin(Stdio::null());
    command
}

#[test]
fn a_socket_of_the_service_manager_is_served_by_the_process_that_it_is_for() {
    let directory = folder("activation");
    let path = directory.join("card.sock");
    let listener = UnixListener::bind(&path).unwrap();
    // The first guest comes before the program, which is the purpose of socket activation.
    let early = UnixStream::connect(&path).unwrap();
    let mut server = start(pass(activated("$$", 1), &listener), directory);
    assert_eq!(Client::on(early).register(STATUS) >> 19 & 1, 1);
    signal(&server, libc::SIGTERM);
    assert_eq!(server.wait(), 0);
    assert!(path.exists());

    for (command, named) in [(activated("1", 1), "--socket-path"), (activated("$$", 2), "LISTEN_FDS is 2")] {
        let (status, out, error) = outcome(&mut pass(command, &listener));
        assert!(status == 2 && out.is_empty() && error.contains(named), "{status} {out} {error}");
    }
}

#[test]
fn the_service_manager_hears_of_a_start_that_is_over() {
    let directory = folder("notify");
    let manager = UnixDatagram::bind(directory.join("notify")).unwrap();
    manager.set_read_timeout(Some(TIME_OUT)).unwrap();
    let mut command = program(&format!("--socket-path={}", directory.join("card.sock").display()));
    command.env("NOTIFY_SOCKET", directory.join("notify"));
    let server = start(command, directory);
    let mut text = [0; 64];
    let bytes = manager.recv(&mut text).unwrap();
    assert_eq!(&text[..bytes], b"READY=1");
    drop(Client::connect(&server.path("card.sock")));
}

#[test]
fn lines_have_priorities_only_in_the_journal() {
    let directory = folder("journal");
    let log = std::fs::File::create(directory.join("log")).unwrap();
    let (device, inode) = (log.metadata().unwrap().dev(), log.metadata().unwrap().ino());
    for (stream, prefix) in [(format!("{device}:{inode}"), "<3>"), (format!("{device}:{}", inode + 1), "")] {
        log.set_len(0).unwrap();
        let mut command = program("--socket-path=/nonexistent/directory/x");
        let stderr = std::fs::OpenOptions::new().append(true).open(directory.join("log")).unwrap();
        assert_eq!(command.env("JOURNAL_STREAM", stream).stderr(stderr).status().unwrap().code(), Some(1));
        let line = std::fs::read_to_string(directory.join("log")).unwrap();
        assert!(line.starts_with(&format!("{prefix}soft82599: error: ")) && line.lines().count() == 1, "{line}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

const PAGE: &str = include_str!("../../soft82599.1");

/// Returns the text of a section of the manual page.
fn section(title: &str) -> &'static str {
    let (_, text) = PAGE.split_once(&format!(".Sh {title}\n")).unwrap_or_else(|| panic!("the page lacks {title}"));
    text.split("\n.Sh ").next().unwrap()
}

#[test]
fn the_manual_page_has_the_options_of_help_and_no_others() {
    let name = |text: &str| text.split(['=', ' ']).next().unwrap().to_string();
    let of_help: BTreeSet<String> = USAGE
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|line| line.starts_with('-')))
        .flat_map(|line| line.split("  ").next().unwrap().split(", ").map(name))
        .collect();
    // An entry is like ".It Fl -mac Ns = Ns Ar ADDRESS" or ".It Fl -help , h".
    let of_page: BTreeSet<String> = section("OPTIONS")
        .lines()
        .filter_map(|line| line.strip_prefix(".It Fl "))
        .flat_map(|line| line.split(" , ").map(|option| format!("-{}", name(option))))
        .collect();
    assert!(of_help.len() > 15 && of_help.contains("-h"), "{of_help:?}");
    assert_eq!(of_page, of_help);
}

#[test]
fn the_manual_page_has_the_exit_statuses_of_help() {
    let (_, statuses) = USAGE.split_once("Exit status: ").unwrap();
    let of_help: Vec<&str> = statuses.split(", ").map(|entry| entry.split(' ').next().unwrap()).collect();
    let of_page: Vec<&str> = section("EXIT STATUS").lines().filter_map(|line| line.strip_prefix(".It ")).collect();
    assert_eq!(of_help, ["0", "1", "2", "3"]);
    assert_eq!(of_page, of_help);
}

// A user of the package has no other text than the page. A command that it lacks is not found.
#[test]
fn the_manual_page_has_the_control_commands() {
    let of_page = section("CONTROL SOCKET");
    for command in soft82599::commands::KNOWN.split(", ") {
        let words: Vec<&str> = command.split(' ').filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-')).collect();
        assert!(of_page.contains(&format!("Ic {}", words.join(" "))), "{command}");
    }
}
