"""`python -m fuzz`: many damaged payloads down each path, or one of them again."""

import argparse
import asyncio
import logging
import random
import sys
import time

from fuzz.paths import PATHS, Road

_SECONDS_OF_SILENCE = 10.0


async def _send(name: str, seed: int, numbers: range) -> None:
    road = Road(PATHS[name], seed)
    began = told = time.monotonic()
    async with road.queue:
        for number in numbers:
            case = road.case(number)
            try:
                await road.run(case)
            except Exception:
                _say(f"{name}: case {number} is wrong; again: --path {name} --seed {seed} --case {number}")
                _say(f"id {case.id}, payload {case.payload[:2_000]!r}")
                raise
            if time.monotonic() - told > _SECONDS_OF_SILENCE:
                told = time.monotonic()
                _say(f"{name}: {number + 1} …")
    ends = ", ".join(f"{count} {how}" for how, count in road.ends.most_common())
    _say(f"{name}: {road.ends.total()} payloads in {time.monotonic() - began:.0f} s: {ends}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Send what the arguments ask for, and stop at the first that doesn't end as it must."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--path", choices=PATHS, help="one path only")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--cases", type=int, default=100_000, help="for each path")
    parser.add_argument("--case", type=int, help="this one alone")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    _say(f"seed {options.seed}")
    only = options.case
    numbers = range(options.cases) if only is None else range(only, only + 1)
    for name in [options.path] if options.path else PATHS:
        asyncio.run(_send(name, options.seed, numbers))


if __name__ == "__main__":
    main()
