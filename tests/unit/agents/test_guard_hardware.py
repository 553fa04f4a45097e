"""Tests of the hardware identity that the agent reads from the files of NVIDIA's kernel module."""

from __future__ import annotations

from pathlib import Path

from convoy_agents.guard.hardware import detect

INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 345
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.5e.00.01
Bus Type: \t PCIe
"""
VERSION = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
ONE = "GPU-11111111-2222-3333-4444-555555555555"
TWO = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


def machine(root: Path, *uuids: str, version: str = VERSION) -> Path:
    for number, uuid in enumerate(uuids):
        folder = root / "gpus" / f"0000:{number:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(uuid=uuid))
    (root / "version").write_text(version)
    return root


def test_detect_reports_all_accelerators_and_their_driver(tmp_path: Path) -> None:
    found = detect(machine(tmp_path, ONE, TWO))
    assert found.known and list(found.accelerators) == [ONE, TWO] and found.driver == "550.54.15"


def test_the_driver_version_of_the_open_module_is_parsed(tmp_path: Path) -> None:
    words = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (dvs)\n"
    assert detect(machine(tmp_path, ONE, version=words)).driver == "570.86.10"


def test_a_node_without_accelerators_is_known(tmp_path: Path) -> None:
    found = detect(tmp_path / "nowhere")
    assert found.known and not found.accelerators and found.driver == ""


def test_a_node_with_a_gpu_without_uuid_is_unknown(tmp_path: Path) -> None:
    unknown = "GPU-????????-????-????-????-????????????"
    assert not detect(machine(tmp_path, ONE, unknown)).known
