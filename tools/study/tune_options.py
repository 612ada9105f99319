# SPDX-License-Identifier: BSL-1.0
"""The options of `./neap tune`. This module needs the standard library only, because `./neap --help` uses it."""

import argparse

SUMMARY = "Search the setting of least power within an SLA, in few trials, on a table of runs or on a machine."


def add(tune: argparse.ArgumentParser) -> None:
    tune.add_argument("places", nargs="*", metavar="STUDY|FILE|APP|HOST[:PORT]", help="a table of runs; with --live a machine")
    tune.add_argument("--sla", default="500", metavar="US", help="largest latency in us; with --day several, like 200,300,500 (500)")
    tune.add_argument("--latency", default="p99_us", metavar="COLUMN", help="the latency of the SLA (p99_us)")
    tune.add_argument("--objective", choices=("power", "energy"), default="power", help="power, or energy per request (power)")
    tune.add_argument("--guard", type=float, default=1.0, metavar="PERCENT", help="trials keep at least this distance from the SLA (1)")
    tune.add_argument("--trials", type=int, default=30, metavar="N", help="largest number of trials (30)")
    tune.add_argument("--gain", type=float, default=0.05, metavar="PERCENT", help="end if no setting promises to save this much (0.05)")
    tune.add_argument("--seconds-max", type=float, metavar="S", help="end after this time of the host")
    tune.add_argument("--day", metavar="FILE", help="lines of hour,rate: a search in each hour, for ITR alone, DVFS alone and both")
    tune.add_argument("--where", metavar="SQL", help="of a table: only rows that fulfil this condition")
    tune.add_argument("--seed", type=int, default=1, metavar="N", help="order of a table's repeats; first seed of the model machine (1)")
    tune.add_argument("--live", action="store_true", help="make the trials on a machine, over control and with ./neap load")
    tune.add_argument("--model", metavar="CPU", help="make the trials on the model machine, in virtual time: e5-2690, ...")
    tune.add_argument("--cores", type=int, default=1, metavar="N", help="of --model")
    tune.add_argument("--itr", metavar="VALUES", help="of --live: FROM:TO:STEP or values in us; none: not tuned (2:500:2)")
    tune.add_argument("--frequency", metavar="VALUES", help="of --live: in GHz; none: not tuned (1.2:2.9:0.1)")
    text = "a further axis: of --live NAME=VALUES, the safest value first; of a table a column"
    tune.add_argument("--axis", dest="axes", action="append", default=[], metavar="NAME[=VALUES]", help=text)
    tune.add_argument("--load-target", metavar="HOST:PORT", help="of --live: the memcached (port 11211 of the machine)")
    tune.add_argument("--token-file", metavar="F", help="a file with the token of control in its first line")
    tune.add_argument("--preset", choices=("etc", "usr", "fixed"), default="etc", help="of --live: the load (etc)")
    tune.add_argument("--rate", type=float, default=10_000.0, metavar="N", help="of --live: requests a second (10000)")
    tune.add_argument("--connections", type=int, default=16, metavar="N", help="of --live (16)")
    tune.add_argument("--trial-seconds", type=float, metavar="S", help="measured time of a trial (20; with --model 0.1)")
    tune.add_argument("--warm-up", type=float, metavar="S", help="of --live: before the measured time (1; with --model 0.02)")
    tune.add_argument("--out", metavar="FILE", help="of --live: write the trials there, as a table of runs in Parquet")
    tune.add_argument("--json", dest="as_json", action="store_true")
