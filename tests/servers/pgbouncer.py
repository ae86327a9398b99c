"""A private PgBouncer in transaction mode before the tests' PostgreSQL; needs the `pgbouncer` program."""

import atexit
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from servers import postgres

_PATIENCE = 10.0
_CONFIG = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
min_pool_size = 20
max_client_conn = 500
logfile = {home}/log
"""


def unreachable() -> str | None:
    """Return why no PgBouncer can be tried here, or None."""
    if _program() is None:
        return "no pgbouncer program"
    return postgres.unreachable()


@cache
def url() -> str:
    """Return the URL of the tests' own database, by way of PgBouncer."""
    return _started("")


@cache
def swallowing_url() -> str:
    """Return the same by way of a PgBouncer that takes settings it doesn't keep, as some poolers do."""
    from aqueue.backends.postgres.address import SETTINGS

    return _started(f"ignore_startup_parameters = {', '.join(SETTINGS)}")


def _started(setting: str) -> str:
    server = urlsplit(postgres.url())
    port = postgres.free_port()
    home = Path(tempfile.mkdtemp(prefix="aqueue-pgbouncer-"))
    config = home / "pgbouncer.ini"
    config.write_text(
        _CONFIG.format(
            host=server.hostname,
            port=server.port or 5432,
            user=server.username or "postgres",
            listen_port=port,
            home=home,
        )
        + setting
    )
    config.chmod(0o644)
    postgres.give_away(home)
    _start(home, config, port)
    return f"postgresql://{server.username or 'postgres'}@127.0.0.1:{port}{server.path}"


def fresh_url() -> str:
    """Return the URL of tables that nobody has made yet, by way of PgBouncer."""
    return f"{postgres.fresh_url(url())}&pgbouncer=true"


def _start(home: Path, config: Path, port: int) -> None:
    process = subprocess.Popen(
        [_program() or "", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **postgres.as_servant(),
    )

    def end() -> None:
        process.send_signal(signal.SIGTERM)
        process.wait(_PATIENCE)
        shutil.rmtree(home, ignore_errors=True)

    atexit.register(end)
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PgBouncer did not start: {(home / 'log').read_text()}") from None
            time.sleep(0.02)
        else:
            return


@cache
def _program() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
