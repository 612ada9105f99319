# SPDX-License-Identifier: BSL-1.0
"""`python -m hostile ATTACK`: one attack, in the network namespace in which this is started; the result is one JSON object."""

import argparse
import json
import sys

from hostile import scene
from hostile.attacks import ATTACKS, FULL_SIZE


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="of the bystander's measurement")
    parser.add_argument("--rate", type=float, default=200.0, help="of the bystander's requests, a second")
    parser.add_argument("--calm", action="store_true", help="measure the bystander undisturbed too, before and after")
    parser.add_argument("--full", action="store_true", help="the size of `./neap soak crowd`")
    options = parser.parse_args()
    kinds = FULL_SIZE if options.full else ATTACKS
    if options.attack not in kinds:
        parser.error(f"{options.attack} has one size")
    done = scene.run(
        options.attack, kinds[options.attack], cores=options.cores, seconds=options.seconds, rate=options.rate, calm=options.calm
    )
    json.dump(done, sys.stdout)
    print()


main()
