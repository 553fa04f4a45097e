"""Checks the parameters of a job before the training starts."""

from __future__ import annotations

from typing import Any

from convoy_workloads.runtime.errors import ParamsError


def check_params(params: Any, given: dict[str, Any]) -> Any:
    """Return the result of calling `params` with the parameters `given` (see `join`). Raises ParamsError if
    it rejects them.
    """
    if params is None:
        return given
    try:
        return params.model_validate(given) if hasattr(params, "model_validate") else params(**given)
    except (ValueError, TypeError) as error:
        raise ParamsError(str(error)) from error
