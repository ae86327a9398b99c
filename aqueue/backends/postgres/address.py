"""Where the database is and how to connect to it: the URL's own options, and those that are the driver's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

import asyncpg

from aqueue.backends.postgres.schema import Names, identifier
from aqueue.urls import StoreURL, choice

_PATIENCE = 5.0

_DRIVERS = (
    "host", "port", "user", "dbname", "passfile", "service", "servicefile", "sslmode", "sslcert", "sslkey",
    "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation", "ssl_min_protocol_version",
    "ssl_max_protocol_version", "target_session_attrs", "krbsrvname", "gsslib", "application_name",
)  # fmt: skip
"""Options that the driver understands; the rest of a connection's settings it reads from PG* variables."""

SETTINGS = {
    "application_name": "aqueue",
    "default_transaction_isolation": "read committed",
    "tcp_keepalives_idle": "60",  # so that no router forgets an idle connection
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "lock_timeout": "5s",  # whoever holds a lock longer gets us a refusal, not a call of unknown outcome
    # A queue's size changes faster than its statistics, and a plan made for the one is ruin for the other.
    # Every statement here has one good plan, through its index: no other is offered, none is made twice.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "jit": "off",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database, the names of the tables in it, and whether PgBouncer stands before it."""

    dsn: str = field(repr=False)
    names: Names
    settings: dict[str, str]
    pgbouncer: bool = False

    async def connect(self) -> asyncpg.Connection:
        """Open a connection; errors are the driver's.

        Behind PgBouncer each statement may get another server connection, so none is prepared by name, and
        PgBouncer itself refuses settings that it can't keep apart.
        """
        if self.pgbouncer:
            return await asyncpg.connect(self.dsn, timeout=_PATIENCE, statement_cache_size=0)
        return await asyncpg.connect(
            self.dsn, timeout=_PATIENCE, server_settings=self.settings, max_cached_statement_lifetime=0
        )


def from_url(url: StoreURL) -> Address:
    """Return the address that a `postgresql://user:password@host:port/database?option=value` URL means."""
    readers: dict[str, Callable[[str], str]] = dict.fromkeys(_DRIVERS, str)
    readers |= {"schema": identifier, "table": identifier, "pgbouncer": choice("true", "false")}
    options = url.read_options(readers)
    names = Names(**{name: options.pop(name) for name in ("schema", "table") if name in options})
    pgbouncer = options.pop("pgbouncer", "false") == "true"
    settings = dict(SETTINGS)
    if "application_name" in options:
        settings["application_name"] = options.pop("application_name")
    return Address(dsn=_dsn(url, options), names=names, settings=settings, pgbouncer=pgbouncer)


def _dsn(url: StoreURL, options: dict[str, str]) -> str:
    """Return the URL again, as the driver reads it."""
    credentials = ""
    if url.username is not None:
        credentials = quote(url.username, safe="")
        if url.password is not None:
            credentials += f":{quote(url.password, safe='')}"
        credentials += "@"
    hosts = ",".join(_host(host, port) for host, port in url.hosts)
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{credentials}{hosts}{quote(url.path)}{query}"


def _host(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else quote(host, safe="")
    return name if port is None else f"{name}:{port}"
