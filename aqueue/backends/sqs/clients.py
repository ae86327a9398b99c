"""Two clients of one region: one for calls, and one for long polls, which would otherwise hold the calls up.

Nothing is ever sent again by the driver (PUSH-4).
"""

import asyncio
import contextlib
from functools import cache
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession

from aqueue.backends.sqs.settings import Settings
from aqueue.backends.sqs.troubles import meaning

LONGEST_POLL = 5
"""Seconds; SQS would wait up to 20, and so long would a queue take to close."""

_CONNECT_WITHIN = 5.0
_ANSWER_WITHIN = 8.0  # below `call_timeout`, so that one call that hangs doesn't leave its neighbours unknown
_IDLE = 10.0  # seconds after which a connection is left: before the server leaves it
_MOST_POLLS = 1000


class Clients:
    """Both clients, open from `open` to `aclose`. At most `connections` calls are under way at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack: contextlib.AsyncExitStack | None = None
        self._calls: Any = None
        self._polls: Any = None
        self._room = asyncio.Semaphore(settings.connections)

    async def open(self) -> None:
        """Make the clients; no connection is made yet."""
        session = AioSession()
        session.register_component("data_loader", await asyncio.to_thread(_service_data))
        self._room = asyncio.Semaphore(self._settings.connections)
        async with contextlib.AsyncExitStack() as stack:
            calls = self._client(session, connections=self._settings.connections, waits=0)
            polls = self._client(session, connections=_MOST_POLLS, waits=LONGEST_POLL)
            self._calls = await stack.enter_async_context(calls)
            self._polls = await stack.enter_async_context(polls)
            self._stack = stack.pop_all()

    async def aclose(self) -> None:
        """Close every connection."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def call(self, operation: str, **parameters: Any) -> Any:
        """Make one call; what it raises says what it proves."""
        async with self._room:
            return await _made(self._calls, operation, parameters)

    async def poll(self, **parameters: Any) -> Any:
        """Receive, and wait as long as the parameters say."""
        return await _made(self._polls, "receive_message", parameters)

    def _client(self, session: AioSession, *, connections: int, waits: int) -> Any:
        settings = self._settings
        return session.create_client(
            "sqs",
            region_name=settings.region,
            endpoint_url=settings.endpoint,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            config=AioConfig(
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=_CONNECT_WITHIN,
                read_timeout=_ANSWER_WITHIN + waits,
                max_pool_connections=connections,
                parameter_validation=False,
                connector_args={"keepalive_timeout": _IDLE},
            ),
        )


async def _made(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
    try:
        return await getattr(client, operation)(**parameters)
    except Exception as error:
        told = meaning(error)
        if told is error:
            raise
        raise told from error


@cache
def _service_data() -> Any:
    """Return what botocore knows of SQS, read from its files once: that takes a while, and blocks."""
    loader = AioSession().get_component("data_loader")
    for name in ("_retry", "endpoints", "partitions", "sdk-default-configuration"):
        loader.load_data_with_path(name)
    loader.list_available_services(type_name="service-2")
    for kind in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model("sqs", kind)
    return loader
