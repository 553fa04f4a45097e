"""Tests that stores never go back in time, whatever the order of changes."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from convoy_operator.cache import Store


@dataclass(frozen=True)
class Item:
    name: str
    uid: str
    version: int
    group: str = "g"
    namespace: str = "ns"


def store() -> Store[Item]:
    return Store(index=lambda item: (item.namespace, item.group))


def test_an_older_version_does_not_replace_a_newer_one() -> None:
    items = store()
    assert items.upsert(Item("a", "1", 10))
    assert not items.upsert(Item("a", "1", 9))
    assert not items.upsert(Item("a", "1", 10))
    assert items.get("ns", "a") == Item("a", "1", 10)


def test_a_create_response_does_not_restore_a_deleted_object() -> None:
    items = store()
    items.upsert(Item("a", "1", 10))
    items.remove(Item("a", "1", 12))
    assert not items.upsert(Item("a", "1", 11))
    assert items.get("ns", "a") is None and items.by_uid("1") is None


def test_an_object_may_lose_and_regain_its_label() -> None:
    items = store()
    items.upsert(Item("a", "1", 10))
    assert items.remove(Item("a", "1", 12), final=False)
    assert not items.upsert(Item("a", "1", 11)), "an older version is ignored"
    assert items.upsert(Item("a", "1", 13)) and items.by_uid("1") == Item("a", "1", 13)
    assert not items.remove(Item("a", "1", 12), final=False), "the object came back after that LIST"
    items.replace([], 20)
    assert not items.upsert(Item("a", "1", 20)) and items.upsert(Item("a", "1", 21)), (
        "a LIST does not bring it back either"
    )
    items.remove(Item("a", "1", 21))
    assert not items.upsert(Item("a", "1", 22)), "the operator has deleted it"


def test_a_deletion_received_before_the_creation_is_kept() -> None:
    items = store()
    assert not items.remove(Item("a", "1", 12))
    assert not items.upsert(Item("a", "1", 11))


def test_deletion_of_an_old_object_keeps_its_successor() -> None:
    items = store()
    items.upsert(Item("a", "2", 20))
    items.remove(Item("a", "1", 15))
    assert items.by_uid("2") == Item("a", "2", 20)


def test_a_list_removes_absent_objects_except_newer_ones() -> None:
    items = store()
    calls: list[tuple[Item | None, Item | None, bool]] = []
    items.upsert(Item("old", "1", 5))
    items.upsert(Item("new", "2", 30))
    items.listen(lambda before, after, own: calls.append((before, after, own)))
    items.replace([Item("listed", "3", 8)], 20)
    assert {item.name for item in items} == {"new", "listed"}
    assert (Item("old", "1", 5), None, False) in calls


def test_the_index_follows_an_object_that_moves() -> None:
    items = store()
    items.upsert(Item("a", "1", 1, group="x"))
    items.upsert(Item("a", "1", 2, group="y"))
    assert items.indexed(("ns", "x")) == []
    assert [item.uid for item in items.indexed(("ns", "y"))] == ["1"]


def test_listeners_receive_the_origin_of_a_write() -> None:
    items, calls = store(), []
    items.listen(lambda before, after, own: calls.append(own))
    items.upsert(Item("a", "1", 1), own=True)
    items.upsert(Item("a", "1", 2))
    assert calls == [True, False]


HISTORY = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["write", "delete"])), min_size=1, max_size=25
)


@given(history=HISTORY, data=st.data())
def test_any_order_of_responses_watch_events_and_lists_converges(
    history: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Replay a history by an ordered watch, with responses to writes and LISTs inserted at random. The
    store must end in the state of the history.
    """
    truth: dict[str, Item] = {}
    watch: list[tuple[str, Item]] = []
    snapshots: list[tuple[int, list[Item]]] = [(0, [])]
    for version, (name, act) in enumerate(history, start=1):
        known = truth.get(name)
        if act == "write":
            item = Item(name, known.uid if known else f"{name}{version}", version)
            truth[name] = item
            watch.append(("upsert", item))
        elif known:
            del truth[name]
            watch.append(("remove", Item(name, known.uid, version)))
        snapshots.append((version, list(truth.values())))
    items = store()
    for position, (act, item) in enumerate(watch):
        if data.draw(st.booleans()):
            # Insert the late response to any write up to the change that the watch reports now.
            answer = data.draw(st.sampled_from([entry for act, entry in watch if act == "upsert"] or [item]))
            if answer.version <= item.version:
                items.upsert(answer)
        if act == "upsert":
            items.upsert(item)
        else:
            items.remove(item)
        if data.draw(st.integers(0, 4)) == 0:
            version, listed = snapshots[item.version]
            items.replace(listed, version)
            assert {entry.uid for entry in items} == {entry.uid for entry in listed}, position
    assert {entry.name: entry for entry in items} == truth
    assert {entry.uid for entry in items.indexed(("ns", "g"))} == {entry.uid for entry in truth.values()}


def test_a_list_of_a_restored_backup_replaces_newer_objects() -> None:
    items = store()
    items.upsert(Item("kept", "1", 5000))
    items.upsert(Item("made since", "2", 5100))
    items.remove(Item("deleted since", "3", 5200))
    items.replace([Item("kept", "1", 4000), Item("deleted since", "3", 3000)], 4100, floor=items.newest)
    assert {item.name: item.version for item in items} == {"kept": 4000, "deleted since": 3000}
    assert items.upsert(Item("kept", "1", 4200))


def test_a_list_older_than_own_writes_is_not_treated_as_a_backup() -> None:
    items = store()
    items.upsert(Item("a", "1", 10))
    floor = items.newest
    items.upsert(Item("a", "1", 20))
    items.replace([Item("a", "1", 10)], 15, floor=floor)
    assert items.get("ns", "a") == Item("a", "1", 20)
