"""Names that torch writes into its JSON files without escapes.

The host trace has a name as the program gave it, and Kineto escapes no quotes: after
`record_function('say "hi"')` neither file is JSON (pytorch/pytorch#146900, pytorch/kineto#336 and #988).
"""

from __future__ import annotations

import json
import re

_BEGIN = re.compile(rb'"name": ?"')
_END = re.compile(rb'"(?=, ?"(?:ctrl_deps|type|id|pid|ph|cat)":|[ \t]*(?:\}[ \t]*)?(?:,[ \t]*)?\r?\n)')
"""The end of a name: the field that torch writes next, or the end of the line."""
_ESCAPED = re.compile(rb'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')


def escape_names(data: bytes) -> bytes:
    """Return the file with each invalid name escaped. Bytes that are no UTF-8 become U+FFFD.

    A name that has an invalid escape is taken literally, with all of its backslashes.
    """
    parts: list[bytes] = []
    position = 0
    # Searches never go back, so the time is linear in the size of the file.
    while (begin := _BEGIN.search(data, position)) and (end := _END.search(data, begin.end())):
        name = data[begin.end() : end.start()]
        parts += [data[position : begin.end()], name if _valid(name) else _escape(name)]
        position = end.start()
    return b"".join([*parts, data[position:]])


def _valid(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return _ESCAPED.fullmatch(name) is not None


def _escape(name: bytes) -> bytes:
    return json.dumps(name.decode("utf-8", "replace"), ensure_ascii=False)[1:-1].encode()
