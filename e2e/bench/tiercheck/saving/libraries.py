"""Libraries of other projects that the bench compares with."""

from __future__ import annotations

DLROVER, RESILIENCY = "DLRover flash checkpoint", "nvidia-resiliency-ext local checkpoint"
LIBRARIES = {
    DLROVER: ("dlrover==0.6.1", "psutil==7.2.1"),
    RESILIENCY: ("nvidia-resiliency-ext==0.4.1",),
}
"""Pip requirements of each library, by row name. The environment already has all other packages that a save
to memory imports.
"""
