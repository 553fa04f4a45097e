"""Base class of the parts of the soak: training, serving, spot nodes, Experiments and sweeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from kubernetes import client
from urllib3.exceptions import HTTPError

from convoy_workloads.bench.figures import Figures
from e2e.cluster.errors import ClusterError

NO_ANSWER = (client.ApiException, HTTPError, ClusterError)
"""Errors of a request to an API server that is down."""


class Part(ABC):
    """Objects of some kind, which the soak creates, checks and deletes."""

    def __init__(self, report: Callable[[str], None]) -> None:
        """`report`: prints a line about the progress."""
        self.unexpected: list[str] = []
        """One text for each thing that should not have happened."""
        self.report_progress = report

    @abstractmethod
    def check(self, create: bool) -> None:
        """Look at the objects once. With `create`, also create the next ones that are due. Raises one of
        NO_ANSWER while the API server is down.
        """

    @abstractmethod
    def at_rest(self) -> bool:
        """Return True if every object that was created has ended as its spec says, or has been recorded as
        unexpected.
        """

    @abstractmethod
    def delete(self) -> None:
        """Delete all objects, and wait until they are gone."""

    @abstractmethod
    def record(self, found: Figures) -> None:
        """Add the part's own figures."""

    def wrong(self, text: str) -> None:
        """Record something that should not have happened."""
        self.report_progress(f"unexpected: {text}")
        self.unexpected.append(text)
