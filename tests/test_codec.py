"""What travels in a job's arguments, what comes back, and what is refused when (ARG-1 to ARG-5)."""

import collections
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, InitVar, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from typing_extensions import TypeAliasType

from aqueue.contract.codec import JSON, ArgsCodec, Declared, Sensitive, declare_codec
from aqueue.contract.depth import is_deeper_than
from aqueue.errors import InvalidJob, JobReconstructionError, UnserializableJob

T = TypeVar("T")
U = TypeVar("U")
SOME_UUID = UUID("ee5649b5-82da-49ff-85fe-4a3d3c1f93e1")


class Plain(enum.Enum):
    RED = "red"
    BLUE = "blue"
    ROUGE = "red"  # noqa: PIE796 - an alias is the point


class Named(enum.StrEnum):
    RED = "red"


class Numbered(enum.IntEnum):
    ONE = 1
    TWO = 2


class Perm(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    EXECUTE = enum.auto()


class Guessing(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> "Guessing":
        return cls.A


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    holder: str
    number: Sensitive[str]
    limits: list[int] = field(default_factory=list)
    kind: ClassVar[str] = "card"


@dataclass(frozen=True)
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)


@dataclass(frozen=True)
class Box(Generic[T]):
    content: T


@dataclass(frozen=True)
class IntBox(Box[int]):
    label: str = ""


@dataclass(frozen=True)
class PairOfLists(Generic[T, U]):
    first: list[T]
    second: "dict[str, U]"


class Parcel(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    weight_kg: float
    tracking_code: str = ""
    stops: list[str] = []


class Secretive(msgspec.Struct):
    token: Sensitive[str]
    note: str = ""


class Cat(msgspec.Struct, tag=True, frozen=True):
    lives: int


class Dog(msgspec.Struct, tag=True, frozen=True):
    tricks: list[str]


MARK: Any = Sensitive  # a type checker takes no mark of a mark in an expression
UserId = NewType("UserId", int)


def codec_for(annotation: object, **options: Any) -> ArgsCodec:
    return declare_codec(
        "test.job", [Declared(name="value", annotation=annotation, required=True)], **options
    )


def holder(value: object) -> object:
    return make_dataclass("Holder", ["value"], frozen=True)(value)


def wire_of(annotation: object, value: object) -> object:
    return msgspec.json.decode(codec_for(annotation).encode(holder(value)))["value"]


def there_and_back(annotation: object, value: object) -> object:
    codec = codec_for(annotation)
    return codec.decode(codec.encode(holder(value)))["value"]


def refusal(annotation: object, value: object) -> str:
    with pytest.raises(UnserializableJob) as caught:
        codec_for(annotation).encode(holder(value))
    assert caught.value.__cause__ is None
    return str(caught.value)


def misread(annotation: object, wire: object) -> str:
    with pytest.raises(JobReconstructionError) as caught:
        codec_for(annotation).decode(msgspec.json.encode({"value": wire}))
    return str(caught.value)


def nested(levels: int, innermost: object = 1) -> object:
    for _ in range(levels):
        innermost = [innermost]
    return innermost


RESTORED: list[tuple[object, object]] = [
    (None, None),
    (bool, True),
    (int, 2**63 - 1),
    (int, -(2**63)),
    (float, 1.0),
    (float, 5e-324),
    (float, 1.7976931348623157e308),
    (float, 123456789012345680.0),
    (str, ""),
    (str, 'q"\\\n\x00é漢😀\u2028'),
    (list[int], [1, 2]),
    (list, [1, "a", None, {"b": [1.5]}]),
    (dict, {"a": 1, "": {"é": []}}),
    (dict[str, list[float]], {"a": [1.0], "b": []}),
    (tuple, (1, "a", [True])),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[int, str, Plain], (1, "a", Plain.RED)),
    (tuple[()], ()),
    (JSON, {"a": [1, 1.0, True, None, "x", {}]}),
    (Optional[JSON], None),  # noqa: UP045 - users write this too
    (list[JSON], [1, [2.0]]),
    (dict[str, JSON], {"a": None}),
    (Plain, Plain.BLUE),
    (Plain, Plain.ROUGE),
    (Named, Named.RED),
    (Numbered, Numbered.TWO),
    (Perm, Perm.READ),
    (Perm, Perm.READ | Perm.EXECUTE),
    (Perm, Perm(0)),
    (Literal["a", 1, True, None], 1),  # noqa: PYI061 - users write this too
    (Literal["a", 1, True, None], True),  # noqa: PYI061 - users write this too
    (Literal[Plain.RED, "x"], Plain.RED),
    (UUID, SOME_UUID),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("-0.00")),
    (Decimal, Decimal("1E+400")),
    (Decimal, Decimal(10) ** -30),
    (datetime, datetime(2026, 1, 2, 3, 4, 5, 6, UTC)),
    (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=-5, minutes=-30)))),
    (datetime, datetime.max.replace(tzinfo=UTC)),
    (date, date(1, 1, 1)),
    (date, date.max),
    (time, time(1, 2, 3, 4)),
    (time, time.max),
    (time, time(1, fold=1)),
    (time, time(1, fold=1, tzinfo=UTC)),
    (time, time(12, tzinfo=timezone(timedelta(hours=2)))),
    (timedelta, timedelta(0)),
    (timedelta, timedelta(microseconds=1)),
    (timedelta, timedelta(microseconds=-1)),
    (timedelta, timedelta(days=-3, seconds=4, microseconds=5)),
    (timedelta, timedelta.max),
    (timedelta, timedelta.min),
    (Point, Point(1, 2)),
    (list[Point], [Point(1), Point(2, 3)]),
    (Card, Card(holder="a", number="4111", limits=[1])),
    (Tree, Tree("a", [Tree("b"), Tree("c", [Tree("d")])])),
    (Box[int], Box(1)),
    (Box[Box[str]], Box(Box("a"))),
    (IntBox, IntBox(1, "a")),
    (PairOfLists[Plain, date], PairOfLists([Plain.RED], {"a": date(2026, 1, 1)})),
    (Parcel, Parcel(1.5, "x", ["a"])),
    (Parcel, Parcel(1.5)),
    (Secretive, Secretive("t")),
    (Cat | Dog, Cat(9)),
    (Cat | Dog | None, Dog(["sit"])),
    (Cat, Cat(3)),
    (int | None, None),
    (int | str | None, "a"),
    (int | float, 1),
    (int | float, 1.0),
    (bool | int, True),
    (Union[Point, list[Point], str], [Point(1)]),  # noqa: UP007 - users write this too
    (Literal["a"] | Literal["b"] | int, "b"),  # noqa: PYI030 - users write this too
    (Numbered | str, Numbered.ONE),
    (UserId, 7),
    (Annotated[int, "anything"], 7),
    (Final[int], 7),
    (Sensitive[str], "secret"),
    (Sensitive[str] | None, "secret"),
    (list[Sensitive[date]], [date(2026, 1, 1)]),
]


@pytest.mark.rule("ARG-1")
@pytest.mark.parametrize(("annotation", "value"), RESTORED, ids=repr)
def test_a_value_comes_back_equal_and_of_its_own_type(annotation: object, value: object) -> None:
    restored = there_and_back(annotation, value)

    assert restored == value
    assert type(restored) is type(value)
    assert repr(restored) == repr(value)


@pytest.mark.rule("ARG-1")
def test_the_sign_of_zero_survives() -> None:
    assert math.copysign(1, there_and_back(float, -0.0)) == -1  # type: ignore[arg-type]  # it is a float
    assert math.copysign(1, there_and_back(JSON, [-0.0])[0]) == -1  # type: ignore[index]  # it is a list


@pytest.mark.rule("ARG-1")
def test_an_enum_member_comes_back_as_the_same_object() -> None:
    assert there_and_back(Plain, Plain.RED) is Plain.RED
    assert there_and_back(Perm, Perm.READ | Perm.WRITE) is Perm.READ | Perm.WRITE


@pytest.mark.rule("ARG-1", "FACE-1")
def test_a_datetime_comes_back_as_the_same_instant_with_a_fixed_offset() -> None:
    summer = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Warsaw"))
    twice = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Warsaw"))

    for pushed in (summer, twice):
        restored = there_and_back(datetime, pushed)
        assert isinstance(restored, datetime)
        assert restored.timestamp() == pushed.timestamp()
        assert restored.tzinfo == timezone(pushed.utcoffset() or timedelta())


@pytest.mark.rule("ARG-1")
def test_decimals_do_not_depend_on_the_context_of_either_side() -> None:
    value = Decimal("12345678901234567890.123456789E+50")

    with localcontext(prec=3, capitals=0):
        raw = codec_for(Decimal).encode(holder(value))
    with localcontext(prec=2):
        restored = codec_for(Decimal).decode(raw)["value"]

    assert str(restored) == str(value)


@pytest.mark.rule("ARG-1")
@pytest.mark.parametrize(
    ("annotation", "value", "wire"),
    [
        (datetime, datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (timedelta, timedelta(days=-1, microseconds=1), "-P0DT86399.999999S"),
        (Decimal, Decimal("1.10"), "1.10"),
        (Plain, Plain.RED, "red"),
        (Parcel, Parcel(1.5), {"weight_kg": 1.5, "tracking_code": "", "stops": []}),
        (Cat, Cat(9), {"type": "Cat", "lives": 9}),
        (tuple[int, ...], (1,), [1]),
    ],
)
def test_the_wire_form_is_this(annotation: object, value: object, wire: object) -> None:
    assert wire_of(annotation, value) == wire


class MyInt(int):
    pass


class MyStr(str):
    pass


class MyList(list):  # type: ignore[type-arg]  # the bare subclass is the point
    pass


class MyDatetime(datetime):
    pass


class Coordinates(NamedTuple):
    x: int


@dataclass(frozen=True)
class SubPoint(Point):
    pass


UNFIT: list[tuple[object, object, str]] = [
    (int, True, "expected int, got bool"),
    (int, 1.0, "expected int, got float"),
    (int, MyInt(1), "expected int, got MyInt"),
    (int, Numbered.ONE, "expected int, got Numbered"),
    (int, 2**63, "outside"),
    (int, -(2**63) - 1, "outside"),
    (int, "1", "expected int, got str"),
    (float, 1, "expected float, got int"),
    (float, math.nan, "not a finite float"),
    (float, math.inf, "not a finite float"),
    (float, -math.inf, "not a finite float"),
    (bool, 1, "expected bool, got int"),
    (str, None, "expected str, got NoneType"),
    (str, b"x", "expected str, got bytes"),
    (str, MyStr("x"), "expected str, got MyStr"),
    (str, Named.RED, "expected str, got Named"),
    (str, "\ud800", "lone surrogate"),
    (str | None, "\udfff", "lone surrogate"),
    (None, 0, "expected None, got int"),
    (list[int], (1,), "expected list, got tuple"),
    (list[int], {1}, "expected list, got set"),
    (list[int], MyList(), "expected list, got MyList"),
    (tuple[int, ...], [1], "expected tuple, got list"),
    (tuple[int, ...], Coordinates(1), "expected tuple, got Coordinates"),
    (tuple[int, int], (1,), "expected 2 items, got 1"),
    (dict[str, int], collections.OrderedDict(a=1), "expected dict, got OrderedDict"),
    (dict[str, int], {1: 1}, "a key that is not a str"),
    (JSON, {1: 1, "1": 1}, "a key that is not a str"),
    (JSON, {None: 1}, "a key that is not a str"),
    (JSON, {MyStr("a"): 1}, "a key that is not a str"),
    (JSON, {"\ud800": 1}, "lone surrogate"),
    (JSON, (1,), "expected JSON, got tuple"),
    (JSON, [{1}], "expected JSON, got set"),
    (JSON, b"x", "expected JSON, got bytes"),
    (JSON, SOME_UUID, "expected JSON, got UUID"),
    (JSON, [math.nan], "not a finite float"),
    (JSON, 2**63, "outside"),
    (Plain, "red", "expected Plain, got str"),
    (Plain, Named.RED, "expected Plain, got Named"),
    (Literal["a", 1], "b", "not one of the values"),
    (Literal["a", 1], True, "expected Literal, got bool"),
    (Literal[Plain.RED], Plain.BLUE, "not one of the values"),
    (datetime, datetime(2026, 1, 1), "naive datetime"),  # noqa: DTZ001 - naive is the point
    (datetime, MyDatetime(2026, 1, 1, tzinfo=UTC), "expected datetime, got MyDatetime"),
    (datetime, date(2026, 1, 1), "expected datetime, got date"),
    (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=17))), "offset with seconds"),
    (date, datetime(2026, 1, 1, tzinfo=UTC), "expected date, got datetime"),
    (time, time(1, tzinfo=ZoneInfo("Europe/Warsaw")), "no fixed offset"),
    (time, time(1, tzinfo=timezone(timedelta(seconds=1))), "offset with seconds"),
    (timedelta, 5, "expected timedelta, got int"),
    (UUID, str(SOME_UUID), "expected UUID, got str"),
    (Decimal, Decimal("NaN"), "not a finite Decimal"),
    (Decimal, Decimal("-Infinity"), "not a finite Decimal"),
    (Decimal, 1, "expected Decimal, got int"),
    (Point, SubPoint(1), "expected Point, got SubPoint"),
    (Point, {"x": 1}, "expected Point, got dict"),
    (Cat | Dog, Point(1), "expected Cat | Dog, got Point"),
    (int | None, "a", "got str"),
]


@pytest.mark.rule("ARG-1", "ARG-3")
@pytest.mark.parametrize(("annotation", "value", "reason"), UNFIT, ids=repr)
def test_a_value_that_would_not_come_back_is_refused(annotation: object, value: object, reason: str) -> None:
    message = refusal(annotation, value)

    assert message.startswith("job 'test.job' can't be pushed: value")
    assert reason in message


@pytest.mark.rule("ARG-3")
@pytest.mark.parametrize(
    ("annotation", "value", "where"),
    [
        (list[int], [1, 2, "x"], "value[2]: "),
        (dict[str, int], {"secret-key": 1, "other": "x"}, "value.{1}: "),
        (dict[str, int], {"a": 1, 5: 2}, "value.{1}: "),
        (list[dict[str, int]], [{}, {}, {}, {"secret-key": "x"}], "value[3].{0}: "),
        (JSON, [{"secret-key": [1, math.nan]}], "value[0].{0}[1]: "),
        (tuple[int, list[str]], (1, ["a", 1]), "value[1][1]: "),
        (list[Point], [Point("secret-key")], "value[0].x: "),  # type: ignore[arg-type]  # the point
        (Parcel | None, Parcel(1), "value.weight_kg: "),
        (Tree, Tree("a", [Tree("b", [Tree(1)])]), "value.children[0].children[0].name: "),  # type: ignore[arg-type]  # the point
    ],
)
def test_the_message_names_the_field_and_the_place_but_no_data(
    annotation: object, value: object, where: str
) -> None:
    message = refusal(annotation, value)

    assert where in message
    assert "secret-key" not in message


@pytest.mark.rule("ARG-3")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Sensitive[list[int]], [1, "hush"]),
        (MARK[list[int]] | None, [1, "hush"]),
        (MARK[dict[str, Point]], {"hush": Point("hush")}),  # type: ignore[arg-type]  # the point
        (MARK[JSON], {"hush": [b"hush"]}),
        (Sensitive[str], "hush\ud800"),
        (Sensitive[int], "hush"),
    ],
)
def test_of_a_sensitive_field_the_message_says_nothing_but_its_name(
    annotation: object, value: object
) -> None:
    message = refusal(annotation, value)

    assert (
        message == "job 'test.job' can't be pushed: value: its sensitive value doesn't fit the declared type"
    )


@pytest.mark.rule("ARG-3")
def test_a_sensitive_field_inside_a_record_is_named_without_what_is_inside_it() -> None:
    message = refusal(list[Card], [Card(holder="a", number=["hush"])])  # type: ignore[arg-type]  # the point

    assert "value[0].number: its sensitive value" in message
    assert "hush" not in message


@pytest.mark.rule("ARG-1", "FACE-1")
@pytest.mark.parametrize("annotation", [JSON, list, list[JSON]])
def test_thirty_two_levels_below_the_field_travel_and_one_more_does_not(annotation: object) -> None:
    assert there_and_back(annotation, nested(32)) == nested(32)
    assert "deeper than 32 levels" in refusal(annotation, nested(33))
    assert "deeper than 32 levels" in refusal(annotation, nested(32, {}))


@pytest.mark.rule("ARG-1")
def test_a_recursive_record_counts_its_levels_too() -> None:
    tree = Tree("leaf")
    for _ in range(15):
        tree = Tree("node", [tree])

    assert there_and_back(Tree, tree) == tree
    assert "deeper than 32 levels" in refusal(Tree, Tree("root", [Tree("root", [tree])]))


@pytest.mark.rule("ARG-1")
def test_a_cycle_is_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)

    assert "deeper than 32 levels" in refusal(JSON, cycle)


@pytest.mark.rule("ARG-1")
def test_what_decode_would_not_read_is_refused_at_push() -> None:
    codec = codec_for(str)

    assert codec.encode(holder("x" * 88), limit=100)
    with pytest.raises(UnserializableJob, match="takes 101 bytes; at most 100"):
        codec.encode(holder("x" * 89), limit=100)


@dataclass(frozen=True)
class Exclaiming:
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text + "!")


@dataclass(frozen=True)
class Lowering:
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text.lower())


@pytest.mark.rule("ARG-1")
def test_a_record_that_its_own_constructor_would_change_is_refused() -> None:
    holds = make_dataclass("Holds", [("value", object)], frozen=True)
    changing = codec_for(Exclaiming, rebuild=holds)
    settled = codec_for(Lowering, rebuild=holds)

    with pytest.raises(UnserializableJob, match="value changes each time") as caught:
        changing.encode(holder(Exclaiming("hush")))
    assert "hush" not in str(caught.value)
    assert settled.decode(settled.encode(holder(Lowering("ABC")))) == {"value": Lowering("abc")}


class Mixed(enum.Enum):
    A = 1
    B = "b"


class Floating(enum.Enum):
    A = 1.5


class Wide(enum.Enum):
    A = 2**70


class Flaggish(enum.Enum):
    A = True


class Empty(enum.Enum):
    pass


@dataclass
class Thawed:
    x: int


@dataclass(frozen=True)
class HasInitVar:
    x: int
    y: InitVar[int]


@dataclass(frozen=True)
class HasHiddenInit:
    x: int
    y: int = field(init=False, default=1)


@dataclass(frozen=True)
class HasSetInside:
    fine: int
    tags: set[str]


class StructWithAny(msgspec.Struct):
    anything: Any


class Typed(TypedDict):
    x: int


@dataclass(frozen=True)
class Lost:
    x: "NowhereToBeFound"  # type: ignore[name-defined]  # noqa: F821 - the point


REFUSED: list[tuple[object, str]] = [
    (Any, "Any can't be restored exactly from JSON: annotate arbitrary JSON with aqueue.JSON"),
    (object, "object can't be restored"),
    (list[Any], "Any can't be restored"),
    (dict[str, Any], "Any can't be restored"),
    (set[int], "set[int] can't be restored exactly from JSON: use list"),
    (set, "set can't be restored"),
    (frozenset[str], "frozenset[str] can't"),
    (bytes, "bytes can't be restored"),
    (bytearray, "bytearray can't"),
    (complex, "complex can't"),
    (range, "range can't"),
    (Path, "Path can't be restored"),
    (Callable[[int], str], "Callable[[int], str] can't"),
    (type[int], "type[int] can't"),
    (collections.deque[int], "deque[int] can't"),
    (Sequence[int], "Sequence[int] can't"),
    (Mapping[str, int], "Mapping[str, int] can't"),
    (Coordinates, "Coordinates can't"),
    (Typed, "Typed can't"),
    (ZoneInfo, "ZoneInfo can't"),
    (timezone, "timezone can't"),
    (dict[int, str], "keys that are not str"),
    (dict[Named, str], "keys that are not str"),
    (dict[Sensitive[str], str], "keys that are not str"),
    (Mixed, "Enum Mixed must have only str or only int values"),
    (Floating, "Enum Floating must have"),
    (Flaggish, "Enum Flaggish must have"),
    (Empty, "Enum Empty must have"),
    (Wide, "Enum Wide has a value that JSON can't hold exactly"),
    (Literal[b"x"], "Literal values must be"),
    (Literal[Plain.RED, "red"], "two of its Literal values look the same"),
    (int | Numbered, "ambiguous"),
    (str | UUID, "ambiguous"),
    (str | datetime, "ambiguous"),
    (date | datetime, "ambiguous"),
    (str | Plain, "ambiguous"),
    (Plain | Named, "ambiguous"),
    (Literal["a"] | str, "ambiguous"),  # noqa: PYI051 - the point
    (list[int] | tuple[int, ...], "ambiguous"),
    (list[int] | list[str], "ambiguous"),
    (Point | Card, "ambiguous"),
    (Cat | Parcel, "ambiguous"),
    (Cat | Point, "ambiguous"),
    (Point | dict[str, int], "ambiguous"),
    (JSON | UUID, "ambiguous"),
    (Thawed, "Thawed is a dataclass that isn't frozen"),
    (HasInitVar, "'y' of HasInitVar is an InitVar"),
    (HasHiddenInit, "'y' of HasHiddenInit has init=False"),
    (HasSetInside, "HasSetInside.tags: set[str] can't"),
    (list[HasSetInside] | None, "HasSetInside.tags: set[str] can't"),
    (StructWithAny, "StructWithAny.anything: Any can't"),
    (Box, "Box.content: the type variable T is not bound"),
    (T, "the type variable T is not bound"),
    ("Nowhere", "forward reference"),
    (Lost, "NowhereToBeFound"),
    ([int], "can't be restored"),
    (5, "can't be restored"),
    (Sensitive[set[str]], "set[str] can't"),
]


@pytest.mark.rule("ARG-2")
@pytest.mark.parametrize(("annotation", "reason"), REFUSED, ids=repr)
def test_a_type_that_can_not_be_restored_is_refused_when_declared(annotation: object, reason: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        codec_for(annotation)

    assert str(caught.value).startswith("job 'test.job' can't be declared: value: ")
    assert reason in str(caught.value)


@pytest.mark.rule("ARG-2")
@pytest.mark.parametrize(
    ("annotation", "default"), [(float, 1), (str, None), (datetime, "2026-01-01"), (list[int], ["a"])]
)
def test_a_default_that_does_not_fit_is_refused_when_declared(annotation: object, default: object) -> None:
    field_ = Declared(name="value", annotation=annotation, required=False, default=default)

    with pytest.raises(InvalidJob, match="value: its default doesn't fit its type"):
        declare_codec("test.job", [field_])


MISREAD: list[tuple[object, object, str]] = [
    (int, "5", "expected int, got str"),
    (int, 1.0, "expected int, got float"),
    (int, True, "expected int, got bool"),
    (int, 2**63, "outside"),
    (float, 1, "expected float, got int"),
    (bool, 1, "expected bool, got int"),
    (str, 5, "expected str, got int"),
    (str, None, "expected str, got NoneType"),
    (list[int], {"a": 1}, "expected list, got dict"),
    (tuple[int, int], [1], "expected 2 items, got 1"),
    (dict[str, int], [], "expected dict, got list"),
    (JSON, 2**70, "outside"),
    (Plain, "green", "not the value of a member of Plain"),
    (Plain, 1, "expected Plain as str, got int"),
    (Guessing, "z", "not the value of a member of Guessing"),
    (Numbered, True, "expected Numbered as int, got bool"),
    (Perm, 64, "bits that Perm doesn't know"),
    (Perm, -1, "bits that Perm doesn't know"),
    (Literal[1], True, "expected Literal, got bool"),
    (Literal["a"], "b", "not one of the values"),
    (datetime, "2026-01-01T00:00:00", "naive datetime"),
    (datetime, "2026-01-01", "naive datetime"),
    (datetime, "2026-01-01T00:00:00.123456789+00:00", "not the text of a datetime"),
    (datetime, "20260101T000000+0000", "not the text of a datetime"),
    (datetime, 0, "expected datetime as text, got int"),
    (date, "2026-02-30", "not the text of a date"),
    (date, "20260201", "not the text of a date"),
    (time, "25:00", "not the text of a time"),
    (time, "01:00:00 fold=0", "not the text of a time"),
    (timedelta, "P1DT0S", "not the text of a timedelta"),
    (timedelta, "-P0DT0.000000S", "not the text of a timedelta"),
    (timedelta, "P0DT86400.000000S", "not the text of a timedelta"),
    (timedelta, "P999999999DT86400.000000S", "not the text of a timedelta"),
    (UUID, "{12345678-1234-5678-1234-567812345678}", "not the text of a UUID"),
    (UUID, "12345678123456781234567812345678", "not the text of a UUID"),
    (Decimal, " 1_0 ", "not the text of a Decimal"),
    (Decimal, "NaN", "not the text of a Decimal"),
    (Decimal, "1E+9999999999999999999", "not the text of a Decimal"),
    (Decimal, "\uff11", "not the text of a Decimal"),
    (Decimal, 1.5, "expected Decimal as text, got float"),
    (Point, [1, 2], "expected Point as an object, got list"),
    (Point, {"y": 1}, "field x is missing"),
    (Point, {"x": 1, "z": 1}, "a field that isn't declared"),
    (Point, {"x": "1"}, "value.x: expected int"),
    (Cat | Dog, {"type": "Cow"}, "not tagged as one of"),
    (Cat | Dog, {"lives": 9}, "not tagged as one of"),
    (Cat, {"lives": 9}, "not tagged as Cat"),
    (Parcel, {"weightKg": 1.5}, "field weight_kg is missing"),
    (int | None, "a", "got str"),
]


@pytest.mark.rule("ARG-4", "ARG-5")
@pytest.mark.parametrize(("annotation", "wire", "reason"), MISREAD, ids=repr)
def test_reading_is_strict(annotation: object, wire: object, reason: str) -> None:
    message = misread(annotation, wire)

    assert message.startswith("job 'test.job' can't be restored: argument value")
    assert reason in message


@pytest.mark.rule("ARG-5")
def test_a_reading_error_shows_neither_values_nor_keys() -> None:
    for annotation, wire in [
        (list[Plain], ["hush"]),
        (dict[str, int], {"hush": "hush"}),
        (Literal["a"], "hush"),
        (Point, {"x": 1, "hush": 1}),
        (UUID, "hush"),
        (Sensitive[list[int]], ["hush"]),
    ]:
        assert "hush" not in misread(annotation, wire)


@pytest.mark.rule("ARG-5")
def test_of_a_sensitive_argument_not_even_the_place_is_told() -> None:
    assert misread(Sensitive[list[int]], [1, "x"]).endswith(
        "argument value: its sensitive value doesn't fit the declared type"
    )


def two_fields() -> ArgsCodec:
    return declare_codec(
        "test.job",
        [
            Declared(name="old", annotation=int, required=True),
            Declared(name="added", annotation=int, required=False, default=5),
        ],
    )


@pytest.mark.rule("ARG-5")
def test_an_argument_with_a_default_may_be_missing_and_one_without_may_not() -> None:
    assert two_fields().decode(b'{"old":1}') == {"old": 1}
    with pytest.raises(JobReconstructionError, match="argument old is missing"):
        two_fields().decode(b'{"added":1}')


@pytest.mark.rule("ARG-5")
def test_an_extra_argument_is_refused_by_name_unless_its_name_looks_like_data() -> None:
    with pytest.raises(JobReconstructionError, match="argument gone is not declared any more, or not yet"):
        two_fields().decode(b'{"old":1,"gone":2}')
    with pytest.raises(JobReconstructionError, match="it has an argument that is not declared"):
        two_fields().decode(b'{"old":1,"a@b.c":2}')


@pytest.mark.rule("ARG-5")
def test_a_nested_field_with_a_default_may_be_missing() -> None:
    assert codec_for(Point).decode(b'{"value":{"x":1}}') == {"value": Point(1, 0)}
    assert codec_for(Parcel).decode(b'{"value":{"weight_kg":1.0}}') == {"value": Parcel(1.0)}


@dataclass(frozen=True)
class Picky:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise RuntimeError("negative")


@pytest.mark.rule("ARG-5")
def test_a_nested_constructor_that_raises_is_the_cause_of_the_error() -> None:
    with pytest.raises(
        JobReconstructionError, match=r"value\[0\]: Picky refused its fields with RuntimeError"
    ) as caught:
        codec_for(list[Picky]).decode(b'{"value":[{"x":-1}]}')

    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.rule("ARG-5")
def test_a_sensitive_constructor_that_raises_keeps_its_cause_to_itself() -> None:
    with pytest.raises(JobReconstructionError) as caught:
        codec_for(Sensitive[Picky]).decode(b'{"value":{"x":-1}}')

    assert caught.value.__cause__ is None


@pytest.mark.rule("ARG-4")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"1",
        b"null",
        b"{",
        b'{"value":1}x',
        b'{"value":NaN}',
        b'{"value":1e999}',
        b"\xef\xbb\xbf{}",
        b'{"value":"\xff"}',
        b'{"\xff":1}',
        b'{"value":"\\ud800"}',
        b'{"other":"\xff","value":1}',
        b"]" * 100,
    ],
)
def test_bytes_that_are_no_json_object_are_refused_without_being_shown(raw: bytes) -> None:
    with pytest.raises(JobReconstructionError) as caught:
        codec_for(int).decode(raw)

    assert caught.value.__cause__ is None
    assert str(caught.value).startswith("job 'test.job' can't be restored: its arguments are n")


@pytest.mark.rule("ARG-4")
def test_size_is_bounded_before_parsing() -> None:
    raw = b'{"value":"' + b"x" * 90 + b'"}'

    assert codec_for(str).decode(raw, limit=len(raw))
    with pytest.raises(JobReconstructionError, match="takes 102 bytes; at most 101 are read"):
        codec_for(str).decode(raw, limit=len(raw) - 1)


@pytest.mark.rule("ARG-4")
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_is_bounded_before_parsing(opening: bytes, closing: bytes) -> None:
    codec = codec_for(JSON)

    assert codec.decode(b'{"value":' + opening * 32 + b"1" + closing * 32 + b"}")
    for levels in (33, 1000, 200_000):
        for tail in (closing * levels + b"}", b""):
            with pytest.raises(JobReconstructionError, match=r"deeper than 32 levels|not valid JSON"):
                codec.decode(b'{"value":' + opening * levels + b"1" + tail)
    with pytest.raises(JobReconstructionError, match="deeper than 32 levels"):
        codec.decode(b'{"value":' + opening * 33 + b"1" + closing * 33 + b"}")


@pytest.mark.rule("ARG-4")
def test_breadth_and_brackets_in_strings_are_not_depth() -> None:
    wide = [[{"a": "[[[[{{{{\\"}] for _ in range(1000)]
    tricky = ['"' + "[" * 50, "\\" + "{" * 50, '\\"' + "]" * 50]

    assert there_and_back(JSON, wide) == wide
    assert there_and_back(list[str], tricky * 20) == tricky * 20


@pytest.mark.rule("ARG-4")
def test_the_depth_scan_is_linear_in_hostile_text() -> None:
    quotes = b'{"value":[' * 40 + b'"' + b'\\"' * 200_000

    assert is_deeper_than(quotes, 33)


@pytest.mark.rule("ARG-4")
def test_an_enum_is_never_guessed_by_its_missing_hook() -> None:
    assert Guessing("anything") is Guessing.A
    assert "not the value of a member" in misread(Guessing, "anything")


@pytest.mark.rule("WORK-5")
@pytest.mark.parametrize(
    ("annotation", "wire", "shown"),
    [
        (Sensitive[str], "hush", "[redacted]"),
        (Sensitive[str] | None, None, "[redacted]"),
        (Optional[Sensitive[str]], "hush", "[redacted]"),  # noqa: UP045 - users write this too
        (list[Sensitive[str]], ["hush", "hush"], ["[redacted]", "[redacted]"]),
        (tuple[str, Sensitive[str]], ["a", "hush"], ["a", "[redacted]"]),
        (tuple[Sensitive[str], ...], ["hush"], ["[redacted]"]),
        (dict[str, Sensitive[int]], {"a": 1}, {"a": "[redacted]"}),
        (
            Card,
            {"holder": "a", "number": "hush", "limits": [1]},
            {"holder": "a", "number": "[redacted]", "limits": [1]},
        ),
        (list[Card], [{"holder": "a", "number": "hush"}], [{"holder": "a", "number": "[redacted]"}]),
        (Secretive | None, {"token": "hush", "note": "n"}, {"token": "[redacted]", "note": "n"}),
        (Secretive | None, None, None),
        (Box[Sensitive[str]], {"content": "hush"}, {"content": "[redacted]"}),
        (Cat | Dog, {"type": "Cat", "lives": 9}, {"type": "Cat", "lives": 9}),
        (int, 5, 5),
        (JSON, {"a": [1]}, {"a": [1]}),
        # what doesn't have the declared shape might be anything, so it is hidden
        (Card, "hush", "[redacted]"),
        (Card, {"holder": "a", "pin": "hush"}, {"holder": "a", "pin": "[redacted]"}),
        (list[Card], {"a": "hush"}, "[redacted]"),
        (tuple[str, Sensitive[str]], ["hush"], "[redacted]"),
        (dict[str, Card], ["hush"], "[redacted]"),
        (Secretive | None, "hush", "[redacted]"),
        (Cat | Dog, {"type": "hush"}, "[redacted]"),
        (Cat, {"type": "hush", "lives": 9}, {"type": "[redacted]", "lives": 9}),
    ],
    ids=repr,
)
def test_redaction_hides_what_is_sensitive_at_any_level(
    annotation: object, wire: object, shown: object
) -> None:
    assert codec_for(annotation).redacted({"value": wire}) == {"value": shown}


@pytest.mark.rule("WORK-5")
def test_an_argument_nobody_declares_is_hidden_too() -> None:
    assert two_fields().redacted({"old": 1, "password": "hush"}) == {"old": 1, "password": "[redacted]"}


@pytest.mark.rule("WORK-5")
def test_the_codec_tells_which_fields_are_sensitive() -> None:
    codec = declare_codec(
        "test.job",
        [
            Declared(name=name, annotation=annotation, required=True)
            for name, annotation in [
                ("plain", int),
                ("token", Sensitive[str]),
                ("card", Card),
                ("list", list[int]),
            ]
        ],
    )

    assert [(f.name, f.sensitive, f.hides) for f in codec.fields] == [
        ("plain", False, False),
        ("token", True, True),
        ("card", False, True),
        ("list", False, False),
    ]


@pytest.mark.rule("ARG-1")
def test_frozen_really_means_frozen() -> None:
    restored = there_and_back(Point, Point(1))

    with pytest.raises(FrozenInstanceError):
        restored.x = 5  # type: ignore[attr-defined]  # the point


@pytest.mark.rule("ARG-1")
def test_an_attribute_that_was_never_set_is_refused() -> None:
    with pytest.raises(UnserializableJob, match="value: expected int, got Unset"):
        codec_for(int).encode(object())
    assert "value.y: expected int, got Unset" not in refusal(Point, object.__new__(Point))
    assert "value.x: expected int, got Unset" in refusal(Point, object.__new__(Point))


Pair = TypeAliasType("Pair", tuple[T, T], type_params=(T,))
Ids = TypeAliasType("Ids", list[int])
Loop: Any = TypeAliasType("Loop", "list[Loop]")


@pytest.mark.rule("ARG-1", "ARG-2")
def test_type_aliases_are_looked_through() -> None:
    assert there_and_back(Ids, [1]) == [1]
    assert there_and_back(Pair[int], (1, 2)) == (1, 2)
    with pytest.raises(InvalidJob, match="forward reference"):
        codec_for(Loop)


class Endless:
    """What a recursive `type` statement of Python 3.12 looks like once it is evaluated."""

    @property
    def __value__(self) -> object:
        return list[self]  # type: ignore[valid-type]  # built at run time


@pytest.mark.rule("ARG-2")
def test_an_alias_that_contains_itself_is_refused() -> None:
    with pytest.raises(InvalidJob, match="contains itself"):
        codec_for(Endless())
