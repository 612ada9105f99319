# SPDX-License-Identifier: BSL-1.0
"""Boots each on-target image on the machines where its property must hold, and checks how it ends.

An image ends with SUCCESS by itself, or in a panic whose text is checked here. `./neap test target` builds the images and runs this file.
If the file is run by hand, NEAP_TARGET_IMAGES names the build directory (default: build/image-debug).
"""

import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.model import modelled
from tests.target.images import BUILD, image_path
from tools import toolchain
from tools.log.crc32c import crc32c
from tools.machine import BAD_COMMAND_LINE, FAILURE, PANIC, POWER_OFF, REPOSITORY, RESET, SUCCESS, Machine
from tools.process import finished, wait_until

TIMEOUT_SECONDS = 90
CLOCK_ERROR_SECONDS = 30
IMAGES_TESTED: set[str] = {"hardware_errors_are_named"}  # by machine_check_test.py


@dataclass
class Run:
    image: str
    cores: int = 1
    memory: str = "256M"
    words: str = ""
    qemu: list[str] = field(default_factory=list)
    machine_type: str = "q35"
    nodes: int = 1
    model: str = ""  # runs on the model machine with this CPU, in virtual time
    ends: int = SUCCESS
    # Regular expressions. Each must match a line after the match of the previous expression.
    says: list[str] = field(default_factory=list)
    never_says: str = r"FAILED"
    name: str = ""

    def __post_init__(self) -> None:
        IMAGES_TESTED.add(self.image)


def judge(run: Run, status: int, lines: list[str]) -> None:
    console = "\n".join(lines)
    assert status == run.ends, f"ended with {status}, not {run.ends}; console:\n{console}"
    rest = iter(lines)
    for pattern in run.says:
        assert any(re.search(pattern, line) for line in rest), f"no line like /{pattern}/ (in this order); console:\n{console}"
    assert not any(re.search(run.never_says, line) for line in lines), f"/{run.never_says}/ in console:\n{console}"


def bare(image: str, **options) -> Machine:
    """Returns a machine without a card, with 256 MB unless `options` differ."""
    return Machine(image_path(image), card=False, **{"memory": "256M", **options})


def boot(run: Run) -> list[str]:
    options = {name: getattr(run, name) for name in ("cores", "memory", "machine_type", "nodes")}
    if run.model:
        with tempfile.TemporaryDirectory() as directory:
            done = modelled.run(image_path(run.image), Path(directory), model=run.model, cores=run.cores, words=run.words)
        judge(run, done.status, done.lines)
        return done.lines
    with bare(run.image, arguments=run.words.split(), qemu_options=run.qemu, **options) as machine:
        status = machine.wait_exit(TIMEOUT_SECONDS)
    judge(run, status, machine.lines)
    return machine.lines


def cpu(model: str) -> list[str]:
    return ["-cpu", model]  # of several `-cpu`, QEMU uses the last


def pci_devices(shared: str) -> list[str]:
    backend = f"memory-backend-ram,id=shared,size={shared},share=on,reserve=off"
    return ["-object", backend, *"-device ivshmem-plain,memdev=shared -device e1000e -device nvme,serial=neap".split()]


def uart_at(port: str) -> list[str]:
    return ["-global", f"isa-serial.iobase={port}"]


def noise(characters: int) -> str:
    """Returns this number of characters, of all kinds that a boot loader can pass. Each call with the same number returns the same text."""
    dice = random.Random(4)
    letters = [chr(code) for code in range(1, 256)] + ["=", " "] * 20
    return "".join(dice.choice(letters) for _ in range(characters))


def distances(*rows: list[int]) -> list[str]:
    """Returns QEMU's words for the distances between nodes."""
    words = []
    for source, row in enumerate(rows):
        for target, value in enumerate(row):
            words += ["-numa", f"dist,src={source},dst={target},val={value}"]
    return words


def misuse(what: str, says: str) -> Run:
    words = f"heap=checked misuse={what}"
    return Run(
        "heap_misuse_is_found", cores=2, words=words, ends=PANIC, says=["panic on core 1: " + says, r"^  #\d+ "], name=f"heap-{what}"
    )


# Node 2 is nearer to node 0 than node 1 is.
THREE_NODES = distances([10, 31, 15], [31, 10, 31], [15, 31, 10])
NO_UART = "^neap: there is no UART at "
CPU_MODELS = ("SandyBridge", "Skylake-Server", "EPYC")


def panic(fault: str, *says: str, core: int = 0, cores: int = 1) -> Run:
    return Run("faults_are_named", cores=cores, words=f"fault={fault} core={core}", ends=PANIC, says=list(says), name=f"{fault}-core{core}")


def stressed(*images: str) -> list[Run]:
    """Returns short runs of the images that `./neap soak kernel` runs for minutes."""
    return [Run(image, cores=cores, memory="512M", name=f"{image}-{cores}") for image in images for cores in (1, 2, 4)]


RUNS = [
    Run("hello", cores=4, says=[r"^neap: hello \(.+\) on 4 cores$", *(rf"^hello from core {core}$" for core in range(4))]),
    Run("hello", cores=4, words="cores=2", says=[r"on 2 cores$", r"core 1$"], never_says="core 2", name="hello-fewer-cores"),
    Run("hello", words="frobnicate=1", ends=BAD_COMMAND_LINE, says=["frobnicate", "cores="], name="hello-unknown-word"),
    Run("hello", words="cores=0", ends=BAD_COMMAND_LINE, says=["cores="], name="hello-bad-value"),
    # A UART at another address: nothing is printed, but nothing hangs either.
    Run("hello", qemu=["-global", "isa-serial.iobase=0x2f8"], name="hello-without-uart"),
    Run("hello", words="console=com2,9600", qemu=uart_at("0x2f8"), says=["hello from core 0"], name="hello-on-the-second-port"),
    Run("hello", words="console=com1,0x2e8,115200", qemu=uart_at("0x2e8"), says=[NO_UART + "0x3f8", "hello"], name="hello-on-an-odd-port"),
    Run("hello", words="console=com1,com2,com3,com4", says=[NO_UART + "0x2f8", "^hello"], name="hello-without-three-uarts"),
    Run("hello", words="console=com1,vga", says=["no screen in text mode", "^hello"], name="hello-without-a-screen"),
    Run("hello", words="console=none", never_says=".", name="hello-in-silence"),
    Run("hello", words=noise(4096), ends=BAD_COMMAND_LINE, says=["^bad command line:$", "^accepted:$", "^cores="], name="hello-noise"),
    Run("hello", words="heap=some", ends=BAD_COMMAND_LINE, says=["heap=some is not one of"], name="hello-heap"),
    Run("hello", words="console=com9", ends=BAD_COMMAND_LINE, says=["console=com9 is not", "^console=", "^panic="], name="hello-console"),
    Run("hello", words="panic=often", ends=BAD_COMMAND_LINE, says=["panic=often is not one of"], name="hello-panic"),
    Run("hello", qemu=cpu("qemu64,-lm"), ends=FAILURE, says=["^neap: this CPU lacks 64-bit mode"], name="hello-without-long-mode"),
    Run("hello", qemu=cpu("qemu64,-nx"), ends=FAILURE, says=["^neap: this CPU lacks 64-bit mode"], name="hello-without-no-execute"),
    *(Run("hello", cores=2, qemu=cpu(model), says=["hello from core 1"], name=f"hello-{model}") for model in CPU_MODELS),
    Run("boots", cores=1, words="expected_cores=1 expected_memory=256M"),
    Run("boots", cores=4, words="expected_cores=4 expected_memory=256M", name="boots-4-cores"),
    Run("boots", cores=16, memory="512M", words="expected_cores=16 expected_memory=512M", name="boots-16-cores"),
    Run("boots", cores=2, memory="64M", words="expected_cores=2 expected_memory=64M", name="boots-64M"),
    Run("boots", cores=2, memory="6G", words="expected_cores=2 expected_memory=6G", name="boots-6G"),
    Run("boots", cores=2, memory="4G", words="expected_cores=2 expected_memory=4G", name="boots-4G"),
    Run(
        "boots",
        cores=4,
        nodes=2,
        words="expected_cores=4 expected_memory=256M expected_nodes=2",
        says=["^cores: 1 package, 2 nodes, 4 cores", "^cores: package 0, node 0: 0 1$", "^cores: package 0, node 1: 2 3$"],
        name="boots-two-nodes",
    ),
    Run("boots", cores=4, nodes=2, memory="6G", words="expected_cores=4 expected_memory=6G expected_nodes=2", name="boots-two-nodes-6G"),
    Run("boots", cores=16, memory="6G", machine_type="pc", words="expected_cores=16 expected_memory=6G", name="boots-pc-16-cores-6G"),
    Run("boots", cores=2, words="expected_cores=2", qemu=cpu("max,-x2apic"), name="boots-without-x2apic"),
    Run("boots", cores=2, words="expected_cores=2", qemu=cpu("qemu64"), name="boots-old-cpu"),
    Run("boots", cores=2, memory="6G", words="expected_cores=2", qemu=cpu("max,-pdpe1gb"), name="boots-without-1G-pages"),
    Run("boots", cores=2, words="expected_cores=2", qemu=["-machine", "hpet=off"], name="boots-without-hpet"),
    Run("boots", cores=2, words="expected_cores=1", qemu=["-machine", "acpi=off"], says=["no ACPI tables"], name="boots-without-acpi"),
    Run("boots", cores=2, words="expected_cores=2 expected_memory=256M", qemu=["-machine", "pc"], name="boots-old-chipset"),
    Run("exceptions_cross_frames", cores=1),
    Run("exceptions_cross_frames", cores=4, name="exceptions_cross_frames-4-cores"),
    Run("thread_local_is_per_core", cores=4),
    Run("timers_are_never_early", cores=1),
    Run("timers_are_never_early", cores=3, name="timers_are_never_early-3-cores"),
    Run("timers_are_never_early", cores=2, qemu=cpu("max,-x2apic"), name="timers_are_never_early-without-x2apic"),
    Run("clocks_agree_between_cores", cores=4),
    Run(
        "firmware_is_looked_at",
        cores=4,
        qemu=["-bios", "bios-256k.bin"],  # SeaBIOS, which sets the MTRRs
        says=[r"^cpu: QEMU TCG CPU.*, family \d+ model \d+ stepping \d+"],
        never_says="FAILED|MTRR|IOMMU|window",
    ),
    Run(
        "firmware_is_looked_at",
        cores=4,
        says=["^cpu: ", "^looked at$", "^looked at again$"],
        never_says="FAILED|MTRR|IOMMU|window",
        name="firmware_is_looked_at-smallest-firmware",
    ),
    Run(
        "firmware_is_looked_at",
        words="iommu=on",
        qemu=["-device", "intel-iommu,intremap=on"],
        says=["^left on$", r"left the IOMMU at 0xfed90000 on: DMA interrupts; turned off$", "^looked at$", "^cpu: ", "^looked at again$"],
        name="firmware_is_looked_at-iommu",
    ),
    Run("no_wakeup_is_lost", cores=4),
    Run("no_wakeup_is_lost", cores=2, qemu=cpu("max,-x2apic"), name="no_wakeup_is_lost-without-x2apic"),
    *stressed("spawns_all_arrive", "table_holds_under_writers", "timers_by_the_million"),
    Run("idle_cores_take_no_timer_interrupt", cores=4, model="e5-2690"),
    Run(
        "watchdog_names_the_event",
        cores=2,
        words="watchdog=100ms",
        says=[
            # The backtrace is "?" if the host did not run the virtual core for a second.
            r"^watchdog: core 1 has been in an event for \d+ ms: (.*application.*|\?) \(seen by core 0\)$",
            r"^watchdog: an event of core 1 took \d+ ms: .*application",
        ],
    ),
    Run(
        "hello",
        cores=4,
        words="cores=0,2-3",
        qemu=["-smp", "4,sockets=1,cores=2,threads=2"],
        says=[r"^cores: 1 package, 2 cores, 4 threads; 1 parked$", r"^cores: package 0: 0\+- 1\+2$", r"on 3 cores$", "core 2$"],
        name="hello-some-cores",
    ),
    Run(
        "hello",
        cores=4,
        words="smt=off",
        qemu=["-smp", "4,sockets=2,cores=1,threads=2"],
        says=["^cores: 2 packages, 2 cores, 4 threads; 2 parked$", r"^cores: package 0: 0\+-$", r"^cores: package 1: 1\+-$", "on 2 cores$"],
        name="hello-without-smt",
    ),
    Run("hello", cores=2, words="cores=1-1", ends=BAD_COMMAND_LINE, says=["cores=1-1 must name core 0"], name="hello-without-core-0"),
    Run("hello", cores=16, memory="512M", says=["on 16 cores$", "core 15$"], name="hello-16-cores"),
    Run("msr_fault_is_an_error", cores=2),
    Run("stray_interrupts_are_counted", cores=2),
    Run("debugger_sees_what_waits", cores=3),
    Run("stray_interrupts_are_counted", cores=2, qemu=cpu("max,-x2apic"), name="stray_interrupts_are_counted-without-x2apic"),
    Run(
        "idle_policy_is_honest",
        cores=2,
        says=[
            r"^power: idle states halt; MWAIT returns at once here, so halt is used; no P-states, no power limit, no counters on this CPU$"
        ],
    ),
    Run("idle_policy_is_honest", cores=2, qemu=cpu("qemu64"), says=["^power: .*MWAIT is missing"], name="idle_policy_is_honest-old-cpu"),
    # An emulated CPU of any name returns zeros for the MSRs of P-states. These values are not valid.
    Run("idle_policy_is_honest", cores=2, qemu=cpu("Skylake-Server"), says=["^power: .*no P-states"], name="idle_policy_is_honest-xeon"),
    Run("out_of_memory_is_refused", cores=2, memory="64M"),
    Run("memory_is_near", cores=2),
    Run("memory_is_near", cores=2, memory="6G", words="huge=3G", name="memory_is_near-huge"),
    Run("memory_is_near", cores=4, nodes=2, words="expected_nodes=2 nearest_to_first=1", name="memory_is_near-two-nodes"),
    Run(
        "memory_is_near",
        cores=3,
        nodes=3,
        memory="384M",
        words="expected_nodes=3 nearest_to_first=2",
        qemu=THREE_NODES,
        name="memory_is_near-three-nodes",
    ),
    Run("memory_keeps_its_patterns", cores=1, memory="128M", says=["^steps "]),
    Run("memory_keeps_its_patterns", cores=4, nodes=2, says=["^steps "], name="memory_keeps_its_patterns-4-cores"),
    Run("memory_keeps_its_patterns", cores=2, words="heap=checked", says=["^steps "], name="memory_keeps_its_patterns-checked"),
    Run("memory_keeps_its_patterns", cores=2, memory="64M", words="seed=2", says=["^steps "], name="memory_keeps_its_patterns-64M"),
    Run("heap_misuse_is_found", cores=2, words="heap=checked"),
    misuse("overrun", "memory was written beyond its end"),
    misuse("underrun", "memory was written before its start"),
    misuse("late_write", "memory was written after it was freed"),
    misuse("second_free", "memory was freed twice"),
    misuse("late_second_free", "memory was freed twice"),
    misuse("unknown", "this memory is not from the heap"),
    Run("c_library_works", cores=4, says=["^printf speaks 4$", "^fputs speaks$"]),
    Run("c_library_works", cores=2, qemu=cpu("qemu64"), says=["no random number generator"], name="c_library_works-no-rdrand"),
    Run("memory_functions_agree", says=["agree, vectors$", "agree, string instructions$"]),
    Run("standard_library_works", cores=2, says=[r"^iostream speaks 3\.5$", r"^println speaks 2\.72$"]),
    Run("ends_as_asked", words="way=off", ends=POWER_OFF, says=[r"^random 0x[0-9a-f]{8,}$"], name="power-off"),
    Run("ends_as_asked", cores=3, words="way=off", ends=POWER_OFF, name="power-off-3-cores"),
    Run("ends_as_asked", cores=3, words="way=off core=2", ends=POWER_OFF, name="power-off-by-the-last-core"),
    Run("ends_as_asked", words="way=off", machine_type="pc", ends=POWER_OFF, name="power-off-old-chipset"),
    Run("ends_as_asked", words="way=restart", ends=RESET, name="restart"),
    Run("ends_as_asked", cores=3, words="way=restart core=1", ends=RESET, name="restart-by-another-core"),
    Run("ends_as_asked", words="way=restart", qemu=["-machine", "acpi=off"], ends=RESET, name="restart-without-acpi"),
    Run("ends_as_asked", words="way=fail", ends=FAILURE, name="failure"),
    Run("ends_as_asked", cores=3, words="way=fail core=2", ends=FAILURE, name="failure-by-the-last-core"),
    Run(
        "ends_as_asked",
        words="way=off",
        qemu=cpu("qemu64"),
        ends=POWER_OFF,
        says=["no random number generator", "random 0x"],
        name="no-rdrand",
    ),
    panic("null_read", "read through a null pointer", r"panic on core 0", r"^  #\d+ .*function_that_reads_null", r"^  #\d+ .*EventLoop::"),
    panic("null_jump", "jump to an address", r"^  #\d+ .*function_that_jumps_to_null"),
    panic("text_write", "write to read-only memory", r"^  #\d+ .*write_byte"),
    panic("text_write_direct_map", "write to read-only memory", r"^  #\d+ .*write_byte"),
    panic("constant_write", "write to read-only memory", r"^  #\d+ .*write_byte"),
    panic("heap_execute", "execution of memory that is not code", r"^  #\d+ .*execute"),
    panic("stack_execute", "execution of memory that is not code", r"^  #\d+ .*execute"),
    panic("data_execute", "execution of memory that is not code", r"^  #\d+ .*execute"),
    panic("stack_overflow", "stack overflow on core 0", r"^  #\d+ .*recurse_without_end"),
    panic(
        "stack_overflow",
        r"panic on core 1: stack overflow on core 1, in the event neap::application\(.*\{lambda",
        r"^  #\d+ .*recurse_without_end",
        "the same .* more times",
        core=1,
        cores=2,
    ),
    panic(
        "stack_overflow_in_turns",
        r"panic on core 0: stack overflow on core 0, in the event neap::application\(.*\{lambda",
        r"^  #0 .*recurse_",
        r"^     \d+ frames left out$",
        r"^  #\d{3,} .*recurse_in_turns",
        r"^  #\d{3,} .*EventLoop::run",
    ),
    panic(
        "wild_read",
        "neap: general protection fault: not a canonical address: r.. 0x6b6b6b6b6b6b6b6b",
        r"^  #\d+ .*read_through_a_wild_pointer",
    ),
    panic("far_write", r"page fault: write to an address that is not mapped \(0x7fff00000000\)", r"^  #\d+ .*write_byte"),
    panic("double_fault", "panic on core 0: double fault", r"^  #0 .*fault_without_a_stack", "the stack is damaged beyond this"),
    panic("double_fault", "panic on core 1: double fault", r"^  #0 .*fault_without_a_stack", "^core 0 was", core=1, cores=2),
    panic("divide", "divide error", r"^  #\d+ .*divide_by_zero"),
    panic("invalid_opcode", "invalid opcode", r"^  #\d+ .*commit"),
    panic("uncaught_exception", "nobody catches this"),
    panic("failed_requirement", "panic on core 0: what had to hold did not", r"detail: 0x2a \(42\)", r"^  #\d+ .*commit"),
    Run(
        "panic_stops_all_cores",
        cores=6,
        ends=PANIC,
        says=[
            "panic on core 0: this core wants to stop",
            "backtrace of core 0",
            "^core 1 was at",
            r"^  #\d+ .*print_without_end",
            r"^core 2 was at .*spin_without_end",
            r"^  #0 .*spin_without_end",
            r"^  #1 .*call_what_spins",
            r"^core 3 was at .*spin_on_a_lost_stack",
            r"^  #0 .*spin_on_a_lost_stack",
            "^     the stack is damaged beyond this$",
            # This line lists cores that are asleep, and cores that the host stopped just before they sleep.
            "^cores? 4 (was|to 5 were) (asleep|at)",
        ],
    ),
    Run("pci_reaches_devices", cores=4, qemu=pci_devices("4M")),
    # A machine without MCFG. The two I/O ports reach the configuration space.
    Run("pci_reaches_devices", cores=2, qemu=["-machine", "pc", *pci_devices("4M")], name="pci_reaches_devices-by-ports"),
    Run("pci_reaches_devices", cores=2, memory="6G", words="above_4g=on", qemu=pci_devices("8G"), name="pci_reaches_devices-above-4G"),
]


@pytest.mark.parametrize("run", RUNS, ids=[run.name or run.image for run in RUNS])
def test_image(run: Run) -> None:
    boot(run)


def test_boot_modules_arrive_in_order_and_stay(tmp_path: Path) -> None:
    dice = random.Random(5)
    contents = {"one.bin": dice.randbytes(3_000_001), "two.bin": b"x"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    # A text behind the file's name belongs to the module's name. A comma separates two modules.
    initrd = ",".join([f"{tmp_path / 'one.bin'} and a text", str(tmp_path / "two.bin")])
    lines = boot(Run("modules_stay", words="expected_memory=256M", qemu=["-initrd", initrd]))
    found = [re.fullmatch(r"module (.*) (\d+) 0x([0-9a-f]+)", line) for line in lines if line.startswith("module ")]
    assert [(Path(each[1].split(" ")[0]).name, int(each[2]), int(each[3], 16)) for each in found] == [
        (name, len(content), crc32c(content)) for name, content in contents.items()
    ]
    assert found[0][1].endswith("one.bin and a text")


def test_wall_clock_is_the_hosts() -> None:
    reported = next(int(line.split()[-1]) for line in boot(Run("timers_are_never_early")) if line.startswith("wall clock "))
    assert abs(reported - time.time()) < CLOCK_ERROR_SECONDS, f"the image thinks it is {reported}"


def test_nmi_is_a_panic_that_names_itself() -> None:
    run = Run("ends_as_asked", words="way=stay", ends=PANIC, says=["neap: NMI: core 0", "panic on core 0: NMI", "backtrace of core 0"])
    with bare(run.image, arguments=run.words.split()) as machine:
        machine.wait_for_line("^staying$", TIMEOUT_SECONDS)
        machine.qmp("inject-nmi")
        status = machine.wait_exit(TIMEOUT_SECONDS)
    judge(run, status, machine.lines)


@pytest.mark.parametrize("fault", ["failed_requirement", "divide", "stack_overflow"])
def test_of_simultaneous_panics_on_all_cores_one_is_reported(fault: str) -> None:
    lines = boot(Run("faults_are_named", cores=4, words=f"fault={fault} together=yes", ends=PANIC))
    reported = [line for line in lines if re.search("panic on core", line)]
    assert len(reported) == 1, reported
    # The other cores panicked, too. The report lists them like cores without a panic.
    assert sum(bool(re.search(r"^core \d was at ", line)) for line in lines) == 3, "\n".join(lines)


def test_a_machine_that_cannot_be_switched_off_reports_it() -> None:
    with bare("ends_as_asked", arguments=["way=off"], qemu_options=["-machine", "acpi=off"]) as machine:
        machine.wait_for_line("^neap: this machine cannot be switched off by ACPI; it is halted$", TIMEOUT_SECONDS)
        assert machine.running


def screen(machine: Machine, folder: Path) -> list[str]:
    """Returns the lines of the machine's text screen."""
    dump = folder / "screen"
    machine.qmp("pmemsave", val=0xB8000, size=4000, filename=str(dump))
    cells = dump.read_bytes()
    return [cells[row : row + 160 : 2].decode("latin-1").rstrip() for row in range(0, 4000, 160)]


def test_the_screen_shows_the_end_of_the_serial_output(tmp_path: Path) -> None:
    with bare("ends_as_asked", arguments=["way=stay", "console=vga,com1"], qemu_options=["-device", "VGA"]) as machine:
        machine.wait_for_line("^staying$", TIMEOUT_SECONDS)
        # The image writes each line to the screen after the serial port.
        assert wait_until(lambda: any(line == "staying" for line in screen(machine, tmp_path)), TIMEOUT_SECONDS)
        # Boot lines that are longer than the screen is wide continue on the next line.
        shown, serial = screen(machine, tmp_path), machine.lines
        machine.qmp("inject-nmi")
        assert machine.wait_exit(TIMEOUT_SECONDS) == PANIC
    assert "".join(line.ljust(80) for line in shown).rstrip() == "".join(line.ljust(-(-len(line) // 80) * 80) for line in serial).rstrip()


def test_a_refusal_before_any_console_is_on_the_screen_too(tmp_path: Path) -> None:
    with bare("hello", cpu="qemu64,-lm", qemu_options=["-device", "VGA", "-action", "shutdown=pause"]) as machine:
        machine.wait_for_line("lacks 64-bit mode", TIMEOUT_SECONDS)
        assert wait_until(lambda: "neap: this CPU lacks 64-bit mode" in screen(machine, tmp_path)[0], TIMEOUT_SECONDS)


def test_a_panic_is_reported_once_at_the_next_start() -> None:
    words = ["way=stay", "panic=reboot"]
    reported = r"^neap: start 1 ended in a panic"
    with bare("ends_as_asked", cores=2, arguments=words, restarts=True) as machine:
        machine.wait_for_line("^staying$", TIMEOUT_SECONDS)
        machine.qmp("inject-nmi")
        machine.wait_for_line(reported, TIMEOUT_SECONDS)
        restarted = next(at for at, line in enumerate(machine.lines) if re.search(reported, line))
        machine.wait_for_line("^staying$", TIMEOUT_SECONDS, restarted)
        lines = machine.lines
        # After a restart without a panic, the image reports no earlier panic.
        machine.qmp("system_reset")
        machine.wait_for_line("^staying$", TIMEOUT_SECONDS, len(lines))
        after = machine.lines[len(lines) :]
    kept = [line.removeprefix("| ") for line in lines[restarted:] if line.startswith("| ")]
    earlier = lines[:restarted]
    assert kept == earlier[-len(kept) :], "the kept lines are the end of the console"
    for pattern in (
        "^staying$",
        "^neap: NMI: core 0",
        "^panic on core 0: NMI$",
        "^backtrace of core 0:",
        r"^  #\d+ .*EventLoop::",
        "^core 1 was",
    ):
        assert any(re.search(pattern, line) for line in kept), f"no line like /{pattern}/ was kept"
    assert not any("panic" in line for line in after if "command line" not in line), after


def test_tables_with_addresses_beyond_the_cpus_range_are_survived(tmp_path: Path) -> None:
    """MCFG places the configuration spaces of segments 0 and 1 beyond the CPU's range. A page-table entry with such an address faults."""
    body = bytes(8)
    for segment, base in enumerate((1 << 46, 1 << 47)):
        body += base.to_bytes(8, "little") + segment.to_bytes(2, "little") + bytes([0, 15]) + bytes(4)
    (tmp_path / "MCFG").write_bytes(body)
    boot(Run("hello", machine_type="pc", cores=2, qemu=["-acpitable", f"sig=MCFG,data={tmp_path / 'MCFG'}"], says=["^hello from core 1$"]))


@pytest.mark.parametrize("seed", [1, 2])
def test_broken_acpi_tables_are_survived(seed: int, tmp_path: Path) -> None:
    """The firmware has more tables, with random content after a valid header (QEMU adds the checksum). The rest of the machine works."""
    dice = random.Random(seed)
    words = []
    for signature in ("SRAT", "SLIT", "MCFG", "DMAR", "SSDT", "APIC", "FACP"):
        # The entries have a type and a length, which is sometimes 0 or beyond the end. With seed 2 all bytes are random.
        body = dice.randbytes(12)
        while len(body) < 1500:
            length = dice.choice([0, 2, 8, 16, 24, 40, 200]) if dice.random() < 0.1 else dice.choice([8, 16, 24, 40])
            body += bytes([dice.randrange(10), length]) + dice.randbytes(max(0, length - 2))
        table = tmp_path / signature
        table.write_bytes(body if seed == 1 else dice.randbytes(1500))
        words += ["-acpitable", f"sig={signature},data={table}"]
    boot(Run("hello", cores=2, qemu=words, says=["on 2 cores$", "^hello from core 1$"]))


def test_the_linker_reports_that_there_is_no_file_system(tmp_path: Path) -> None:
    source, compiler = tmp_path / "files.cpp", f"{toolchain.require()}/bin/x86_64-neap-elf-g++"
    source.write_text("#include <filesystem>\nbool there() { return std::filesystem::is_empty(std::filesystem::current_path()); }\n")
    subprocess.run([compiler, "-std=c++23", "-c", "-o", tmp_path / "files.o", source], check=True, timeout=TIMEOUT_SECONDS)
    script = tmp_path / "any.ld"
    script.write_text("ENTRY(_Z5therev)\n")
    words = ["--compiler", compiler, "--script", script, "--output", tmp_path / "files.elf", "--"]
    linked = finished([sys.executable, REPOSITORY / "boot/link_image.py", *words, tmp_path / "files.o"], TIMEOUT_SECONDS)
    assert linked.returncode != 0
    assert "Neap has no file system: std::filesystem" in linked.stderr, linked.stderr
    assert "processes" not in linked.stderr


def test_every_image_is_booted() -> None:
    """Each built image is in IMAGES_TESTED, so a test boots it."""
    built = {path.stem for path in (BUILD / "tests/target").glob("*.elf") if not path.name.endswith(".debug.elf")}
    assert built, f"no images in {BUILD}: ./neap build --preset image-debug"
    assert built - IMAGES_TESTED == set()
