"""Settings of hypothesis: no test fails because the machine is busy."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("convoy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# CI uses hypothesis' own profile, which draws the same examples every time and has no deadline either.
if not os.environ.get("CI"):
    settings.load_profile("convoy")
