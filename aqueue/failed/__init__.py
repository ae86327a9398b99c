"""The failed store: jobs set aside for a person, kept whole, and put back at most once (FAIL-1, FAIL-2)."""

from aqueue.failed.groups import FailedGroup
from aqueue.failed.jobs import FailedJobs
from aqueue.failed.keeping import Keeping
from aqueue.failed.redriving import Fate, Redriven
from aqueue.failed.retention import Retention
from aqueue.failed.shown import FailedJob

__all__ = ["FailedGroup", "FailedJob", "FailedJobs", "Fate", "Keeping", "Redriven", "Retention"]
