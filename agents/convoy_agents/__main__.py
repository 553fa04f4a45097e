"""The command `convoy-agent`, which runs the node agent. Environment variables contain all settings
(settings.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import structlog

from convoy_agents import allocator
from convoy_agents.csi.library import LibraryError
from convoy_agents.daemon import Agent
from convoy_agents.settings import Settings, SettingsError


def main() -> None:
    """Run the agent until it receives SIGTERM or SIGINT. Exit with code 1 if a component fails, and with
    code 2 if a setting is invalid.
    """
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as error:
        print(f"convoy-agent: {error}", file=sys.stderr)
        sys.exit(2)
    configure_logging(settings.log_level)
    # Set the umask, so that the modes of new files and folders do not depend on the container's umask. Where
    # the agent needs other modes, it calls chmod.
    os.umask(0o022)
    allocator.keep_freed_memory()
    try:
        asyncio.run(_run(settings))
    except (OSError, LibraryError) as error:
        structlog.get_logger().error("agent failed", why=str(error))
        sys.exit(1)


def configure_logging(level: str) -> None:
    """Write logs to stdout, one JSON object per line: time in UTC, level, event, key-value pairs."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
    )


async def _run(settings: Settings) -> None:
    agent = Agent(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.leave, signal.Signals(number).name)
    await agent.run()


if __name__ == "__main__":
    main()
