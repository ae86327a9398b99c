"""From a URL to a queue. The only place that knows which backend serves which scheme."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aqueue.contract.signing import Keyring
from aqueue.environment import Environment
from aqueue.errors import InvalidQueueArgument, QueueUnavailable, Unsupported
from aqueue.port import Backend, StoreOptions
from aqueue.queue import Queue, QueueOptions
from aqueue.telemetry import Telemetry
from aqueue.urls import StoreURL, parse_url

if TYPE_CHECKING:
    from aqueue.handlers import Handlers
    from aqueue.middleware import Bindable, Middleware
    from aqueue.scope import ScopeProvider

Opener = Callable[[StoreURL, StoreOptions], Backend]

# scheme -> (module with `from_url`, the extra that installs its driver)
_BACKENDS: Mapping[str, tuple[str, str | None]] = {
    "memory": ("aqueue.backends.memory", None),
    "file": ("aqueue.backends.file", None),
    "sqlite": ("aqueue.backends.sqlite", None),
    "postgresql": ("aqueue.backends.postgres", "postgres"),
    "postgres": ("aqueue.backends.postgres", "postgres"),
    "postgresql+asyncpg": ("aqueue.backends.postgres", "postgres"),
    "redis": ("aqueue.backends.redis", "redis"),
    "rediss": ("aqueue.backends.redis", "redis"),
    "unix": ("aqueue.backends.redis", "redis"),
    "redis+sentinel": ("aqueue.backends.redis", "redis"),
    "redis+cluster": ("aqueue.backends.redis", "redis"),
    "mysql": ("aqueue.backends.mysql", "mysql"),
    "mariadb": ("aqueue.backends.mysql", "mysql"),
    "mysql+asyncmy": ("aqueue.backends.mysql", "mysql"),
    "sqs": ("aqueue.backends.sqs", "sqs"),
    "amqp": ("aqueue.backends.rabbitmq", "rabbitmq"),
    "amqps": ("aqueue.backends.rabbitmq", "rabbitmq"),
}
_INLINE = "inline"
_LEASE = 60.0
_ENTRY_POINTS = "aqueue.backends"


def connect(
    url: str,
    *,
    lease: float = _LEASE,
    keyring: Keyring | None = None,
    accept_unsigned: bool | datetime = False,
    failed: str | None = None,
    keep_failed: timedelta | int | None = None,
    call_timeout: float = 10.0,
    clock: Callable[[], float] | None = None,
    tracer_provider: Any = None,
    meter_provider: Any = None,
    handlers: "Handlers | Iterable[object] | None" = None,
    scope: "ScopeProvider | None" = None,
    middleware: "Sequence[Middleware | Bindable]" = (),
    results: float | timedelta | None = None,
) -> Queue:
    """Return a queue over the store the URL names; nothing is opened or read until `open` or `async with`.

    `lease` and `call_timeout` are seconds. `keyring` seals every job and opens what was sealed; with it
    `accept_unsigned` says whether, or until when (an aware datetime), jobs without a seal are read. `failed`
    is the URL of another store that keeps this queue's failed jobs; `keep_failed` bounds how long (a
    timedelta) or how many (a count). `clock` returns seconds since the epoch, for stores that have no clock
    of their own. `handlers`, `scope` and `middleware` are for `inline://`, which handles jobs inside `push`
    (SYNC-1). `results` is for how long (seconds or a timedelta) results are kept of jobs that don't say it
    themselves (RESULT-1). Raises `NotesMissing` where they can't be, `InvalidQueueArgument` for an unknown
    scheme or option, `QueueUnavailable` when a driver or the cipher is not installed.
    """
    options = QueueOptions(
        lease=lease,
        call_timeout=call_timeout,
        keyring=keyring,
        accept_unsigned=accept_unsigned,
        keep_failed=keep_failed,
        results=results,
        **({} if clock is None else {"clock": clock}),
    )
    providers = {"tracer_provider": tracer_provider, "meter_provider": meter_provider}
    if parse_url(url).scheme == _INLINE:
        from aqueue.inline import inline_queue  # the one store that brings a worker's parts with it

        return inline_queue(
            parse_url(url), options, providers, handlers=handlers, scope=scope, middleware=middleware
        )
    if handlers is not None or scope is not None or middleware:
        raise InvalidQueueArgument("handlers, scope and middleware are a Worker's; only inline:// takes them")
    store_options = StoreOptions(lease=options.lease, clock=options.clock)
    backend = open_backend(url, store_options)
    keeper = open_backend(failed, store_options) if failed is not None else None
    return Queue(
        backend, options, failed=keeper, telemetry=Telemetry(backend.capabilities.system, **providers)
    )


def connect_from_env(name: str | None = None) -> Queue:
    """Return the queue that `AQUEUE_URL` names, or `AQUEUE_<NAME>_URL` for a named connection.

    `AQUEUE_LEASE_SECONDS` or `AQUEUE_<NAME>_LEASE_SECONDS` set its lease, `…_FAILED_STORE` is the URL of
    another store for its failed jobs. `…_SIGNING_KEYS`, `…_SIGNING_KEYS_FILE`, `…_ENCRYPT` and
    `…_ACCEPT_UNSIGNED` make its keyring; those without a name are for every connection (SIGN-1).
    """
    environment = Environment(name=name)
    return connect(
        environment.url,
        lease=environment.lease(_LEASE),
        keyring=environment.keyring,
        accept_unsigned=environment.accept_unsigned,
        failed=environment.failed,
    )


def connect_with_env_keys(url: str) -> Queue:
    """Return the queue of this URL with the keyring that `connect_from_env` would give it."""
    environment = Environment()
    return connect(url, keyring=environment.keyring, accept_unsigned=environment.accept_unsigned)


def url_from_env(name: str | None = None) -> str:
    """Return the URL that `connect_from_env` uses; raises `InvalidQueueArgument` where none is set."""
    return Environment(name=name).url


def migration_sql(url: str, *, after: int = 0) -> str:
    """Return the numbered steps that `Queue.migrate` takes, as SQL to apply by hand; nothing is opened.

    `after` is the version that the tables have already, 0 for none. A store has such steps if its module has
    a function `migration_sql(url, after)` beside `from_url`; for any other this raises `Unsupported`.
    """
    scheme = parse_url(url).scheme
    steps = None
    if scheme != _INLINE:
        steps = getattr(import_module(_opener(scheme).__module__), "migration_sql", None)
    if steps is None:
        raise Unsupported(f"no SQL has to be applied by hand for {scheme}://: it makes what it needs itself")
    sql: str = steps(url, after)
    return sql


def open_backend(url: str, options: StoreOptions) -> Backend:
    """Return the backend that serves the URL's scheme, built-in or from an entry point; open nothing."""
    parsed = parse_url(url)
    return _opener(parsed.scheme)(parsed, options)


def _opener(scheme: str) -> Opener:
    if scheme not in _BACKENDS:
        return _third_party(scheme)
    module, extra = _BACKENDS[scheme]
    try:
        opener: Opener = import_module(module).from_url
    except ModuleNotFoundError as error:
        raise QueueUnavailable(
            f"{scheme}:// needs the driver {error.name!r}: pip install 'aqueue-jobs[{extra}]'"
        ) from error
    return opener


def _third_party(scheme: str) -> Opener:
    from importlib.metadata import entry_points  # slow to import, and rarely asked

    found = entry_points(group=_ENTRY_POINTS)
    for entry_point in found:
        if entry_point.name == scheme:
            opener: Opener = entry_point.load()
            return opener
    known = ", ".join(sorted({*_BACKENDS, _INLINE, *(entry_point.name for entry_point in found)}))
    raise InvalidQueueArgument(f"unknown URL scheme {scheme!r}; known: {known}")
