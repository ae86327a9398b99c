"""`make compatibility`: run the whole suite on every store, or on those named, and write the page anew.

    make compatibility ARGS='redis valkey'

A store that isn't reachable keeps the verdicts it had. The status is 1 where a rule is broken.
"""

import asyncio
import contextlib
import logging
import platform
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from backends import STORES, StoreUnderTest

from aqueue.testing.contract import Harness
from aqueue.testing.contract.verdicts import Report, examine
from compatibility import PAGE, VERDICTS
from compatibility.page import RuleTally, StoreVerdict, Verdicts, rendered
from compatibility.versions import version_of

_AT_ONCE = 4


def main(names: Sequence[str]) -> int:
    logging.getLogger("aqueue").addHandler(logging.NullHandler())  # jobs fail here on purpose
    stores = {store.name: store for store in STORES}
    if unknown := set(names) - set(stores):
        sys.exit(f"unknown stores: {', '.join(sorted(unknown))}; known: {', '.join(stores)}")
    found = known_verdicts().stores
    for name in names or stores:
        if reason := stores[name].unreachable():
            sys.stdout.write(f"{name}: not reachable ({reason})\n")
            continue
        found[name] = _verdict_on(stores[name])
        write(Verdicts(stores={name: found[name] for name in stores if name in found}))
        broken = ", ".join(found[name].broken) or "none"
        sys.stdout.write(f"{name}: {found[name].checks} checks, broken: {broken}\n")
    return 1 if any(store.broken for store in found.values()) else 0


def known_verdicts() -> Verdicts:
    """Return what was found so far."""
    if not VERDICTS.exists():
        return Verdicts(stores={})
    return msgspec.json.decode(VERDICTS.read_bytes(), type=Verdicts)


def write(verdicts: Verdicts) -> None:
    """Write the verdicts, and the page that is made of them."""
    VERDICTS.write_bytes(msgspec.json.format(msgspec.json.encode(verdicts), indent=1) + b"\n")
    PAGE.write_text(rendered(verdicts), encoding="utf-8")


def _verdict_on(store: StoreUnderTest) -> StoreVerdict:
    with _folders() as folders:
        report = asyncio.run(examine(lambda: _harness(store, folders), at_once=_AT_ONCE))
    return StoreVerdict(
        versions=version_of(store.name),
        python=platform.python_version(),
        aqueue=report.aqueue,
        tested=datetime.now(UTC).date().isoformat(),
        abilities=list(report.abilities),
        checks=len(report.verdicts),
        rules=_tallies(report),
    )


def _tallies(report: Report) -> dict[str, RuleTally]:
    return {
        rule: RuleTally(
            checks=len(verdicts),
            broken=[f"{each.check}: {each.broken}" for each in verdicts if each.broken],
        )
        for rule, verdicts in report.by_rule().items()
    }


def _harness(store: StoreUnderTest, folders: Iterator[Path]) -> Harness:
    return store.harness(next(folders))


@contextlib.contextmanager
def _folders() -> Iterator[Iterator[Path]]:
    """Give an empty directory each time, and remove them all in the end."""
    with TemporaryDirectory(prefix="aqueue-compatibility-") as place:

        def fresh() -> Iterator[Path]:
            number = 0
            while True:
                number += 1
                (folder := Path(place) / str(number)).mkdir()
                yield folder

        yield fresh()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
