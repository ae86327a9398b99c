"""What a server's error says, as the driver's own exceptions: which proves what is data (PUSH-4)."""

import re
from collections.abc import Mapping
from typing import TypeAlias

from redis import exceptions as driver

from aqueue.port import Fault, Faults

Reply: TypeAlias = object
"""Whatever a server answers: bytes, an int, None, or a list of these."""


class ScriptFailed(driver.RedisError):
    """A script of ours broke off by a defect, and may have written before."""


FAULTS: Faults = {
    driver.ResponseError: Fault.REFUSED,
    driver.BusyLoadingError: Fault.REFUSED,
    driver.AuthenticationError: Fault.REFUSED,
    driver.ConnectionError: Fault.UNKNOWN,
    ScriptFailed: Fault.UNKNOWN,
}

_KINDS: Mapping[str, type[driver.RedisError]] = {
    "ASK": driver.AskError,
    "CLUSTERDOWN": driver.ClusterDownError,
    "LOADING": driver.BusyLoadingError,
    "MASTERDOWN": driver.MasterDownError,
    "MOVED": driver.MovedError,
    "NOAUTH": driver.AuthenticationError,
    "NOPERM": driver.NoPermissionError,
    "NOSCRIPT": driver.NoScriptError,
    "OOM": driver.OutOfMemoryError,
    "READONLY": driver.ReadOnlyError,
    "TRYAGAIN": driver.TryAgainError,
    "WRONGPASS": driver.AuthenticationError,
}
_STRIPPED = frozenset({"ASK", "MOVED"})
"""What the driver's class parses itself, without the code in front."""

# Before version 7 what a command of a script was refused with came wrapped: "ERR Error running script (call
# to f_…): @user_script:12: -OOM command not allowed …".
_WRAPPED = re.compile(r"@user_script: ?\d+: -?(?P<inner>[A-Z]{2,} .*)", re.DOTALL)


def error_from(text: str) -> driver.RedisError:
    """Return the exception that an error reply stands for.

    Every key is read before any is written, so what a command inside a script is refused with has come
    before the first write; only a defect of the script itself leaves the outcome open.
    """
    if text.startswith("ERR") and "user_script" in text:
        wrapped = _WRAPPED.search(text)
        if wrapped is None:
            return ScriptFailed(text)
        text = wrapped["inner"]
    code, _, rest = text.partition(" ")
    kind = _KINDS.get(code, driver.ResponseError)
    return kind(rest if code in _STRIPPED else text)
