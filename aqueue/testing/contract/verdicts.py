"""What the suite says of a store, rule by rule (CONF-1)."""

import asyncio
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version

import msgspec

from aqueue.port import AcksAtOnce, Browsable, Clearable, DeadLetters, KeepsFailed, KeepsNotes, Transactional
from aqueue.testing.contract import Check, Harness, all_checks

LONGEST_CHECK = 120.0
"""Seconds that one check may take."""

_ABILITIES: Sequence[type] = (
    AcksAtOnce, Browsable, Clearable, DeadLetters, KeepsFailed, KeepsNotes, Transactional,
)  # fmt: skip


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found: `broken` says how the store breaks the rules; it is empty where it keeps them."""

    check: str
    rules: tuple[str, ...]
    promise: str
    broken: str = ""
    seconds: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts on one store, beside what it says it can do."""

    store: str
    aqueue: str
    capabilities: dict[str, object]
    abilities: tuple[str, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def holds(self) -> bool:
        """Whether the store keeps every rule."""
        return not any(verdict.broken for verdict in self.verdicts)

    def by_rule(self) -> dict[str, list[Verdict]]:
        """Return the verdicts of each rule, the rules in the order of the contract."""
        rules: dict[str, list[Verdict]] = {}
        for verdict in self.verdicts:
            for rule in verdict.rules:
                rules.setdefault(rule, []).append(verdict)
        return rules


async def prove(check: Check, harness: Harness) -> None:
    """Run one check in its place, and close that; raises what the check raises, or that it did not end."""
    try:
        async with asyncio.timeout(LONGEST_CHECK):
            await check(harness)
    except TimeoutError as error:
        raise AssertionError(f"it did not end within {LONGEST_CHECK:g} s") from error
    finally:
        await harness.aclose()


async def examine(
    new_harness: Callable[[], Harness],
    checks: Sequence[Check] | None = None,
    *,
    at_once: int = 1,
    tell: Callable[[Verdict], object] = lambda _: None,
) -> Report:
    """Run the checks, all of them unless told otherwise, each in a new place; return what they found.

    `at_once` of them run side by side, which is quicker where they wait for leases, and strains the store.
    `tell` is called with each verdict as it falls. Cancelling closes what is open.
    """
    wanted = all_checks() if checks is None else checks
    free = asyncio.Semaphore(at_once)
    verdicts: dict[str, Verdict] = {}

    async def try_out(check: Check) -> None:
        async with free:
            verdict = verdicts[check.id] = await _verdict(check, new_harness)
        tell(verdict)

    async with asyncio.TaskGroup() as group:
        for check in wanted:
            group.create_task(try_out(check))
    return _report(new_harness(), [verdicts[check.id] for check in wanted])


async def _verdict(check: Check, new_harness: Callable[[], Harness]) -> Verdict:
    began, broken = time.perf_counter(), ""
    try:
        await prove(check, new_harness())
    except Exception as error:  # noqa: BLE001 - whatever a store raises breaks the rule that is being checked
        broken = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Verdict(
        check=check.name,
        rules=check.rules,
        promise=check.promise,
        broken=broken,
        seconds=round(time.perf_counter() - began, 3),
    )


def _report(harness: Harness, verdicts: Sequence[Verdict]) -> Report:
    capabilities = msgspec.to_builtins(harness.capabilities)
    return Report(
        store=harness.capabilities.system,
        aqueue=version("aqueue-jobs"),
        capabilities=capabilities,
        abilities=tuple(each.__name__ for each in _ABILITIES if isinstance(harness.unopened, each)),
        verdicts=tuple(verdicts),
    )
