"""Connection URLs: parsed once, checked to the last option, and never shown with their secrets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl, unquote

from aqueue.errors import InvalidQueueArgument

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreURL:
    """A parsed URL. `hosts` may be several; `path` is percent-decoded with its leading slash."""

    scheme: str
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    hosts: tuple[tuple[str, int | None], ...] = ()
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        hosts = ",".join(host if port is None else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.scheme}://{hosts}{self.path}"

    def read_options(self, readers: "Mapping[str, Callable[[str], Value]]") -> dict[str, Value]:
        """Return each given option as its reader makes of it; refuse options there is no reader for."""
        unknown = sorted(set(self.options) - set(readers))
        if unknown:
            known = ", ".join(sorted(readers)) or "none"
            raise InvalidQueueArgument(
                f"unknown option(s) in the {self.scheme}:// URL: {', '.join(unknown)}; known: {known}"
            )
        return {name: _read(name, text, readers[name]) for name, text in self.options.items()}


def parse_url(text: str) -> StoreURL:
    """Return the parts of `scheme://user:password@host:port,host:port/path?option=value`."""
    if not isinstance(text, str) or "://" not in text:
        raise InvalidQueueArgument("a connection URL looks like scheme://…, for instance sqlite:///jobs.db")
    scheme, _, rest = text.partition("://")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    username, colon, password = credentials.partition(":")
    return StoreURL(
        scheme=scheme.lower(),
        username=unquote(username) if at and username else None,
        password=unquote(password) if colon else None,
        hosts=tuple(_host(part) for part in hosts.split(",") if part),
        path=unquote(slash + path),
        options=_options(query),
    )


def choice(*allowed: str) -> Callable[[str], str]:
    """Return a reader that accepts one of these words, in any case."""

    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"use one of {', '.join(allowed)}")
        return text.lower()

    return read


def _host(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise InvalidQueueArgument("a port in the connection URL is not a number from 0 to 65535")
    return unquote(host), int(port) if port else None


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in options:
            raise InvalidQueueArgument(f"the option {name!r} is given twice in the connection URL")
        options[name] = value
    return options


def _read(name: str, text: str, reader: Callable[[str], Value]) -> Value:
    try:
        return reader(text)
    except ValueError as error:
        # The value may be a secret that was put into the wrong option, so it is not repeated.
        raise InvalidQueueArgument(f"the URL option {name!r} has an unusable value: {error}") from None
