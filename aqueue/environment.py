"""What the environment says of a connection: its URL, lease, failed store and signing keys.

It is read when `connect_from_env` is called, or a command of the command line runs, and at no other time.
What holds secrets is never repeated in an error.
"""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from aqueue.contract.signing import Keyring
from aqueue.errors import InvalidQueueArgument

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The variables of one connection: `AQUEUE_…`, or `AQUEUE_<NAME>_…` for a named one.

    What concerns signing may be said once for all connections: a named one without variables of its own for
    it uses those without a name, and an empty variable of its own switches it off.
    """

    name: str | None = None

    @property
    def url(self) -> str:
        """The connection's URL; raises `InvalidQueueArgument` where none is set."""
        variable = self._own("URL")
        url = os.environ.get(variable)
        if not url:
            raise InvalidQueueArgument(f"set {variable} to a connection URL, for instance sqlite:///jobs.db")
        return url

    def lease(self, otherwise: float) -> float:
        """Return how long a delivery is held, in seconds."""
        variable = self._own("LEASE_SECONDS")
        try:
            return float(os.environ.get(variable, otherwise))
        except ValueError:
            raise InvalidQueueArgument(f"{variable} must be a number of seconds") from None

    @property
    def failed(self) -> str | None:
        """The URL of another store for the failed jobs."""
        return os.environ.get(self._own("FAILED_STORE")) or None

    @property
    def keyring(self) -> Keyring | None:
        """The signing keys: in the variable, or in the file that `@/path` or `…_FILE` names (SIGN-1)."""
        encrypt = self._is_on("ENCRYPT")
        if self._variable("SIGNING_KEYS") is None:
            if encrypt:
                raise InvalidQueueArgument("AQUEUE_ENCRYPT needs signing keys: set AQUEUE_SIGNING_KEYS")
            return None
        return Keyring.parse(self._written_keys(), encrypt=encrypt)

    @property
    def accept_unsigned(self) -> bool | datetime:
        """Whether, or until when, jobs without a seal are read (SIGN-2)."""
        variable = self._variable("ACCEPT_UNSIGNED")
        if variable is None:
            return False
        text = os.environ[variable].strip()
        if text.lower() in _YES:
            return True
        try:
            until = datetime.fromisoformat(text)
        except ValueError:
            until = None
        if until is None or until.tzinfo is None:
            raise InvalidQueueArgument(
                f"{variable} must be true, false, or until when: a time in ISO 8601 with its offset from UTC"
            )
        return until

    def _written_keys(self) -> str:
        """Return the text of the keys.

        No variable here or where it is called keeps it, for tools that show a traceback's variables.
        """
        variable = self._variable("SIGNING_KEYS")
        assert variable is not None
        is_file = variable.endswith("_FILE")
        if not is_file and not os.environ[variable].startswith("@"):
            return os.environ[variable]
        try:
            return Path(os.environ[variable].removeprefix("@")).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InvalidQueueArgument(f"the file that {variable} names can't be read: {why}") from None

    def _is_on(self, what: str) -> bool:
        variable = self._variable(what)
        if variable is None:
            return False
        if os.environ[variable].strip().lower() not in _YES:
            raise InvalidQueueArgument(f"{variable} must be true or false")
        return True

    def _variable(self, what: str) -> str | None:
        """Return the variable that says it, the connection's own before the one for all; None for no."""
        for owner in dict.fromkeys((self._own(what), f"AQUEUE_{what}")):
            for variable in (owner, *((f"{owner}_FILE",) if what == "SIGNING_KEYS" else ())):
                if variable in os.environ:
                    return None if os.environ[variable].strip().lower() in _NO else variable
        return None

    def _own(self, what: str) -> str:
        name = "" if self.name is None else f"{self.name.upper().replace('-', '_')}_"
        return f"AQUEUE_{name}{what}"
