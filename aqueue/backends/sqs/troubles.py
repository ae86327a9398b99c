"""What the errors of SQS and aiobotocore prove, and what some should tell a person."""

from collections.abc import Mapping
from socket import gaierror
from typing import Any

import aiohttp
from botocore import exceptions as driver
from botocore.parsers import ResponseParserError

from aqueue.port import Fault, Faults, NotDispatched, Refused, Verdict

# What a class leaves open is told in `meaning`, by the status or by what lies under the driver's error.
FAULTS: Faults = {
    driver.ConnectTimeoutError: Fault.NEVER_SENT,
    driver.ProxyConnectionError: Fault.NEVER_SENT,
    driver.SSLError: Fault.NEVER_SENT,
    driver.CredentialRetrievalError: Fault.NEVER_SENT,
    driver.NoCredentialsError: Fault.NEVER_SENT,
    driver.PartialCredentialsError: Fault.NEVER_SENT,
    driver.TokenRetrievalError: Fault.NEVER_SENT,
    driver.ParamValidationError: Fault.NEVER_SENT,
    driver.BotoCoreError: Fault.UNKNOWN,
    driver.ClientError: Fault.UNKNOWN,
    ResponseParserError: Fault.UNKNOWN,
    aiohttp.ClientError: Fault.UNKNOWN,
    OSError: Fault.UNKNOWN,
}

_GONE = frozenset({"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"})
_STALE = frozenset(
    {"ReceiptHandleIsInvalid", "MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight"}
)
_INTERNAL = frozenset({"InternalError", "InternalFailure", "ServiceUnavailable"})


class QueueGone(Refused):
    """There is no queue of this name."""


class Unanswered(OSError):
    """SQS had trouble of its own with one entry of a batch, and doesn't say what became of it."""


def meaning(error: Exception) -> Exception:
    """Return what an error of a call proves, in the port's words where it has them."""
    if isinstance(error, driver.NoCredentialsError | driver.PartialCredentialsError):
        return NotDispatched(
            "there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or give the process a role"
        )
    if isinstance(error, driver.EndpointConnectionError):
        # The driver calls a connection that broke in the middle of a call by the same name.
        cause = error.kwargs.get("error")
        if isinstance(cause, aiohttp.ClientConnectorError | gaierror):
            return NotDispatched("the endpoint can't be reached")
    if isinstance(error, driver.ClientError):
        return _answer(error, error.response)
    return error


def _answer(error: Exception, response: Mapping[str, Any]) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _GONE:
        return QueueGone(code)
    if 400 <= status < 500:
        return Refused(f"{code} ({status})")
    return error


def is_access_denied(error: Refused) -> bool:
    """Whether the call was refused for want of a permission."""
    return "AccessDenied" in str(error) or "AuthorizationError" in str(error)


def entry_answer(failed: Mapping[str, Any]) -> Verdict | Exception:
    """Return what became of a settlement that its batch reports as failed.

    A receipt that SQS doesn't take any more is a delivery that has lost its job, however SQS words it.
    """
    code, text = str(failed.get("Code", "")), str(failed.get("Message", ""))
    if code in _STALE or (code == "InvalidParameterValue" and "expired" in text):
        return Verdict.STALE
    return entry_trouble(failed)


def entry_trouble(failed: Mapping[str, Any]) -> Exception:
    """Return what an entry's failure proves about it: refused, unless the trouble was the server's own."""
    code = str(failed.get("Code", ""))
    if code in _INTERNAL and not failed.get("SenderFault", False):
        return Unanswered(code)
    return Refused(code)
