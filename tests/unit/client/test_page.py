"""Tests that docs/python-client.md names exactly the public names of the client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from convoy import client
from convoy.client import Client
from convoy.client.api import Api
from convoy_crds.kinds import KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "python-client.md").read_text()


class Nothing:
    """A fake connection that does nothing."""

    class configuration:
        host = "https://nowhere"


def test_the_table_of_methods_matches_the_client() -> None:
    connection: Any = Nothing()
    one = Client(api=Api(connection, "team"))
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", PAGE, re.M)
    collections = {name: value for name, value in vars(one).items() if name != "api"}
    assert {name for name, _, _ in rows} == set(collections)
    assert sorted(kind for _, kind, _ in rows) == sorted(one.name for one in KINDS)
    for name, kind, methods in rows:
        found = collections[name]
        assert found._kind.name == kind
        public = {word for word in dir(found) if not word.startswith("_")}
        assert set(re.findall(r"`(\w+)`", methods)) == public, name


def test_type_checkers_know_the_collection_of_each_kind() -> None:
    connection: Any = Nothing()
    one = Client(api=Api(connection, "team"))
    declared = get_type_hints(Client)
    for kind in KINDS:
        made = type(getattr(one, kind.attribute))
        wanted = f"{kind.attribute}: {made.__name__}"
        assert kind.attribute in declared, f"class Client needs the line {wanted}[{kind.name}]"
        found = declared[kind.attribute]
        assert (get_origin(found) or found) is made, wanted
        assert get_args(found) in ((), (kind.model,)), wanted


def test_the_page_names_every_error() -> None:
    errors = {name for name in client.__all__ if isinstance(getattr(client, name), type)}
    errors = {name for name in errors if issubclass(getattr(client, name), Exception)}
    assert len(errors) > 10
    for name in errors:
        assert f"`{name}`" in PAGE or f"`convoy.client.{name}`" in PAGE, name
