"""Chromium for tests of the dashboard."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

WAIT = 60.0


def eventually(check: Callable[[], Any], seconds: float = WAIT, what: str = "") -> Any:
    """Wait until `check` returns a true value, and return that value."""
    deadline, last = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        try:
            if found := check():
                return found
        except Exception as error:
            last = error
        time.sleep(0.05)  # Wait between two checks.
    pytest.fail(f"not within {seconds} s: {what or check} {last or ''}")


class Browser:
    """Chromium. Tests can read its requests and its console messages."""

    def __init__(self, folder: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
        for flag in (
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={folder}", "--window-size=1280,900", "--force-prefers-reduced-motion",
        ):  # fmt: skip
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = Service(shutil.which("chromedriver") or "/usr/bin/chromedriver")
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_page_load_timeout(60)

    def open(self, url: str) -> None:
        self.driver.get(url)

    def size(self, width: int, height: int = 900) -> None:
        """Set the size of the window in pixels."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def dark(self, dark: bool) -> None:
        """Set the preferred colour scheme of the system to dark or light."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    @property
    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait_for_text(self, text: str, seconds: float = WAIT) -> None:
        """Wait until the page contains the text."""
        eventually(lambda: text in self.text, seconds, f"{text!r} in the page")

    def row(self, key: str) -> list[str]:
        """Return the texts of the cells in the row with this key."""
        script = (
            "const found = document.querySelector(`tr[data-key='${arguments[0]}']`);"
            "return found ? [...found.children].map((cell) => cell.innerText.trim()) : [];"
        )
        return list(self.driver.execute_script(script, key))

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def console_errors(self) -> list[str]:
        """Return the console messages of level WARNING or SEVERE that are new since the last call."""
        return [
            one["message"] for one in self.driver.get_log("browser") if one["level"] in ("WARNING", "SEVERE")
        ]

    def requested_urls(self) -> set[str]:
        """Return the URLs that the browser requested since the last call."""
        found = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.add(message["params"]["request"]["url"])
            elif message["method"] == "Network.webSocketCreated":
                found.add(message["params"]["url"])
        return found

    def save_screenshot(self, path: Path) -> None:
        self.driver.save_screenshot(str(path))
