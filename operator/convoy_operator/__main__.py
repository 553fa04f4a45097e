"""The command `convoy-operator`: it runs one replica of the operator, configured by environment variables."""

from __future__ import annotations

import asyncio
import sys

from convoy_operator import app, log
from convoy_operator.settings import SettingError, from_environment


def main() -> None:
    """Run one replica of the operator. Exit with 0 after SIGTERM, 1 after a failure or a lost Lease, 2 for
    an invalid setting.
    """
    try:
        settings = from_environment()
        log.configure(settings.log_level)
    except (SettingError, ValueError) as error:
        sys.stderr.write(f"convoy-operator: {error}\n")
        sys.exit(2)
    sys.exit(asyncio.run(app.run(settings)))


if __name__ == "__main__":
    main()
