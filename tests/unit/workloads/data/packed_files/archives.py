"""Makes tar archives for tests, and reads them with the standard library."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
FOREIGN = (tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)


class Entry(NamedTuple):
    """An entry of an archive."""

    name: str
    type: bytes = tarfile.REGTYPE
    data: bytes = b""
    link: str = ""


_PARTS = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60
).filter(lambda text: text not in (".", ".."))
NAMES = st.tuples(st.sampled_from(["", "./"]), st.lists(_PARTS, min_size=1, max_size=4)).map(
    lambda found: found[0] + "/".join(found[1])
)


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    """Draw entries. Names repeat, and hard links name a file that is before them."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4))
    found: list[Entry] = []
    files: set[str] = set()
    for _ in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from(names))
        kind = draw(st.sampled_from([tarfile.REGTYPE, tarfile.REGTYPE, tarfile.LNKTYPE, *FOREIGN]))
        if kind == tarfile.LNKTYPE and files - {plain(name)}:
            found.append(Entry(name, kind, link=draw(st.sampled_from(sorted(files - {plain(name)})))))
            files.add(plain(name))
        elif kind in (tarfile.REGTYPE, tarfile.LNKTYPE):
            found.append(Entry(name, data=draw(st.binary(max_size=1100))))
            files.add(plain(name))
        else:
            found.append(Entry(name, kind, link="somewhere" if kind == tarfile.SYMTYPE else ""))
            files.discard(plain(name))
    return found


def plain(name: str) -> str:
    """Return a name without the prefix `./`."""
    return name.removeprefix("./")


def made(listed: Sequence[Entry], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return an archive. Raises ValueError if the format has no room for a name."""
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8") as archive:
        for one in listed:
            header = tarfile.TarInfo(one.name)
            header.type, header.size, header.linkname = one.type, len(one.data), one.link
            archive.addfile(header, BytesIO(one.data))
    return buffer.getvalue()


def oracle(path: Path) -> dict[str, bytes]:
    """Return the files that the standard library finds: the last entry of a name counts."""
    found: dict[str, bytes] = {}
    with tarfile.open(path, encoding="utf-8") as archive:
        for one in archive:
            name = plain(one.name)
            if one.islnk():
                # The standard library looks for the exact name; here `./a` and `a` are one file.
                data = found[plain(one.linkname)]
            elif one.isreg():
                opened = archive.extractfile(one)
                assert opened is not None
                data = opened.read()
            else:
                found.pop(name, None)
                continue
            found.pop(name, None)
            found[name] = data
    return found
