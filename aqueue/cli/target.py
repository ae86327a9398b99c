"""`module:attribute` to a worker: found, called, awaited or entered, whichever it takes."""

import importlib
import inspect
import sys
import traceback
from contextlib import AsyncExitStack
from functools import reduce
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import click

from aqueue.cli.command_line import BrokenTarget
from aqueue.errors import AqueueError
from aqueue.scheduler import Scheduler
from aqueue.worker import Worker

_PARAMETER = "TARGET"


def load_target(text: str) -> object:
    """Import the module and return the attribute, without calling it.

    The current directory can be imported from, as with uvicorn and celery. Raises `click.BadParameter` when
    there is no such thing, `BrokenTarget` when importing the module raised.
    """
    module_name, colon, path = text.partition(":")
    if not (module_name and colon and path):
        raise _misnamed(f"{text!r} is not module:attribute, for instance app.jobs:worker")
    if sys.path[:1] != [str(Path.cwd())]:
        sys.path.insert(0, str(Path.cwd()))
    module = _imported(module_name)
    try:
        found: object = reduce(getattr, path.split("."), module)
    except AttributeError:
        raise _misnamed(f"the module {module_name!r} has no attribute {path!r}") from None
    return found


async def worker_from(target: object, text: str, stack: AsyncExitStack) -> Worker:
    """Return the worker the target is, or the one it makes; what had to be entered is left by the stack."""
    found = target
    if callable(found):
        _check_takes_nothing(found, text)
        found = await _made_by(found, text, stack)
    if not isinstance(found, Worker):
        raise _misnamed(f"{text!r} gives a {type(found).__name__}, not an aqueue.Worker{_hint(found)}")
    return found


async def scheduler_from(target: object, text: str, stack: AsyncExitStack) -> Scheduler:
    """Return the scheduler the target is or makes, or that of the worker it is or makes."""
    found = target
    if callable(found):
        _check_takes_nothing(found, text)
        found = await _made_by(found, text, stack)
    if isinstance(found, Worker) and found.scheduler is not None:
        found = found.scheduler
    if not isinstance(found, Scheduler):
        raise _misnamed(f"{text!r} gives a {type(found).__name__}, not an aqueue.Scheduler{_hint(found)}")
    return found


async def _made_by(factory: Any, text: str, stack: AsyncExitStack) -> object:
    try:
        made = factory()
        if inspect.isawaitable(made):
            made = await made
        if hasattr(type(made), "__aenter__") and hasattr(type(made), "__aexit__"):
            made = await stack.enter_async_context(made)
    except AqueueError:
        raise  # says in one line what to change
    except Exception as error:
        raise BrokenTarget(f"{text!r} raised {type(error).__name__}", users_traceback(error)) from error
    return made


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and _is_missing(name, error):
            raise _misnamed(f"there is no module {error.name!r} here or on sys.path") from None
        message = f"importing the module {name!r} raised {type(error).__name__}"
        raise BrokenTarget(message, users_traceback(error)) from error


def _is_missing(wanted: str, error: ModuleNotFoundError) -> bool:
    """Tell the module, or a package around it, from a module that it tried to import itself."""
    return error.name is not None and (wanted == error.name or wanted.startswith(f"{error.name}."))


def _check_takes_nothing(factory: Any, text: str) -> None:
    try:
        inspect.signature(factory).bind()
    except TypeError:
        raise _misnamed(f"{text!r} must be callable without arguments") from None
    except ValueError:  # some builtins have no signature to ask
        return


def users_traceback(error: BaseException) -> str:
    """Format the error from the user's first frame on: ours and importlib's above it explain nothing."""
    step = error.__traceback__
    while step is not None and _is_machinery(step):
        step = step.tb_next
    return "".join(traceback.format_exception(error.with_traceback(step)))


def _is_machinery(step: TracebackType) -> bool:
    name = str(step.tb_frame.f_globals.get("__name__", ""))
    return name in {__name__, "contextlib"} or name.partition(".")[0] == "importlib"


def _hint(found: object) -> str:
    return ": decorate it with @contextlib.asynccontextmanager" if inspect.isasyncgen(found) else ""


def _misnamed(message: str) -> click.BadParameter:
    return click.BadParameter(message, click.get_current_context(), param_hint=_PARAMETER)
