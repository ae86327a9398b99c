"""The forms of values that travel as text or under another name: times, UUID, Decimal, Enum, Literal (ARG-1).

A text is read back only if writing the result gives the same text again, so nothing is rounded, trimmed or
guessed on the way in.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Any
from uuid import UUID

from aqueue.contract.forms import BOOL, INT, NONE, TEXT, Form, Misfit

FOLD = " fold=1"
MINUTE = timedelta(minutes=1)
DURATION = re.compile(r"(-?)P([0-9]{1,9})DT([0-9]{1,5})\.([0-9]{6})S")
DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[Ee][+-]?[0-9]+)?")


class WrittenForm(Form):
    """A value of exactly one type, written as text and read back."""

    __slots__ = ("exact", "read", "write")

    def __init__(self, exact: type, write: Callable[[Any], str], read: Callable[[str], object]) -> None:
        super().__init__(exact.__name__, {exact}, {str})
        self.exact = exact
        self.write = write
        self.read = read

    def dump(self, value: object, room: int) -> object:
        """Return the text."""
        if type(value) is not self.exact:
            raise self.misfit(value)
        return self.write(value)

    def load(self, wire: object) -> object:
        """Return the value the text was written from."""
        if type(wire) is not str:
            raise Misfit(f"expected {self.name} as text, got {type(wire).__name__}")
        try:
            return self.read(wire)
        except (ValueError, ArithmeticError):
            raise Misfit(f"is not the text of a {self.name}") from None


def write_datetime(value: datetime) -> str:
    """ISO 8601 with the offset: the instant is exact, the zone's name is not kept."""
    _check_offset(value.utcoffset(), "a naive datetime: give it a time zone")
    return value.isoformat()


def write_time(value: time) -> str:
    """ISO 8601, without an offset or with a fixed one; a fold is written behind it."""
    if value.tzinfo is not None:
        _check_offset(value.utcoffset(), "a time whose zone has no fixed offset: use an aware datetime")
    return value.isoformat() + FOLD * value.fold


def read_time(text: str) -> time:
    """Read what `write_time` wrote; raise ValueError otherwise."""
    value = time.fromisoformat(text.removesuffix(FOLD))
    return value.replace(fold=1) if text.endswith(FOLD) else value


def write_timedelta(value: timedelta) -> str:
    """ISO 8601 in days, seconds and microseconds, with the sign in front: exact over the whole range."""
    size = abs(value)
    sign = "-" if value.days < 0 else ""
    return f"{sign}P{size.days}DT{size.seconds}.{size.microseconds:06}S"


def read_timedelta(text: str) -> timedelta:
    """Read what `write_timedelta` wrote; raise ValueError or OverflowError otherwise."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError
    sign, days, seconds, micros = match.groups()
    size = timedelta(int(days), int(seconds), int(micros))
    return -size if sign else size


def write_decimal(value: Decimal) -> str:
    """All digits and the exponent; a finite number only."""
    if not value.is_finite():
        raise Misfit("is not a finite Decimal")
    return str(value)


def read_decimal(text: str) -> Decimal:
    """Read a finite Decimal, whatever the context's precision and capitals are."""
    if DECIMAL.fullmatch(text) is None:
        raise ValueError
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError
    return value


class EnumForm(Form):
    """An Enum whose values are all str or all int: the value travels, the member comes back."""

    __slots__ = ("enum", "kind", "members")

    def __init__(self, enum: type[Enum], kind: type) -> None:
        super().__init__(enum.__name__, {enum}, {kind})
        self.enum = enum
        self.kind = kind
        self.members = {member._value_: member for member in enum.__members__.values()}

    def dump(self, value: object, room: int) -> object:
        """Return the member's value."""
        if type(value) is not self.enum:
            raise self.misfit(value)
        return value._value_

    def load(self, wire: object) -> object:
        """Return the member; `_missing_` is not asked, for it guesses."""
        if type(wire) is not self.kind:
            raise Misfit(f"expected {self.name} as {self.kind.__name__}, got {type(wire).__name__}")
        member = self.members.get(wire)
        if member is None:
            raise Misfit(f"is not the value of a member of {self.name}")
        return member


class FlagForm(EnumForm):
    """A Flag: any combination of its members, as an int."""

    __slots__ = ()

    def dump(self, value: object, room: int) -> object:
        """Return the bits, if they fit in a wire int."""
        return INT.dump(super().dump(value, room), room)

    def load(self, wire: object) -> object:
        """Return the member or combination with exactly these bits."""
        if type(wire) is not int:
            raise Misfit(f"expected {self.name} as int, got {type(wire).__name__}")
        try:
            flags = self.enum(wire)
        except ValueError:
            raise Misfit(f"has bits that {self.name} doesn't know") from None
        if type(flags) is not self.enum or flags._value_ != wire:
            raise Misfit(f"has bits that {self.name} doesn't know")
        return flags


class LiteralForm(Form):
    """Literal[...]: one of the declared values, of exactly its type."""

    __slots__ = ("reads", "writes")

    def __init__(self, wires: "Mapping[tuple[type, object], object]") -> None:
        self.writes = dict(wires)
        self.reads = {(type(wire), wire): value for (_, value), wire in wires.items()}
        super().__init__("Literal", {exact for exact, _ in wires}, {kind for kind, _ in self.reads})

    def dump(self, value: object, room: int) -> object:
        """Return the declared value, or an Enum member's value."""
        if type(value) not in self.types:
            raise self.misfit(value)
        key = (type(value), value)
        if key not in self.writes:
            raise Misfit("is not one of the values its Literal declares")
        return self.writes[key]

    def load(self, wire: object) -> object:
        """Return the declared value."""
        if type(wire) not in self.kinds:
            raise self.misfit(wire)
        key = (type(wire), wire)
        if key not in self.reads:
            raise Misfit("is not one of the values its Literal declares")
        return self.reads[key]


def enum_form(enum: type[Enum]) -> Form | str:
    """Return the Enum's form, or why it has none (ARG-1: no mixed, no float values)."""
    values = [member._value_ for member in enum.__members__.values()]
    if issubclass(enum, Flag):
        return FlagForm(enum, int)
    kinds = {type(value) for value in values}
    if kinds not in ({str}, {int}):
        return f"Enum {enum.__name__} must have only str or only int values"
    kind = kinds.pop()
    if not all(_travels(value) for value in values):
        return f"Enum {enum.__name__} has a value that JSON can't hold exactly"
    return EnumForm(enum, kind)


def literal_form(values: tuple[object, ...]) -> Form | str:
    """Return the Literal's form, or why it has none."""
    wires: dict[tuple[type, object], object] = {}
    for value in values:
        wire = value._value_ if isinstance(value, Enum) else value
        if not _travels(wire):
            return "Literal values must be str, int, bool, None or members of an Enum with such values"
        wires[type(value), value] = wire
    if len({(type(wire), wire) for wire in wires.values()}) != len(wires):
        return "two of its Literal values look the same in JSON"
    return LiteralForm(wires)


def _travels(wire: object) -> bool:
    form = LITERAL_FORMS.get(type(wire))
    if form is None:
        return False
    try:
        form.dump(wire, 0)
    except Misfit:
        return False
    return True


def _check_offset(offset: timedelta | None, problem: str) -> None:
    if offset is None:
        raise Misfit(f"is {problem}")
    if offset % MINUTE:
        raise Misfit("has a time zone offset with seconds in it")


def _exactly(write: Callable[[Any], str], read: Callable[[str], object]) -> Callable[[str], object]:
    """Make a reader that takes nothing but what `write` writes."""

    def read_exactly(text: str) -> object:
        value = read(text)
        if write(value) != text:
            raise ValueError
        return value

    return read_exactly


LITERAL_FORMS: dict[type, Form] = {type(None): NONE, bool: BOOL, int: INT, str: TEXT}
WRITTEN_FORMS: dict[type, Form] = {
    form.exact: form
    for form in (
        WrittenForm(datetime, write_datetime, _exactly(write_datetime, datetime.fromisoformat)),
        WrittenForm(date, date.isoformat, _exactly(date.isoformat, date.fromisoformat)),
        WrittenForm(time, write_time, _exactly(write_time, read_time)),
        WrittenForm(timedelta, write_timedelta, _exactly(write_timedelta, read_timedelta)),
        WrittenForm(UUID, str, _exactly(str, UUID)),
        WrittenForm(Decimal, write_decimal, read_decimal),
    )
}
