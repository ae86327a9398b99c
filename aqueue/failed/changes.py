"""Arguments edited by hand before a job goes back: checked as strictly as those of a push (FAIL-5).

A change is plain JSON, as `FailedJob.args` shows it. Where the job's class is known it may also be the
field's own Python value, and the whole of the arguments must restore the job, its constructor included.
Where it isn't, only arguments that are there can be changed, to what JSON can hold (ARG-1).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from aqueue.contract.codec import FieldSpec
from aqueue.contract.envelope import SENSITIVE_KEY, Envelope
from aqueue.contract.forms import MAX_DEPTH, Misfit, check_json
from aqueue.contract.records import ENCODER
from aqueue.errors import InvalidJob, InvalidQueueArgument, JobReconstructionError
from aqueue.jobs import JobType, declared_under, job_type


def check_changes(changes: object) -> Mapping[str, object]:
    """Return the changes by field name, or refuse what isn't that."""
    if not isinstance(changes, Mapping) or not all(isinstance(name, str) for name in changes):
        raise InvalidQueueArgument('changes must be a dict of new values by field name: {"email": "a@b.c"}')
    if not changes:
        raise InvalidQueueArgument("changes names no field: leave it out to put the job back as it was")
    return changes


def declared_job(name: str, job: object | None) -> JobType | None:
    """Return the class that knows the job's fields: the one given, or the one this process declares.

    Raises `InvalidQueueArgument` where the one given is for another name, or several declare the name.
    """
    if job is not None:
        declared = _given(job)
        if not _is_called(declared, name):
            raise InvalidQueueArgument(f"the failed job is a {name!r}, and {declared.name!r} is another job")
        return declared
    # A module that was loaded again declares its classes again; the last one is the one in use.
    found = list(
        {
            (declared.payload.__module__, declared.payload.__qualname__): declared
            for declared in declared_under(object)
            if _is_called(declared, name)
        }.values()
    )
    if len(found) > 1:
        raise InvalidQueueArgument(f"{len(found)} classes declare a job {name!r}: say which one with job=")
    return found[0] if found else None


def _given(job: object) -> JobType:
    try:
        return job_type(job)
    except InvalidJob as error:
        raise InvalidQueueArgument(f"job= must be the class or function of a job: {error}") from None


def _is_called(declared: JobType, name: str) -> bool:
    return name == declared.name or name in declared.aliases


def edited(
    envelope: Envelope, changes: Mapping[str, object], declared: JobType | None
) -> tuple[bytes, dict[str, str]]:
    """Return the arguments with the changes in them, and the metadata that goes with them.

    Raises `InvalidQueueArgument` that names the field, and never a value.
    """
    wire: dict[str, Any] = msgspec.json.decode(envelope.args)
    if declared is None:
        _change_plainly(wire, changes, envelope)
        return _encoded(wire, envelope), dict(envelope.metadata)
    fields = {field.name: field for field in declared.codec.fields}
    for name, value in changes.items():
        if name not in fields:
            raise _refused(envelope, f"{declared.name!r} has no argument {_quoted(name)}")
        wire[name] = _on_the_wire(value, fields[name], envelope)
    args = _encoded(wire, envelope)
    try:
        declared.restore(args)
    except JobReconstructionError as error:
        raise _refused(envelope, str(error)) from error.__cause__
    return args, _with_sensitive(envelope.metadata, declared.codec.sensitive)


def _change_plainly(wire: dict[str, Any], changes: Mapping[str, object], envelope: Envelope) -> None:
    hidden = envelope.metadata.get(SENSITIVE_KEY, "").split(",")
    for name, value in changes.items():
        if name not in wire:
            raise _refused(
                envelope,
                f"it has no argument {_quoted(name)}; where this process declares the job, or with job=, "
                "declared arguments can be added",
            )
        try:
            check_json(value, MAX_DEPTH)
        except Misfit as misfit:
            raise _refused(envelope, _told(name, misfit, is_hidden=name in hidden)) from None
        wire[name] = value


def _on_the_wire(value: object, field: FieldSpec, envelope: Envelope) -> object:
    """Take what is JSON as it is, since it is loaded and so checked in the end, and dump anything else."""
    try:
        check_json(value, MAX_DEPTH)
    except Misfit:
        pass
    else:
        return value
    try:
        return field.form.dump(value, MAX_DEPTH)
    except Misfit as misfit:
        is_hidden = field.sensitive or field.hides
        raise _refused(envelope, _told(field.name, misfit, is_hidden=is_hidden)) from None


def _encoded(wire: dict[str, Any], envelope: Envelope) -> bytes:
    try:
        return ENCODER.encode(wire)
    except (UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise _refused(envelope, "a changed argument can't be written as JSON") from error


def _with_sensitive(metadata: Mapping[str, str], sensitive: str) -> dict[str, str]:
    rest = {name: value for name, value in metadata.items() if name != SENSITIVE_KEY}
    return {**rest, SENSITIVE_KEY: sensitive} if sensitive else rest


def _told(name: str, misfit: Misfit, *, is_hidden: bool) -> str:
    where = "" if is_hidden else misfit.where
    return f"argument {name}{where}: {misfit.reason}"


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:79]}…")


def _refused(envelope: Envelope, why: str) -> InvalidQueueArgument:
    return InvalidQueueArgument(f"failed job {envelope.id} can't be changed so: {why}; it stays as it was")
