"""Whether anything has to be done before a job's settlement, beside the settlement itself."""

from collections.abc import Mapping

from aqueue.contract.flows import BATCH_KEY, CHAIN_KEY
from aqueue.contract.results import RESULTS_KEY
from aqueue.contract.unique import UNIQUE_KEY

_FOLLOWED = frozenset({UNIQUE_KEY, RESULTS_KEY, CHAIN_KEY, BATCH_KEY})


def is_followed(metadata: Mapping[str, str]) -> bool:
    """Whether a job has a key to free, a result to keep, a next step, or a batch to be counted in."""
    return bool(metadata) and not _FOLLOWED.isdisjoint(metadata)
