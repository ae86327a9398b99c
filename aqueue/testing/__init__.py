"""What tests of aqueue, of its backends and of applications are made with; nothing here is imported by the library."""

from aqueue.testing.clock import ManualClock
from aqueue.testing.eventually import eventually

__all__ = ["ManualClock", "eventually"]
