"""Tests of the schedules of `convoy load`: arrivals of a seed, steps, bursts, and traces."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from convoy.load.arrivals import Arrivals, Bursts, ScheduleError, Step, arrivals, parse_steps
from convoy.load.trace import MAX_ARRIVALS, Scale, Unit, read_trace, scaled


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert list(arrivals(Arrivals.CONSTANT, [Step(4, 1.0)], 1)) == [0.0, 0.25, 0.5, 0.75]
    # The times do not drift, because they are not sums.
    assert list(arrivals(Arrivals.CONSTANT, [Step(10, 1000.0)], 1))[-1] == 999.9


def test_poisson_arrivals_have_the_rate_and_depend_on_the_seed() -> None:
    steps = [Step(100, 100.0)]
    one = list(arrivals(Arrivals.POISSON, steps, 1))
    assert one == list(arrivals(Arrivals.POISSON, steps, 1))
    assert one != list(arrivals(Arrivals.POISSON, steps, 2))
    assert one == sorted(one) and one[-1] < 100
    assert 9_600 < len(one) < 10_400  # Four standard deviations.
    gaps = sorted(after - before for before, after in itertools.pairwise(one))
    # The median of exponential gaps is ln 2 times their mean.
    assert gaps[len(gaps) // 2] == pytest.approx(0.00693, rel=0.1)


def test_bursts_keep_the_mean_rate_and_have_two_rates() -> None:
    states = Bursts(factor=20, seconds=2, calm_seconds=8)
    found = list(arrivals(Arrivals.BURSTS, [Step(20, 4000.0)], 1, states))
    assert found == list(arrivals(Arrivals.BURSTS, [Step(20, 4000.0)], 1, states))
    assert found == sorted(found) and found[0] >= 0 and found[-1] < 4000
    # 400 cycles: the rate in bursts is 83.3 per second and 4.2 between them, and 20 on average.
    assert len(found) == pytest.approx(80_000, rel=0.2)
    counts = [0] * 4000
    for at in found:
        counts[int(at)] += 1
    assert sum(55 < one < 115 for one in counts) > 400
    assert sum(one < 15 for one in counts) > 2400
    assert 20 * max(1, sorted(counts)[2000]) > sorted(counts)[3900] > 10 * sorted(counts)[2000]


def test_steps_follow_one_another_and_may_be_pauses() -> None:
    steps = parse_steps("2:1, 0:0.5,4:0.5")
    assert steps == (Step(2, 1), Step(0, 0.5), Step(4, 0.5))
    assert list(arrivals(Arrivals.CONSTANT, steps, 1)) == [0.0, 0.5, 1.5, 1.75]
    for kind in Arrivals:
        found = list(arrivals(kind, [Step(0, 5), Step(50, 5), Step(0, 5)], 1))
        assert found and 5 <= found[0] <= found[-1] < 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "step 1 is ''"),
        ("5:10,", "step 2 is ''"),
        ("5", "expected RATE:SECONDS"),
        ("-5:10", "expected RATE:SECONDS"),
        ("nan:10", "expected RATE:SECONDS"),
        ("5:0", "up to 86400 seconds"),
        ("5:86401", "up to 86400 seconds"),
        ("100001:1", "a rate up to 100000"),
        ("0:5,0:6", "all steps have rate 0"),
        (",".join(["1:1"] * 1001), "1001 steps are too many: at most 1000"),
    ],
)
def test_bad_steps_are_named(text: str, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        parse_steps(text)


@pytest.mark.parametrize(
    "text",
    [
        "3\n1\n2.5\n",
        "1,x\n\n2.5,y\n3,z\n",
        "\ufefftimestamp\n1\n2.5\n3\n",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "1,GPT-4,9,8,17,API log\n2.5,a,1,1,2,b\n3,a,1,1,2,b\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:48.1805900,396,109\n2023-11-16 18:15:48.6805900,879,55\n",
        "TIMESTAMP\n2024-05-10 00:00:00.009930+00:00\n"
        "2024-05-10 00:00:01.509930+00:00\n2024-05-10 00:00:02.009930Z\n",
        "app,func,end_timestamp,duration\na,f,2,1\na,f,4,1.5\nb,f,3.5,0.5\n",
        '{"timestamp": 1000, "hash_ids": [1]}\n{"timestamp": 2500, "hash_ids": []}\n'
        '{"timestamp": 3000, "hash_ids": []}\n',
        '{"chat_id": 1, "timestamp": 61.5, "hash_ids": [1]}\n'
        '{"chat_id": 2, "timestamp": 63.0, "hash_ids": []}\n{"chat_id": 3, "timestamp": 63.5, "hash_ids": 0}',
        "request_id,request_type,arrival_timestamp,batch_size\n0,2,0.0,1\n1,2,1.5,1\n2,2,2.0,1\n",
        '{"ts": 1646861401.5, "msg": "a"}\n{"ts": 1646861403.0}\n{"ts": 1646861403.5}\n',
        '{"at": 7}\n{"at": "8.5"}\n\n{"at": 9}\n',
    ],
    ids=["numbers", "numbers first", "byte order mark", "BurstGPT", "Azure LLM 2023", "Azure LLM 2024",
         "Azure functions 2021", "Mooncake", "Qwen-Bailian", "splitwise-sim", "log", "own JSON"],
)  # fmt: skip
def test_traces_of_many_sources_are_read(text: str, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    assert read_trace(file) == pytest.approx([0.0, 1.5, 2.0], abs=1e-6)


def test_counts_of_minutes_are_spread_over_each_minute(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("HashOwner,HashApp,HashFunction,Trigger,1,2,3\na,b,c,http,5,0,1\na,b,d,timer,1,,2\n")
    found = read_trace(file)
    assert found == read_trace(file) != read_trace(file, seed=2)
    assert len(found) == 9 and found[0] == 0
    last = found[5]
    assert last < 60 and all(at - last > 60 for at in found[6:])


def test_the_unit_of_the_numbers_may_be_given(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text("1000\n2500\n")
    assert read_trace(file, Unit.MILLISECONDS) == [0.0, 1.5]
    file.write_text('{"timestamp": 1, "hash_ids": []}\n{"timestamp": 2, "hash_ids": []}\n')
    assert read_trace(file, Unit.SECONDS) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no arrivals"),
        ("timestamp\n", "has no arrivals"),
        ("size,kind\n1,2\n", "no column has a time; expected timestamp, .*, found size, kind"),
        ("timestamp,x\n1,2\nsoon,3\n", r"trace:3: 'soon' is neither a number nor a date and time"),
        ("a,timestamp\n1,2\n\n1\n", r"trace:4: the line has too few columns"),
        ("1\nnan\n", r"trace:2: the time nan is not finite"),
        ("1\ninf\n", r"trace:2: the time inf is not finite"),
        ("timeStamp,elapsed\n1700000000000,1\n", "too large for seconds: set --trace-unit to s, ms, us, ns"),
        ('{"timestamp": "1753780607550317897", "hash_ids": []}', "too large for unit ms: set --trace-unit"),
        ('{"timestamp": 1}\n{"timestamp": }\n', r"trace:2: Expecting value"),
        ('{"timestamp": 1}\n[]\n', r"trace:2: the line is no JSON object"),
        ('{"start": 1}\n', r"trace:1: no field has a time"),
        ("f,1,2\nx,1,-2\n", r"trace:2: a count of requests is negative"),
        ("f,1,2\nx,1,many\n", r"trace:2: invalid literal"),
        (b"\xff\xfe1\n", "is no text"),
    ],
)
def test_a_bad_trace_names_its_line(content: str | bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ScheduleError, match=words):
        read_trace(file)


def test_a_trace_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convoy.load.trace.MAX_ARRIVALS", 3)
    file = tmp_path / "trace"
    file.write_text("1\n2\n3\n4\n")
    with pytest.raises(ScheduleError, match="has more than 3 arrivals: replay a part of it"):
        read_trace(file)
    assert MAX_ARRIVALS == 5_000_000


def test_a_trace_is_scaled_in_time_and_number() -> None:
    times = [float(number) for number in range(1000)]
    assert list(scaled(times, Scale(), 1)) == times
    assert list(scaled(times, Scale(speed=4), 1, seconds=2)) == [number / 4 for number in range(8)]
    fewer = list(scaled(times, Scale(requests=0.25), 1))
    assert set(fewer) < set(times) and 200 < len(fewer) < 300
    more = list(scaled(times, Scale(requests=2.5), 1))
    assert more == sorted(more) and 2400 < len(more) < 2600
    # Each arrival stays, and its copies come before the next one.
    assert set(times) <= set(more)
    assert more == list(scaled(times, Scale(requests=2.5), 1)) != list(scaled(times, Scale(requests=2.5), 2))
    assert list(scaled([0.0], Scale(requests=3), 1)) == [0.0, 0.0, 0.0]
