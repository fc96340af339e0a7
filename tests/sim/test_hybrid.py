"""The simulation of units under several schedulers, of shared GPUs and of micro-batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.hrm.hybrid import BatchJob, HybridSimulation
from bench.hrm.unit_sharing import (
    read_micro_batches,
    stacked_latencies,
    unstacked_latencies,
)
from flowsched.exceptions import InputError, TraceError
from flowsched.hrm import Container, Elastic, ResourceUnit, RunTimes


def units(count: int, cores: int = 2) -> list[ResourceUnit]:
    return [ResourceUnit(f"u{i}", f"m{i}", vcore=cores) for i in range(count)]


def job(id: str, time: float, *durations: float) -> BatchJob:
    return BatchJob(id, time, tuple(Container(f"{id}{i}", id, vcore=1, duration=d) for i, d in enumerate(durations)))


def test_a_job_waits_for_the_decision_only() -> None:
    result = HybridSimulation(units(2), [job("a", 1.0, 5.0, 5.0)], round_cost=0.5, claim_cost=0.25).run()
    assert (result.delay.tolist(), result.start.tolist(), result.completion.tolist()) == ([1.0], [1.0], [6.0])
    assert result.claims == 2 and result.used == 2 * 5.0 / (4 * 6.0)


def test_a_free_place_is_unknown_until_the_heartbeat_and_a_queue_does_not_wait_for_it() -> None:
    # One core; the machine's heartbeats come at 0, 3, 6, ...
    jobs = [job("a", 0.0, 4.0), job("b", 0.0, 4.0)]
    late = HybridSimulation(units(1, 1), jobs, claim_cost=0.0, heartbeat=3.0).run()
    assert late.completion.tolist() == [4.0, 6.0 + 4.0]
    queued = HybridSimulation(units(1, 1), jobs, claim_cost=0.0, heartbeat=3.0, length=1).run()
    assert queued.completion.tolist() == [4.0, 8.0]
    assert (queued.delay.tolist(), queued.start.tolist()) == ([0.0, 0.0], [0.0, 4.0])


def test_a_decision_on_an_old_copy_is_refused_and_made_again() -> None:
    jobs = [job("a", 0.0, 5.0), job("b", 0.0, 5.0)]
    result = HybridSimulation(units(1, 1), jobs, schedulers=2, claim_cost=0.1, heartbeat=1.0, same_taste=True).run()
    assert (result.claims, result.conflicts) == (3, 1)
    assert sorted(result.completion.tolist()) == [5.1, pytest.approx(10.2, abs=1.1)]
    assert 0 < result.busyness < 1


def test_a_container_that_waits_on_a_busy_unit_moves_to_an_idle_one() -> None:
    # Two machines of one core with heartbeats at 0, 3, 6, ... and 1.5, 4.5, ...; every container is expected to take 5 s.
    jobs = [job("a", 0.0, 20.0), job("b", 0.0, 1.0), job("c", 0.1, 5.0), job("d", 0.1, 5.0)]
    options = {"length": 1, "expected": 5.0, "claim_cost": 0.0}
    stays = HybridSimulation(units(2, 1), jobs, **options).run()  # type: ignore[arg-type]
    moves = HybridSimulation(units(2, 1), jobs, patience=0.0, **options).run()  # type: ignore[arg-type]
    assert sorted(stays.completion[2:].tolist()) == [pytest.approx(5.9), pytest.approx(24.9)]
    # The first machine is idle after 6 s and known to be at 9 s; the other one's next heartbeat is at 10.5 s.
    assert sorted(moves.completion[2:].tolist()) == [pytest.approx(5.9), pytest.approx(15.4)]
    assert moves.completion[0] == stays.completion[0] == 20.0


def test_a_queue_that_is_too_slow_takes_no_container() -> None:
    jobs = [job("a", 0.0, 10.0, 10.0, 10.0)]
    result = HybridSimulation(units(1, 2), jobs, length=1, max_wait=4.0, claim_cost=0.0).run()
    assert result.delay.tolist() == [pytest.approx(6.0, abs=1e-3)] and result.completion.tolist() == [20.0]
    # Nor with those that it would wait for: two schedulers know of the same idle unit.
    both = [job("a", 0.0, 10.0), job("b", 0.0, 10.0)]
    result = HybridSimulation(units(1, 1), both, schedulers=2, length=1, max_wait=4.0, claim_cost=0.1).run()
    assert max(result.delay) == pytest.approx(6.2, abs=0.2) and max(result.completion) == pytest.approx(20.1)


def test_two_schedulers_do_not_take_the_same_place_in_a_queue() -> None:
    # Units that are busy until 10 s and until 4 s: both schedulers want to be the next on the second one.
    jobs = [job("a", 0.0, 10.0), job("b", 0.1, 4.0), job("c", 1.0, 10.0), job("d", 1.0, 10.0)]
    result = HybridSimulation(units(2, 1), jobs, schedulers=2, length=2, claim_cost=0.05).run()
    assert result.conflicts == 1
    assert sorted((result.start[2:] + 1.0).tolist()) == [pytest.approx(4.15), pytest.approx(10.05)]


@pytest.mark.long
def test_six_schedulers_start_jobs_no_later_than_one() -> None:
    # 60 jobs of 8 containers want more than the 300 places that there are.
    rng = np.random.default_rng(1)
    jobs = [job(f"j{i}-", 0.0, *rng.uniform(5.0, 25.0, 8).tolist()) for i in range(60)]
    six = HybridSimulation(units(60, 5), jobs, schedulers=6, length=5).run()
    assert six.conflicts > 0
    # The one has no queues, so it learns of a free place by its machine's heartbeat.
    assert six.start.mean() < HybridSimulation(units(60, 5), jobs).run().start.mean()


def test_the_last_places_make_one_job_whole() -> None:
    # Four places, two jobs that want three each, and decisions at once: each scheduler prefers other units.
    jobs = [job("a", 0.0, 10.0, 10.0, 10.0), job("b", 0.0, 10.0, 10.0, 10.0)]
    for length in (0, 3):
        options = {"schedulers": 2, "length": length, "claim_cost": 0.1}
        turn = HybridSimulation(units(2), jobs, in_turn=True, **options).run()  # type: ignore[arg-type]
        assert turn.start[0] == pytest.approx(0.3) and turn.start[1] > 10.0
        assert turn.start.mean() <= HybridSimulation(units(2), jobs, **options).run().start.mean()  # type: ignore[arg-type]


def test_a_burst_starts_earlier_in_turn() -> None:
    rng = np.random.default_rng(3)
    jobs = [job(f"j{i}-", 0.0, *rng.uniform(5.0, 25.0, 20).tolist()) for i in range(24)]
    mean = {}
    for turn in (False, True):
        mean[turn] = HybridSimulation(units(75, 5), jobs, schedulers=6, length=3, in_turn=turn).run().start.mean()
    assert mean[True] < mean[False]


def test_expected_run_times_come_from_the_history_of_a_jobs_name() -> None:
    # The first "long" job runs while nothing is known of it; then a queue behind the next one takes no container.
    times = RunTimes(default=1.0, weight=1.0)
    jobs = [replace(job("a", 0.0, 40.0), name="long"), replace(job("b", 50.0, 40.0), name="long"), job("c", 51.0, 1.0)]
    options = {"length": 1, "max_wait": 5.0, "claim_cost": 0.0}
    result = HybridSimulation(units(1, 1), jobs, expected=times, **options).run()  # type: ignore[arg-type]
    assert times.expect("long") == 40.0 and result.delay[2] == pytest.approx(34.0, abs=0.01)
    told = HybridSimulation(units(1, 1), jobs, expected=1.0, **options).run()  # type: ignore[arg-type]
    assert told.delay[2] < 1.0


def test_what_was_refused_goes_before_the_next_job() -> None:
    # Both want the first unit, then both the second one: the scheduler that was refused twice takes the third, not its next job.
    jobs = [job(f"j{i}", 0.0, *[10.0] * 4) for i in range(4)]
    result = HybridSimulation(units(3, 4), jobs, schedulers=2, claim_cost=0.1, same_taste=True).run()
    assert (result.completion > 15.0).tolist() == [False, False, False, True]


@settings(max_examples=25)
@given(
    sizes=st.lists(st.lists(st.sampled_from([1.0, 2.5, 4.0]), min_size=1, max_size=6), min_size=1, max_size=6),
    schedulers=st.integers(1, 3),
    length=st.integers(0, 2),
    expected=st.sampled_from([None, 2.0]),
    waits=st.sampled_from([{}, {"patience": 0.0}, {"max_wait": 1.5}, {"max_wait": 3.0, "patience": 1.0}]),
    heartbeat=st.sampled_from([3.0, 0.7]),
    in_turn=st.booleans(),
)
def test_everything_runs_once_whatever_the_schedulers(
    sizes: list[list[float]],
    schedulers: int,
    length: int,
    expected: float | None,
    waits: dict[str, float],
    heartbeat: float,
    in_turn: bool,
) -> None:
    jobs = [job(f"j{i}-", 0.5 * i, *durations) for i, durations in enumerate(sizes)]
    options = {
        "schedulers": schedulers, "length": length, "expected": expected, "heartbeat": heartbeat, "in_turn": in_turn, **waits,
    }  # fmt: skip
    result = HybridSimulation(units(3), jobs, **options).run()  # type: ignore[arg-type]
    assert (result.delay <= result.start).all() and (result.start < result.completion).all()
    assert (result.completion >= [max(durations) for durations in sizes]).all()
    assert result.claims - result.conflicts == sum(map(len, sizes))
    assert 0 < result.used <= 1


def test_impossible_inputs_are_named() -> None:
    with pytest.raises(InputError, match="'a0' fits on no unit"):
        HybridSimulation(units(1), [BatchJob("a", 0.0, (Container("a0", vcore=3, duration=1.0),))])
    with pytest.raises(InputError, match="schedulers=0"):
        HybridSimulation(units(1), [], schedulers=0)


def test_streams_go_first_and_wait_for_each_other_only() -> None:
    work = [8.0, 8.0, 40.0, 8.0]
    assert stacked_latencies(work, 10.0, 4, 0, 1, 4).tolist() == [2.0, 2.0, 10.0, 2.0]
    assert stacked_latencies(work, 10.0, 4, 50, 1, 4).tolist() == [2.0, 2.0, 10.0, 2.0]
    # Eight parts on four cores take two turns.
    assert stacked_latencies([8.0], 10.0, 8, 50, 2, 2).tolist() == [2.0]


def test_without_stacking_the_stream_waits_for_ends_and_has_its_share() -> None:
    assert unstacked_latencies([8.0, 8.0], 10.0, 4, [], 8, lambda: 4.0).tolist() == [2.0, 2.0]
    assert unstacked_latencies([8.0], 10.0, 4, [4], 8, lambda: 4.0).tolist() == [2.0]
    # Twelve batch containers want the eight cores; the stream gets four of them when batch ends, one second from each other.
    waits = unstacked_latencies([8.0], 10.0, 4, [12], 8, lambda: 8.0)
    assert waits.tolist() == [2.0 + 3.0]
    # Three jobs beside it leave a share of two cores: the parts take turns.
    assert unstacked_latencies([8.0], 10.0, 4, [12, 12, 12], 8, lambda: 8.0)[0] > 5.0


def test_an_elastic_stream_has_the_containers_that_its_load_wants() -> None:
    held: list[int] = []
    elastic = Elastic(least=1, most=8)
    latency = stacked_latencies([8.0] * 6, 10.0, 8, 50, 1, 8, elastic, held)
    # 1 s of 10 is little; with two containers a micro-batch takes 4 s, which is neither little nor much.
    assert held == [8, 2, 2, 2, 2, 2] and latency.tolist() == [1.0, *[4.0] * 5]
    held.clear()
    stacked_latencies([8.0, 8.0, 60.0, 60.0, 60.0], 10.0, 1, 50, 1, 8, elastic, held)
    assert held == [1, 1, 1, 8, 8]


def test_measured_decisions_take_time() -> None:
    jobs = [job("a", 0.0, 5.0, 5.0)]
    result = HybridSimulation(units(2), jobs, claim_cost=0.0, measured=True).run()
    assert 0 < result.delay[0] == result.start[0] and result.completion[0] == result.start[0] + 5.0


def test_recorded_inputs_are_read_and_mistakes_are_told(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    trace.write_text(head + "2023-11-16 18:17:03.9799600,5,1\n2023-11-16 18:17:05.1,4,0\n2023-11-16 18:17:25.0,7,1\n")
    assert read_micro_batches(trace, 10.0).tolist() == [10.0, 0.0, 8.0]
    trace.write_text(head + "2023-11-16 18:17:03.9799600,five,1\n")
    with pytest.raises(TraceError, match="line 2"):
        read_micro_batches(trace, 10.0)
