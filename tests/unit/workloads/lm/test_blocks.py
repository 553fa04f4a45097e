"""Tests of the block pool: every block has one state, and shared content is found exactly."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_workloads.engines.lm.blocks import TRASH, BlockPool, block_keys


def check(pool: BlockPool) -> None:
    """Assert that the pool's state is consistent."""
    free, unused = set(pool._free), set(pool._unused)
    used = {block for block in range(1, pool.count + 1) if pool.users(block)}
    assert len(free) == len(pool._free) and not free & unused and not used & (free | unused)
    assert len(free) + len(unused) + len(used) == pool.count
    assert {block: key for key, block in pool._found.items()} == pool._keys
    assert unused <= set(pool._keys) and not free & set(pool._keys)


def test_keys_depend_on_everything_before_them() -> None:
    one = block_keys([1, 2, 3, 4, 5], 2)
    assert len(one) == 2
    assert block_keys([1, 2, 3, 4, 9], 2) == one
    assert block_keys([9, 2, 3, 4], 2)[1] != one[1]
    assert block_keys([1, 2, 3, 4, 5, 6], 2, one)[:2] == one
    assert block_keys([1, 2, 3, 4, 5, 6], 2, one) == block_keys([1, 2, 3, 4, 5, 6], 2)
    assert block_keys([1], 2) == []
    # Two tokens of one byte are not one token of two bytes.
    assert block_keys([1, 0], 2) != block_keys([0, 1], 2)


def test_a_released_block_keeps_its_content_until_its_memory_is_needed() -> None:
    pool = BlockPool(2, reuse=True)
    first, second = pool.allocate(), pool.allocate()
    assert first is not None and second is not None and pool.allocate() is None
    pool.register(first, b"a")
    pool.register(second, b"b")
    pool.release([first, second])
    assert pool.available == 2 and pool.used == 0
    assert pool.share(b"a") == first and pool.users(first) == 1
    # The later block of a sequence is evicted before the earlier one.
    assert pool.allocate() == second
    assert pool.share(b"b") is None
    assert pool.share(b"a") == first and pool.users(first) == 2
    check(pool)


def test_a_block_without_reuse_is_forgotten() -> None:
    pool = BlockPool(1, reuse=False)
    block = pool.allocate()
    assert block is not None
    pool.register(block, b"a")
    pool.release([block])
    assert pool.share(b"a") is None and pool.available == 1


def test_the_first_of_two_equal_blocks_is_shared() -> None:
    pool = BlockPool(2, reuse=True)
    first, second = pool.allocate(), pool.allocate()
    assert first is not None and second is not None
    pool.register(first, b"a")
    pool.register(second, b"a")
    pool.release([second])
    assert pool.share(b"a") == first
    check(pool)


@given(st.data())
@settings(max_examples=cases(60), deadline=None)
def test_blocks_are_neither_lost_nor_used_twice(data: st.DataObject) -> None:
    pool = BlockPool(data.draw(st.integers(1, 6)), reuse=data.draw(st.booleans()))
    held: list[list[int]] = []
    content: dict[int, bytes] = {}
    for _ in range(data.draw(st.integers(1, 40))):
        act = data.draw(st.sampled_from(["allocate", "share", "register", "release"]))
        if act == "allocate":
            whole = all(pool.users(one) for one in range(1, pool.count + 1))
            block = pool.allocate()
            assert (block is None) == whole
            if block is not None:
                assert block != TRASH and not any(block in blocks for blocks in held)
                content.pop(block, None)
                held.append([block])
        elif act == "share":
            key = data.draw(st.sampled_from([b"a", b"b", b"c"]))
            block = pool.share(key)
            if block is not None:
                assert content[block] == key
                held.append([block])
        elif act == "register" and held:
            block, key = held[-1][0], data.draw(st.sampled_from([b"a", b"b", b"c"]))
            if block not in content:
                content[block] = key
                pool.register(block, key)
        elif act == "release" and held:
            pool.release(held.pop(data.draw(st.integers(0, len(held) - 1))))
        check(pool)
        assert all(
            pool.users(block) == sum(blocks.count(block) for blocks in held)
            for block in range(1, pool.count + 1)
        )
