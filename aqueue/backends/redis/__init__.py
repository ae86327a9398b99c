"""The Redis backend: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` and `redis+cluster://`."""

from aqueue.backends.redis.backend import RedisBackend
from aqueue.backends.redis.settings import settings_from
from aqueue.port import StoreOptions
from aqueue.urls import StoreURL

__all__ = ["RedisBackend", "from_url"]


def from_url(url: StoreURL, options: StoreOptions) -> RedisBackend:
    """Return a backend on the servers that the URL names; nothing is opened.

    Options: `prefix` of every key (`aqueue`), `connections` shared to each server (2), `tls_ca`, `tls_cert`,
    `tls_key`, `tls_verify` for `rediss://` and with `tls=true` for sentinels and clusters, `db` for `unix://`.
    """
    return RedisBackend(settings_from(url), lease=options.lease)
