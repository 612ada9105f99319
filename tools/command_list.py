# SPDX-License-Identifier: BSL-1.0
"""The commands of `./neap`, as `./neap --help` lists them. cli.py has their options."""

COMMANDS = """\
commands:
  run APP|PATH [options] [-- key=value ...]
                                         build an application, of Neap or in its own folder, and run it on an
                                         emulated machine; --vfio ADDRESS passes a real card through, --gdb starts gdb
                                         on it, --trace CORE records the functions that a core calls
  replay DIR [--gdb]                     repeat a run that `run --model ... --record DIR` kept, and compare it
  new NAME [--dir D]                     make a folder with a new application, outside of Neap
  vfio bind|unbind|status ADDRESS        take a real card from this Linux for --vfio, or give it back
  ctl APP|HOST[:PORT] LINE ...           send lines to a running machine: status, 'itr,8us', 'idle,poll,2'
  top APP|HOST[:PORT] [--once]           a live view of its cores
  machine [APP|HOST[:PORT]|local|FILE]   the facts that decide whether two runs may be compared: CPU, limits, card, settings
  machine diff PLACE PLACE [--all]       the differences of two machines; exit status 1 if they forbid a comparison
  load [http] APP|HOST[:PORT] [options]  offer load to a memcached or web server and measure its latency; --help has the options
  log collect|fetch HOST --out DIR       fetch the cores' logs
  log summary|report|csv|parquet DIR     figures, a page of plots, tables
  log diff DIR DIR                       compare two runs
  log wakeups DIR                        wake-up latency by idle state, of a run of wakeup
  build [APP|PATH ...]                   build boot images (by default all of Neap) and the soft card; neap-trace: the
                                         log of a stock Linux, as one program
  test [LAYER|PATH ...]                  run the tests: host sim load tools target system style; or those of an application
  packetdrill [SCRIPT|FOLDER ...] [--all-failures] [--judge PROGRAM]
                                         run scripts of packets and system calls against the network, in virtual time
  soak [LAYER ...|card|driver|fuzz|histories|kernel|suite] [--minutes N]
                                         repeat tests; card: its fuzzers alone; driver: random settings and faults;
                                         kernel: its stress images; fuzz: all other fuzzers; histories: what concurrent
                                         clients of memcached see is linearizable; suite: memcached's own tests
  soak model [--seeds N] [--first-seed S] [--cores N] [--jobs N] [--fault WORDS]
                                         faults in virtual time on the model machine, each run from its seed
  soak starts [--starts N] [--cores N] [--busy N]
                                         start many cores on a busy host: all of them run, or the machine refuses
  soak crowd [--cores N]                 memcached with 10,000 connections, with slow readers, with clients that vanish, and with
                                         its memory full: all others are served, and each counter is within its limit
  soak network [--minutes N] [--part PART]
                                         transfers over random bad links, a flood of SYNs beside a client, 100,000 connections, 10,000 at
                                         once on 256 MB, and the network's fuzzers
  soak protocols [--bytes N]             random bytes of memcached's protocols under the sanitizers, 10^8 bytes of each
  soak web [--minutes N | --bytes N]     the web server with 1,000 connections, slow clients, endless loops and 10^8 damaged bytes
  soak test262 --folder DIR [--every N]  the conformance suite of JavaScript, on the host and on the image
  pxe APP|PATH ... --out DIR             make a tree that machines boot from over the network: BIOS, UEFI, iPXE
  pxe --out DIR --serve INTERFACE        serve it: proxy-DHCP, TFTP, HTTP
  pxe --out DIR --next MACHINE=IMAGE [-- key=value ...]
                                         set a machine's next boot
  iso APP|PATH [--out FILE] [-- key=value ...]
                                         make one image for CD and disk, BIOS and UEFI
  power cycle|on|off|status MACHINE      switch a machine of machines.toml by its BMC
  bench NAME ... [--json]                measure costs and rates: observe kernel request web stream netpipe card linux-card load
                                         hostile trade-off sleep-states determinism ancestor model-judges model-speed netpipe-model
                                         wakeup idle idle-policies counts linux-log report-page fit tune
                                         view sweep-kills sweep-ssh
  bench network [--rows PATTERN] [--megabytes N] [--seeds N] [--congestion cubic|reno]
                [--word KEY=VALUE] [--json]
                                         transfers over bad links, Neap against Linux beside Linux to Linux
  compare [FILE] [--out DIR] [--only PATTERN] [--rounds N] [--cores N]
                                         Neap beside Linux on the model machine: instructions by layer, latency, energy
  sweep STUDY.toml [--out DIR] [--jobs N] [--rigs FILE] [--retry-failed]
                                         settings x loads x repeats x arms of a study, into tables; goes on after a kill
  search itr-max|rapl-min|peak-rate STUDY.toml [--sla LIMIT]
                                         the last value that meets a limit of latency, and what stopped the search
  fit STUDY|FILE [--by COLUMNS] [--where SQL] [--latency COLUMN]
                                         fit the published models of latency, energy and NetPIPE to a study's runs
  pareto STUDY|FILE [--by COLUMNS] [--sla US,...] [--latency COLUMN]
                                         fronts of latency against energy per request, and the best settings for each SLA
  tune STUDY|FILE [--sla US] [--trials N] [--day FILE]
                                         the setting of least power within an SLA, in few trials, on a table of runs
  tune --live APP|HOST[:PORT] | --model CPU [--itr VALUES] [--frequency VALUES]
                                         the same on a machine, which is at a safe setting whenever no trial is in progress
  view STUDY ... [--figure NAME --out FILE]
                                         a page over all runs of a study, or a ready figure; --figures lists them
  view STUDY --out FILE|--layout NAME --out DIR
                                         all runs as one table, or in the published studies' layout
  doctor [--json]                        report what this machine has and what it lacks
  toolchain build|export FILE|import FILE|URL
                                         the cross compiler: build it, or copy it to another machine
  release [--out DIR] [--snapshot] [--twice]
                                         make the files of a release: wheel, toolchain, packages, sources
  clean [--cache]                        remove build output (and all that was fetched)
"""
