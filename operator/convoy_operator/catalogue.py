"""Installation of the Engines that ship with the operator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog
import yaml
from pydantic import ValidationError

from convoy_controllers.resources import ENGINES
from convoy_crds.engine import Engine
from convoy_operator import errors
from convoy_operator.gateway import ApiGateway
from convoy_operator.limits import backoff

log = structlog.get_logger(__name__)


def read(folder: Path) -> list[Engine]:
    """Return the Engines in the folder's YAML files; log and skip a file that holds no valid Engine."""
    found: list[Engine] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            found.append(Engine.model_validate(yaml.safe_load(path.read_text())))
        except (OSError, yaml.YAMLError, ValidationError) as error:
            log.error("file holds no valid Engine, skipped", file=path.name, error=str(error))
    return found


async def install(gateway: ApiGateway, folder: Path) -> None:
    """Apply the folder's Engines by server-side apply.

    Retry each Engine until the API server accepts it. Skip an Engine that the API server rejects with
    Invalid or Forbidden.
    """
    for engine in read(folder):
        name = engine.metadata.name
        body = {"metadata": {"name": name}, "spec": engine.spec.to_dict()}
        attempt = 0
        while True:
            try:
                await gateway.apply(ENGINES, None, name, body)
            except (errors.Invalid, errors.Forbidden) as fault:
                log.error("API server rejected an Engine, it is not installed", engine=name, error=str(fault))
                break
            except errors.ApiError as fault:
                wait = backoff(attempt, 0.5, 60.0)
                log.warning(
                    "applying an Engine failed, will retry",
                    engine=name,
                    error=str(fault),
                    retry_seconds=round(wait, 1),
                )
                await asyncio.sleep(wait)
                attempt += 1
            else:
                log.info("Engine applied", engine=name)
                break
