"""What a connection URL says about SQS, checked to the last option."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aqueue.errors import InvalidQueueArgument
from aqueue.urls import StoreURL

_AWS_REGION = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+")
_REGION = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,60}")
_MOST_CONNECTIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A checked URL. `endpoint` None is AWS itself; no keys leave them to botocore's own chain."""

    url: StoreURL
    region: str
    endpoint: str | None
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)
    creates: bool
    prefix: str
    connections: int


def settings_from(url: StoreURL) -> Settings:
    """Return the settings that a URL asks for, or raise `InvalidQueueArgument`; nothing is opened."""
    options: dict[str, Any] = url.read_options(_READERS)
    if (url.username is None) is not (url.password is None):
        raise InvalidQueueArgument("the sqs:// URL has an access key without its secret, or a secret alone")
    region, endpoint = _where(url, options)
    return Settings(
        url=url,
        region=region,
        endpoint=endpoint,
        access_key=url.username,
        secret_key=url.password,
        creates=options.get("create", False),
        prefix=options.get("prefix", ""),
        connections=options.get("connections", 32),
    )


def _where(url: StoreURL, options: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the region and, where it isn't AWS's own, the endpoint."""
    if len(url.hosts) != 1 or url.path.strip("/"):
        raise InvalidQueueArgument(
            "sqs:// names a region or one server, and no path: sqs://eu-west-1, or sqs://host:port?region=…"
        )
    host, port = url.hosts[0]
    if port is None and "region" not in options:
        if not _AWS_REGION.fullmatch(host):
            raise InvalidQueueArgument(
                f"{host!r} is not a region like eu-west-1; a server is named by sqs://host:port?region=…"
            )
        if "tls" in options:
            raise InvalidQueueArgument("tls in the URL is for sqs://host:port; AWS always speaks TLS")
        return host, None
    if "region" not in options:
        raise InvalidQueueArgument("sqs://host:port needs the region: sqs://host:port?region=us-east-1")
    scheme = "https" if options.get("tls", False) else "http"
    name = f"[{host}]" if ":" in host else host
    return options["region"], f"{scheme}://{name}" + (f":{port}" if port is not None else "")


def _region(text: str) -> str:
    if not _REGION.fullmatch(text):
        raise ValueError("use the name of a region, like us-east-1")
    return text


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise ValueError("use 1 to 60 letters, digits, hyphens and underscores")
    return text


def _connections(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_CONNECTIONS):
        raise ValueError(f"use a whole number from 1 to {_MOST_CONNECTIONS}")
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("use true or false")
    return text.lower() == "true"


_READERS: Mapping[str, Callable[[str], object]] = {
    "region": _region,
    "tls": _flag,
    "create": _flag,
    "prefix": _prefix,
    "connections": _connections,
}
