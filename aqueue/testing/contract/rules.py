"""A check: one sentence of the contract as an async function over a `Harness`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aqueue.testing.contract.harness import Harness

CheckFunction = Callable[[Harness], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """One proof and the rules it proves; it raises `AssertionError` where the store breaks them."""

    rules: tuple[str, ...]
    name: str
    promise: str
    function: CheckFunction

    @property
    def id(self) -> str:
        """The check's name in a test run: its first rule and its sentence."""
        return f"{self.rules[0]}-{self.name}"

    async def __call__(self, harness: Harness) -> None:
        """Prove it in the harness's place, which must be empty; closing that is the caller's."""
        await self.function(harness)


def rule(*ids: str) -> Callable[[CheckFunction], Check]:
    """Make a check of an async function, by the rules it proves; its docstring says what they promise."""

    def declare(function: CheckFunction) -> Check:
        name = getattr(function, "__name__", "check")
        return Check(rules=ids, name=name, promise=(function.__doc__ or "").strip(), function=function)

    return declare
