"""What tests are made with: of aqueue, of its backends and of applications."""

from aqueue.testing.clock import ManualClock
from aqueue.testing.eventually import eventually

__all__ = ["ManualClock", "eventually"]
