"""`@job` on classes and functions: what it makes of them, what it refuses, what comes back."""

import abc
import dataclasses
import enum
import gc
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import FrozenInstanceError, InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypedDict,
    TypeVar,
    runtime_checkable,
)

import msgspec
import pytest

from aqueue.contract.retry import Backoff
from aqueue.errors import InvalidJob, InvalidQueueArgument, JobReconstructionError, UnserializableJob
from aqueue.jobs import JSON, FunctionJob, JobType, Sensitive, declared_under, job, job_type

if TYPE_CHECKING:
    from nowhere import Imaginary  # type: ignore[import-not-found]  # only type checkers would see it

T = TypeVar("T")


class Marker:
    """The shape of a Depends, nobody's in particular."""

    def __init__(self, dependency: Callable[..., object]) -> None:
        self.dependency = dependency
        self.use_cache = True


class Store:
    pass


def depends(dependency: Callable[..., object]) -> Any:
    return Marker(dependency)


STORE = depends(Store)


class Color(enum.Enum):
    RED = "red"


@job
class SendWelcome:
    """Welcome somebody."""

    email: str
    copies: int = 1
    tags: list[str] = field(default_factory=list)

    async def handle(self) -> None: ...

    def failed(self, error: Exception) -> str:
        return f"{self.email}: {error}"


@job
async def resize(image_id: int, width: int = 640, *, store: Store = STORE) -> str:
    return f"{image_id} to {width} in {store}"


def encoded(pushed: object) -> bytes:
    return job_type(pushed).codec.encode(pushed)


def there_and_back(pushed: object) -> object:
    return job_type(pushed).restore(encoded(pushed))


# --- classes


@pytest.mark.rule("FACE-1")
def test_a_job_class_becomes_a_frozen_slotted_dataclass() -> None:
    welcome = SendWelcome("a@b.c", copies=2)

    assert welcome == SendWelcome("a@b.c", 2)
    assert repr(welcome) == "SendWelcome(email='a@b.c', copies=2, tags=[])"
    assert not hasattr(welcome, "__dict__")
    with pytest.raises(FrozenInstanceError):
        welcome.email = "x"  # type: ignore[misc]  # the point
    assert SendWelcome.__doc__ == "Welcome somebody."
    assert welcome.failed(ValueError("no")) == "a@b.c: no"


@pytest.mark.rule("ARG-1")
def test_a_job_comes_back_as_it_was_pushed() -> None:
    welcome = SendWelcome("a@b.c", tags=["x"])

    restored = there_and_back(welcome)

    assert restored == welcome
    assert type(restored) is SendWelcome


@pytest.mark.rule("ARG-5")
def test_an_argument_that_got_a_default_since_may_be_missing() -> None:
    assert job_type(SendWelcome).restore(b'{"email":"a"}') == SendWelcome("a")


@pytest.mark.rule("ARG-5")
@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"{}", "argument email is missing"),
        (b'{"email":"a","gone":1}', "argument gone is not declared"),
        (b'{"email":5}', "argument email: expected str, got int"),
        (b"nonsense", "its arguments are not valid JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_a_reconstruction_error(raw: bytes, problem: str) -> None:
    with pytest.raises(JobReconstructionError, match=problem) as caught:
        job_type(SendWelcome).restore(raw)

    assert repr(job_type(SendWelcome).name) in str(caught.value)


@pytest.mark.rule("ARG-5")
def test_a_constructor_that_raises_is_kept_as_the_cause() -> None:
    strict = False

    @job(name="picky")
    class Picky:
        amount: int

        def __post_init__(self) -> None:
            if strict:
                raise LookupError(f"bad amount {self.amount}")

    raw = encoded(Picky(41234))
    strict = True

    with pytest.raises(JobReconstructionError) as caught:
        job_type(Picky).restore(raw)
    assert str(caught.value) == "job 'picky' can't be restored: its constructor raised LookupError"
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.rule("ARG-1")
def test_a_job_that_its_own_post_init_would_change_is_refused() -> None:
    @job
    class Growing:
        text: str

        def __post_init__(self) -> None:
            object.__setattr__(self, "text", self.text + "!")

    with pytest.raises(UnserializableJob, match="text changes each time the job is built"):
        encoded(Growing("hush"))


@pytest.mark.rule("ARG-1")
def test_a_post_init_that_is_done_after_once_is_fine() -> None:
    @job
    class Tidy:
        text: str

        def __post_init__(self) -> None:
            object.__setattr__(self, "text", self.text.strip())

    assert there_and_back(Tidy(" a ")) == Tidy("a")


def test_a_constructor_of_its_own_is_fine_when_it_takes_the_fields() -> None:
    @job
    class Custom:
        x: int

        def __init__(self, x: int) -> None:
            object.__setattr__(self, "x", abs(x))

    assert there_and_back(Custom(-5)) == Custom(5)


@pytest.mark.rule("ARG-2")
def test_a_constructor_of_its_own_that_does_not_take_the_fields_is_refused() -> None:
    with pytest.raises(InvalidJob, match="'whatever' of Custom is an InitVar or a constructor's own"):

        @job
        class Custom:
            x: int

            def __init__(self, whatever: int) -> None: ...


def test_zero_argument_super_works_in_a_slotted_copy() -> None:
    class Base:
        def greet(self) -> str:
            return "hello"

        @classmethod
        def kind(cls) -> str:
            return cls.__name__

        @property
        def loud(self) -> str:
            return "HELLO"

    @job
    class Greets(Base):
        name: str

        def greet(self) -> str:
            return f"{super().greet()} {self.name}"

        @classmethod
        def kind(cls) -> str:
            return f"a {super().kind()}, {__class__ is Greets}"  # type: ignore[name-defined]  # the cell itself

        @property
        def loud(self) -> str:
            return super().loud + "!"

    assert Greets("you").greet() == "hello you"
    assert Greets.kind() == "a Greets, True"
    assert Greets("you").loud == "HELLO!"


def test_job_classes_inherit_fields_and_methods() -> None:
    @job(name="base", queue="low")
    class Base:
        a: int

        def total(self) -> int:
            return self.a

    @job(name="derived")
    class Derived(Base):
        b: int = 5

        def total(self) -> int:
            return super().total() + self.b

    assert there_and_back(Derived(1)) == Derived(1, 5)
    assert Derived(1).total() == 6
    assert job_type(Derived).name == "derived"
    assert job_type(Derived).queue is None
    assert job_type(Base(1)).queue == "low"


def test_a_frozen_dataclass_may_be_a_job_as_it_is() -> None:
    @job
    @dataclass(frozen=True, kw_only=True)
    class Ready:
        x: int

    assert there_and_back(Ready(x=1)) == Ready(x=1)


@pytest.mark.rule("ARG-1")
def test_a_generic_base_is_filled_in() -> None:
    @dataclass(frozen=True)
    class Holds(Generic[T]):
        content: T

    @job
    class HoldsColors(Holds[list[Color]]):
        pass

    assert there_and_back(HoldsColors([Color.RED])) == HoldsColors([Color.RED])


@pytest.mark.rule("ARG-1")
def test_annotations_written_as_text_find_local_and_later_names() -> None:
    class Local(enum.Enum):
        A = "a"

    @job(name="tree")
    class Tree:
        kind: "Local"
        children: "list[Tree]" = field(default_factory=list)
        shared: "ClassVar[int]" = 5

    tree = Tree(Local.A, [Tree(Local.A)])
    assert there_and_back(tree) == tree
    assert [f.name for f in job_type(Tree).codec.fields] == ["kind", "children"]


def test_a_job_without_arguments_is_a_job() -> None:
    @job
    class Report:
        pass

    assert encoded(Report()) == b"{}"
    assert there_and_back(Report()) == Report()


@pytest.mark.rule("ARG-2")
def test_a_bad_field_is_named_with_its_job() -> None:
    with pytest.raises(InvalidJob) as caught:

        @job(name="emails.bad")
        class Bad:
            fine: int
            tags: set[str]

    message = "job 'emails.bad' can't be declared: tags: set[str] can't be restored exactly from JSON"
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, TypeError)


@pytest.mark.rule("ARG-2")
def test_init_var_and_init_false_are_refused() -> None:
    with pytest.raises(InvalidJob, match="'y' of A is an InitVar"):

        @job
        class A:
            x: int
            y: InitVar[int]

    with pytest.raises(InvalidJob, match="'x' of B has init=False"):

        @job
        class B:
            x: int = field(init=False)


@pytest.mark.rule("ARG-2")
def test_a_reference_to_nothing_is_refused() -> None:
    with pytest.raises(
        InvalidJob, match="can't be declared: its annotation can't be resolved: name 'Imaginary'"
    ):

        @job
        class Bad:
            x: "Imaginary"


class Row(TypedDict):
    x: int


class Speaks(Protocol):
    x: int


class Structure(msgspec.Struct):
    x: int


class Error(Exception):
    x: int


@dataclass
class Thawed:
    x: int


class OwnSlots:
    __slots__ = ("x",)
    x: int


class ThawedBase(Thawed):
    y: int


class MutableDefault:
    x: list[int] = []


@pytest.mark.rule("ARG-2")
@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (Row, "Row is a TypedDict"),
        (Speaks, "Speaks is a Protocol"),
        (Structure, "Structure is a msgspec Struct"),
        (Color, "Color is an Enum"),
        (Error, "Error is a subclass of a built-in type"),
        (Thawed, "Thawed is a dataclass that isn't frozen"),
        (ThawedBase, "cannot inherit frozen dataclass from a non-frozen one"),
        (OwnSlots, "OwnSlots already specifies __slots__"),
        (MutableDefault, "use default_factory"),
    ],
)
def test_a_class_that_can_not_become_a_job_is_refused(cls: type, reason: str) -> None:
    with pytest.raises(InvalidJob, match=reason):
        job(cls)


@pytest.mark.parametrize("thing", [5, "x", print, str.upper])
def test_what_is_neither_class_nor_function_is_refused(thing: object) -> None:
    with pytest.raises(InvalidJob, match="goes on a class or a plain function"):
        job()(thing)  # type: ignore[call-overload]  # the point


def test_sensitive_fields_stay_out_of_the_repr() -> None:
    @dataclass(frozen=True)
    class Card:
        number: Sensitive[str]

    @job
    class Pay:
        amount: int
        token: Sensitive[str]
        card: Card

    @job
    def pay(token: Sensitive[str]) -> None: ...

    shown = repr(Pay(5, "hush", Card("hush")))
    assert shown.endswith("Pay(amount=5, token=[redacted], card=[redacted])")
    assert "hush" not in repr(pay.job("hush"))
    assert there_and_back(Pay(5, "hush", Card("hush"))) == Pay(5, "hush", Card("hush"))


# --- functions


def test_a_function_job_is_still_called_like_the_function() -> None:
    @job
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert add(1) == 3
    assert add.__name__ == "add"
    assert add.__doc__ == "Add."
    assert isinstance(add, FunctionJob)


def test_a_function_job_makes_jobs_of_its_arguments() -> None:
    pushed = resize.job(42, width=800)

    assert encoded(pushed) == b'{"image_id":42,"width":800}'
    assert there_and_back(pushed) == pushed
    assert job_type(pushed) is job_type(resize)
    assert job_type(resize).function is resize.__wrapped__
    assert resize.job(42) == resize.job(42, width=640) != resize.job(43)
    assert repr(pushed) == "resize.job(image_id=42, width=800)"


def test_parameters_marked_depends_are_not_arguments() -> None:
    @job
    def both(
        a: int,
        by_default: "Imaginary" = STORE,
        *,
        named: Annotated[Store, Marker(Store)],
        b: str = "x",
    ) -> None: ...

    assert [f.name for f in job_type(both).codec.fields] == ["a", "b"]
    with pytest.raises(TypeError):
        resize.job(1, store=Store())


def test_a_mutable_default_is_not_shared_between_jobs() -> None:
    @job
    def tagged(tags: list[str] = []) -> None: ...  # noqa: B006 - the point

    assert encoded(tagged.job()) == b'{"tags":[]}'
    assert tagged.job().tags is not tagged.job().tags  # type: ignore[attr-defined]  # the payload's field


@pytest.mark.rule("ARG-2")
def test_parameters_that_can_not_travel_are_refused_by_name() -> None:
    def unannotated(a) -> None: ...  # type: ignore[no-untyped-def]  # the point
    def variadic(*many: int) -> None: ...
    def keywords(**named: int) -> None: ...
    def positional(a: int, /) -> None: ...
    def unmarked(store: Store) -> None: ...
    def unresolved(a: "Imaginary") -> None: ...
    def misfit(a: float = 1) -> None: ...

    for function, reason in [
        (unannotated, "parameter a has no annotation"),
        (variadic, "parameter many takes any number"),
        (keywords, "parameter named takes any names"),
        (positional, "parameter a is positional-only"),
        (unmarked, "store: Store can't be restored"),
        (unresolved, "a: its annotation can't be resolved"),
        (misfit, "a: its default doesn't fit its type: expected float, got int"),
    ]:
        with pytest.raises(InvalidJob, match=reason):
            job(function)  # type: ignore[call-overload]  # a union of functions


@pytest.mark.rule("ARG-2")
def test_a_generator_is_no_job() -> None:
    async def stream(a: int) -> AsyncIterator[int]:
        yield a

    with pytest.raises(InvalidJob, match="stream is a generator function"):
        job(stream)


def test_a_parameter_may_be_called_anything() -> None:
    @job
    def odd(self: int, name: str, args: int, kwargs: JSON) -> None: ...

    pushed = odd.job(self=1, name="n", args=2, kwargs=None)
    assert encoded(pushed) == b'{"self":1,"name":"n","args":2,"kwargs":null}'
    assert there_and_back(pushed) == pushed


# --- options


@pytest.mark.rule("FACE-1")
def test_every_option_is_kept() -> None:
    async def middleware(delivery: object, call_next: Callable[..., Awaitable[object]]) -> object:
        return await call_next(delivery)

    backoff = Backoff.fixed(3)

    @job(
        name="emails.welcome",
        queue="emails",
        max_attempts=5,
        backoff=backoff,
        timeout=timedelta(minutes=1),
        aliases=["emails.hello"],
        middleware=[middleware],
    )
    class Welcome:
        email: str

    declared = job_type(Welcome)
    assert declared.name == "emails.welcome"
    assert declared.queue == "emails"
    assert declared.max_attempts == 5
    assert declared.backoff is backoff
    assert declared.timeout == 60.0
    assert declared.aliases == ("emails.hello",)
    assert declared.middleware == (middleware,)
    assert declared.payload is Welcome
    assert declared.function is None


@pytest.mark.rule("FACE-1")
def test_without_options_the_name_is_the_importable_path() -> None:
    assert job_type(SendWelcome).name == f"{__name__}.SendWelcome"
    assert job_type(resize).name == f"{__name__}.resize"
    assert job_type(SendWelcome) == job_type(SendWelcome("a"))
    assert (job_type(SendWelcome).queue, job_type(SendWelcome).max_attempts) == (None, None)


@pytest.mark.rule("FACE-1")
@pytest.mark.parametrize("how", [["script.py"], ["-m", "script"]])
def test_in_a_script_the_name_is_still_importable(tmp_path: Path, how: list[str]) -> None:
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            """
            from aqueue.jobs import job, job_type

            @job
            class Report:
                pass

            print(job_type(Report).name)
            """
        )
    )

    ran = subprocess.run(
        [sys.executable, *how],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.strip() == "script.Report"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": ""}, "not a job name"),
        ({"name": " a"}, "not a job name"),
        ({"name": "a\n"}, "not a job name"),
        ({"name": "\ud800"}, "not a job name"),
        ({"name": 5}, "not a job name"),
        ({"aliases": "abc"}, "aliases must be a list"),
        ({"aliases": [""]}, "not a job name"),
        ({"aliases": ["a", "a"]}, "aliases must differ"),
        ({"name": "a", "aliases": ["a"]}, "aliases must differ"),
    ],
)
def test_a_bad_name_is_refused_when_declared(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidJob, match=reason):

        @job(**options)
        class Bad:
            pass


@pytest.mark.rule("PUSH-1", "NAME-1")
@pytest.mark.parametrize(
    "options",
    [
        {"queue": "with space"},
        {"queue": ""},
        {"max_attempts": -1},
        {"max_attempts": True},
        {"max_attempts": 1.5},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": "5"},
        {"backoff": 5},
        {"middleware": [5]},
        {"middleware": print},
    ],
)
def test_a_bad_option_is_refused_when_declared(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidQueueArgument):

        @job(**options)
        class Bad:
            pass


# --- finding jobs


def test_only_what_is_decorated_is_a_job() -> None:
    class Undecorated(SendWelcome):
        pass

    for thing in (5, object(), Store, Undecorated, Undecorated("a")):
        with pytest.raises(InvalidJob, match=r"is not a job: decorate its class with @aqueue.job"):
            job_type(thing)


def test_pushing_the_function_job_itself_says_what_to_push() -> None:
    with pytest.raises(InvalidJob, match=r"push\(resize.job\(42\)\)"):
        job_type(type(resize))


class Event(abc.ABC):
    @abc.abstractmethod
    def describe(self) -> str: ...


class Audited(Protocol):
    actor: str

    def describe(self) -> str: ...


@runtime_checkable
class AuditedToo(Audited, Protocol):
    reason: str


class Empty(Protocol):
    pass


@job
class Placed(Event):
    order: int
    actor: str

    def describe(self) -> str:
        return "placed"


@job
class Cancelled:
    actor: str
    reason: str

    def describe(self) -> str:
        return "cancelled"


@job
class PlacedAgain(Placed):
    reason: str


Event.register(Cancelled)


def under(base: type) -> list[type]:
    return [each.payload for each in declared_under(base)]


@pytest.mark.rule("TOPIC-2", "FACE-1")
def test_declared_jobs_are_found_under_what_they_extend_or_implement() -> None:
    assert under(Placed) == [Placed, PlacedAgain]
    assert under(Event) == [Placed, Cancelled, PlacedAgain]
    assert under(Audited) == [Placed, Cancelled, PlacedAgain]
    assert under(AuditedToo) == [Cancelled, PlacedAgain]
    assert under(Empty) == []
    assert SendWelcome in under(object)


@pytest.mark.rule("TOPIC-2")
def test_a_job_nobody_holds_any_more_is_not_found() -> None:
    class Passing:
        pass

    @job
    class Gone(Passing):
        x: int

    assert under(Passing) == [Gone]
    del Gone
    gc.collect()
    assert under(Passing) == []


def test_two_classes_may_declare_one_name() -> None:
    @job(name="same")
    class One:
        pass

    @job(name="same")
    class Two:
        pass

    assert job_type(One).name == job_type(Two).name
    assert job_type(One).payload is not job_type(Two).payload


def test_a_job_type_is_a_frozen_record_compared_by_identity() -> None:
    declared = job_type(SendWelcome)

    assert isinstance(declared, JobType)
    assert {declared: 1}[declared] == 1
    with pytest.raises(FrozenInstanceError):
        declared.name = "x"  # type: ignore[misc]  # the point
    assert dataclasses.is_dataclass(declared.payload)


@pytest.mark.rule("ARG-4")
def test_a_payload_never_imports_anything() -> None:
    before = set(sys.modules)

    with pytest.raises(JobReconstructionError):
        job_type(SendWelcome).restore(b'{"email":"a","__class__":"antigravity.fly"}')

    assert "antigravity" not in set(sys.modules) - before


@pytest.mark.rule("ARG-1")
def test_a_datetime_argument_needs_a_zone() -> None:
    @job
    def remind(at: datetime) -> None: ...

    assert there_and_back(remind.job(datetime(2026, 1, 1, tzinfo=UTC))) == remind.job(
        datetime(2026, 1, 1, tzinfo=UTC)
    )
    with pytest.raises(UnserializableJob, match="at: is a naive datetime: give it a time zone"):
        encoded(remind.job(datetime(2026, 1, 1)))  # noqa: DTZ001 - naive is the point
