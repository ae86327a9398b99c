"""The jobs that are damaged: one of each kind of arguments, and what was run of them."""

import enum
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import aqueue

RAN: list[object] = []
"""The jobs whose handlers were called since it was last emptied."""


@aqueue.job(name="fuzz.plain", max_attempts=1)
class Plain:
    text: str
    number: int
    flag: bool

    async def handle(self) -> None:
        RAN.append(self)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@aqueue.job(name="fuzz.rich", max_attempts=1)
class Rich:
    at: datetime
    day: date
    for_: timedelta
    price: Decimal
    id: uuid.UUID
    color: Color
    ratio: float
    pair: tuple[int, str]
    secret: aqueue.Sensitive[str]

    async def handle(self) -> None:
        RAN.append(self)


@dataclass(frozen=True)
class Line:
    item: str
    count: int
    notes: list[str] = field(default_factory=list)


@aqueue.job(name="fuzz.nested", max_attempts=1)
class Nested:
    lines: list[Line]
    by_name: dict[str, Line]
    anything: aqueue.JSON
    either: int | str | None = None

    async def handle(self) -> None:
        RAN.append(self)


@aqueue.job(name="fuzz.strict", max_attempts=1)
class Strict:
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("a count is not negative")

    async def handle(self) -> None:
        RAN.append(self)


@aqueue.job(name="fuzz.empty", max_attempts=1)
class Empty:
    async def handle(self) -> None:
        RAN.append(self)


@aqueue.job(name="fuzz.function", max_attempts=1)
async def function(image: int, width: int = 640) -> None:
    RAN.append(function.job(image, width))


SHAPES: tuple[Any, ...] = (Plain, Rich, Nested, Strict, Empty, function)


def some_job(chance: Random) -> object:
    """Return a job of any shape."""
    text = "".join(chance.choice('abz "\\{}[],:é€😀\u0000\n0e.') for _ in range(chance.randrange(12)))
    number = chance.choice((0, 1, -1, 2**63 - 1, -(2**63), chance.randrange(10**9)))
    kinds = (
        lambda: Plain(text, number, chance.random() < 0.5),
        lambda: Rich(
            datetime(2026, 11, 30, 12, chance.randrange(60), tzinfo=UTC),
            date(2026, 1 + chance.randrange(12), 1),
            timedelta(seconds=chance.randrange(10**6)),
            Decimal(chance.randrange(10**6)) / 100,
            uuid.UUID(int=chance.getrandbits(128)),
            chance.choice(list(Color)),
            chance.random() * 10 ** chance.randrange(-300, 300),
            (number, text),
            text,
        ),
        lambda: Nested(
            [Line(text, number, [text] * chance.randrange(3))] * chance.randrange(3),
            {text: Line("x", 1)} if chance.random() < 0.5 else {},
            {"deep": [[[text, number, None, 0.5]]]},
            chance.choice((None, number, text)),
        ),
        lambda: Strict(max(0, number)),
        Empty,
        lambda: function.job(number, chance.randrange(4_000)),
    )
    return chance.choice(kinds)()
