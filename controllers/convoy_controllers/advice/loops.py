"""T08: a feedback loop has a rule that stops it."""

from __future__ import annotations

from collections.abc import Iterator

from convoy_controllers.advice.rule import Found, Rule
from convoy_controllers.advice.settings import settings
from convoy_controllers.advice.subject import Subject
from convoy_crds.advice import Severity

_STOPS = frozenset(
    {
        "steps",
        "epochs",
        "epoch",
        "iterations",
        "iters",
        "updates",
        "episodes",
        "rounds",
        "patience",
        "deadline",
    }
)
"""Words of settings that end a program."""
_REMEDY = "set activeDeadlineSeconds, or pass the program a number of steps, such as --steps=10000"


def stops(subject: Subject) -> bool | None:
    """Return True if a job has a rule that ends it, False if it has none; None if this cannot be judged."""
    if subject.deadline is not None or any(_STOPS & set(one.words) for one in settings(subject)):
        return True
    schemas = [subject.schema(role) for role in subject.roles if role.engine is not None]
    if any(schema is None for schema in schemas):
        return None
    return any(_STOPS & {word for name in schema for word in name.split("_")} for schema in schemas if schema)


def _check(subject: Subject) -> Iterator[Found]:
    helpers = [role for role in subject.roles if role.independent]
    if helpers and not subject.repeated and stops(subject) is False:
        yield Found(
            "spec.activeDeadlineSeconds",
            f"the trainers and the helpers of role {helpers[0].name} feed each other, and nothing ends them",
            _REMEDY,
        )
    source = subject.around.followed
    if source is not None and stops(source) is False and _mentions(source, subject.name):
        yield Found(
            "spec.model.checkpoint.follow",
            f"TrainingJob {source.name} learns from this service, which follows its checkpoints, and nothing "
            "ends the loop",
            f"in TrainingJob {source.name}: {_REMEDY}",
        )


def _mentions(subject: Subject, name: str) -> bool:
    """Return True if a setting of a job has the address of the service `name`."""
    return any(f"//{name}" in one.value for one in settings(subject))


T08 = Rule("T08", "Feedback loop without an end", Severity.WARNING, _check)
