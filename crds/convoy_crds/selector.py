"""The node selector of several kinds: a label selector in the form that Kubernetes uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.meta import Model, Rule, validated

_Key = Annotated[str, Field(min_length=1, max_length=317)]
_Value = Annotated[str, Field(max_length=63)]


def some_label(field: str, shown: str = "") -> Rule:
    """Return the rule that the node selector in `field`, which must be present, is not empty. `shown` is the
    field's name in the message, if it differs.
    """
    empty = " && ".join(
        f"(!has(self.{field}.{name}) || size(self.{field}.{name}) == 0)"
        for name in ("matchLabels", "matchExpressions")
    )
    message = f"{shown or field} must select by at least one label: an empty selector selects every node"
    return Rule(f"!({empty})", message, f".{field}")


class Requirement(Model):
    """A requirement for the value of one label."""

    model_config = validated(
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "In and NotIn need values, Exists and DoesNotExist take none",
            ".values",
        )
    )

    key: _Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[list[_Value], Field(max_length=64)] = Field(default_factory=list)

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return True if the labels satisfy the requirement. NotIn is also satisfied if the label is
        absent, as in Kubernetes.
        """
        found = labels.get(self.key)
        if self.operator == "Exists":
            return found is not None
        if self.operator == "DoesNotExist":
            return found is None
        return (found in self.values) is (self.operator == "In")


class NodeSelector(Model):
    """Selects the nodes that satisfy all requirements. An empty selector selects every node."""

    match_labels: Annotated[dict[str, _Value], Field(max_length=64)] = Field(default_factory=dict)
    match_expressions: Annotated[list[Requirement], Field(max_length=32)] = Field(default_factory=list)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if the selector selects a node with these labels."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.holds(labels) for requirement in self.match_expressions
        )
