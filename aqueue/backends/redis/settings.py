"""What a connection URL says about Redis, checked to the last option."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aqueue.backends.redis.cluster import Cluster
from aqueue.backends.redis.dialling import TLS, Address, Dialler, Identity
from aqueue.backends.redis.topology import SentinelMaster, SingleServer, Topology
from aqueue.errors import InvalidQueueArgument
from aqueue.urls import StoreURL

_PREFIX = re.compile(r"[^\s{}]{1,64}")
_MOST_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A checked URL. `lanes` is how many links are shared to each server."""

    url: StoreURL
    prefix: str
    lanes: int
    identity: Identity
    tls: TLS | None
    sentinel_identity: Identity
    service: str

    @property
    def shape(self) -> str:
        """What kind of URL it is, in a word."""
        return _SHAPES[self.url.scheme]

    def topology(self) -> Topology:
        """Return the topology that the URL names, with no connection made."""
        dialler = Dialler(self.identity, self.tls)
        if self.shape == "cluster":
            return Cluster(self._addresses(6379), dialler, self.lanes)
        if self.shape == "sentinel":
            return SentinelMaster(
                self._addresses(26379),
                self.service,
                dialler=dialler,
                sentinel_dialler=Dialler(self.sentinel_identity, self.tls),
                lanes=self.lanes,
            )
        if self.shape == "unix":
            return SingleServer(Address(self.url.path, None), dialler, self.lanes)
        return SingleServer(self._addresses(6379)[0], dialler, self.lanes)

    def dialler(self) -> Dialler:
        """Return what makes connections beside the shared ones."""
        return Dialler(self.identity, self.tls)

    def _addresses(self, port: int) -> list[Address]:
        return [Address(host, given or port) for host, given in self.url.hosts]


_SHAPES: Mapping[str, str] = {
    "redis": "server",
    "rediss": "server",
    "unix": "unix",
    "redis+sentinel": "sentinel",
    "redis+cluster": "cluster",
}


def settings_from(url: StoreURL) -> Settings:
    """Return the settings that a URL asks for, or raise `InvalidQueueArgument`; nothing is opened."""
    shape = _SHAPES[url.scheme]
    options: dict[str, Any] = url.read_options(_readers(url.scheme))
    if url.username is not None and url.password is None:
        raise InvalidQueueArgument(f"the {url.scheme}:// URL has a username and no password")
    service, database = _path_of(url, shape)
    if options.get("db") is not None:
        database = options["db"]
    _check_hosts(url, shape)
    return Settings(
        url=url,
        prefix=options.get("prefix", "aqueue"),
        lanes=options.get("connections", 2),
        identity=Identity(username=url.username, password=url.password, database=database),
        tls=_tls_from(options, always=url.scheme == "rediss"),
        sentinel_identity=Identity(
            username=options.get("sentinel_username"), password=options.get("sentinel_password")
        ),
        service=service,
    )


def _readers(scheme: str) -> dict[str, Callable[[str], object]]:
    readers: dict[str, Callable[[str], object]] = {"prefix": _prefix, "connections": _connections}
    if scheme == "unix":
        readers["db"] = _database
    if scheme in {"redis+sentinel", "redis+cluster"}:
        readers["tls"] = _flag
    if scheme == "redis+sentinel":
        readers |= {"sentinel_username": _text, "sentinel_password": _text}
    if scheme not in {"redis", "unix"}:
        readers |= {"tls_ca": _text, "tls_cert": _text, "tls_key": _text, "tls_verify": _flag}
    return readers


def _tls_from(options: Mapping[str, Any], *, always: bool) -> TLS | None:
    is_on = always or options.get("tls", False)
    given = [name for name in options if name.startswith("tls_")]
    if not is_on:
        if given:
            raise InvalidQueueArgument(f"{', '.join(given)} in the URL need tls=true")
        return None
    if "tls_key" in options and "tls_cert" not in options:
        raise InvalidQueueArgument("tls_key in the URL needs tls_cert")
    return TLS(
        ca=options.get("tls_ca"),
        certificate=options.get("tls_cert"),
        key=options.get("tls_key"),
        verify=options.get("tls_verify", True),
    )


def _path_of(url: StoreURL, shape: str) -> tuple[str, int]:
    """Return the sentinel service, where there is one, and the database."""
    if shape == "unix":
        return "", 0
    parts = url.path.strip("/").split("/")
    service = parts.pop(0) if shape == "sentinel" else ""
    if shape == "sentinel" and not service:
        raise InvalidQueueArgument("redis+sentinel:// needs the service: redis+sentinel://host:26379/service")
    rest = "/".join(parts)
    if not rest:
        return service, 0
    if shape == "cluster":
        raise InvalidQueueArgument("a cluster has one database: leave the path out of redis+cluster://")
    try:
        return service, _database(rest)
    except ValueError as error:
        raise InvalidQueueArgument(f"the database in the {url.scheme}:// URL is unusable: {error}") from None


def _check_hosts(url: StoreURL, shape: str) -> None:
    if shape == "unix":
        if not url.path or url.hosts:
            raise InvalidQueueArgument("unix:// needs the path of a socket: unix:///run/redis.sock")
    elif not url.hosts:
        raise InvalidQueueArgument(f"{url.scheme}:// needs a host")
    elif shape == "server" and len(url.hosts) > 1:
        raise InvalidQueueArgument(
            f"{url.scheme}:// has one host; several are for redis+sentinel:// and redis+cluster://"
        )


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise ValueError("use 1 to 64 characters, none of them a brace or white space")
    return text


def _connections(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_CONNECTIONS):
        raise ValueError(f"use a whole number from 1 to {_MOST_CONNECTIONS}")
    return int(text)


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ValueError("use a whole number from 0")
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("use true or false")
    return text.lower() == "true"


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text
