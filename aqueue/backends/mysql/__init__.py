"""Jobs in MySQL 8 or MariaDB 10.6 and newer, beside the application's own tables, over asyncmy.

`mysql://user:password@host:port/database`, or `mariadb://…`, which means the same. The tables are made by
`await queue.migrate()` or `aqueue migrate`, once per deploy. Options:

* `table=aqueue` says what their names begin with: `aqueue_jobs` and its siblings; `schema=` names another
  database on the same server that they are in.
* `unix_socket=/run/mysqld/mysqld.sock` connects there instead of to a host and port.
* `ssl_mode=disabled` (the default), `required`, `verify_ca` or `verify_identity`, with `ssl_ca`, `ssl_cert`
  and `ssl_key`, mean what they mean to the server's own clients.

All times are the server's. It sends no word of arrivals: a worker hears of what its own process pushes at
once, and of everything else within a second.
"""

from aqueue.backends.mysql import address
from aqueue.backends.mysql.backend import MySQLBackend
from aqueue.backends.mysql.schema import script
from aqueue.port import StoreOptions
from aqueue.urls import StoreURL, parse_url

__all__ = ["MySQLBackend", "from_url", "migration_sql"]


def from_url(url: StoreURL, options: StoreOptions) -> MySQLBackend:
    """Return the store in the URL's database; the clock is the server's."""
    return MySQLBackend(address.from_url(url), lease=options.lease)


def migration_sql(url: str, after: int = 0) -> str:
    """Return the statements that bring the tables from version `after` up to date, for applying by hand."""
    return script(address.from_url(parse_url(url)).names, after)
