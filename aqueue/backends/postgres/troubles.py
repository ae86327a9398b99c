"""What PostgreSQL's and asyncpg's errors prove, as data, and what some of them should tell a person."""

import asyncpg

from aqueue.errors import StoreRefused
from aqueue.port import Fault, Faults

# Every error of a statement undid it, for each commits by itself. Those of an ending connection may follow
# the commit, so they prove nothing; nor do the driver's own, which come after the statement was sent.
FAULTS: Faults = {
    asyncpg.PostgresError: Fault.REFUSED,
    asyncpg.PostgresConnectionError: Fault.UNKNOWN,
    asyncpg.AdminShutdownError: Fault.UNKNOWN,
    asyncpg.CrashShutdownError: Fault.UNKNOWN,
    asyncpg.CannotConnectNowError: Fault.UNKNOWN,
    asyncpg.DatabaseDroppedError: Fault.UNKNOWN,
    asyncpg.StatementCompletionUnknownError: Fault.UNKNOWN,
    asyncpg.InterfaceError: Fault.UNKNOWN,
    asyncpg.InternalClientError: Fault.UNKNOWN,
    OSError: Fault.UNKNOWN,
}

_ENDING = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)

_BEHIND_PGBOUNCER = (
    "this looks like PgBouncer, or another pooler that gives each statement another server connection: "
    "add ?pgbouncer=true to the URL"
)
_NOT_MIGRATED = (
    "the database lacks aqueue's tables, or has those of an older aqueue: run `aqueue migrate`, or "
    "`await queue.migrate()`, once per deploy"
)


def is_sound(connection: asyncpg.Connection, error: asyncpg.PostgresError) -> bool:
    """Whether a connection that answered with this error can be used again."""
    return not connection.is_closed() and not isinstance(error, _ENDING)


def refusal(error: BaseException) -> StoreRefused | None:
    """Return what to say of an error that trying again won't mend; None for any other."""
    match error:
        case (
            asyncpg.UndefinedTableError() | asyncpg.UndefinedColumnError() | asyncpg.InvalidSchemaNameError()
        ):
            return StoreRefused(_NOT_MIGRATED)
        case asyncpg.InvalidSQLStatementNameError() | asyncpg.DuplicatePreparedStatementError():
            return StoreRefused(_BEHIND_PGBOUNCER)
        case asyncpg.ProtocolViolationError() if "startup parameter" in str(error):
            return StoreRefused(_BEHIND_PGBOUNCER)
    return None
