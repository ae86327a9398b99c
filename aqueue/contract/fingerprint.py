"""What makes two failures the same trouble: a fingerprint without what differs from job to job (FAIL-4).

It is made of the job's name, the error's class, what the error says without numbers, ids and quoted text, and
the innermost frame of the traceback that is neither a library's nor aqueue's. Line numbers are left out, so
that a deploy that moves a function keeps its failures together.
"""

import re
from hashlib import blake2b
from typing import NamedTuple

_LONGEST_READ = 4_000
_LONGEST_SHOWN = 300

_REPLACED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (
        re.compile(
            r"""(?<!\w)'(?:\\.|[^'\\\n])*'(?!\w)|(?<!\w)"(?:\\.|[^"\\\n])*"(?!\w)|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»"""
        ),
        "<text>",
    ),
    (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w.-]+"), "<address>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"[0-9]+(?:[.,:/T-][0-9]+)*"), "<n>"),
)
"""In this order: what a pattern finds may hold what a later one looks for."""

_FRAME = re.compile(r'^[ |+-]*File "(?P<path>[^"\n]+)", line [0-9]+, in (?P<function>[^\n]+)$', re.MULTILINE)
_NEXT_ERROR = re.compile(
    r"^[ |]*(?:During handling of the above exception|The above exception was the direct cause)", re.MULTILINE
)
_FOREIGN = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python[0-9]|/Python[0-9.]+/Lib/|^<")
_OURS = __file__.replace("\\", "/").rpartition("/contract/")[0] + "/"


class Trouble(NamedTuple):
    """What one kind of failure has in common."""

    name: str
    error_type: str
    message: str
    frame: str

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits, the same wherever and whenever they are made."""
        digest = blake2b(digest_size=8)
        for part in self:
            text = part.encode("utf-8", "surrogatepass")
            digest.update(b"%d:%b" % (len(text), text))
        return digest.hexdigest()


def trouble_of(*, name: str, reason: str, error_type: str, error: str, traceback: str) -> Trouble:
    """Return what kind of failure a record tells of; one without an error is known by its reason."""
    return Trouble(name, error_type, without_particulars(error or reason), innermost_frame(traceback))


def without_particulars(message: str) -> str:
    """Return the message in one line, not too long, and with everything that is a job's own replaced."""
    message = message[:_LONGEST_READ]
    for pattern, placeholder in _REPLACED:
        message = pattern.sub(placeholder, message)
    message = " ".join(message.split())
    return message if len(message) <= _LONGEST_SHOWN else f"{message[: _LONGEST_SHOWN - 1]}…"


def innermost_frame(traceback: str) -> str:
    """Return `folder/file.py in function` of the last own frame of the error that was raised in the end.

    A traceback without own frames is known by its last frame, and none at all by "".
    """
    frames = list(_FRAME.finditer(_last_error(traceback))) or list(_FRAME.finditer(traceback))
    if not frames:
        return ""
    chosen = next((frame for frame in reversed(frames) if _is_own(frame["path"])), frames[-1])
    path = chosen["path"].replace("\\", "/").strip("/").split("/")
    return f"{'/'.join(path[-2:])} in {chosen['function'].strip()}"


def _last_error(traceback: str) -> str:
    """Causes are told first, so what follows the last of them is the error itself."""
    last = None
    for last in _NEXT_ERROR.finditer(traceback):  # noqa: B007 - the last one is what is looked for
        pass
    return traceback[last.end() :] if last is not None else traceback


def _is_own(path: str) -> bool:
    path = path.replace("\\", "/")
    return _FOREIGN.search(path) is None and not path.startswith(_OURS)
