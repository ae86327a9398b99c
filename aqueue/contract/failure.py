"""What the failed store keeps of an error, in a form every store can hold (FAIL-3)."""

import traceback

MAX_TEXT_BYTES = 64 * 1024
_CUT = "\n… cut …\n"


def clean_text(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Return the text without NULs and lone surrogates, its middle cut out where it exceeds `limit` bytes.

    The ends are kept because a traceback says where at one end and why at the other.
    """
    text = text.replace("\x00", "�")
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    half = (limit - len(_CUT.encode())) // 2
    return encoded[:half].decode("utf-8", "ignore") + _CUT + encoded[-half:].decode("utf-8", "ignore")


def error_type(error: BaseException) -> str:
    """Return the error's class as `module.QualName`, builtins without their module."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return clean_text(name, 512)


def error_text(error: BaseException) -> str:
    """Return what the error says; an error that can't even say it is named instead."""
    try:
        return clean_text(str(error))
    except Exception as unprintable:  # noqa: BLE001 - any user class may raise anything from __str__
        return f"<{type(error).__qualname__} whose text raised {type(unprintable).__qualname__}>"


def error_traceback(error: BaseException) -> str:
    """Return the formatted traceback, causes included."""
    try:
        return clean_text("".join(traceback.format_exception(error)))
    except Exception:  # noqa: BLE001 - as above; the record matters more than its traceback
        return clean_text("".join(traceback.format_tb(error.__traceback__)))
