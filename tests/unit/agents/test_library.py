from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from convoy_agents.csi import library, mounts
from convoy_agents.csi.library import LibraryError, Sources


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    sources = Sources(tmp_path / "image" / "w", tmp_path / "image" / "c", tmp_path / "image" / "d")
    for path in (
        "w/__init__.py",
        "w/launcher/convoy_launch.py",
        "w/runtime/job.py",
        "w/engines/e.py",
        "w/data/loader.py",
        "c/__init__.py",
        "c/dcp.py",
        "c/cli/show.py",
        "d/__init__.py",
        "d/python.py",
    ):
        (tmp_path / "image" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "image" / path).write_text(f"# {path}\n")
    return sources


def test_the_library_is_named_after_its_content_and_created_once(tmp_path: Path, sources: Sources) -> None:
    first = library.prepare(tmp_path, sources)
    made = (first / "convoy_launch.py").stat().st_ino
    assert library.prepare(tmp_path, sources) == first
    assert (first / "convoy_launch.py").stat().st_ino == made
    (sources.workloads / "runtime" / "job.py").write_text("# changed\n")
    second = library.prepare(tmp_path, sources)
    assert second != first
    assert not first.exists()


def test_an_interrupted_preparation_is_restarted(tmp_path: Path, sources: Sources) -> None:
    name = library.prepare(tmp_path, sources).rename(tmp_path / "elsewhere")
    left = tmp_path / f"{library.PREFIX}whatever.new"
    left.mkdir()
    (left / "half").write_text("")
    again = library.prepare(tmp_path, sources)
    assert sorted(path.name for path in again.iterdir()) == sorted(path.name for path in name.iterdir())
    assert [path.name for path in tmp_path.glob("lib-*")] == [again.name]


def test_pods_share_one_copy_of_the_library(tmp_path: Path, sources: Sources) -> None:
    shelf = library.prepare(tmp_path, sources)
    library.link(shelf, tmp_path / "pod")
    assert (tmp_path / "pod/convoy_launch.py").samefile(shelf / "convoy_launch.py")
    assert not (tmp_path / "pod/convoy_workloads/engines").exists()
    assert (tmp_path / "pod/convoy_workloads/data/loader.py").exists()
    assert sorted(path.name for path in (tmp_path / "pod/convoy").iterdir()) == ["__init__.py", "dcp.py"]
    read = [path.name for path in (tmp_path / "pod/convoy_commands").iterdir()]
    assert sorted(read) == ["__init__.py", "python.py"]


def test_the_library_is_copied_if_hard_links_fail(
    tmp_path: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = library.prepare(tmp_path, sources)
    monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError(18, "cross-device")))
    library.link(shelf, tmp_path / "pod")
    copy = tmp_path / "pod/convoy_launch.py"
    assert copy.read_text() == "# w/launcher/convoy_launch.py\n"
    assert not copy.samefile(shelf / "convoy_launch.py")


def test_a_missing_launcher_is_named(tmp_path: Path, sources: Sources) -> None:
    (sources.workloads / "launcher" / "convoy_launch.py").unlink()
    with pytest.raises(LibraryError, match=r"launcher/convoy_launch\.py"):
        library.prepare(tmp_path, sources)


def test_locating_the_sources_does_not_import_the_sources() -> None:
    script = (
        "import sys; from convoy_agents.csi import library; found = library.installed(); "
        "assert (found.workloads / 'launcher' / 'convoy_launch.py').is_file(), found; "
        "assert (found.convoy / '__init__.py').is_file(), found; "
        "assert not {'convoy_workloads', 'convoy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_escapes_in_the_mount_table_are_decoded() -> None:
    text = (
        "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw\n37 35 0:1 / / ro - tmpfs t rw\n"
    )
    assert mounts.table(text) == [mounts.Mount("/mnt1", "/mnt 2", "ext3"), mounts.Mount("/", "/", "tmpfs")]


def test_the_own_mount_table_can_be_read() -> None:
    assert "/" in {entry.target for entry in mounts.table()}


def test_unmounting_a_folder_without_mount_is_no_error(tmp_path: Path) -> None:
    assert mounts.unmount(tmp_path / "nothing") is False
