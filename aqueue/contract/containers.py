"""The forms of values that hold others: list, tuple, dict, `Sensitive[T]` and unions (ARG-1)."""

from collections.abc import Iterable

from aqueue.contract.forms import REDACTED, Form, Misfit, check_key, open_level


class SequenceForm(Form):
    """list[T] or tuple[T, ...]: a list on the wire."""

    __slots__ = ("exact", "item")

    def __init__(self, exact: type[list[object]] | type[tuple[object, ...]], item: Form) -> None:
        super().__init__(exact.__name__, {exact}, {list})
        self.exact = exact
        self.item = item

    def dump(self, value: object, room: int) -> object:
        """Return a list of dumped items."""
        if type(value) is not self.exact:
            raise self.misfit(value)
        open_level(room)
        dump, dumped = self.item.dump, list[object]()
        for item in value:
            try:
                dumped.append(dump(item, room - 1))
            except Misfit as misfit:
                misfit.came_through(f"[{len(dumped)}]")
                raise
        return dumped

    def load(self, wire: object) -> object:
        """Return a list or tuple of loaded items."""
        load, loaded = self.item.load, list[object]()
        for item in wire_list(wire):
            try:
                loaded.append(load(item))
            except Misfit as misfit:
                misfit.came_through(f"[{len(loaded)}]")
                raise
        return loaded if self.exact is list else tuple(loaded)

    def redact(self, wire: object) -> object:
        """Redact each item; a value of another shape is hidden whole."""
        if type(wire) is not list:
            return REDACTED
        return [self.item.redact(item) for item in wire]


class FixedTupleForm(Form):
    """tuple[A, B, C] and tuple[()]."""

    __slots__ = ("items",)

    def __init__(self, items: tuple[Form, ...]) -> None:
        super().__init__(f"tuple of {len(items)}", {tuple}, {list})
        self.items = items

    def dump(self, value: object, room: int) -> object:
        """Return a list of the items, each dumped by its own form."""
        if type(value) is not tuple:
            raise self.misfit(value)
        self._check_length(value)
        open_level(room)
        dumped: list[object] = []
        for index, (item, form) in enumerate(zip(value, self.items, strict=True)):
            try:
                dumped.append(form.dump(item, room - 1))
            except Misfit as misfit:
                misfit.came_through(f"[{index}]")
                raise
        return dumped

    def load(self, wire: object) -> object:
        """Return a tuple of the items, each loaded by its own form."""
        items = wire_list(wire)
        self._check_length(items)
        loaded: list[object] = []
        for index, (item, form) in enumerate(zip(items, self.items, strict=True)):
            try:
                loaded.append(form.load(item))
            except Misfit as misfit:
                misfit.came_through(f"[{index}]")
                raise
        return tuple(loaded)

    def redact(self, wire: object) -> object:
        """Redact each item; a value of another shape is hidden whole."""
        if type(wire) is not list or len(wire) != len(self.items):
            return REDACTED
        return [form.redact(item) for item, form in zip(wire, self.items, strict=True)]

    def _check_length(self, found: "tuple[object, ...] | list[object]") -> None:
        if len(found) != len(self.items):
            raise Misfit(f"expected {len(self.items)} items, got {len(found)}")


class DictForm(Form):
    """dict[str, T]; a key is data, so a location names an entry by its ordinal."""

    __slots__ = ("item",)

    def __init__(self, item: Form) -> None:
        super().__init__("dict", {dict}, {dict})
        self.item = item

    def dump(self, value: object, room: int) -> object:
        """Return a dict of dumped items."""
        if type(value) is not dict:
            raise self.misfit(value)
        open_level(room)
        dumped: dict[object, object] = {}
        for ordinal, (key, item) in enumerate(value.items()):
            try:
                check_key(key)
                dumped[key] = self.item.dump(item, room - 1)
            except Misfit as misfit:
                misfit.came_through(f".{{{ordinal}}}")
                raise
        return dumped

    def load(self, wire: object) -> object:
        """Return a dict of loaded items."""
        if type(wire) is not dict:
            raise self.misfit(wire)
        loaded: dict[object, object] = {}
        for ordinal, (key, item) in enumerate(wire.items()):
            try:
                loaded[key] = self.item.load(item)
            except Misfit as misfit:
                misfit.came_through(f".{{{ordinal}}}")
                raise
        return loaded

    def redact(self, wire: object) -> object:
        """Redact each item; a value of another shape is hidden whole."""
        if type(wire) is not dict:
            return REDACTED
        return {key: self.item.redact(item) for key, item in wire.items()}


class SensitiveForm(Form):
    """Sensitive[T]: T on the wire, hidden everywhere else, and silent about where and why it doesn't fit."""

    __slots__ = ("inner",)

    def __init__(self, inner: Form) -> None:
        super().__init__(inner.name, inner.types, inner.kinds)
        self.inner = inner

    def dump(self, value: object, room: int) -> object:
        """Return what the inner form dumps."""
        try:
            return self.inner.dump(value, room)
        except Misfit:
            raise Misfit("its sensitive value doesn't fit the declared type") from None

    def load(self, wire: object) -> object:
        """Return what the inner form loads."""
        try:
            return self.inner.load(wire)
        except Misfit:
            raise Misfit("its sensitive value doesn't fit the declared type") from None

    def redact(self, wire: object) -> object:
        """Hide it whole."""
        return REDACTED


class UnionForm(Form):
    """A | B where both the Python type and the JSON type tell which is meant."""

    __slots__ = ("by_kind", "by_type")

    def __init__(self, arms: Iterable[Form]) -> None:
        arms = tuple(arms)
        self.by_type = {python: arm for arm in arms for python in arm.types}
        self.by_kind = {json: arm for arm in arms for json in arm.kinds}
        super().__init__(" | ".join(arm.name for arm in arms), self.by_type, self.by_kind)

    def dump(self, value: object, room: int) -> object:
        """Dump by the arm that holds the value's type."""
        arm = self.by_type.get(type(value))
        if arm is None:
            raise self.misfit(value)
        return arm.dump(value, room)

    def load(self, wire: object) -> object:
        """Load by the arm that reads this JSON type."""
        arm = self.by_kind.get(type(wire))
        if arm is None:
            raise self.misfit(wire)
        return arm.load(wire)

    def redact(self, wire: object) -> object:
        """Redact by the arm that reads this JSON type; hide what none of them reads."""
        arm = self.by_kind.get(type(wire))
        return REDACTED if arm is None else arm.redact(wire)


def wire_list(wire: object) -> list[object]:
    """Return the JSON list, or raise `Misfit`."""
    if type(wire) is not list:
        raise Misfit(f"expected list, got {type(wire).__name__}")
    return wire
