"""Saves for twenty seconds on SIGTERM, and exits with code 0."""

import signal
import sys
import time
from pathlib import Path
from typing import Any

leaving = False


def leave(*_: Any) -> None:
    global leaving  # noqa: PLW0603 - as such scripts do
    leaving = True


signal.signal(signal.SIGTERM, leave)
print("runs", flush=True)
while not leaving:
    time.sleep(0.2)
for second in range(1, 21):
    print(f"saving {second}/20", flush=True)
    time.sleep(1)
Path(f"/out/saved-{time.time():.0f}").write_text("whole")
print("saved all", flush=True)
sys.exit(0)
