"""pydantic models as arguments, where pydantic is installed (ARG-1, ARG-3, ARG-5)."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from aqueue.contract.codec import ArgsCodec, Declared, Sensitive, declare_codec
from aqueue.errors import JobReconstructionError, UnserializableJob
from aqueue.jobs import job, job_type

pydantic: Any = pytest.importorskip("pydantic", reason="pydantic is not installed")


class Address(pydantic.BaseModel):  # type: ignore[misc]  # known only when it is installed
    street: str
    since: datetime | None = None


class Person(pydantic.BaseModel):  # type: ignore[misc]  # known only when it is installed
    model_config = {"alias_generator": str.upper, "populate_by_name": True}

    id: UUID
    balance: Decimal
    homes: list[Address] = []
    ratio: float = 1.0


class Secretive(pydantic.BaseModel):  # type: ignore[misc]  # known only when it is installed
    token: Sensitive[str]
    note: str


class HoldsSecretive(pydantic.BaseModel):  # type: ignore[misc]  # known only when it is installed
    inner: list[Secretive]


class Veiled(pydantic.BaseModel):  # type: ignore[misc]  # known only when it is installed
    password: pydantic.SecretStr


PERSON = Person(
    id=UUID("ee5649b5-82da-49ff-85fe-4a3d3c1f93e1"),
    balance=Decimal("1.10"),
    homes=[Address(street="a", since=datetime(2026, 1, 1, tzinfo=UTC))],
)


@job(name="people.greet")
class Greet:
    person: Person
    addresses: dict[str, Address] | None = None


def codec_for(annotation: object) -> ArgsCodec:
    return declare_codec("test.job", [Declared(name="person", annotation=annotation, required=True)])


def shown(annotation: object, wire: object) -> object:
    return codec_for(annotation).redacted({"person": wire})["person"]


@pytest.mark.rule("ARG-1")
def test_a_model_comes_back_equal() -> None:
    greet = Greet(PERSON, {"home": Address(street="b")})
    declared = job_type(greet)

    restored = declared.restore(declared.codec.encode(greet))

    assert restored == greet
    assert isinstance(restored, Greet)
    assert type(restored.person) is Person


@pytest.mark.rule("ARG-1", "ARG-3")
@pytest.mark.parametrize(
    ("person", "reason"),
    [
        (Veiled(password="hush"), "expected Person, got Veiled"),
        (PERSON.model_copy(update={"ratio": float("nan")}), "not a finite float"),
        (PERSON.model_copy(update={"balance": "hush"}), "can't be dumped as JSON"),
        (PERSON.model_copy(update={"homes": ("hush",)}), "can't be dumped as JSON"),
        (PERSON.model_copy(update={"homes": (Address(street="hush"),)}), "can't be dumped"),
        ({"id": 1}, "expected Person, got dict"),
    ],
)
def test_a_model_that_would_not_come_back_is_refused(person: object, reason: str) -> None:
    with pytest.raises(UnserializableJob, match=reason) as caught:
        job_type(Greet).codec.encode(Greet(person))  # type: ignore[arg-type]  # the point
    assert "hush" not in str(caught.value)


@pytest.mark.rule("ARG-1")
def test_a_model_whose_dump_loses_something_is_refused() -> None:
    holder = type("Holder", (), {"person": Veiled(password="hush")})()

    with pytest.raises(UnserializableJob, match="Veiled doesn't come back from JSON as it was"):
        codec_for(Veiled).encode(holder)


@pytest.mark.rule("ARG-5")
@pytest.mark.parametrize("wire", [b'{"person":{"ID":"hush"}}', b'{"person":"hush"}', b'{"person":null}'])
def test_a_model_that_does_not_validate_is_a_reconstruction_error_without_data(wire: bytes) -> None:
    with pytest.raises(JobReconstructionError, match="argument person: doesn't validate as Person") as caught:
        job_type(Greet).restore(wire)

    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.rule("ARG-4")
def test_validation_is_strict() -> None:
    with pytest.raises(JobReconstructionError):
        codec_for(Address).decode(b'{"person":{"street":5}}')


@pytest.mark.rule("WORK-5")
def test_a_model_with_anything_sensitive_inside_is_hidden_whole() -> None:
    wire = {"inner": [{"token": "hush", "note": "n"}]}

    assert shown(HoldsSecretive, wire) == "[redacted]"
    assert shown(Secretive | None, wire["inner"][0]) == "[redacted]"
    assert shown(Address, {"street": "a"}) == {"street": "a"}


def test_pydantic_is_never_imported_by_us() -> None:
    code = "import sys, aqueue.jobs; sys.exit('pydantic' in sys.modules)"

    subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True, capture_output=True
    )
