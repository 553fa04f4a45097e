"""The choice among equal ways: a hash, so that the same ranks always take the same way."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def spread(source: int, target: int, salt: int, ways: int) -> int:
    """Return one of `ways` numbers. Neighbouring ranks get independent numbers (SplitMix64's finalizer)."""
    mixed = (source * 0x9E3779B97F4A7C15 + target * 0xC2B2AE3D27D4EB4F + salt * 0x165667B19E3779F9) & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return (mixed ^ mixed >> 31) % ways
