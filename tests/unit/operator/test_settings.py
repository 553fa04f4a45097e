"""Tests of the settings in environment variables."""

from __future__ import annotations

import pytest

from convoy_operator.settings import SettingError, Settings, from_environment


def test_defaults_need_no_environment() -> None:
    assert from_environment({}) == Settings()


def test_values_are_read_with_their_types() -> None:
    settings = from_environment(
        {
            "CONVOY_QPS": "0",
            "CONVOY_WORKERS": "4",
            "CONVOY_POD_IP": "fd00::1",
            "CONVOY_NAMESPACE": "x",
            "OTHER": "y",
        }
    )
    assert (settings.qps, settings.workers, settings.namespace) == (0.0, 4, "x")
    assert settings.hub_address == "[fd00::1]:8471"


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({"CONVOY_QPS": "fast"}, "CONVOY_QPS"),
        ({"CONVOY_BURST": "1.5"}, "CONVOY_BURST"),
        ({"CONVOY_BURST": "-1"}, "CONVOY_BURST"),
        ({"CONVOY_WORKERS": "0"}, "CONVOY_WORKERS"),
        ({"CONVOY_RENEW_SECONDS": "9"}, "CONVOY_LEASE_SECONDS"),
        ({"CONVOY_RETRY_SECONDS": "5"}, "CONVOY_RETRY_SECONDS"),
        ({"CONVOY_CA_MAKER": "operator"}, "CONVOY_CA_MAKER"),
    ],
)
def test_a_wrong_value_is_refused_by_name(environ: dict[str, str], names: str) -> None:
    with pytest.raises(SettingError, match=names):
        from_environment(environ)
