"""Logging: one JSON object per line. Lines written during a reconcile carry the object's key."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog


def _dumps(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=str).decode()


def configure(level: str) -> None:
    """Send the logs of structlog and of the standard library to stderr as JSON. Raises ValueError for an
    unknown level.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(serializer=_dumps),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Drop INFO lines of these loggers: they write one for every request or event.
    for chatty in ("aiohttp.access", "kopf.objects"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # Silence the lock's logger: it logs a traceback for every lost race, and the elector logs the important
    # failures itself.
    logging.getLogger("kubernetes.aio.leaderelection").setLevel(logging.CRITICAL)
