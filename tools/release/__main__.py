# SPDX-License-Identifier: BSL-1.0
"""Packs the products that a checkout has, for tests. A product that is missing is left out.

PYTHONPATH=. python3 -m tools.release --tree CHECKOUT --out DIR [PART ...]
"""

import argparse
from pathlib import Path

from tools.release.assembly import PARTS, assemble
from tools.release.stage import of_checkout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", required=True, type=Path, help="a checkout with built products")
    parser.add_argument("--out", required=True, type=Path, help="the folder for the files")
    parser.add_argument("parts", nargs="*", choices=PARTS, default=["wheel"])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    stage = of_checkout(arguments.tree.resolve())
    for path in assemble(stage, arguments.out, parts=arguments.parts, complete=False):
        print(f"{path} {path.stat().st_size}")


if __name__ == "__main__":
    main()
