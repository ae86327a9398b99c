"""From options and environment to a queue, and from its errors to words without secrets."""

import functools
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import anyio
import click

from aqueue.connection import connect_from_env, connect_with_env_keys, url_from_env
from aqueue.errors import AqueueError, InvalidQueueArgument, StoreError
from aqueue.queue import Queue
from aqueue.urls import parse_url

P = ParamSpec("P")
T = TypeVar("T")

_SECRET_OPTION = re.compile(r"pass|secret|token|key", re.IGNORECASE)
_URL_VARIABLE = re.compile(r"AQUEUE_(?:\w+_)?(?:URL|FAILED_STORE)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the options, or else the environment, say that the store is."""

    given: str | None
    connection: str | None

    def queue(self) -> Queue:
        """Return the queue there, not yet open; raises `UsageError` or `AqueueError` if there is none."""
        self._check()
        if self.given is not None:
            return connect_with_env_keys(self.given)
        return connect_from_env(self.connection)

    def url(self) -> str:
        """Return the store's URL; raises as `queue` does."""
        self._check()
        return self.given if self.given is not None else url_from_env(self.connection)

    def _check(self) -> None:
        if self.given is not None and self.connection is not None:
            raise click.UsageError("give --url or --connection, not both", click.get_current_context())
        if self.given is None and self.connection is None and not os.environ.get("AQUEUE_URL"):
            raise InvalidQueueArgument(
                "which store? Give --url, for instance sqlite:///jobs.db, or set AQUEUE_URL"
            )


def connected(command: Callable[Concatenate[Queue, P], None]) -> Callable[..., None]:
    """Give a command `--url` and `--connection`, and the queue they name, not yet open, as first argument."""

    @located
    @functools.wraps(command)
    def with_queue(place: Place, /, *args: P.args, **kwargs: P.kwargs) -> None:
        command(place.queue(), *args, **kwargs)

    return with_queue


def located(command: Callable[Concatenate[Place, P], None]) -> Callable[..., None]:
    """Give a command `--url` and `--connection`, and what they name as first argument."""

    @click.option(
        "--url", metavar="URL", help="The store, for instance sqlite:///jobs.db.  [env var: AQUEUE_URL]"
    )
    @click.option("--connection", metavar="NAME", help="Take the store from AQUEUE_<NAME>_URL.")
    @functools.wraps(command)
    def with_place(*args: P.args, **kwargs: P.kwargs) -> None:
        url, connection = kwargs.pop("url"), kwargs.pop("connection")
        assert url is None or isinstance(url, str)
        assert connection is None or isinstance(connection, str)
        command(Place(url, connection), *args, **kwargs)

    return with_place


def as_json(command: Callable[P, None]) -> Callable[P, None]:
    """Give a command `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, and nothing else.")(
        command
    )


def run_on(queue: Queue, action: Callable[[], Awaitable[T]]) -> T:
    """Open the queue, do it, close the queue."""

    async def run() -> T:
        async with queue:
            return await action()

    try:
        return anyio.run(run)
    except StoreError as error:
        raise click.ClickException(_with_cause(error)) from error


def _with_cause(error: StoreError) -> str:
    """What a driver said helps most when a store can't be reached; what it may quote from the URL doesn't."""
    said = str(error.__cause__ or "").strip()
    if not said:
        return str(error)
    for secret in sorted(_secrets(), key=len, reverse=True):
        said = said.replace(secret, "…")
    return f"{error}: {said}"


def _secrets() -> Iterator[str]:
    context = click.get_current_context(silent=True)
    given = context.params.get("url") if context is not None else None
    urls = [value for name, value in os.environ.items() if _URL_VARIABLE.fullmatch(name)]
    for url in (given, *urls):
        if url:
            yield url
            yield from _secrets_in(url)


def _secrets_in(url: str) -> Iterator[str]:
    try:
        parsed = parse_url(url)
    except AqueueError:
        return
    values = [value for name, value in parsed.options.items() if _SECRET_OPTION.search(name)]
    for secret in (parsed.password, *values):
        if secret:
            yield secret
            yield quote(secret, safe="")
