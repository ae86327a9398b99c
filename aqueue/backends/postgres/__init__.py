"""Jobs in PostgreSQL 13 or newer, beside the application's own tables, over asyncpg.

`postgresql://user:password@host:port/database`; what the URL leaves out, the driver takes from the PG*
variables. The tables are made by `await queue.migrate()` or `aqueue migrate`, once per deploy. Options:

* `schema=public` and `table=aqueue` say where they are: `public.aqueue_jobs` and its siblings.
* `pgbouncer=true` works behind PgBouncer in transaction mode: nothing is prepared by name, and an idle worker
  asks once a second instead of listening.
* `sslmode`, `sslrootcert`, `host` (a socket's directory), `target_session_attrs`, `passfile` and the driver's
  other options mean what they mean to it.

All times are the server's.
"""

from aqueue.backends.postgres import address
from aqueue.backends.postgres.backend import PostgresBackend
from aqueue.backends.postgres.schema import script
from aqueue.port import StoreOptions
from aqueue.urls import StoreURL, parse_url

__all__ = ["PostgresBackend", "from_url", "migration_sql"]


def from_url(url: StoreURL, options: StoreOptions) -> PostgresBackend:
    """Return the store in the URL's database; the clock is the server's."""
    return PostgresBackend(address.from_url(url), lease=options.lease)


def migration_sql(url: str, after: int = 0) -> str:
    """Return the statements that bring a schema from version `after` up to date, for applying by hand."""
    return script(address.from_url(parse_url(url)).names, after)
