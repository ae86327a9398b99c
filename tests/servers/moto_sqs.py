"""moto's server, fit for many callers at once: `python moto_sqs.py PORT`.

moto answers each request on a thread and locks nothing, so that two receipts at once may hand out one message
and a deletion may take a new message with it, which SQS doesn't do. Here its SQS makes one step at a time. It
also counts every message of a queue for each one sent; a faster clock makes that bearable.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sqs import models
from werkzeug.serving import run_simple

_STEP = threading.RLock()
_LOOK_EVERY = 0.02


def _one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
    def step(*arguments: Any, **options: Any) -> Any:
        with _STEP:
            return method(*arguments, **options)

    return step


def _polling(receive: Callable[..., Any]) -> Callable[..., Any]:
    """Wait for a message without holding up the other callers."""

    def receive_message(backend: Any, queue: str, count: int, wait: int, *rest: Any, **options: Any) -> Any:
        ends = time.monotonic() + wait
        while True:
            with _STEP:
                messages = receive(backend, queue, count, 0, *rest, **options)
            if messages or time.monotonic() >= ends:
                return messages
            time.sleep(_LOOK_EVERY)

    return receive_message


def main(port: int) -> None:
    """Serve until the process is ended."""
    backend = models.SQSBackend
    for name in (
        "create_queue",
        "get_queue_url",
        "get_queue_attributes",
        "send_message",
        "send_message_batch",
        "delete_message",
        "delete_message_batch",
        "change_message_visibility",
        "change_message_visibility_batch",
    ):
        setattr(backend, name, _one_at_a_time(getattr(backend, name)))
    backend.receive_message = _polling(backend.receive_message)  # type: ignore[method-assign]  # as above
    vars(models).update(unix_time=time.time, unix_time_millis=lambda: time.time() * 1000)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    run_simple("127.0.0.1", port, DomainDispatcherApplication(create_backend_app), threaded=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
