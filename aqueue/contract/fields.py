"""From a declared annotation to the form that carries it, or the reason why none can (ARG-1, ARG-2)."""

from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

from aqueue.contract.containers import DictForm, FixedTupleForm, SensitiveForm, SequenceForm, UnionForm
from aqueue.contract.forms import ANY_JSON, JSON_SCALARS, Form
from aqueue.contract.hints import JSON, SENSITIVE, Refused, Scope, class_hints, show, substitute
from aqueue.contract.records import Member, ModelForm, RecordForm, TaggedForm
from aqueue.contract.shapes import is_model, mentions_sensitive, shape_of
from aqueue.contract.texts import WRITTEN_FORMS, enum_form, literal_form

ADVICE: Mapping[object, str] = {
    Any: "annotate arbitrary JSON with aqueue.JSON",
    object: "annotate arbitrary JSON with aqueue.JSON",
    set: "use list[T] or tuple[T, ...]",
    frozenset: "use list[T] or tuple[T, ...]",
    bytes: "write it as a str, base64 for one",
}


_BARE_FORMS: Mapping[object, Form] = {
    JSON: ANY_JSON,
    list: SequenceForm(list, ANY_JSON),
    tuple: SequenceForm(tuple, ANY_JSON),
    dict: DictForm(ANY_JSON),
}


class Analysis:
    """Compiles annotations, and notes on the way what the codec must know about them.

    `hides`: something in them is `Sensitive`. `runs_code`: restoring them runs a constructor or
    `__post_init__` of the user's, which could change what was pushed.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.hides = False
        self.runs_code = False
        self._records: dict[object, RecordForm] = {}
        self._aliases: list[object] = []

    def form(self, hint: object) -> Form:
        """Return the hint's form, or raise `Refused`."""
        origin = get_origin(hint)
        if origin is None:
            return self._class(hint) if isinstance(hint, type) else self._special(hint)
        if origin is Annotated:
            return self._annotated(hint)
        if origin is Final:
            return self.form(get_args(hint)[0])
        if origin is Literal:
            return _form_or_refused(literal_form(get_args(hint)))
        if origin in (Union, UnionType):
            return self._union(get_args(hint))
        return self._generic(hint, origin)

    def _annotated(self, hint: object) -> Form:
        inner, *metadata = get_args(hint)
        if not any(mark is SENSITIVE for mark in metadata):
            return self.form(inner)
        self.hides = True
        return SensitiveForm(self.form(inner))

    def _class(self, cls: type) -> Form:
        plain = JSON_SCALARS.get(cls) or WRITTEN_FORMS.get(cls) or _BARE_FORMS.get(cls)
        if plain is not None:
            return plain
        if issubclass(cls, Enum):
            return _form_or_refused(enum_form(cls))
        return self._record(cls, cls, ())

    def _generic(self, hint: object, origin: object) -> Form:
        args = get_args(hint)
        if origin is list:
            return SequenceForm(list, self.form(args[0]))
        if origin is tuple:
            return self._tuple(args)
        if origin is dict:
            if args[0] is not str:
                raise Refused(f"{show(hint)} has keys that are not str, and JSON has no others")
            return DictForm(self.form(args[1]))
        if hasattr(origin, "__value__"):
            parameters = getattr(origin, "__type_params__", ())
            return self._alias(hint, substitute(origin.__value__, dict(zip(parameters, args, strict=False))))
        if isinstance(origin, type):
            return self._record(hint, origin, args)
        raise _no_form(hint)

    def _tuple(self, args: tuple[object, ...]) -> Form:
        if len(args) == 2 and args[1] is Ellipsis:
            return SequenceForm(tuple, self.form(args[0]))
        return FixedTupleForm(tuple(self.form(arg) for arg in args))

    def _special(self, hint: object) -> Form:
        if hint is None:
            return JSON_SCALARS[NoneType]
        if hasattr(hint, "__supertype__"):
            return self.form(hint.__supertype__)
        if hasattr(hint, "__value__"):
            return self._alias(hint, hint.__value__)
        if isinstance(hint, TypeVar):
            raise Refused(f"the type variable {hint.__name__} is not bound to a type")
        if isinstance(hint, str | ForwardRef):
            raise Refused(f"the forward reference {show(hint)} can't be resolved")
        raise _no_form(hint)

    def _alias(self, alias: object, value: object) -> Form:
        if alias in self._aliases:
            raise Refused(f"the alias {show(alias)} contains itself: use a dataclass, or aqueue.JSON")
        self._aliases.append(alias)
        try:
            return self.form(value)
        finally:
            self._aliases.pop()

    def _union(self, hints: tuple[object, ...]) -> Form:
        literals = tuple(value for hint in hints if get_origin(hint) is Literal for value in get_args(hint))
        arms = [self.form(hint) for hint in hints if get_origin(hint) is not Literal]
        if literals:
            arms.append(_form_or_refused(literal_form(literals)))
        hides = any(isinstance(arm, SensitiveForm) for arm in arms)
        form = unite([arm.inner if isinstance(arm, SensitiveForm) else arm for arm in arms])
        return SensitiveForm(form) if hides else form

    def _record(self, hint: object, cls: type, args: tuple[object, ...]) -> Form:
        known = self._records.get(hint)
        if known is not None:
            return known
        if is_model(cls):
            return self._model(hint, cls)
        shape = shape_of(cls)
        if shape is None:
            raise _no_form(hint)
        form = RecordForm(cls, shape.tag)
        self._records[hint] = form
        self.runs_code = self.runs_code or shape.runs_code
        hints = class_hints(cls, shape.required, self.scope, args)
        form.fill(
            tuple(self._member(cls, name, hints[name], required) for name, required in shape.required.items())
        )
        return form

    def _member(self, cls: type, name: str, hint: object, required: bool) -> Member:
        try:
            return Member(name=name, form=self.form(hint), required=required)
        except Refused as refused:
            raise Refused(f"{cls.__name__}.{name}: {refused}") from None

    def _model(self, hint: object, cls: type) -> Form:
        hides = mentions_sensitive(hint, set())
        self.hides = self.hides or hides
        return ModelForm(cls, hides=hides)


def unite(arms: list[Form]) -> Form:
    """Return the form of a union, or refuse one whose arms JSON or Python can't tell apart."""
    if any(arm is ANY_JSON for arm in arms):
        if all(arm is ANY_JSON or arm.types == {NoneType} for arm in arms):
            return ANY_JSON
        raise Refused("a union with aqueue.JSON is ambiguous: JSON already holds the rest")
    arms = _join_tagged(arms)
    for kinds in ("kinds", "types"):
        seen: set[type] = set()
        for arm in arms:
            mine: frozenset[type] = getattr(arm, kinds)
            if mine & seen:
                raise Refused(
                    f"the union {' | '.join(a.name for a in arms)} is ambiguous: two arms look alike in JSON"
                )
            seen |= mine
    return arms[0] if len(arms) == 1 else UnionForm(arms)


def _form_or_refused(form: Form | str) -> Form:
    if isinstance(form, str):
        raise Refused(form)
    return form


def _no_form(hint: object) -> Refused:
    kind = get_origin(hint) or hint
    advice = next((advice for refused, advice in ADVICE.items() if refused is kind), None)
    return Refused(f"{show(hint)} can't be restored exactly from JSON" + (f": {advice}" if advice else ""))


def _join_tagged(arms: list[Form]) -> list[Form]:
    records = [arm for arm in arms if isinstance(arm, RecordForm)]
    tags = [arm.tag for arm in records if arm.tag is not None]
    if len(records) < 2 or len(tags) != len(records) or len({field for field, _ in tags}) != 1:
        return arms
    by_tag = {tag: record for (_, tag), record in zip(tags, records, strict=True)}
    if len(by_tag) != len(records):
        return arms
    return [*(arm for arm in arms if not isinstance(arm, RecordForm)), TaggedForm(tags[0][0], by_tag)]
