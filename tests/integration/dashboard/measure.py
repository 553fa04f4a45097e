"""What `python -m e2e.bench dashboard` runs: 500 jobs in a browser, timed there.

Named so that no run of tests takes it.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path

from tests.integration.dashboard import samples
from tests.integration.dashboard.conftest import Browser, Cluster, Starter, eventually

JOBS, PAINTS, UPDATES = 500, 10, 100
WRITES_PER_SECOND = 4.0
"""What the operator writes of all jobs' progress together."""
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
    """Resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def updates(cluster: Cluster, browser: Browser, name: str, rng: random.Random) -> list[float]:
    """Milliseconds from before a write to its sight in the page."""
    found = []
    for number in range(UPDATES):
        mark = f"{name}/{number}"
        began = time.time()
        cluster.status("trainingjobs", "bench-499", {"ready": mark}, "default")
        eventually(lambda mark=mark: browser.run("return window.seen[arguments[0]]", mark), 60)
        found.append(browser.run("return window.seen[arguments[0]]", mark) - began * 1000)
        time.sleep(rng.uniform(0.6, 1.4))  # at all phases of the page's own rhythm
    return found


def test_measure(empty: Cluster, starter: Starter, browser: Browser) -> None:
    """Writes the figures to the file that CONVOY_BENCH_OUT names."""
    rng = random.Random(1)
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
        empty.make("trainingjobs", body)
    process = starter()
    browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    paints, contents = [], []
    for _ in range(PAINTS):
        browser.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
        browser.open(process.url)
        paints.append(eventually(lambda: browser.run("return window.rowsAt")))
        contents.append(eventually(lambda: browser.run(PAINT)))
    eventually(lambda: browser.row("default/bench-499"))
    quiet = updates(empty, browser, "quiet", rng)
    ended = threading.Event()

    def progress() -> None:
        step = 5000
        while not ended.wait(1 / WRITES_PER_SECOND):
            step += 1
            name = f"bench-{rng.randrange(499):03d}"
            empty.status("trainingjobs", name, {"progress": samples.running(step, 50_000)}, "default")

    writer = threading.Thread(target=progress)
    writer.start()
    before, began = cpu_seconds(process.process.pid), time.monotonic()
    try:
        busy = updates(empty, browser, "busy", rng)
    finally:
        ended.set()
        writer.join()
    share = (cpu_seconds(process.process.pid) - before) / (time.monotonic() - began)
    figures = {
        "first_contents_ms": contents,
        "first_rows_ms": paints,
        "quiet_ms": quiet,
        "busy_ms": busy,
        "cpu_share": share,
        "memory_mb": memory_mb(process.process.pid),
    }
    Path(os.environ["CONVOY_BENCH_OUT"]).write_text(json.dumps(figures))
