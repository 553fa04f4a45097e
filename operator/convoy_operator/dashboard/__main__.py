"""The command `convoy-dashboard`, which runs the dashboard. Environment variables configure it."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from convoy_operator import log
from convoy_operator.dashboard.settings import from_environment
from convoy_operator.settings import SettingError


def main() -> None:
    """Run the dashboard. Exit with 0 after SIGTERM, 1 after a failure, 2 for an invalid setting."""
    try:
        settings = from_environment()
        log.configure(settings.log_level)
    except (SettingError, ValueError) as error:
        sys.stderr.write(f"convoy-dashboard: {error}\n")
        sys.exit(2)
    # Set the variable before NiceGUI is imported, because NiceGUI reads it on import. Its default is a folder
    # in the working directory.
    os.environ.setdefault("NICEGUI_STORAGE_PATH", str(Path(tempfile.gettempdir()) / "nicegui"))
    from convoy_operator.dashboard import server  # noqa: PLC0415

    sys.exit(asyncio.run(server.run(settings)))


if __name__ == "__main__":
    main()
