"""`inline://`: jobs that run inside `push()`, for tests and for code that wants no queue yet (SYNC-1).

A job is checked, encoded, sealed and rebuilt just as on the way through a store, then handled in a scope and
behind middleware, in the pusher's own task. Delays and attempts are checked and mean nothing.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import anyio

from aqueue.backends.inline import InlineBackend
from aqueue.delivery import Delivery
from aqueue.errors import InvalidQueueArgument
from aqueue.events import Outcome, log_quietly
from aqueue.handlers import Handlers
from aqueue.handling import Handling, Policy, closing_deadline
from aqueue.middleware import Bindable, Middleware
from aqueue.port import Message, Reserved
from aqueue.queue import Queue, QueueOptions
from aqueue.running import Run
from aqueue.scope import AppScope, RequestScope, ScopeProvider
from aqueue.sealing import OpenEnvelope, envelope_opener
from aqueue.telemetry import Telemetry
from aqueue.threads import Threads
from aqueue.urls import StoreURL

_MOST_THREADS = 40


class InlineRunner:
    """Runs the job inside a message, and lets its pusher have the handler's error."""

    def __init__(self, handling: Handling, telemetry: Telemetry, open_envelope: OpenEnvelope) -> None:
        self._handling = handling
        self._telemetry = telemetry
        self._open_envelope = open_envelope

    async def perform(self, message: Message) -> None:
        """Handle one job; raise what its handler raised, or else what closing its scope raised."""
        task = asyncio.current_task()
        assert task is not None
        envelope = self._open_envelope(message.payload)
        delivery = Delivery(Reserved(message.id, message.queue, message.payload, None, attempt=1), envelope)
        scope = self._handling.begin(delivery)
        span = self._handling.start_span(delivery)
        error = await self._handling.attempt(Run(delivery, task, lambda: False), scope)
        try:
            await self._dispose(delivery, scope, error)
        except BaseException as failure:
            error = error or failure
            raise
        finally:
            if span is not None:
                outcome = Outcome.ACKED if error is None else Outcome.FAILED
                self._telemetry.finish_process(span, outcome, error)
                span.leave()

    async def _dispose(self, delivery: Delivery, scope: RequestScope, error: BaseException | None) -> None:
        try:
            with anyio.CancelScope(shield=True, deadline=closing_deadline()):
                await scope.close(error)
        except Exception:
            if error is None:
                raise
            log_quietly(logging.ERROR, "closing the scope of %r failed", delivery, with_traceback=True)
        if error is not None:
            raise error


def inline_queue(
    url: StoreURL,
    options: QueueOptions,
    providers: Mapping[str, Any],
    *,
    handlers: Handlers | Iterable[object] | None,
    scope: ScopeProvider | None,
    middleware: Sequence[Middleware | Bindable],
) -> Queue:
    """Return a queue that handles its jobs itself; raises what building a `Worker` with the same would."""
    url.read_options({})
    if handlers is None:
        raise InvalidQueueArgument('inline:// handles jobs itself: connect("inline://", handlers=…)')
    backend = InlineBackend()
    telemetry = Telemetry(backend.capabilities.system, **providers)
    queue = Queue(backend, options, telemetry=telemetry)
    handling = Handling(
        queue,
        Handlers.of(handlers),
        provider=scope or AppScope(),
        middleware=middleware,
        policy=Policy(max_lost=0, worker="inline"),
        threads=Threads(_MOST_THREADS),
    )
    open_envelope = envelope_opener(
        options.keyring, accept_unsigned=options.accept_unsigned, clock=options.clock
    )
    backend.perform = InlineRunner(handling, telemetry, open_envelope).perform
    return queue
