"""Which class stands under which: by extending it, or by implementing what it asks for (TOPIC-2)."""

from abc import ABCMeta
from typing import Protocol

from aqueue.contract.hints import annotations_of


def is_under(cls: type, base: type) -> bool:
    """Whether a class is, extends or implements another.

    A Protocol, runtime-checkable or not, is implemented by a class that has all its members.
    """
    if base in cls.__mro__:
        return True
    if getattr(base, "_is_protocol", False):
        members = _protocol_members(base)
        return bool(members) and all(_has(cls, member) for member in members)
    return isinstance(base, ABCMeta) and issubclass(cls, base)


def _has(cls: type, member: str) -> bool:
    """Whether the class has the member; a field without slot or default shows in its declaration alone."""
    if getattr(cls, member, None) is not None:
        return True
    declarations = ("__dataclass_fields__", "__struct_fields__", "model_fields")
    return any(member in getattr(cls, declared, ()) for declared in declarations)


def _protocol_members(protocol: type) -> set[str]:
    """Return the names a class must have to implement the Protocol."""
    members: set[str] = set()
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False) and base.__name__ != "Protocol":
            members |= vars(base).keys() | annotations_of(base).keys()
    return {
        name for name in members if name not in _NOT_MEMBERS and not name.startswith(("_abc_", "__static_"))
    }


_NOT_MEMBERS = {
    *vars(type("_Plain", (Protocol,), {})),
    *("__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__", "__class_getitem__"),
    *("__firstlineno__", "__hash__", "__match_args__", "__non_callable_proto_members__", "__orig_bases__"),
    *("_is_runtime_protocol", "__protocol_attrs__", "__slots__", "__type_params__"),
}
