"""Annotations as users write them: the two marks of our own, and evaluating those written as text (ARG-2)."""

import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class _SensitiveMark:
    """What `Sensitive` leaves in an annotation."""

    def __repr__(self) -> str:
        return "Sensitive"


SENSITIVE = _SensitiveMark()
Sensitive: TypeAlias = Annotated[T, SENSITIVE]
"""Mark a value as never to be shown: `token: Sensitive[str]` is a str that logs, events and errors hide."""

if TYPE_CHECKING:
    JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
    """Annotate a field that holds arbitrary JSON (ARG-1)."""
else:

    class JSON:
        """Annotate a field that holds arbitrary JSON (ARG-1); type checkers see the recursive union."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a job is declared: names local there (a function's) help the annotations of that module."""

    module: str = ""
    names: Mapping[str, object] = field(default_factory=dict)

    def with_name(self, name: str, value: object) -> "Scope":
        """Return a scope that knows one more name, such as a class that is not bound yet."""
        return Scope(module=self.module, names={**self.names, name: value})


class Refused(Exception):
    """An annotation has no exact wire form; the text says why."""


def class_hints(
    cls: type, names: Iterable[str], scope: Scope, args: tuple[object, ...] = ()
) -> dict[str, object]:
    """Resolve the annotations of a class's fields, each in the module of the base that wrote it.

    `scope` helps where the base is of the declaring module; `args` fill the class's type variables.
    """
    bindings = _bindings(cls, args)
    wanted, hints = set(names), dict[str, object]()
    for base in reversed(cls.__mro__):
        module = getattr(sys.modules.get(base.__module__), "__dict__", {})
        local = dict(scope.names) if base.__module__ == scope.module else {}
        if base is cls:
            local[cls.__name__] = cls  # a slotted dataclass is a new class, and its name may not be bound yet
        annotations = annotations_of(base)
        for name in wanted & annotations.keys():
            hint = resolve(annotations[name], module, local, name)
            hints[name] = substitute(hint, bindings.get(base, {}))
    return hints


def resolve(
    annotation: object, module: Mapping[str, object], local: Mapping[str, object], name: str
) -> object:
    """Evaluate one annotation, however it was written; refuse one whose names aren't there."""
    holder = SimpleNamespace(__annotations__={name: annotation})
    try:
        return get_type_hints(holder, dict(module), dict(local), include_extras=True)[name]
    except NameError as error:
        raise Refused(f"its annotation can't be resolved: {error}") from None
    except (SyntaxError, TypeError, AttributeError) as error:
        raise Refused(f"its annotation can't be evaluated: {type(error).__name__}") from None


def substitute(hint: object, bindings: Mapping[object, object]) -> object:
    """Put types in the place of type variables."""
    if isinstance(hint, TypeVar):
        return bindings.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    is_class = isinstance(hint, type) and get_origin(hint) is None
    if is_class or not parameters or not bindings:
        return hint
    filled = tuple(bindings.get(parameter, parameter) for parameter in parameters)
    return hint[filled]  # type: ignore[index]  # what has parameters can be indexed


def is_sensitive(hint: object) -> bool:
    """Say whether an annotation is `Sensitive[...]` itself."""
    return any(mark is SENSITIVE for mark in getattr(hint, "__metadata__", ()))


def show(hint: object) -> str:
    """Write an annotation for a person to read."""
    if isinstance(hint, type) and get_origin(hint) is None:
        return hint.__name__
    return str(hint).replace("typing.", "")


def _bindings(cls: type, args: tuple[object, ...]) -> dict[type, dict[object, object]]:
    bindings = {cls: dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))}
    for klass in cls.__mro__:
        for generic in klass.__dict__.get("__orig_bases__", ()):
            origin = get_origin(generic)
            parameters = getattr(origin, "__parameters__", ())
            known = bindings.get(klass, {})
            if isinstance(origin, type) and parameters:
                bindings[origin] = {
                    p: substitute(a, known) for p, a in zip(parameters, get_args(generic), strict=False)
                }
    return bindings


def annotations_of(cls: type) -> dict[str, object]:
    """Return a class's own annotations, as they are written."""
    try:
        return inspect.get_annotations(cls)
    except NameError as error:  # from Python 3.14 they are evaluated when asked for
        raise Refused(f"an annotation of {cls.__name__} can't be resolved: {error}") from None
