"""The settings of a serving rank, read from the environment variables that the pod and the launcher set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from convoy_crds import terms
from convoy_workloads.runtime.errors import ParamsError

DEFAULT_PORT = 8080


@dataclass(frozen=True)
class Settings:
    """The settings that all engines have in common. Times are in seconds."""

    port: int = DEFAULT_PORT
    host: str = "0.0.0.0"  # noqa: S104 - a pod is reached at its own address, whichever that is
    drain_seconds: float = 30.0
    endpoint_lag_seconds: float = 3.0
    model_path: Path | None = None
    """Folder of the model; None if the engine brings its own model."""
    token_file: Path | None = None
    """File with the bearer token of requests; None if requests need no token."""
    admin_socket: Path | None = None
    """Path of the Unix socket for the admin routes; None to choose a path below the temporary folder."""


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Return the settings. Raises ParamsError if a variable is malformed."""

    def path(name: str) -> Path | None:
        return Path(environment[name]) if environment.get(name) else None

    def seconds(name: str, default: float) -> float:
        value = _number(environment, name, default)
        if not 0 <= value <= 86_400:
            raise ParamsError(f"{name} must be between 0 and 86400 seconds, is {value:g}")
        return value

    port = _number(environment, terms.ENV_SERVING_PORT, DEFAULT_PORT)
    if port != int(port) or not 1 <= port <= 65_535:
        raise ParamsError(f"{terms.ENV_SERVING_PORT} must be a port from 1 to 65535, is {port:g}")
    default = Settings()
    return Settings(
        port=int(port),
        host=environment.get(terms.ENV_SERVING_HOST) or default.host,
        drain_seconds=seconds(terms.ENV_DRAIN_SECONDS, default.drain_seconds),
        endpoint_lag_seconds=seconds(terms.ENV_ENDPOINT_LAG_SECONDS, default.endpoint_lag_seconds),
        model_path=path(terms.ENV_MODEL_PATH),
        token_file=path(terms.ENV_AUTH_TOKEN_FILE),
        admin_socket=path(terms.ENV_ADMIN_SOCKET),
    )


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or str(default)
    try:
        return float(text)
    except ValueError as error:
        raise ParamsError(f"{name} must be a number, is {text!r}") from error
