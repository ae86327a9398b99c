"""A job's arguments to strict JSON bytes and back (ARG-1, ARG-3, ARG-4, ARG-5).

One `ArgsCodec` is built per job type when it is declared; an argument that could not come back is refused
then and there. Errors name the job, the field and the place inside it; never a value, never a key.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from aqueue.contract.containers import SensitiveForm
from aqueue.contract.depth import is_deeper_than
from aqueue.contract.fields import Analysis
from aqueue.contract.forms import FLOAT, INT, MAX_DEPTH, REDACTED, ExactForm, Form, Misfit, check_json
from aqueue.contract.hints import JSON, Refused, Scope, Sensitive
from aqueue.contract.records import DECODER, ENCODER, UNSET
from aqueue.errors import InvalidJob, JobReconstructionError, UnserializableJob

__all__ = [
    "JSON",
    "MAX_ARGS_BYTES",
    "NO_DEFAULT",
    "REDACTED",
    "ArgsCodec",
    "Declared",
    "FieldSpec",
    "Sensitive",
    "declare_codec",
]

MAX_ARGS_BYTES = 16 * 1024 * 1024
NO_DEFAULT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A field as its job declares it: its resolved annotation, and its default if it has one."""

    name: str
    annotation: object
    required: bool
    default: object = NO_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field the codec carries. `sensitive`: all of it is hidden; `hides`: something inside it is."""

    name: str
    annotation: object
    required: bool
    sensitive: bool
    hides: bool
    form: Form


class ArgsCodec:
    """Carries one job type's arguments. Make one with `declare_codec`.

    `sensitive` names the arguments that are, or contain something, `Sensitive`, joined by commas.
    `runs_code` says whether building the job runs code of its own.
    """

    def __init__(
        self, owner: str, fields: Sequence[FieldSpec], rebuild: Callable[..., object] | None = None
    ) -> None:
        self.owner = owner
        self.fields = tuple(fields)
        self._by_name = {field.name: field for field in self.fields}
        self._dumps = tuple((field.name, _passes_out(field.form), field.form.dump) for field in self.fields)
        self._loads = tuple(
            (field.name, _passes_in(field.form), field.form.load, field.required) for field in self.fields
        )
        self._rebuild = rebuild
        self.runs_code = rebuild is not None
        self.sensitive = ",".join(field.name for field in self.fields if field.sensitive or field.hides)

    def encode(self, job: object, *, limit: int = MAX_ARGS_BYTES) -> bytes:
        """Return the arguments as a JSON object of at most `limit` bytes.

        Raises `UnserializableJob` for a value that would not come back equal and of the same type (ARG-3).
        """
        wire = self._dump(job)
        try:
            raw = ENCODER.encode(wire)
        except UnicodeEncodeError:
            raise self._blame_text(wire) from None
        if len(raw) > limit:
            raise UnserializableJob(
                f"job {self.owner!r} can't be pushed: it takes {len(raw)} bytes; at most {limit} travel"
            )
        if self._rebuild is not None:
            self._check_unchanged(raw, self._rebuild)
        return raw

    def decode(self, raw: bytes, *, limit: int = MAX_ARGS_BYTES) -> dict[str, object]:
        """Return the restored arguments by field name; those with a default may be absent.

        Raises `JobReconstructionError`, before any parsing if `raw` is over `limit` bytes or too deep
        (ARG-4), and for a missing, an extra or an unrestorable argument (ARG-5).
        """
        wire = self._parse(raw, limit)
        values: dict[str, object] = {}
        for name, exact, load, required in self._loads:
            if name in wire:
                value = wire[name]
                try:
                    values[name] = value if type(value) is exact else load(value)
                except Misfit as misfit:
                    problem = f"argument {name}{misfit.where}: {misfit.reason}"
                    raise self._unrestorable(problem) from misfit.__cause__
            elif required:
                raise self._unrestorable(f"argument {name} is missing")
        if len(values) != len(wire):
            raise self._unrestorable(self._name_extra(wire))
        return values

    def redacted(self, args: Mapping[str, object]) -> dict[str, object]:
        """Return plain JSON arguments with everything `Sensitive` replaced by "[redacted]" (WORK-5).

        What the job doesn't declare (an older or newer deploy's argument) is hidden too.
        """
        shown: dict[str, object] = {}
        for name, wire in args.items():
            field = self._by_name.get(name)
            shown[name] = REDACTED if field is None else field.form.redact(wire)
        return shown

    def _dump(self, job: object) -> dict[str, object]:
        wire: dict[str, object] = {}
        for name, exact, dump in self._dumps:
            value = getattr(job, name, UNSET)
            try:
                wire[name] = value if type(value) is exact else dump(value, MAX_DEPTH)
            except Misfit as misfit:
                raise self._unserializable(name, misfit) from None
        return wire

    def _blame_text(self, wire: dict[str, object]) -> UnserializableJob:
        """Name the plain str field that the encoder would not take."""
        for name, value in wire.items():
            try:
                check_json(value, MAX_DEPTH)
            except Misfit as misfit:
                return self._unserializable(name, misfit)
        raise AssertionError("unreachable: the encoder refused what every form took")

    def _unserializable(self, name: str, misfit: Misfit) -> UnserializableJob:
        return UnserializableJob(f"job {self.owner!r} can't be pushed: {name}{misfit.where}: {misfit.reason}")

    def _check_unchanged(self, raw: bytes, rebuild: Callable[..., object]) -> None:
        """Refuse a job that its own constructor would turn into another one (ARG-1).

        A constructor that raises is let through: it will say so on the worker, where nothing is lost.
        """
        try:
            again = rebuild(**self.decode(raw))
        except Exception:  # noqa: BLE001 - the user's constructor may raise anything
            return
        before, after = DECODER.decode(raw), self._dump(again)
        for name in after:
            if ENCODER.encode(before[name]) != ENCODER.encode(after[name]):
                raise UnserializableJob(
                    f"job {self.owner!r} can't be pushed: {name} changes each time the job is built; "
                    "make its __post_init__ leave its own result alone"
                )

    def _parse(self, raw: bytes, limit: int) -> dict[str, object]:
        if len(raw) > limit:
            raise self._unrestorable(f"it takes {len(raw)} bytes; at most {limit} are read")
        if len(raw) > 2 * MAX_DEPTH and is_deeper_than(raw, MAX_DEPTH + 1):  # shorter text has no room for it
            raise self._unrestorable(f"its arguments are nested deeper than {MAX_DEPTH} levels")
        try:
            wire = DECODER.decode(raw)
        except (
            msgspec.MsgspecError,
            UnicodeDecodeError,
            RecursionError,
        ):  # older msgspec lets the second out
            raise self._unrestorable("its arguments are not valid JSON") from None
        if type(wire) is not dict:
            raise self._unrestorable("its arguments are not a JSON object")
        return wire

    def _name_extra(self, wire: dict[str, Any]) -> str:
        extra = next(name for name in wire if name not in self._by_name)
        if extra.isidentifier() and len(extra) <= 80:
            return f"argument {extra} is not declared any more, or not yet"
        return "it has an argument that is not declared"

    def _unrestorable(self, problem: str) -> JobReconstructionError:
        return JobReconstructionError(f"job {self.owner!r} can't be restored: {problem}")


def declare_codec(
    owner: str,
    fields: Sequence[Declared],
    *,
    scope: Scope | None = None,
    rebuild: Callable[..., object] | None = None,
    runs_code: bool = False,
) -> ArgsCodec:
    """Build the codec of the job named `owner`; raise `InvalidJob` for a field that can't travel (ARG-2).

    `scope` resolves names in nested classes' annotations. `rebuild` makes a job from its arguments: if
    `runs_code`, or if a nested record runs the user's code when it is built, each push proves with it that
    the job comes back unchanged.
    """
    specs = []
    for field in fields:
        analysis = Analysis(scope or Scope())
        specs.append(_spec(owner, field, analysis))
        runs_code = runs_code or analysis.runs_code
    return ArgsCodec(owner, specs, rebuild if runs_code else None)


def _spec(owner: str, field: Declared, analysis: Analysis) -> FieldSpec:
    try:
        form = analysis.form(field.annotation)
        _check_default(field, form)
    except Refused as refused:
        raise InvalidJob(f"job {owner!r} can't be declared: {field.name}: {refused}") from None
    return FieldSpec(
        name=field.name,
        annotation=field.annotation,
        required=field.required,
        sensitive=isinstance(form, SensitiveForm),
        hides=analysis.hides,
        form=form,
    )


def _passes_out(form: Form) -> type | None:
    """Return the type whose values need no call to dump; the encoder itself refuses a str with surrogates."""
    return form.exact if isinstance(form, ExactForm) and form not in {INT, FLOAT} else None


def _passes_in(form: Form) -> type | None:
    """Return the type whose values need no call to load; the parser has seen to UTF-8 and finite numbers."""
    return form.exact if isinstance(form, ExactForm) and form is not INT else None


def _check_default(field: Declared, form: Form) -> None:
    if field.default is NO_DEFAULT:
        return
    try:
        form.dump(field.default, MAX_DEPTH)
    except Misfit as misfit:
        raise Refused(f"its default doesn't fit its type: {misfit.reason}") from None
