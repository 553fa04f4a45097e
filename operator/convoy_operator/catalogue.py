"""Applies the Engines that were installed with the operator."""

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
    """The Engines of the folder's files; a file that holds none is logged and passed over."""
    found: list[Engine] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            found.append(Engine.model_validate(yaml.safe_load(path.read_text())))
        except (OSError, yaml.YAMLError, ValidationError) as error:
            log.error("not an Engine", file=path.name, error=str(error))
    return found


async def install(gateway: ApiGateway, folder: Path) -> None:
    """Applies them by server-side apply, until the API server has taken each or says it never will."""
    for engine in read(folder):
        name = engine.metadata.name
        body = {"metadata": {"name": name}, "spec": engine.spec.to_dict()}
        attempt = 0
        while True:
            try:
                await gateway.apply(ENGINES, None, name, body)
            except (errors.Invalid, errors.Forbidden) as fault:
                log.error("Engine refused", engine=name, error=str(fault))
                break
            except errors.ApiError as fault:
                wait = backoff(attempt, 0.5, 60.0)
                log.warning("Engine not applied", engine=name, error=str(fault), retry_seconds=round(wait, 1))
                await asyncio.sleep(wait)
                attempt += 1
            else:
                log.info("Engine applied", engine=name)
                break
