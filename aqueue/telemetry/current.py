"""Making an OpenTelemetry context the current one, and undoing it without ever logging."""

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType

from opentelemetry import context as api
from opentelemetry.context import Context

# Instrumentations look at a private key of the API and, those from before it, at the plain word.
_SUPPRESS_KEYS = {
    getattr(api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"): True,
    "suppress_instrumentation": True,
}


def context_reader() -> Callable[[], Context]:
    """Return what reads the current context: the variable's own `get` where the API keeps it in one.

    Each job asks, and the API's way there is three calls long.
    """
    variable = getattr(getattr(api, "_RUNTIME_CONTEXT", None), "_current_context", None)
    return variable.get if isinstance(variable, ContextVar) else api.get_current


def undo(token: object) -> None:
    """Restore what was current before an `attach`; in any other contextvars context there is nothing to undo.

    `context.detach` logs "Failed to detach context" with a traceback when it is called from another context
    than `attach`: a coroutine that is collected at loop close, say. Hence the variable is reset directly.
    """
    variable = getattr(token, "var", None)
    if variable is not None:
        with contextlib.suppress(ValueError, RuntimeError):
            variable.reset(token)


class Suppression:
    """Keeps the instrumentation of database drivers and HTTP clients quiet inside a `with` block."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        self._token: object = None

    def __enter__(self) -> None:
        # Whatever a replaced runtime context may raise, a store call goes on.
        with contextlib.suppress(Exception):
            self._token = api.attach(Context({**api.get_current(), **_SUPPRESS_KEYS}))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception):
            undo(self._token)
