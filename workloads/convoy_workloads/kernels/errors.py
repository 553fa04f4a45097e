"""Errors of the kernels."""

from __future__ import annotations


class KernelError(Exception):
    """A kernel cannot be built, loaded or used. The message says why, and what to do."""


class InvalidInput(KernelError, ValueError):
    """An argument of a kernel is not valid. The message names the argument, its value and what is allowed."""
