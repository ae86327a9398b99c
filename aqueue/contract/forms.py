"""How a value of a declared type looks in JSON, checked on its way out and in (ARG-1, ARG-3, ARG-4).

A form is compiled once per field, when the job is declared. `dump` answers the exact JSON value or raises
`Misfit`; `load` answers the exact original or raises `Misfit`; `redact` hides what is `Sensitive`. msgspec
only turns the result into bytes: left alone it writes NaN as null, a set as a list and bytes as base64.

Types are compared with `type(x) is ...`: a subclass would come back as its base, a bool as an int.
"""

from collections.abc import Iterable
from math import isfinite

MAX_DEPTH = 32
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
REDACTED = "[redacted]"


class Misfit(Exception):
    """A value doesn't fit: `reason` says why, `where` leads to it from the field; neither quotes data."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.where = ""

    def came_through(self, step: str) -> None:
        """Put one more step in front of the location, as the error rises through a container."""
        self.where = step + self.where


class Form:
    """One declared type's wire form.

    `types` are the exact Python types it dumps, `kinds` the exact JSON types it loads: what makes a union
    of forms unambiguous. `room` is how many container levels may still be opened.
    """

    __slots__ = ("kinds", "name", "types")

    def __init__(self, name: str, types: Iterable[type], kinds: Iterable[type]) -> None:
        self.name = name
        self.types = frozenset(types)
        self.kinds = frozenset(kinds)

    def dump(self, value: object, room: int) -> object:
        """Return the JSON value, or raise `Misfit`."""
        raise NotImplementedError

    def load(self, wire: object, /) -> object:
        """Return the value that was dumped, or raise `Misfit`."""
        raise NotImplementedError

    def redact(self, wire: object) -> object:
        """Return the JSON value with everything `Sensitive` hidden; never raises."""
        return wire

    def misfit(self, found: object) -> Misfit:
        """Say which type was expected and which was found."""
        return Misfit(f"expected {self.name}, got {type(found).__name__}")


class ExactForm(Form):
    """None or bool: the JSON value is the value."""

    __slots__ = ("exact",)

    def __init__(self, exact: type) -> None:
        super().__init__("None" if exact is type(None) else exact.__name__, {exact}, {exact})
        self.exact = exact

    def dump(self, value: object, room: int = 0) -> object:
        """Return the value itself."""
        if type(value) is not self.exact:
            raise self.misfit(value)
        return value

    load = dump  # the same checks hold on the way in


class IntForm(ExactForm):
    """An int that other readers of JSON can hold: 64 bits, signed."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(int)

    def dump(self, value: object, room: int = 0) -> object:
        """Return the int; a bool is not one."""
        if type(value) is not int:
            raise self.misfit(value)
        if not INT_MIN <= value <= INT_MAX:
            raise Misfit("is outside -2**63 to 2**63-1")
        return value

    load = dump


class FloatForm(ExactForm):
    """A finite float; 1 is not 1.0, for it would come back as something else."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(float)

    def dump(self, value: object, room: int = 0) -> object:
        """Return the float."""
        if type(value) is not float:
            raise self.misfit(value)
        if not isfinite(value):
            raise Misfit("is not a finite float")
        return value

    load = dump


class TextForm(ExactForm):
    """A str that UTF-8 can hold, so no lone surrogates."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(str)

    def dump(self, value: object, room: int = 0) -> object:
        """Return the str."""
        if type(value) is not str:
            raise self.misfit(value)
        if not value.isascii():
            check_utf8(value)
        return value

    load = dump


class JsonForm(Form):
    """Whatever JSON can hold: the `JSON` annotation."""

    __slots__ = ()

    def __init__(self) -> None:
        kinds = (type(None), bool, int, float, str, list, dict)
        super().__init__("JSON", kinds, kinds)

    def dump(self, value: object, room: int) -> object:
        """Return the value itself, every level of it checked."""
        check_json(value, room)
        return value

    def load(self, wire: object) -> object:
        """Return the value itself; its depth was checked before it was parsed."""
        check_json(wire, MAX_DEPTH)
        return wire


def check_key(key: object) -> None:
    """Refuse a dict key that JSON can't hold; which one is said by its ordinal alone."""
    if type(key) is not str:
        raise Misfit("has a key that is not a str")
    if not key.isascii():
        check_utf8(key)


def open_level(room: int) -> None:
    """Refuse one container more than MAX_DEPTH; a cycle ends here too."""
    if room <= 0:
        raise Misfit(f"is nested deeper than {MAX_DEPTH} levels")


def check_utf8(text: str) -> None:
    """Refuse a lone surrogate: UTF-8 can't hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Misfit("is not valid Unicode: it holds a lone surrogate") from None


def check_json(value: object, room: int) -> None:
    """Refuse what JSON can't hold exactly: other types, NaN, wide ints, surrogates, keys that aren't str."""
    scalar = JSON_SCALARS.get(type(value))
    if scalar is not None:
        scalar.dump(value, 0)
    elif type(value) is list:
        open_level(room)
        _check_json_items(value, room)
    elif type(value) is dict:
        open_level(room)
        _check_json_entries(value, room)
    else:
        raise Misfit(f"expected JSON, got {type(value).__name__}")


def _check_json_items(items: list[object], room: int) -> None:
    for index, item in enumerate(items):
        try:
            check_json(item, room - 1)
        except Misfit as misfit:
            misfit.came_through(f"[{index}]")
            raise


def _check_json_entries(entries: dict[object, object], room: int) -> None:
    for ordinal, (key, item) in enumerate(entries.items()):
        try:
            check_key(key)
            check_json(item, room - 1)
        except Misfit as misfit:
            misfit.came_through(f".{{{ordinal}}}")
            raise


NONE = ExactForm(type(None))
BOOL = ExactForm(bool)
INT = IntForm()
FLOAT = FloatForm()
TEXT = TextForm()
ANY_JSON = JsonForm()
JSON_SCALARS: dict[type, Form] = {type(None): NONE, bool: BOOL, int: INT, float: FLOAT, str: TEXT}
