"""The measurement behind `python -m e2e.bench dashboard`: 500 jobs in a browser.

The name of the file keeps it out of normal test runs.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.dashboard import samples
from tests.integration.dashboard.conftest import Browser, Cluster, Starter, eventually
from tests.integration.dashboard.viewers import Viewers

JOBS, PAINTS, UPDATES = 500, 10, 100
VIEWERS = (10, 30)
SETTLE_SECONDS, LOAD_SECONDS = 5.0, 20.0
WRITES_PER_SECOND = 4.0
"""Number of progress writes per second, as many as the operator writes for all jobs together."""
PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
WATCH = """
window.rowsAt = null; window.seen = {};
new MutationObserver(() => {
  const jobs = "section[aria-labelledby=jobs] tbody ";
  if (window.rowsAt === null && document.querySelectorAll(jobs + "tr").length >= 50)
    window.rowsAt = performance.now();
  for (const cell of document.querySelectorAll(jobs + "td[data-label=Ready]"))
    if (!(cell.innerText in window.seen)) window.seen[cell.innerText] = Date.now();
}).observe(document, {subtree: true, childList: true, characterData: true});
"""


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def updates(cluster: Cluster, browser: Browser, name: str, rng: random.Random) -> list[float]:
    """Change a job several times. Return the milliseconds from each write until the page shows it."""
    found = []
    for number in range(UPDATES):
        mark = f"{name}/{number}"
        start = time.time()
        cluster.status("trainingjobs", "bench-499", {"ready": mark}, "default")
        eventually(lambda mark=mark: browser.run("return window.seen[arguments[0]]", mark), 60)
        found.append(browser.run("return window.seen[arguments[0]]", mark) - start * 1000)
        # Use random delays, so that the writes fall into all phases of the page's update interval.
        time.sleep(rng.uniform(0.6, 1.4))
    return found


class Load:
    """Measures the processor time and the memory of the dashboard's process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._spent, self._start = cpu_seconds(pid), time.monotonic()

    def figures(self) -> dict[str, float]:
        """Return the used share of a processor since the start of the measurement, and the current memory."""
        share = (cpu_seconds(self._pid) - self._spent) / (time.monotonic() - self._start)
        return {"cores": share, "memory_mb": memory_mb(self._pid)}


def load(pid: int) -> dict[str, float]:
    """Measure the load for `LOAD_SECONDS`, after a pause in which the effects of earlier actions end."""
    time.sleep(SETTLE_SECONDS)
    found = Load(pid)
    time.sleep(LOAD_SECONDS)
    return found.figures()


@contextmanager
def progress(cluster: Cluster, rng: random.Random) -> Iterator[None]:
    """Write progress of other jobs at the operator's rate. Fail if this rate is not reached."""
    ended, start = threading.Event(), time.monotonic()
    written = 0

    def write() -> None:
        nonlocal written
        while not ended.wait(start + written / WRITES_PER_SECOND - time.monotonic()):
            step = samples.running(5000 + written, 50_000)
            name = f"bench-{rng.randrange(499):03d}"
            cluster.status("trainingjobs", name, {"progress": step}, "default")
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
    rate = written / (time.monotonic() - start)
    assert rate > 0.9 * WRITES_PER_SECOND, f"only {rate:.1f} changes a second were written"


def fill(cluster: Cluster) -> None:
    """Create 500 running jobs."""
    for number in range(JOBS):
        body = samples.training_job(f"bench-{number:03d}")
        body["status"] = {
            "phase": "Running",
            "reason": "Training",
            "message": "incarnation 1: 2 ranks run",
            "progress": samples.running(number, 5000),
            "checkpoint": samples.checkpoint(number, minutes=1),
            "goodput": samples.ledger(productive=300 + number, start=30),
        }
        cluster.make("trainingjobs", body)


def first_contents(browser: Browser, url: str) -> tuple[list[float], list[float]]:
    """Load the page several times without the browser's cache. Return the milliseconds to the first paint
    and to the first rows.
    """
    browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    contents, rows = [], []
    for _ in range(PAINTS):
        browser.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
        browser.open(url)
        rows.append(eventually(lambda: browser.run("return window.rowsAt")))
        contents.append(eventually(lambda: browser.run(PAINT)))
    return contents, rows


def test_measure(empty: Cluster, starter: Starter, browser: Browser) -> None:
    """Run the measurement, and write the results to the file that the variable CONVOY_BENCH_OUT names."""
    rng = random.Random(1)
    fill(empty)
    process = starter()
    pid = process.process.pid
    loads = {"rest": load(pid)}
    contents, rows = first_contents(browser, process.url)
    eventually(lambda: browser.row("default/bench-499"))
    quiet = updates(empty, browser, "quiet", rng)
    with progress(empty, rng):
        one = Load(pid)
        busy = updates(empty, browser, "busy", rng)
        loads["1 browser"] = one.figures()
    browser.open("about:blank")
    crowd: list[float] = []
    # Measure the largest number of viewers last, because a process seldom returns memory.
    for number in VIEWERS:
        with Viewers(process.url, number) as viewers, progress(empty, rng):
            loads[f"{number} viewers"] = load(pid)
            assert viewers.messages >= number, "the viewers received changes"
            assert not viewers.lost, "all of them stayed"
            if number == VIEWERS[-1]:
                browser.open(process.url)
                eventually(lambda: browser.row("default/bench-499"))
                crowd = updates(empty, browser, "crowd", rng)
    figures = {
        "first_contents_ms": contents,
        "first_rows_ms": rows,
        "quiet_ms": quiet,
        "busy_ms": busy,
        "crowd_ms": crowd,
        "loads": loads,
    }
    Path(os.environ["CONVOY_BENCH_OUT"]).write_text(json.dumps(figures))
