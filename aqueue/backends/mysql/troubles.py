"""What the errors of MySQL, MariaDB and asyncmy prove, as data, and what some should tell a person."""

from asyncmy.errors import MySQLError

from aqueue.errors import StoreRefused
from aqueue.port import Fault, Faults, Refused

# One class of the driver's stands for a refusal and for a lost connection alike, so the refusals are told by
# their numbers, in `meaning`, and raised as what they are. What is left over proves nothing.
FAULTS: Faults = {MySQLError: Fault.UNKNOWN, OSError: Fault.UNKNOWN}

_DEADLOCK, _LOCK_WAIT, _CHANGED_SINCE = 1213, 1205, 1020
_NO_TABLE, _NO_COLUMN = 1146, 1054

REPEATABLE = frozenset({_DEADLOCK, _LOCK_WAIT, _CHANGED_SINCE})
"""The statement, or its whole transaction, was undone for another's sake: it will succeed in a moment."""

_ENDING = frozenset(
    {
        1053,  # the server is shutting down
        1077, 1078, 1079, 1080,  # likewise
        1105,  # an unknown error
        1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184,  # the connection is being given up
        1180,  # COMMIT itself failed
        1927,  # the connection was killed
        3169, 4031,  # likewise
    }
)  # fmt: skip
"""Errors of the server that may follow the commit, or come instead of its answer."""

_NOT_MIGRATED = (
    "the database lacks aqueue's tables, or has those of an older aqueue: run `aqueue migrate`, or "
    "`await queue.migrate()`, once per deploy"
)


def number(error: BaseException) -> int:
    """Return the number of an error; 0 for one that has none."""
    code = error.args[0] if isinstance(error, MySQLError) and error.args else 0
    return code if isinstance(code, int) else 0


def is_refusal(code: int) -> bool:
    """Whether the server said that it did nothing; the driver's own numbers are 2000 to 2999."""
    return code >= 1000 and not 2000 <= code < 3000 and code not in _ENDING


def meaning(error: Exception) -> Exception:
    """Return what an error of a statement proves, in the port's words where it has them."""
    code = number(error)
    if code in (_NO_TABLE, _NO_COLUMN):
        return StoreRefused(_NOT_MIGRATED)
    if is_refusal(code):
        return Refused(f"{type(error).__name__} {code}")
    return error
