"""What became of a job's effects, wherever its process died."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """One death, and what had happened once the job was delivered again and done.

    `step` is the number of the suspension at which the process died, `where` its place in the code. `doubled`
    are effects that happened more often than without a death, `missing` those that happened less often,
    `error` is what set the job aside the second time.
    """

    step: int
    where: str
    effects: tuple[Hashable, ...]
    doubled: tuple[Hashable, ...]
    missing: tuple[Hashable, ...]
    error: BaseException | None

    @property
    def is_harmless(self) -> bool:
        """Whether nobody can tell from the effects that the process died."""
        return not (self.doubled or self.missing or self.error)

    def __str__(self) -> str:
        found = [f"{word} {value!r}" for word in ("doubled", "missing") for value in getattr(self, word)]
        if self.error is not None:
            found.append(f"failed with {type(self.error).__name__}: {self.error}")
        return f"step {self.step}, {self.where}: {'; '.join(found) or 'harmless'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """Every death that was tried; `expected` are the effects of a run without one."""

    points: tuple[CrashPoint, ...]
    expected: tuple[Hashable, ...]

    @property
    def steps(self) -> int:
        """At how many places the process died: each suspension, and after the last before the ack."""
        return len(self.points)

    @property
    def doubled(self) -> tuple[Hashable, ...]:
        """The effects that happened too often after some death, each once."""
        return _distinct(effect for point in self.points for effect in point.doubled)

    @property
    def missing(self) -> tuple[Hashable, ...]:
        """The effects that happened too seldom after some death, each once."""
        return _distinct(effect for point in self.points for effect in point.missing)

    @property
    def errors(self) -> tuple[BaseException, ...]:
        """What set the job aside when it was delivered again."""
        return tuple(point.error for point in self.points if point.error is not None)

    def assert_safe(self) -> None:
        """Raise `AssertionError` with each death that somebody could tell from the effects."""
        __tracebackhide__ = True
        harmful = [point for point in self.points if not point.is_harmless]
        if harmful:
            listed = "".join(f"\n  {point}" for point in harmful)
            raise AssertionError(f"{len(harmful)} of {self.steps} deaths did harm:{listed}")

    def __str__(self) -> str:
        return "\n".join(map(str, self.points))


def _distinct(effects: Iterable[Hashable]) -> tuple[Hashable, ...]:
    return tuple(dict.fromkeys(effects))
