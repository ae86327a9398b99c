"""Where a worker's logs go: to stderr, unless the application has set up logging itself."""

import json
import logging
from datetime import UTC, datetime

from aqueue.cli.output import printable

LEVELS = ("debug", "info", "warning", "error", "critical")


def configure_logging(level: str | None, *, as_json: bool) -> None:
    """Log to stderr from `level` (default info) on, for people or as one JSON object a line.

    If the root logger has handlers, they stay as they are, and `level` only sets what aqueue itself logs.
    """
    if logging.getLogger().hasHandlers():
        if level is not None:
            logging.getLogger("aqueue").setLevel(level.upper())
        return
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonLines() if as_json else Lines("%(asctime)s %(levelname)-8s %(name)s: %(message)s")
    )
    logging.basicConfig(level=(level or "info").upper(), handlers=[handler])


class Lines(logging.Formatter):
    """Lines for people, in which a job's text can't command the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        return printable(super().format(record))


class JsonLines(logging.Formatter):
    """One JSON object a line: time (ISO 8601, UTC), level, logger, message, and perhaps traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)
