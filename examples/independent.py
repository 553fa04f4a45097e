"""A program for an Independent role. It works in small pieces until Convoy asks it to stop.

A real program would fetch weights from rank 0 of the process group for each piece, and send its results
there.
"""

import json
import os
import signal
import time
from pathlib import Path


class Stop:
    """Convoy's request to stop the program: its node leaves, or the process group has ended."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, *_: object) -> None:
        self.asked = True


def group() -> dict:
    """Return the pods of the process group. They may have other addresses after each restart of the group."""
    file = os.environ.get("CONVOY_MEMBERS_FILE")
    return json.loads(Path(file).read_text()) if file else {"incarnation": 0, "members": []}


def main() -> None:
    """Work until the end, and report each piece."""
    stop, done = Stop(), 0
    name = f"{os.environ.get('CONVOY_ROLE', 'rollout')}-{os.environ.get('CONVOY_REPLICA', '0')}"
    pieces = int(os.environ.get("PIECES", "0"))  # 0: no end
    while not stop.asked and (not pieces or done < pieces):
        found = group()
        where = found["members"][0]["address"] if found["members"] else "unknown"
        told = f"incarnation {found['incarnation']} of the group is at {where}"
        print(f"{name}: piece {done}, {told}", flush=True)
        time.sleep(1.0)
        done += 1
    print(f"{name}: ended after {done} pieces", flush=True)


if __name__ == "__main__":
    main()
