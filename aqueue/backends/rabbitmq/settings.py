"""What a connection URL says about RabbitMQ, checked to the last option."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aqueue.backends.rabbitmq.dialling import TLS, Address, Dialler, Identity
from aqueue.errors import InvalidQueueArgument
from aqueue.urls import StoreURL, choice

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,24}")
_MOST_AHEAD = 10_000
_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A checked URL. Durations are seconds."""

    url: StoreURL
    prefix: str
    queue_type: str
    prefetch: int
    heartbeat: float
    confirm_timeout: float
    identity: Identity
    tls: TLS | None

    def dialler(self) -> Dialler:
        """Return what makes connections, with none made."""
        addresses = [Address(host, given or _PORTS[self.url.scheme]) for host, given in self.url.hosts]
        return Dialler(addresses, self.identity, self.tls, heartbeat=self.heartbeat)


def settings_from(url: StoreURL) -> Settings:
    """Return the settings that a URL asks for, or raise `InvalidQueueArgument`; nothing is opened."""
    options: dict[str, Any] = url.read_options(_readers(url.scheme))
    if not url.hosts:
        raise InvalidQueueArgument(f"{url.scheme}:// needs a host")
    if (url.username is None) is not (url.password is None):
        raise InvalidQueueArgument(
            f"the {url.scheme}:// URL needs both a username and a password, or neither"
        )
    return Settings(
        url=url,
        prefix=options.get("prefix", ""),
        queue_type=options.get("queue_type", "quorum"),
        prefetch=options.get("prefetch", 500),
        heartbeat=options.get("heartbeat", 20.0),
        confirm_timeout=options.get("confirm_timeout", 5.0),
        identity=Identity(
            username=url.username if url.username is not None else "guest",
            password=url.password if url.password is not None else "guest",
            vhost=url.path.removeprefix("/") or "/",
        ),
        tls=_tls_from(options) if url.scheme == "amqps" else None,
    )


def _readers(scheme: str) -> dict[str, Callable[[str], object]]:
    readers: dict[str, Callable[[str], object]] = {
        "prefix": _prefix,
        "queue_type": choice("quorum", "classic"),
        "prefetch": _prefetch,
        "heartbeat": _heartbeat,
        "confirm_timeout": _confirm_timeout,
    }
    if scheme == "amqps":
        readers |= {"tls_ca": _text, "tls_cert": _text, "tls_key": _text, "tls_verify": _flag}
    return readers


def _tls_from(options: Mapping[str, Any]) -> TLS:
    if "tls_key" in options and "tls_cert" not in options:
        raise InvalidQueueArgument("tls_key in the URL needs tls_cert")
    return TLS(
        ca=options.get("tls_ca"),
        certificate=options.get("tls_cert"),
        key=options.get("tls_key"),
        verify=options.get("tls_verify", True),
    )


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise ValueError("use 1 to 24 ASCII letters, digits, hyphens and underscores")
    return text


def _prefetch(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_AHEAD):
        raise ValueError(f"use a whole number from 1 to {_MOST_AHEAD}")
    return int(text)


def _heartbeat(text: str) -> float:
    if not (text.isascii() and text.isdigit() and int(text) <= 3600):
        raise ValueError("use whole seconds from 0 (none) to 3600")
    return float(text)


def _confirm_timeout(text: str) -> float:
    seconds = float(text) if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", text) else 0.0
    if not seconds:
        raise ValueError("use seconds, more than 0")
    return seconds


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("use true or false")
    return text.lower() == "true"


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text
