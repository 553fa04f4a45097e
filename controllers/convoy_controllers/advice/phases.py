"""T06: a pod trains or serves, and never both."""

from __future__ import annotations

import re
from collections.abc import Iterator

from convoy_controllers.advice.json_values import text
from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.settings import command_line
from convoy_controllers.advice.subject import Container, Subject
from convoy_crds import servingjob
from convoy_crds.advice import Severity

_SERVES = re.compile(
    r"\b(?:vllm|tritonserver|torchserve|text-generation-(?:launcher|inference))\b"
    r"|\b(?:uvicorn|gunicorn|ollama|sglang|mlserver)\b"
    r"|(?:^|[\s/;&])(?:\w+[_-])?serv(?:e|er|ing)\.py\b"
)
"""Matches a command or an image that answers requests."""
_TRAINS = re.compile(
    r"\b(?:torchrun|deepspeed|accelerate launch|torch\.distributed\.run)\b"
    r"|(?:^|[\s/;&])(?:\w+[_-])?train(?:er|ing)?\.py\b"
)
"""Matches a command that trains."""


def _program(container: Container) -> str:
    """Return the command line of a container, or its image if the image's own program runs."""
    return command_line(container) or text(container.body.get("image"))


def _check(subject: Subject) -> Iterator[Found]:
    serving = subject.kind == servingjob.KIND.name
    pattern = _TRAINS if serving else _SERVES
    for role in subject.roles:
        programs = [_program(one) for one in role.containers()]
        # The pods of an Independent role may serve the group, if they do not train too.
        if role.independent and not any(map(_TRAINS.search, programs)):
            continue
        for container, program in zip(role.containers(), programs, strict=True):
            found = pattern.search(program)
            if found is None:
                continue
            word = found[0].strip(" /;&")
            yield Found(
                f"{container.path}.{'command' if command_line(container) else 'image'}",
                f"role {role.name} {'trains' if serving else 'serves requests'} ({word}) in the pods of a "
                f"{subject.kind}: the two phases need other devices, restart each other, and hold back the "
                "devices while they wait",
                "train in a TrainingJob, and serve its checkpoints in a ServingJob (spec.model.checkpoint)",
            )


T06 = Rule("T06", "Training and serving in one pod", Severity.WARNING, _check)
