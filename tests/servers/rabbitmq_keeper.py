"""Runs the broker that a test run shares: `python -m servers.rabbitmq_keeper DIRECTORY`.

It ends once no process of the run holds the lock any more. What the tests leave in the broker goes by itself:
a queue that nobody has used for a while is removed.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import sys
from pathlib import Path

from servers.rabbitmq import RabbitMQServer

_FORGOTTEN_AFTER = 60_000


def main(directory: Path) -> None:
    """Keep the broker until it is of no more use."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run's processes decide, and they may still clean up
    server = RabbitMQServer(directory=directory)
    try:
        server.start()
        server.control(
            "set_policy", "forget", ".*", f'{{"expires": {_FORGOTTEN_AFTER}}}', "--apply-to", "queues"
        )
        ready = directory / "url.new"
        ready.write_text(server.url())
        ready.rename(directory / "url")
        lock = os.open(directory / "users", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except BaseException:
        with contextlib.suppress(OSError):
            (directory / "trouble").touch()
        raise
    finally:
        server.stop()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
