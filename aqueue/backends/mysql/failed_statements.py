"""The statements on failed jobs, as data."""

from dataclasses import dataclass, fields

from aqueue.backends.mysql.literals import NOW
from aqueue.backends.mysql.schema import Names

_RECORD = (
    "id, name, queue, payload, attempts, lost, reason, error_type, error, traceback, pushed_at, failed_at, "
    "worker, delivery"
)

_INDEXES = {
    (False, False): "every",
    (True, False): "by_queue",
    (False, True): "by_name",
    (True, True): "by_queue_and_name",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStatements:
    """The statements on failed jobs: the table's name is filled in once, the rest for each call."""

    latest: str = "SELECT id, MAX(failed_at) FROM {failed} WHERE id IN ({ids}) GROUP BY id"
    replaced: str = "DELETE FROM {failed} WHERE id = {id} AND queue = {queue} AND delivery <> {delivery}"
    keep: str = "INSERT INTO {failed} ({record}) VALUES {rows} ON DUPLICATE KEY UPDATE lost = lost"

    page: str = """
        SELECT {record} FROM {failed} FORCE INDEX ({index})
        WHERE {wanted}failed_at >= {failed_at} AND (failed_at > {failed_at} OR id > {id})
        ORDER BY failed_at, id LIMIT {limit}"""
    get: str = "SELECT {record} FROM {failed} WHERE id = {id} ORDER BY failed_at LIMIT 1"
    count: str = "SELECT COUNT(*) FROM {failed} WHERE {wanted}TRUE"

    discard: str = """
        DELETE FROM {failed}
        WHERE id = {id} AND queue = {queue} AND failed_at = {failed_at} AND delivery = {delivery}"""

    past: str = """
        SELECT COUNT(*) FROM (SELECT 1 FROM {failed} FORCE INDEX ({index})
            WHERE {wanted}failed_at <= {clock} - {age} LIMIT {limit}) AS past"""
    seen: str = """
        SELECT COUNT(*) FROM (SELECT 1 FROM {failed} FORCE INDEX ({index})
            WHERE {wanted}TRUE LIMIT {limit}) AS seen"""
    oldest: str = """
        SELECT id, queue FROM {failed} FORCE INDEX ({index}) WHERE {wanted}TRUE
        ORDER BY failed_at, id LIMIT {limit} FOR UPDATE SKIP LOCKED"""
    forget: str = "DELETE FROM {failed} WHERE id = {id} AND queue = {queue}"

    @staticmethod
    def index(by_queue: bool, by_name: bool) -> str:
        """Return the index in which a page filtered like this stands in its order."""
        return _INDEXES[by_queue, by_name]


def failed_statements(names: Names) -> FailedStatements:
    """Return the statements with the names of the tables in their places."""
    parts = {"clock": NOW, "record": _RECORD}
    templates = {each.name: str(each.default) for each in fields(FailedStatements)}
    return FailedStatements(**{name: names.fill(template, **parts) for name, template in templates.items()})
