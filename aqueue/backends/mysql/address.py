"""Where the database is and how to connect to it."""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

import asyncmy
from asyncmy.connection import Connection

from aqueue.backends.mysql.schema import Names, identifier
from aqueue.errors import InvalidQueueArgument
from aqueue.urls import StoreURL, choice

_DATABASE = re.compile(r"[A-Za-z0-9_$-]{1,64}")
_READERS: dict[str, Callable[[str], str]] = {
    "schema": identifier,
    "table": identifier,
    "unix_socket": str,
    "ssl_mode": choice("disabled", "required", "verify_ca", "verify_identity"),
    "ssl_ca": str,
    "ssl_cert": str,
    "ssl_key": str,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database, the names of the tables in it, and what it takes to get there."""

    host: str
    port: int
    user: str | None = field(repr=False)
    password: str = field(repr=False)
    database: str
    unix_socket: str | None
    tls: ssl.SSLContext | None
    names: Names

    async def connect(self) -> Connection:
        """Open a connection; errors are the driver's.

        The driver would begin a transaction with the first statement and wait for its commit, so it is told
        not to. It is given no time limit: ours are outside, and its own would swallow cancellations.
        """
        return await asyncmy.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=self.database,
            unix_socket=self.unix_socket,
            ssl=self.tls,
            charset="utf8mb4",
            autocommit=True,
            program_name="aqueue",
        )


def from_url(url: StoreURL) -> Address:
    """Return the address that a `mysql://user:password@host:port/database?option=value` URL means."""
    options = url.read_options(_READERS)
    if len(url.hosts) > 1:
        raise InvalidQueueArgument(f"a {url.scheme}:// URL names one host")
    host, port = url.hosts[0] if url.hosts else ("localhost", None)
    database = url.path.removeprefix("/")
    if not _DATABASE.fullmatch(database):
        raise InvalidQueueArgument(
            f"a {url.scheme}:// URL names a database after the host, of letters, digits, '_', '$' and '-'"
        )
    return Address(
        host=host,
        port=port or 3306,
        user=url.username,
        password=url.password or "",
        database=database,
        unix_socket=options.get("unix_socket"),
        tls=_tls(options),
        names=Names(schema=options.get("schema", database), table=options.get("table", "aqueue")),
    )


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    mode = options.get("ssl_mode", "disabled")
    if mode == "disabled":
        if unused := sorted({"ssl_ca", "ssl_cert", "ssl_key"} & set(options)):
            raise InvalidQueueArgument(f"{', '.join(unused)} without an ssl_mode that uses TLS")
        return None
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca"))
        if "ssl_cert" in options:
            context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    except OSError as error:
        raise InvalidQueueArgument(f"a certificate or key of the URL can't be read: {error}") from error
    context.check_hostname = mode == "verify_identity"
    if mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return context
