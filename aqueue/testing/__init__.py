"""What tests are made with: of applications, of backends, and of aqueue itself.

Names load when they are first used, so that a plugin of a test runner costs nothing where nobody asks for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Eager, for the submodule of the same name would take its place; it loads nothing itself.
from aqueue.testing.eventually import eventually as eventually

if TYPE_CHECKING:
    from aqueue.testing.assertions import assert_not_pushed as assert_not_pushed
    from aqueue.testing.assertions import assert_pushed as assert_pushed
    from aqueue.testing.clock import ManualClock as ManualClock
    from aqueue.testing.contents import Pushed as Pushed
    from aqueue.testing.contents import pushed as pushed
    from aqueue.testing.crash_report import CrashPoint as CrashPoint
    from aqueue.testing.crash_report import CrashReport as CrashReport
    from aqueue.testing.crashes import crash_at_every_await as crash_at_every_await
    from aqueue.testing.draining import Drained as Drained
    from aqueue.testing.draining import drain as drain
    from aqueue.testing.effects import Effects as Effects
    from aqueue.testing.memory_queue import MemoryQueue as MemoryQueue
    from aqueue.testing.virtual_time import LoopClock as LoopClock
    from aqueue.testing.virtual_time import VirtualTimeLoop as VirtualTimeLoop
    from aqueue.testing.virtual_time import in_virtual_time as in_virtual_time
    from aqueue.testing.virtual_time import run_in_virtual_time as run_in_virtual_time

_HOMES = {
    "assertions": ("assert_not_pushed", "assert_pushed"),
    "clock": ("ManualClock",),
    "contents": ("Pushed", "pushed"),
    "crash_report": ("CrashPoint", "CrashReport"),
    "crashes": ("crash_at_every_await",),
    "draining": ("Drained", "drain"),
    "effects": ("Effects",),
    "memory_queue": ("MemoryQueue",),
    "virtual_time": ("LoopClock", "VirtualTimeLoop", "in_virtual_time", "run_in_virtual_time"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted({*_HOME_OF, "eventually"})  # noqa: PLE0605 - a list all the same; a test holds it to the imports above


def __getattr__(name: str) -> object:
    """Load a public name's module when the name is first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'aqueue.testing' has no attribute {name!r}")
    value: object = getattr(import_module(f"aqueue.testing.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
