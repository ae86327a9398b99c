"""Whatever comes back equals what was pushed, in value and type, or the push was refused (ARG-1)."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aqueue.contract.codec import JSON, ArgsCodec, Declared, Sensitive, declare_codec
from aqueue.contract.depth import is_deeper_than
from aqueue.errors import JobReconstructionError, UnserializableJob


class Suit(enum.Enum):
    HEARTS = "♥"
    SPADES = "♠"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Perm(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclass(frozen=True)
class Point:
    x: int
    label: str | None


class Parcel(msgspec.Struct, frozen=True):
    weight: float
    at: Point


class Cat(msgspec.Struct, tag=True, frozen=True):
    lives: int


class Dog(msgspec.Struct, tag=True, frozen=True):
    name: str


INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSONS = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
POINTS = st.builds(Point, INTS, st.none() | TEXTS)

MARK: Any = Sensitive  # a type checker takes no variable for its argument

Case = tuple[object, st.SearchStrategy[Any]]

FIT: list[Case] = [
    (bool, st.booleans()),
    (int, INTS),
    (float, FLOATS),
    (str, TEXTS),
    (JSON, JSONS),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (datetime, st.datetimes(timezones=OFFSETS)),
    (date, st.dates()),
    (time, st.times() | st.times(timezones=OFFSETS)),
    (timedelta, st.timedeltas()),
    (Suit, st.sampled_from(Suit)),
    (Level, st.sampled_from(Level)),
    (Perm, st.sampled_from(Perm) | st.just(Perm.READ | Perm.WRITE)),
    (Literal["a", 1, True] | None, st.sampled_from(["a", 1, True, None])),
    (Point, POINTS),
    (Parcel, st.builds(Parcel, FLOATS, POINTS)),
    (Cat | Dog, st.builds(Cat, INTS) | st.builds(Dog, TEXTS)),
    (int | float | str | None, INTS | FLOATS | TEXTS | st.none()),
]


def wrapped(case: Case) -> st.SearchStrategy[Case]:
    """The case itself, or a container of it."""
    annotation: Any
    annotation, values = case
    texts = TEXTS
    return st.sampled_from(
        [
            (annotation, values),
            (list[annotation], st.lists(values, max_size=5)),
            (dict[str, annotation], st.dictionaries(texts, values, max_size=5)),
            (tuple[annotation, ...], st.lists(values, max_size=5).map(tuple)),
            (tuple[annotation, str], st.tuples(values, texts)),
            (MARK[annotation], values),
        ]
    )


CASES = st.sampled_from(FIT).flatmap(wrapped).flatmap(wrapped)
FITTING = CASES.flatmap(lambda case: st.tuples(st.just(case[0]), case[1]))

ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(categories=["L", "Cs"])),
        st.binary(),
        st.decimals(),
        st.uuids(),
        st.dates(),
        st.timedeltas(),
        st.times(timezones=st.none() | OFFSETS | st.just(ZoneInfo("Europe/Warsaw"))),
        st.datetimes(
            timezones=st.sampled_from(
                [None, UTC, ZoneInfo("Europe/Amsterdam"), timezone(timedelta(seconds=17))]
            )
        ),
        st.sampled_from([*Suit, *Level, *Perm]),
        POINTS,
        st.builds(Point, st.floats(), st.none() | st.binary()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3),
        st.frozensets(st.integers(), max_size=3),
    ),
    max_leaves=8,
)
ANNOTATIONS = CASES.map(lambda case: case[0])


def codec_for(annotation: object) -> ArgsCodec:
    return declare_codec("test.job", [Declared(name="value", annotation=annotation, required=True)])


Holder: Callable[[object], object] = make_dataclass("Holder", ["value"], frozen=True)


def identical(left: object, right: object) -> bool:
    """Equality of value and exact type at every level; a datetime is its instant and offset."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(identical(left[key], right[key]) for key in left)
    if isinstance(left, time) and isinstance(right, time):
        return left == right and left.fold == right.fold
    if isinstance(left, datetime) and isinstance(right, datetime):
        return left.astimezone(UTC) == right.astimezone(UTC) and left.utcoffset() == right.utcoffset()
    if is_dataclass(left):
        return all(identical(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    if isinstance(left, msgspec.Struct):
        names = left.__struct_fields__
        return all(identical(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, float | Decimal):
        return repr(left) == repr(right)
    return left == right


@pytest.mark.rule("ARG-1")
@settings(deadline=None, max_examples=400)
@given(FITTING)
def test_every_fitting_value_comes_back_identical(case: tuple[object, object]) -> None:
    annotation, value = case
    codec = codec_for(annotation)

    raw = codec.encode(Holder(value))

    assert identical(codec.decode(raw)["value"], value)
    assert codec.encode(Holder(codec.decode(raw)["value"])) == raw


@pytest.mark.rule("ARG-1", "ARG-3")
@settings(deadline=None, max_examples=600)
@given(ANNOTATIONS | st.sampled_from([JSON, list, dict, tuple, dict[str, JSON]]), ANYTHING)
@example(JSON, {1: 1, "1": 1})
@example(JSON, float("nan"))
@example(datetime, datetime(1900, 1, 1, tzinfo=ZoneInfo("Europe/Amsterdam")))
def test_any_value_comes_back_identical_or_is_refused(annotation: object, value: object) -> None:
    codec = codec_for(annotation)

    try:
        raw = codec.encode(Holder(value))
    except UnserializableJob:
        return

    assert identical(codec.decode(raw)["value"], value)


@pytest.mark.rule("ARG-4", "ARG-5")
@settings(deadline=None, max_examples=400)
@given(ANNOTATIONS, st.binary() | JSONS.map(lambda wire: msgspec.json.encode({"value": wire})))
@example(list[JSON], b'{"value":' + b"[" * 100_000)
def test_any_bytes_are_read_or_refused_as_a_reconstruction_error(annotation: object, raw: bytes) -> None:
    codec = codec_for(annotation)

    try:
        restored = codec.decode(raw)
    except JobReconstructionError:
        return

    assert identical(codec.decode(codec.encode(Holder(restored["value"])))["value"], restored["value"])


@pytest.mark.rule("WORK-5")
@settings(deadline=None)
@given(ANNOTATIONS, JSONS)
def test_redaction_takes_any_json(annotation: object, wire: object) -> None:
    assert set(codec_for(annotation).redacted({"value": wire})) == {"value"}


@pytest.mark.rule("WORK-5")
@settings(deadline=None)
@given(FITTING)
def test_a_sensitive_field_never_shows_its_value(case: tuple[Any, object]) -> None:
    annotation, value = case
    codec = codec_for(MARK[annotation])
    wire = msgspec.json.decode(codec.encode(Holder(value)))

    assert codec.redacted(wire) == {"value": "[redacted]"}


def depth_of(raw: bytes) -> int:
    """Count levels byte by byte, the slow and obvious way."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in raw.decode():
        if in_string:
            in_string = escaped or byte != '"'
            escaped = byte == "\\" and not escaped
        elif byte == '"':
            in_string = True
        elif byte in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in "]}":
            depth -= 1
    return deepest


TRICKY = st.text('"\\[]{}a', max_size=6)
TRICKY_JSON = st.recursive(
    TRICKY | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TRICKY, inner, max_size=3),
    max_leaves=30,
)


@pytest.mark.rule("ARG-4")
@settings(deadline=None, max_examples=300)
@given(TRICKY_JSON)
def test_depth_is_told_exactly_whatever_the_strings_hold(value: object) -> None:
    raw = msgspec.json.encode(value)
    depth = depth_of(raw)

    assert [is_deeper_than(raw, levels) for levels in range(depth + 3)] == [
        depth > levels for levels in range(depth + 3)
    ]
