"""Make the frozen, slotted dataclass that carries a job's arguments, from a class or a function (ARG-2)."""

import copy
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import CellType, FrameType, FunctionType
from typing import Any, get_args, is_typeddict

import msgspec

from aqueue.contract.codec import NO_DEFAULT, REDACTED, ArgsCodec, Declared, declare_codec
from aqueue.contract.hints import Refused, Scope, class_hints, resolve
from aqueue.contract.shapes import is_model, shape_of
from aqueue.errors import InvalidJob


def payload_of_class(cls: type, owner: str, scope: Scope) -> tuple[type, ArgsCodec]:
    """Return the class as a frozen, slotted dataclass, and the codec of its fields."""
    _refuse_unfit(cls, owner)
    own_repr = _has_own_repr(cls)
    payload = cls if "__dataclass_params__" in vars(cls) else _frozen(cls, owner)
    try:
        shape = shape_of(payload)
        assert shape is not None
        hints = class_hints(payload, shape.required, scope)
    except Refused as refused:
        raise InvalidJob(f"job {owner!r} can't be declared: {refused}") from None
    declared = [_declared_field(field, hints[field.name]) for field in dataclasses.fields(payload)]
    scope = scope.with_name(payload.__name__, payload)
    codec = declare_codec(owner, declared, scope=scope, rebuild=payload, runs_code=shape.runs_code)
    if not own_repr:
        _hide_in_repr(payload, codec)
    return payload, codec


def payload_of_function(function: FunctionType, owner: str, scope: Scope) -> tuple[type, ArgsCodec]:
    """Return a dataclass of the function's parameters that nothing injects, and the codec of its fields."""
    _refuse_generator(function, owner)
    declared, fields = [], []
    for parameter in inspect.signature(function).parameters.values():
        annotation = _parameter_type(function, parameter, owner, scope)
        if not _is_injected(parameter, annotation):
            _check_parameter(parameter, owner)
            declared.append(_declared_parameter(parameter, annotation))
            fields.append((parameter.name, annotation, _field(parameter)))
    payload: type = dataclasses.make_dataclass(function.__name__, fields, frozen=True, slots=True)
    payload.__module__ = function.__module__
    payload.__qualname__ = f"{function.__qualname__}.job"
    payload.__doc__ = f"The arguments of {function.__qualname__}."
    codec = declare_codec(owner, declared, scope=scope)
    _hide_in_repr(payload, codec)
    return payload, codec


def default_name(target: type | FunctionType) -> str:
    """Return the importable path, also for what a script defines in `__main__`."""
    module = target.__module__
    return f"{_main_module() if module == '__main__' else module}.{target.__qualname__}"


def scope_of(frame: FrameType) -> Scope:
    """Return the names that are local where a job is declared; a module's own need no help."""
    names = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)
    return Scope(module=frame.f_globals.get("__name__", ""), names=names)


def is_marker(value: object) -> bool:
    """Recognise `Depends(...)`, ours or FastAPI's, by its shape."""
    return not isinstance(value, type) and hasattr(value, "dependency") and hasattr(value, "use_cache")


def _refuse_unfit(cls: type, owner: str) -> None:
    kind = next((name for name, fits in _NOT_JOBS.items() if fits(cls)), None)
    if kind is not None:
        raise InvalidJob(f"job {owner!r} can't be declared: {cls.__name__} is {kind}; declare a plain class")


_NOT_JOBS: Mapping[str, Callable[[type], bool]] = {
    "a Protocol": lambda cls: bool(vars(cls).get("_is_protocol", False)),
    "a TypedDict": is_typeddict,
    "an Enum": lambda cls: issubclass(cls, Enum),
    "a msgspec Struct": lambda cls: issubclass(cls, msgspec.Struct),
    "a pydantic model": is_model,
    "a subclass of a built-in type": lambda cls: any(
        base.__module__ == "builtins" and base is not object for base in cls.__mro__
    ),
}


def _frozen(cls: type, owner: str) -> type:
    try:
        payload: type = dataclasses.dataclass(frozen=True, slots=True)(cls)
    except (TypeError, ValueError) as error:
        raise InvalidJob(f"job {owner!r} can't be declared: {error}") from None
    _point_super_at(payload, cls)
    return payload


def _point_super_at(payload: type, original: type) -> None:
    """Let zero-argument super() in the methods find the slotted class, which is a copy of the original."""
    for member in vars(payload).values():
        for function in _functions_in(member):
            for cell in function.__closure__ or ():
                if _holds(cell, original):
                    cell.cell_contents = payload


def _functions_in(member: object) -> Iterator[FunctionType]:
    if isinstance(member, property):
        parts: tuple[object, ...] = (member.fget, member.fset, member.fdel)
    else:
        parts = (getattr(member, "__func__", member),)
    for part in parts:
        function = inspect.unwrap(part) if callable(part) else part
        if isinstance(function, FunctionType):
            yield function


def _holds(cell: CellType, original: type) -> bool:
    try:
        return cell.cell_contents is original
    except ValueError:  # the cell is still empty
        return False


def _declared_field(field: "dataclasses.Field[Any]", annotation: object) -> Declared:
    default = NO_DEFAULT if field.default is dataclasses.MISSING else field.default
    required = default is NO_DEFAULT and field.default_factory is dataclasses.MISSING
    return Declared(name=field.name, annotation=annotation, required=required, default=default)


def _declared_parameter(parameter: inspect.Parameter, annotation: object) -> Declared:
    if parameter.default is parameter.empty:
        return Declared(name=parameter.name, annotation=annotation, required=True)
    return Declared(name=parameter.name, annotation=annotation, required=False, default=parameter.default)


def _field(parameter: inspect.Parameter) -> "dataclasses.Field[Any]":
    options: dict[str, Any] = {"kw_only": parameter.kind is parameter.KEYWORD_ONLY}
    default = parameter.default
    if type(default).__hash__ is None:  # a list or dict: each job gets its own
        options["default_factory"] = functools.partial(copy.deepcopy, default)
    elif default is not parameter.empty:
        options["default"] = default
    made: dataclasses.Field[Any] = dataclasses.field(**options)
    return made


def _parameter_type(function: FunctionType, parameter: inspect.Parameter, owner: str, scope: Scope) -> object:
    """Return the parameter's type; an injected one may be named for type checkers alone, so isn't asked."""
    if parameter.annotation is parameter.empty or is_marker(parameter.default):
        return parameter.empty
    module = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return resolve(parameter.annotation, module, scope.names, parameter.name)
    except Refused as refused:
        raise InvalidJob(f"job {owner!r} can't be declared: {parameter.name}: {refused}") from None


def _is_injected(parameter: inspect.Parameter, annotation: object) -> bool:
    metadata = getattr(annotation, "__metadata__", ()) if get_args(annotation) else ()
    return is_marker(parameter.default) or any(is_marker(mark) for mark in metadata)


def _check_parameter(parameter: inspect.Parameter, owner: str) -> None:
    problem = _UNFIT_KINDS.get(parameter.kind)
    if problem is None and parameter.annotation is parameter.empty:
        problem = "has no annotation: give it a type, or Depends to have it injected"
    if problem is not None:
        raise InvalidJob(f"job {owner!r} can't be declared: parameter {parameter.name} {problem}")


_UNFIT_KINDS: Mapping[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values: declare a list or tuple instead",
    inspect.Parameter.VAR_KEYWORD: "takes any names: declare a dict or a dataclass instead",
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, and arguments travel by name: drop the /",
}


def _refuse_generator(function: FunctionType, owner: str) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidJob(f"job {owner!r} can't be declared: {function.__name__} is a generator function")


def _has_own_repr(cls: type) -> bool:
    """Whether the class says itself how it is shown, and not a dataclass decorator for it."""
    if "__repr__" not in vars(cls):
        return False
    code = getattr(inspect.unwrap(vars(cls)["__repr__"]), "__code__", None)
    return code is None or code.co_filename != "<string>"


def _hide_in_repr(payload: type, codec: ArgsCodec) -> None:
    """Keep `Sensitive` values out of the repr that logs and tracebacks show."""
    hidden = {field.name for field in codec.fields if field.hides}
    if not hidden:
        return

    def __repr__(self: object) -> str:  # noqa: N807 - it becomes the payload's own
        shown = (
            f"{field.name}={REDACTED if field.name in hidden else repr(getattr(self, field.name))}"
            for field in codec.fields
        )
        return f"{type(self).__qualname__}({', '.join(shown)})"

    setattr(payload, "__repr__", __repr__)  # noqa: B010 - a class known only as `type` has no such attribute to set


def _main_module() -> str:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return str(file).replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".py") if file else "__main__"
