"""Writes amounts as Kubernetes quantities."""

from __future__ import annotations

from convoy_controllers.placement.requests import PODS, Amounts


def quantities(amounts: Amounts) -> dict[str, str]:
    """Return thousandths of each resource's unit as quantities, without the number of pods."""
    return {
        name: f"{amount}m" if amount % 1000 else str(amount // 1000)
        for name, amount in sorted(amounts.items())
        if name != PODS
    }
