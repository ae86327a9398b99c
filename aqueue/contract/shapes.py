"""What the classes that may sit inside a job look like: dataclasses, Structs, pydantic models (ARG-2)."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from aqueue.contract.hints import SENSITIVE, Refused, annotations_of, is_sensitive


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A record class's fields in order, True where a value is required."""

    required: Mapping[str, bool]
    runs_code: bool
    tag: tuple[str, str | int] | None = None


def shape_of(cls: type) -> Shape | None:
    """Return the class's shape, None if it is no record; refuse one that can't be filled again."""
    return _struct_shape(cls) or _dataclass_shape(cls)


def _dataclass_shape(cls: type) -> Shape | None:
    """Return the shape of a frozen dataclass, None for another class; refuse what can't be filled again."""
    if not dataclasses.is_dataclass(cls):
        return None
    if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # the stubs leave it out
        raise Refused(f"{cls.__name__} is a dataclass that isn't frozen")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    _check_constructor(cls, fields)
    required = {
        name: field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        for name, field in fields.items()
    }
    return Shape(required=required, runs_code=_runs_code(cls))


def is_model(cls: type) -> bool:
    """Recognise a pydantic model without importing pydantic."""
    return hasattr(cls, "__pydantic_core_schema__") and hasattr(cls, "model_validate_json")


def mentions_sensitive(hint: object, seen: set[object]) -> bool:
    """Say whether an annotation, or a class's field inside it, is marked `Sensitive`."""
    if is_sensitive(hint):
        return True
    if isinstance(hint, type) and hint not in seen:
        seen.add(hint)
        fields: Mapping[str, Any] = getattr(hint, "model_fields", {}) if is_model(hint) else {}
        if any(SENSITIVE in field.metadata for field in fields.values()):
            return True
        inner = [field.annotation for field in fields.values()] or list(annotations_of(hint).values())
        return any(mentions_sensitive(annotation, seen) for annotation in inner)
    return any(mentions_sensitive(arg, seen) for arg in get_args(hint))


def _struct_shape(cls: type) -> Shape | None:
    if not issubclass(cls, msgspec.Struct):
        return None
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    first = len(names) - len(defaults)
    required = {name: i < first or defaults[i - first] is msgspec.NODEFAULT for i, name in enumerate(names)}
    config = cls.__struct_config__
    tag = None if config.tag is None or config.tag_field is None else (config.tag_field, config.tag)
    return Shape(required=required, runs_code=hasattr(cls, "__post_init__"), tag=tag)


def _check_constructor(cls: type, fields: Mapping[str, object]) -> None:
    for field in dataclasses.fields(cls):
        if not field.init:
            raise Refused(f"field {field.name!r} of {cls.__name__} has init=False, so nothing can restore it")
    init = inspect.signature(cls.__init__)  # type: ignore[misc]  # only read
    parameters = list(init.parameters.values())[1:]
    variadic = {p.kind for p in parameters} & {inspect.Parameter.VAR_KEYWORD}
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    for name, parameter in named.items():
        if name not in fields or parameter.kind is parameter.POSITIONAL_ONLY:
            raise Refused(
                f"{name!r} of {cls.__name__} is an InitVar or a constructor's own, so nothing can restore it"
            )
    if not variadic and fields.keys() - named.keys():
        raise Refused(f"the constructor of {cls.__name__} doesn't take all its fields by name")


def _runs_code(cls: type) -> bool:
    code = getattr(cls.__init__, "__code__", None)  # type: ignore[misc]  # read, not called
    generated = code is not None and code.co_filename == "<string>"
    return hasattr(cls, "__post_init__") or not generated
