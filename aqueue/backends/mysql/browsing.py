"""Looking through the jobs and naming the queues: statements as data, and rows as what the port speaks of."""

from dataclasses import dataclass

from aqueue.backends.mysql.connections import Row
from aqueue.backends.mysql.literals import NOW, name
from aqueue.backends.mysql.schema import DELAYED, LEASED, Names
from aqueue.port import Held, Standing

_PAGE = """
    SELECT id, {payload}, state, at - {clock} FROM {jobs} FORCE INDEX (held)
    WHERE queue = {queue} AND id > {after} ORDER BY id LIMIT {limit}"""

# Read from the indexes alone, name by name where the server finds that cheaper; a recursive query would end
# at the limit of a setting.
_QUEUES = """
    SELECT DISTINCT queue FROM {jobs} FORCE INDEX (held)
    UNION SELECT DISTINCT queue FROM {failed} FORCE INDEX (by_queue)"""


@dataclass(frozen=True, slots=True)
class BrowsingStatements:
    """The statements that only look: the tables' names are filled in once, the rest for each call."""

    page: str
    queues: str

    def page_of(self, queue: str, after: str | None, limit: int, head: int | None) -> str:
        """Return the statement for one page."""
        payload = "payload" if head is None else f"SUBSTRING(payload, 1, {head})"
        return self.page.format(payload=payload, queue=name(queue), after=name(after or ""), limit=limit)


def browsing_statements(names: Names) -> BrowsingStatements:
    """Return the statements with the names of the tables in their places."""
    return BrowsingStatements(names.fill(_PAGE, clock=NOW), names.fill(_QUEUES))


def held(row: Row, queue: str) -> Held:
    """Return what a row of a page shows, as the next pop would find it."""
    stored_id, payload, state, ends_in = row
    id = stored_id.decode("utf-8", "replace")
    if state == DELAYED and ends_in > 0:
        return Held(id, queue, payload, Standing.DELAYED, ends_in / 1e6)
    return Held(id, queue, payload, Standing.LEASED if state == LEASED and ends_in > 0 else Standing.READY)
