"""What is done with which job: the registry a worker is given (TOPIC-2, ARG-5).

Registering stores and checks; what a handler's parameters come from is compiled later, by `routes`, when a
worker knows its scope.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from aqueue.contract.names import check_queue_name
from aqueue.dependencies import Kind, kind_of, label
from aqueue.errors import InvalidJob, UnhandledJob
from aqueue.jobs import JobType, declared_under, job_type

H = TypeVar("H", bound=Callable[..., object])


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """One entry: the class it answers, on one queue or on all, and by what; None is the job itself."""

    target: type
    queue: str | None
    handler: Callable[..., object] | None


class Handlers:
    """The jobs a worker can handle, and how.

    A handler answers the class it was registered for and every declared `@job` class that extends or
    implements it. One for a queue wins on that queue over general ones; among equals the job's own class
    wins, then its bases in method resolution order, then ABCs and Protocols in order of registration.
    `version` changes with every registration.
    """

    def __init__(self) -> None:
        self._registrations: dict[tuple[type, str | None], Registration] = {}
        self._named: dict[str, JobType] = {}
        self.version = 0

    @classmethod
    def of(cls, handlers: "Handlers | Iterable[object]") -> "Handlers":
        """Return these handlers, or new ones with a plain list of jobs added."""
        if isinstance(handlers, Handlers):
            return handlers
        made = cls()
        made.add(*handlers)
        return made

    def add(self, *jobs: object) -> None:
        """Register jobs that handle themselves: classes with a `handle()` method, and function jobs.

        Raises `InvalidJob` for anything else, for a `handle()` that is a generator, and for a job whose name
        or class is already taken.
        """
        for each in jobs:
            declared = job_type(each)
            own_handler(declared)
            self._register(Registration(declared.payload, None, None))

    @overload
    def on(
        self, target: type[object], handler: None = None, *, queue: str | None = None
    ) -> Callable[[H], H]: ...
    @overload
    def on(self, target: type[object], handler: H, *, queue: str | None = None) -> H: ...

    def on(self, target: type[object], handler: Any = None, *, queue: str | None = None) -> Any:
        """Register a handler for a class, as a decorator or directly; with `queue`, for that queue only.

        The handler is a function whose first parameter is the job, or a class with `handle(job)`, built for
        each delivery with its constructor's parameters from the scope. Raises `InvalidJob` for anything else.
        """
        if handler is None:
            return lambda decorated: self.on(target, decorated, queue=queue)
        if not isinstance(target, type):
            raise InvalidJob(f"handlers.on() takes a class, not {target!r}")
        method = getattr(handler, "handle", None) if isinstance(handler, type) else handler
        refuse_generator(method, label(handler))
        self._register(Registration(target, None if queue is None else check_queue_name(queue), handler))
        return handler

    def include(self, other: "Handlers") -> None:
        """Take over everything registered in another `Handlers` so far."""
        for registration in other.registrations():
            if self._registrations.get((registration.target, registration.queue)) is not registration:
                self._register(registration)

    def registrations(self) -> Iterator[Registration]:
        """Iterate over all entries, in order of registration."""
        return iter(tuple(self._registrations.values()))

    def resolve(self, name: str, queue: str) -> tuple[JobType, Registration]:
        """Find the job type of a wire name and its handler on this queue; raises `UnhandledJob` (ARG-5).

        Classes declared since the last call are found too. Raises `InvalidJob` if two different classes
        under one handler declare the name.
        """
        declared = self._named.get(name) or self._find_declared(name)
        registration = None if declared is None else self.registration(declared, queue)
        if declared is None or registration is None:
            raise UnhandledJob(
                f"no handler for job {name!r} on queue {queue!r}: "
                "give the worker one with handlers.add(...) or handlers.on(...)"
            )
        return declared, registration

    def registration(self, declared: JobType, queue: str | None) -> Registration | None:
        """Return the entry that answers a job type on a queue; None stands for any queue not named."""
        specific = None if queue is None else self._on_queue(declared, queue)
        return specific or self._on_queue(declared, None)

    def job_types(self) -> list[JobType]:
        """List every job type declared so far that some entry answers, in order of declaration."""
        answered = {each.payload for target in self._targets() for each in declared_under(target)}
        return [each for each in declared_under(object) if each.payload in answered]

    def _register(self, registration: Registration) -> None:
        key = (registration.target, registration.queue)
        if key in self._registrations:
            where = "" if registration.queue is None else f" on queue {registration.queue!r}"
            raise InvalidJob(f"two handlers for {registration.target.__qualname__}{where}: keep one")
        self._claim_names(registration.target)
        self._registrations[key] = registration
        self.version += 1

    def _claim_names(self, target: type) -> None:
        if "__aqueue_job__" not in vars(target):
            return
        declared = job_type(target)
        for name in (declared.name, *declared.aliases):
            holder = self._named.get(name, declared)
            if holder.payload is not declared.payload:
                raise InvalidJob(
                    f"two jobs declare the name {name!r}, {_path(holder)} and {_path(declared)}: "
                    "give one of them another with @job(name=...)"
                )
        self._named.update(dict.fromkeys((declared.name, *declared.aliases), declared))

    def _targets(self) -> set[type]:
        return {each.target for each in self._registrations.values()}

    def _find_declared(self, name: str) -> JobType | None:
        known = self.job_types()
        named = [each for each in known if each.name == name]
        named = named or [each for each in known if name in each.aliases]
        if len({_path(each) for each in named}) > 1:
            raise InvalidJob(
                f"several handled jobs declare the name {name!r}: {', '.join(sorted(map(_path, named)))}; "
                "give them names of their own with @job(name=...)"
            )
        # A class declared again, by a reload say, stands for its older self.
        return named[-1] if named else None

    def _on_queue(self, declared: JobType, queue: str | None) -> Registration | None:
        for base in declared.payload.__mro__:
            found = self._registrations.get((base, queue))
            if found is not None:
                return found
        for each in self._registrations.values():
            if each.queue == queue and any(
                under.payload is declared.payload for under in declared_under(each.target)
            ):
                return each
        return None


def own_handler(declared: JobType) -> Callable[..., object]:
    """Return what a job that handles itself is handled by; raises `InvalidJob` where there is nothing."""
    handler: object = declared.function or inspect.getattr_static(declared.payload, "handle", None)
    if not callable(handler) or isinstance(handler, staticmethod | classmethod):
        raise InvalidJob(f"job {declared.name!r} has no handle() method: define one, or use handlers.on(...)")
    refuse_generator(handler, f"job {declared.name!r}: {label(handler)}")
    return handler


def refuse_generator(handler: object, owner: str) -> None:
    """Raise `InvalidJob` for a handler that can't be called, or that yields: nothing would run it."""
    if not callable(handler):
        raise InvalidJob(f"{owner} is not a handler: give a function, or a class with a handle(job) method")
    if kind_of(handler) in {Kind.GENERATOR, Kind.ASYNC_GENERATOR}:
        raise InvalidJob(f"{owner} is a generator: a handler is `def` or `async def` without yield")


def _path(declared: JobType) -> str:
    return f"{declared.payload.__module__}.{declared.payload.__qualname__}"
