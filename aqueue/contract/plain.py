"""The short way back for jobs of plain arguments: text, whole numbers, truth values (ARG-4).

One typed parse checks and reads all of them at once, and the job's slots are filled without its constructor,
which runs no code of its own. Whatever doesn't fit at first sight goes the long way, which can say why.
"""

from collections.abc import Callable
from types import MemberDescriptorType
from typing import Annotated, Any, TypeAlias

import msgspec

from aqueue.contract.codec import MAX_ARGS_BYTES, ArgsCodec
from aqueue.contract.forms import BOOL, INT, INT_MAX, INT_MIN, TEXT, Form

_TYPES: dict[Form, object] = {
    TEXT: str,
    BOOL: bool,
    INT: Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)],
}
_UNFIT = (msgspec.MsgspecError, UnicodeDecodeError)


Restore: TypeAlias = Callable[[bytes], object]
"""Returns the job that was pushed with these encoded arguments."""


def plain_restorer(payload: type, codec: ArgsCodec, otherwise: Restore) -> Restore | None:
    """Return what restores this job from its raw arguments, or None where it isn't plain.

    Arguments that don't fit, absent or undeclared ones too, are left to `otherwise`.
    """
    forms = {field.name: field.form for field in codec.fields}
    slots: list[Any] = [getattr(payload, name, None) for name in forms]
    is_plain = all(form in _TYPES for form in forms.values())
    if codec.runs_code or not is_plain or not all(isinstance(slot, MemberDescriptorType) for slot in slots):
        return None
    wire = msgspec.defstruct(
        "Wire", [(name, _TYPES[form]) for name, form in forms.items()], forbid_unknown_fields=True
    )
    decode = msgspec.json.Decoder(wire).decode
    fill = [(getattr(wire, name).__get__, slot.__set__) for name, slot in zip(forms, slots, strict=True)]
    new = object.__new__

    def restore(raw: bytes) -> object:
        if len(raw) > MAX_ARGS_BYTES:
            return otherwise(raw)
        try:
            values: Any = decode(raw)
        except _UNFIT:
            return otherwise(raw)
        job: object = new(payload)
        for get, put in fill:
            put(job, get(values))
        return job

    return restore
