"""Waiting for what comes true in its own time, instead of sleeping and hoping."""

import inspect
from collections.abc import Awaitable, Callable

_PAUSE = 0.01


async def eventually(
    check: Callable[[], bool | None] | Callable[[], Awaitable[bool | None]], timeout: float = 5.0
) -> None:
    """Call `check` until it holds; raise `AssertionError` when it still doesn't after `timeout` seconds.

    It holds when it returns True, or None without an `AssertionError`; anything else is a mistake in the
    test. The check may be async. Any other exception propagates at once.
    """
    import asyncio  # late: a test runner's plugin that never waits need not load it

    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        trouble = await _trouble(check)
        if trouble is None:
            return
        if loop.time() >= deadline:
            raise AssertionError(f"not true within {timeout:g} s: {trouble}") from trouble
        await asyncio.sleep(_PAUSE)


async def _trouble(
    check: Callable[[], bool | None] | Callable[[], Awaitable[bool | None]],
) -> AssertionError | None:
    try:
        answer = check()
        if inspect.isawaitable(answer):
            answer = await answer
    except AssertionError as error:
        return error
    if answer is None or answer is True:
        return None
    if answer is False:
        return AssertionError("the check returned False")
    raise TypeError(f"a check returns a bool, or None with asserts inside it, not {type(answer).__name__}")
