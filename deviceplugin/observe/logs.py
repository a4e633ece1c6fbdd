"""Log lines on standard error, as text for people or one JSON object a line for machines."""

import json
import logging
import sys
import time

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object: time (UTC, RFC 3339), level, logger, thread, message, and the traceback if there is one."""
        entry = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """`2026-01-31T12:00:00.000Z INFO message`."""
        text = f"{_utc(record.created)} {record.levelname:<7} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"


def configure(log_format: str, level: str) -> None:
    """Set up the root logger.

    Args:
        log_format: `text` or `json`.
        level: a key of LEVELS.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    # watchdog tells every event at debug level, in the thread that then wakes itself by writing; and calls it an error
    # to be stopped while events come. What it loses is found by comparison (app.files), so that nobody need know.
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)
