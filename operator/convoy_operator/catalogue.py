"""Installation of the objects that ship with the chart: the Engines, and the GuardPolicy `default`.

The leading operator applies them, because their CustomResourceDefinitions may not exist yet when Helm
installs the chart.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog
import yaml
from pydantic import ValidationError

from convoy_controllers.resources import ENGINES, GUARD_POLICIES
from convoy_crds.engine import Engine
from convoy_crds.terms import DEFAULT_POLICY, LABEL_MANAGED, OPERATOR
from convoy_operator import errors
from convoy_operator.gateway import ApiGateway, Object
from convoy_operator.limits import backoff
from convoy_operator.settings import NO_POLICY

log = structlog.get_logger(__name__)

LOWEST_PRIORITY = -1000
"""Priority of the GuardPolicy `default`. It is the lowest that a policy may have, so every policy with
another priority takes precedence.
"""


class _Loader(yaml.SafeLoader):
    """Reads a number that Helm has written, such as `1e-06`. YAML 1.1 takes one without a point for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read(folder: Path) -> list[Engine]:
    """Return the Engines in the folder's YAML files; log and skip a file that holds no valid Engine."""
    found: list[Engine] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            body = yaml.load(path.read_text(), _Loader)  # noqa: S506 - a SafeLoader
            found.append(Engine.model_validate(body))
        except (OSError, yaml.YAMLError, ValidationError) as error:
            log.error("file holds no valid Engine, skipped", file=path.name, error=str(error))
    return found


async def install(gateway: ApiGateway, folder: Path) -> None:
    """Apply the folder's Engines by server-side apply. Skip an Engine that the API server rejects."""
    for engine in read(folder):
        name = engine.metadata.name
        body = {"metadata": {"name": name}, "spec": engine.spec.to_dict()}

        async def apply(name: str = name, body: dict[str, Any] = body) -> None:
            await gateway.apply(ENGINES, None, name, body)
            log.info("Engine applied", engine=name)

        await _until_accepted("Engine", name, apply)


async def install_policy(gateway: ApiGateway, mode: str) -> None:
    """Make the GuardPolicy `default` have this mode. With NO_POLICY, delete it.

    Do not change a GuardPolicy of this name that the operator has not created.
    """

    async def replace() -> None:
        known = await _policy(gateway)
        if known is not None and not is_own(known):
            log.warning(
                "GuardPolicy exists without the chart's label, so it stays unchanged",
                policy=DEFAULT_POLICY,
                label=f"{LABEL_MANAGED}={OPERATOR}",
                mode=mode,
            )
        elif mode != NO_POLICY:
            labels = {LABEL_MANAGED: OPERATOR}
            metadata = {"name": DEFAULT_POLICY, "labels": labels}
            spec = {"mode": mode, "priority": LOWEST_PRIORITY}
            body = {"metadata": metadata, "spec": spec}
            await gateway.apply(GUARD_POLICIES, None, DEFAULT_POLICY, body)
            log.info("GuardPolicy applied", policy=DEFAULT_POLICY, mode=mode)
        elif known is not None:
            await gateway.delete(GUARD_POLICIES, None, DEFAULT_POLICY, uid=known["metadata"]["uid"])
            log.info("GuardPolicy deleted", policy=DEFAULT_POLICY)

    await _until_accepted("GuardPolicy", DEFAULT_POLICY, replace)


def is_own(policy: Object) -> bool:
    """Return True if the operator has created the GuardPolicy `default`."""
    return bool((policy["metadata"].get("labels") or {}).get(LABEL_MANAGED) == OPERATOR)


async def _policy(gateway: ApiGateway) -> Object | None:
    try:
        return await gateway.get(GUARD_POLICIES, None, DEFAULT_POLICY)
    except errors.NotFound:
        return None


async def _until_accepted(kind: str, name: str, change: Callable[[], Awaitable[None]]) -> None:
    """Carry out a change of an object. Retry until the API server accepts or rejects the change.

    The API server rejects a change with Invalid or Forbidden. The object then stays as it is.
    """
    attempt = 0
    while True:
        try:
            await change()
        except (errors.Invalid, errors.Forbidden) as fault:
            log.error("API server rejected an object of the chart", kind=kind, name=name, error=str(fault))
            return
        except errors.ApiError as fault:
            wait = backoff(attempt, 0.5, 60.0)
            log.warning(
                "applying an object of the chart failed, will retry",
                kind=kind,
                name=name,
                error=str(fault),
                retry_seconds=round(wait, 1),
            )
            await asyncio.sleep(wait)
            attempt += 1
        else:
            return
