# SPDX-License-Identifier: BSL-1.0
"""`python -m hostile ATTACK`: one attack, in the network namespace in which this is started; the result is one JSON object."""

import argparse
import json
import sys

from hostile import scene
from hostile.attacks import ATTACKS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("attack", choices=ATTACKS)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="of the bystander's measurement")
    parser.add_argument("--rate", type=float, default=200.0, help="of the bystander's requests, a second")
    parser.add_argument("--calm", action="store_true", help="measure the bystander undisturbed too, before and after")
    options = parser.parse_args()
    json.dump(scene.run(options.attack, cores=options.cores, seconds=options.seconds, rate=options.rate, calm=options.calm), sys.stdout)
    print()


main()
