"""How an event travels to a queued listener: its class by name, its arguments as a job's do (ARG-1).

A listener may stand for a base class or a Protocol, so the wire says which event it was:
`{"type": "orders.placed", "args": {"order": 7}}`. On the worker that name is looked up among the classes
that exist there under what the listener listens to; a payload never causes an import (ARG-4).
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from aqueue.contract.codec import REDACTED
from aqueue.contract.fields import Analysis
from aqueue.contract.forms import Form, Misfit, open_level
from aqueue.contract.hints import Refused, Scope
from aqueue.contract.kinship import is_under
from aqueue.contract.records import DECODER, ENCODER
from aqueue.contract.shapes import is_model, shape_of
from aqueue.jobs import JobType, declared_under
from aqueue.payloads import default_name


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """One class of event: the names it may come under, and its form."""

    cls: type
    names: tuple[str, ...]
    form: Form
    runs_code: bool


class EventForm(Form):
    """Carries every event under one class; `hides` says that one met so far has a `Sensitive` field.

    `scope` resolves the annotations of local classes. `others` are further classes to look through: those
    that merely implement a Protocol can't be found from it.
    """

    __slots__ = ("_base", "_by_class", "_by_name", "_others", "_scope", "hides")

    def __init__(self, base: type, scope: Scope, others: Callable[[], Iterable[type]]) -> None:
        super().__init__(f"an event under {base.__name__}", (), {dict})
        self._base = base
        self._scope = scope
        self._others = others
        self._by_class: dict[type, _Kind] = {}
        self._by_name: dict[str, _Kind] = {}
        self.hides = False

    def learn_known(self) -> None:
        """Compile the base and what extends it by now; raises `Refused` for one that can't travel (ARG-2).

        Others are compiled when they are first met. Only what carries nothing itself may stand for others:
        a Protocol, an ABC, a class without a constructor of its own.
        """
        if not _is_record(self._base) and not _is_marker(self._base):
            raise _no_fields(self._base)
        for cls in _family(self._base):
            if _is_record(cls):
                self.learn(cls)

    def learn(self, cls: type) -> None:
        """Compile one class of event, once; raises `Refused`, naming the class and the field."""
        if cls in self._by_class:
            return
        if not _is_record(cls):
            raise _no_fields(cls)
        analysis = Analysis(self._scope.with_name(cls.__name__, cls))
        kind = _Kind(cls, _names(cls), analysis.form(cls), analysis.runs_code)
        self.hides = self.hides or analysis.hides
        self._by_class[cls] = kind
        name, *aliases = kind.names
        self._by_name[name] = kind  # a class declared again stands for its older self
        for alias in aliases:
            self._by_name.setdefault(alias, kind)

    def dump(self, value: object, room: int) -> object:
        """Return the event's name and arguments."""
        cls = type(value)
        try:
            self.learn(cls)
        except Refused as refused:
            raise Misfit(str(refused)) from None
        if not is_under(cls, self._base):
            raise self.misfit(value)
        open_level(room)
        kind = self._by_class[cls]
        args = kind.form.dump(value, room - 1)
        if kind.runs_code:
            _check_unchanged(kind, args, room - 1)
        return {"type": kind.names[0], "args": args}

    def load(self, wire: object) -> object:
        """Return the event, of the class that it was."""
        if type(wire) is not dict or wire.keys() != {"type", "args"}:
            raise Misfit("expected an event's type and args")
        kind = self._find(wire["type"])
        if kind is None:
            raise Misfit(f"no event of this name is known here under {self._base.__name__}")
        return kind.form.load(wire["args"])

    def redact(self, wire: object) -> object:
        """Redact the arguments; hide those of an event that isn't known here."""
        if type(wire) is not dict:
            return REDACTED
        kind = self._find(wire.get("type"))
        return {"type": wire.get("type"), "args": kind.form.redact(wire.get("args"))} if kind else REDACTED

    def _find(self, name: object) -> _Kind | None:
        """Look a name up, also among what was declared since."""
        if not isinstance(name, str):
            return None
        if name not in self._by_name:
            for cls in self._candidates():
                if name in _names(cls):
                    with contextlib.suppress(Refused):  # one that can't travel is not what was sent
                        self.learn(cls)
        return self._by_name.get(name)

    def _candidates(self) -> Iterator[type]:
        """Yield the classes under the base that exist by now, those that carry nothing included."""
        declared = [each.payload for each in declared_under(self._base)]
        others = [cls for cls in self._others() if is_under(cls, self._base)]
        yield from dict.fromkeys([*_family(self._base), *declared, *others])


def _family(base: type) -> Iterator[type]:
    yield base
    if base is not object:  # under which is everything there is
        subclasses: list[type] = type.__subclasses__(base)
        for cls in subclasses:
            yield from _family(cls)


def _is_record(cls: type) -> bool:
    return is_model(cls) or shape_of(cls) is not None


def _is_marker(cls: type) -> bool:
    if any(base.__module__ == "builtins" for base in cls.__mro__[:-1]):
        return False
    is_abstract = bool(getattr(cls, "__abstractmethods__", None)) or getattr(cls, "_is_protocol", False)
    return is_abstract or "__init__" not in {name for base in cls.__mro__[:-1] for name in vars(base)}


def _names(cls: type) -> tuple[str, ...]:
    declared = vars(cls).get("__aqueue_job__")
    return (declared.name, *declared.aliases) if isinstance(declared, JobType) else (default_name(cls),)


def _no_fields(cls: type) -> Refused:
    return Refused(
        f"{cls.__name__} declares no fields: make it a frozen dataclass, an @job class or a msgspec Struct"
    )


def _check_unchanged(kind: _Kind, args: object, room: int) -> None:
    """Refuse an event that its own constructor would turn into another one, as for jobs (ARG-1)."""
    try:
        again = kind.form.load(DECODER.decode(ENCODER.encode(args)))
    except Misfit:  # a constructor that raises will say so on the worker, where nothing is lost
        return
    if ENCODER.encode(kind.form.dump(again, room)) != ENCODER.encode(args):
        raise Misfit(f"{kind.cls.__name__} changes each time it is built: see its __post_init__")
