"""The forms of values with named fields: frozen dataclasses, msgspec Structs, pydantic models (ARG-1).

A record travels as an object of its fields' names, whatever renaming its own library is set to do, and comes
back through its constructor, so its own checks run again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from aqueue.contract.forms import REDACTED, Form, Misfit, check_json, open_level

ENCODER = msgspec.json.Encoder()
DECODER = msgspec.json.Decoder[Any]()


class Unset:
    """Stands for an attribute that an object doesn't have; no form takes it."""


UNSET = Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One field of a record."""

    name: str
    form: Form
    required: bool


class RecordForm(Form):
    """A dataclass or Struct of exactly one class.

    `members` is filled after construction, so that a record may hold itself. `tag` is a tagged Struct's
    field and value; it travels too and tells the arms of a union apart.
    """

    __slots__ = ("_by_name", "cls", "members", "tag")

    def __init__(self, cls: type, tag: tuple[str, str | int] | None = None) -> None:
        super().__init__(cls.__name__, {cls}, {dict})
        self.cls = cls
        self.tag = tag
        self.fill(())

    def fill(self, members: "tuple[Member, ...]") -> None:
        """Give the record its fields."""
        self.members = members
        self._by_name = {member.name: member for member in members}

    def dump(self, value: object, room: int) -> object:
        """Return an object of the dumped fields."""
        if type(value) is not self.cls:
            raise self.misfit(value)
        open_level(room)
        dumped: dict[str, object] = {} if self.tag is None else dict([self.tag])
        for member in self.members:
            try:
                dumped[member.name] = member.form.dump(getattr(value, member.name, UNSET), room - 1)
            except Misfit as misfit:
                misfit.came_through(f".{member.name}")
                raise
        return dumped

    def load(self, wire: object) -> object:
        """Return the record, built by its constructor; fields with a default may be missing."""
        if type(wire) is not dict:
            raise Misfit(f"expected {self.name} as an object, got {type(wire).__name__}")
        fields = load_members(self.members, self._without_tag(wire))
        try:
            return self.cls(**fields)
        except Exception as error:
            raise Misfit(f"{self.name} refused its fields with {type(error).__name__}") from error

    def redact(self, wire: object) -> object:
        """Redact each field; hide a field that isn't declared, for nobody knows what it is."""
        if type(wire) is not dict:
            return REDACTED
        return {name: self._redact_field(name, item) for name, item in wire.items()}

    def _redact_field(self, name: str, item: object) -> object:
        if self.tag is not None and name == self.tag[0]:
            return item if item == self.tag[1] else REDACTED
        member = self._by_name.get(name)
        return REDACTED if member is None else member.form.redact(item)

    def _without_tag(self, wire: dict[str, object]) -> dict[str, object]:
        if self.tag is None:
            return wire
        field, tag = self.tag
        if type(wire.get(field)) is not type(tag) or wire[field] != tag:
            raise Misfit(f"is not tagged as {self.name}")
        return {name: item for name, item in wire.items() if name != field}


class TaggedForm(Form):
    """A union of tagged Structs that share their tag's field."""

    __slots__ = ("by_tag", "by_type", "field")

    def __init__(self, field: str, by_tag: "Mapping[str | int, RecordForm]") -> None:
        super().__init__(
            " | ".join(arm.name for arm in by_tag.values()), {arm.cls for arm in by_tag.values()}, {dict}
        )
        self.field = field
        self.by_tag = dict(by_tag)
        self.by_type = {arm.cls: arm for arm in by_tag.values()}

    def dump(self, value: object, room: int) -> object:
        """Dump by the arm that is the value's class."""
        arm = self.by_type.get(type(value))
        if arm is None:
            raise self.misfit(value)
        return arm.dump(value, room)

    def load(self, wire: object) -> object:
        """Load by the arm that bears the tag."""
        arm = self._arm(wire)
        if arm is None:
            raise Misfit(f"is not tagged as one of {self.name}")
        return arm.load(wire)

    def redact(self, wire: object) -> object:
        """Redact by the arm that bears the tag; hide what bears none."""
        arm = self._arm(wire)
        return REDACTED if arm is None else arm.redact(wire)

    def _arm(self, wire: object) -> RecordForm | None:
        tag = wire.get(self.field) if type(wire) is dict else None
        return self.by_tag.get(tag) if isinstance(tag, str | int) else None


class ModelForm(Form):
    """A pydantic model: dumped and validated by pydantic, and pushed only if that gives the same model back.

    pydantic is never imported here; the model brings its own methods. With a `Sensitive` field anywhere
    inside it is hidden whole, since aliases and custom serializers decide what its fields are called.
    """

    __slots__ = ("cls", "hides")

    def __init__(self, cls: Any, *, hides: bool) -> None:  # a pydantic model class, known by its shape alone
        super().__init__(cls.__name__, {cls}, {dict})
        self.cls = cls
        self.hides = hides

    def dump(self, value: object, room: int) -> object:
        """Return pydantic's JSON for the model, proved to restore it."""
        if type(value) is not self.cls:
            raise self.misfit(value)
        wire = self._dump_plain(value)
        check_json(wire, room)
        if type(wire) is not dict:
            raise Misfit(f"{self.name} is not an object in JSON")
        again = self.load(wire)
        if again != value or ENCODER.encode(self._dump_plain(again)) != ENCODER.encode(wire):
            raise Misfit(f"{self.name} doesn't come back from JSON as it was")
        return wire

    def load(self, wire: object) -> object:
        """Return the model, validated in pydantic's strict mode."""
        try:
            return self.cls.model_validate_json(ENCODER.encode(wire), strict=True)
        except ValueError:  # its text quotes the input, so it is not kept as the cause
            raise Misfit(f"doesn't validate as {self.name}") from None

    def redact(self, wire: object) -> object:
        """Hide the model whole if anything in it is sensitive."""
        return REDACTED if self.hides else wire

    def _dump_plain(self, value: Any) -> object:
        try:
            return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings="error")
        except ValueError:
            raise Misfit(f"{self.name} can't be dumped as JSON") from None


def load_members(members: "tuple[Member, ...]", wire: dict[str, object]) -> dict[str, object]:
    """Load an object's fields by name; refuse a missing required one and any that isn't declared."""
    loaded: dict[str, object] = {}
    for member in members:
        if member.name in wire:
            try:
                loaded[member.name] = member.form.load(wire[member.name])
            except Misfit as misfit:
                misfit.came_through(f".{member.name}")
                raise
        elif member.required:
            raise Misfit(f"field {member.name} is missing")
    if len(loaded) != len(wire):
        raise Misfit("has a field that isn't declared")
    return loaded
