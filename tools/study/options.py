# SPDX-License-Identifier: BSL-1.0
"""The options of the study's commands. This module needs the standard library only, because `./neap --help` uses it."""

import argparse
from collections.abc import Callable

from tools.study import tune_options


def add(command: Callable[..., argparse.ArgumentParser], call: Callable) -> None:
    """Adds all of them. `command`: makes a command of a name, of `call`, which executes it, and of a summary."""
    _add_runs(command, call)
    _add_analyses(command, call)
    tune_options.add(command("tune", call, tune_options.SUMMARY, builds=False))
    _add_view(command, call)


def _add_runs(command: Callable[..., argparse.ArgumentParser], call: Callable) -> None:
    sweep = command("sweep", call, "Measure all runs of a study, on the model machine or on real ones; an interrupted sweep goes on.")
    sweep.add_argument("file", nargs="?", metavar="STUDY.toml", help="arms, settings, loads, repeats, checks (docs/study.md)")
    _add_place(sweep)
    sweep.add_argument("--retry-failed", action="store_true", help="also runs that failed before")
    sweep.add_argument("--plan", dest="plan_only", action="store_true", help="list all runs and end")
    sweep.add_argument("--worker", action="store_true", help="run units for a sweep that speaks to standard input (docs/study.md, Rigs)")

    search = command("search", call, "Find the last value that meets a limit of latency: itr-max, rapl-min or peak-rate of a study.")
    search.add_argument("kind", metavar="itr-max|rapl-min|peak-rate")
    search.add_argument("file", metavar="STUDY.toml", help="its values are those that the search may take")
    search.add_argument("--sla", default="p99<500us", metavar="LIMIT", help="the limit, such as 'p99<500us'")
    _add_place(search)
    search.add_argument("--json", dest="as_json", action="store_true")


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", help="the folder of all results (the file's name with .study)")
    parser.add_argument("--jobs", type=int, metavar="N", help="workers on this host (the number of its cores)")
    parser.add_argument("--rigs", dest="rigs_file", metavar="FILE", help="where workers run, in place of --jobs")
    parser.add_argument("--machines", default="machines.toml", metavar="FILE", help="the file that describes real machines (machines.toml)")


def _add_analyses(command: Callable[..., argparse.ArgumentParser], call: Callable) -> None:
    fit = command("fit", call, "Fit the published studies' models 6.1 to 6.6 to the runs of a study.", builds=False)
    pareto = command("pareto", call, "Fronts of latency against energy per request, and the best settings for each SLA.", builds=False)
    for analysis in (fit, pareto):
        analysis.add_argument(
            "places", nargs="+", metavar="STUDY|FILE", help="a study's folder, or its table as Parquet or CSV; repeatable"
        )
        analysis.add_argument("--by", metavar="COLUMNS", help="the columns that make groups, like arm,load,rate_wanted (those that vary)")
        analysis.add_argument("--where", metavar="SQL", help="only rows that fulfil this condition, like 'itr_us >= 50'")
        analysis.add_argument("--latency", metavar="COLUMN", help="p50_us, p99_us, p999_us, ... (p99_us; of NetPIPE's rows p50_us)")
        analysis.add_argument("--replicates", type=int, default=1000, metavar="N", help="of the bootstrap; 0: no intervals (1000)")
        analysis.add_argument("--seed", type=int, default=1, metavar="N", help="of the bootstrap (1)")
        analysis.add_argument("--json", dest="as_json", action="store_true")
        analysis.add_argument("--csv", dest="as_csv", action="store_true")
        analysis.add_argument("--keep-saturated", action="store_true", help="also runs that reached less than 99 %% of their rate")
    fit.add_argument("--plain-residuals", action="store_true", help="minimise differences in us and J, not in percent")
    fit.add_argument("--residuals", metavar="FILE", help="write measured and predicted values of each row there, as CSV")
    fit.add_argument("--link-gbps", type=float, default=10.0, metavar="N", help="of NetPIPE's rows: speed of the link (10)")
    fit.add_argument("--link-delay-us", type=float, default=0.0, metavar="N", help="of NetPIPE's rows: delay of the link, one way (0)")
    pareto.add_argument("--sla", metavar="US,...", help="limits of the latency in us (100,200,300,400,500)")
    pareto.add_argument("--default-itr", type=float, metavar="US", help="the ITR of `DVFS alone` (the adaptive one, or each)")
    pareto.add_argument("--sure", type=float, default=0.5, metavar="SHARE", help="a setting is within an SLA in at least this share (0.5)")
    pareto.add_argument("--table", choices=("front", "band", "settings", "best"), default="front", help="of --csv (front)")


def _add_view(command: Callable[..., argparse.ArgumentParser], call: Callable) -> None:
    view = command("view", call, "A page over all runs of a study, ready figures, and the published studies' datasets.", builds=False)
    view.add_argument("places", nargs="*", metavar="STUDY", help="a study's folder, runs.parquet, a CSV file, or a published dataset")
    view.add_argument("--figures", action="store_true", help="list the ready figures")
    view.add_argument("--figure", metavar="NAME", help="make a ready figure, into --out FILE.svg, .html or .csv")
    view.add_argument("--out", metavar="FILE", help="without --figure: all runs, as .parquet or .csv; of --layout: a folder")
    view.add_argument(
        "--where", action="append", default=[], metavar="NAME=VALUES", help="only runs with NAME=A,B or NAME=LOW..HIGH; repeatable"
    )
    view.add_argument("--run", metavar="RUN", help="of the figure timeline: the name of the run")
    view.add_argument("--sla", dest="slas", type=float, action="append", default=[], metavar="US", help="limit of p99; repeatable")
    view.add_argument("--layout", metavar="NAME", help="write the runs as the published studies' files: linux, ebbrt, log")
    view.add_argument("--port", type=int, default=0, metavar="N", help="the port of the page (a free one)")
