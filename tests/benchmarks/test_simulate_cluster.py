"""The simulation of a cluster against closed forms, and conservation of work."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.simulate_cluster import (
    POLICIES,
    Cluster,
    block_seconds,
    expected_restarting,
    expected_resuming,
    simulate,
)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("n", "workers"), [(10, 1), (10, 3), (12, 4), (2, 5)])
def test_equal_blocks_without_failures_take_whole_rounds(policy, n, workers):
    result = simulate([7.0] * n, Cluster(workers, startup=20), policy)
    assert result.wall == pytest.approx(20 + 7 * math.ceil(n / workers))
    assert result.useful == pytest.approx(7 * n)
    assert result.lost == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_paid_time_is_useful_lost_starting_or_idle_and_no_work_vanishes(policy):
    blocks = np.random.default_rng(0).lognormal(2, 0.5, 200)
    for seed in range(10):
        result = simulate(blocks.tolist(), Cluster(6, 15, mtbf=400, replace=30), policy, seed)
        assert result.failures > 0
        assert result.useful == pytest.approx(blocks.sum())
        assert result.paid == pytest.approx(result.useful + result.lost + result.starting + result.idle)
        assert min(result.lost, result.starting, result.idle) >= 0
        assert result.paid <= 6 * result.wall + 1e-6


def test_one_worker_that_starts_from_scratch_takes_the_known_mean_time():
    cluster = Cluster(1, startup=10, mtbf=150, replace=20)
    walls = np.array([simulate([10.0] * 10, cluster, "scratch", seed).wall for seed in range(3000)])
    expected = expected_restarting(110, 150, 20)
    assert abs(walls.mean() - expected) < 4 * walls.std() / math.sqrt(len(walls))


@pytest.mark.parametrize("policy", ["resume", "dynamic"])
def test_one_worker_that_resumes_takes_the_known_mean_time(policy):
    cluster = Cluster(1, startup=10, mtbf=150, replace=20)
    walls = np.array([simulate([10.0] * 20, cluster, policy, seed).wall for seed in range(3000)])
    expected = expected_resuming(20, 10, 10, 150, 20)
    assert abs(walls.mean() - expected) < 4 * walls.std() / math.sqrt(len(walls))


def test_a_seed_decides_the_run():
    cluster = Cluster(4, 10, mtbf=100, spread=0.1)
    assert simulate([5.0] * 50, cluster, "dynamic", 3) == simulate([5.0] * 50, cluster, "dynamic", 3)


def test_one_writer_for_all_limits_the_blocks_a_second():
    assert simulate([1.0] * 100, Cluster(100, commit=0.5), "dynamic").wall == pytest.approx(1 + 50)


def test_a_run_that_meets_the_limit_is_not_called_finished():
    assert math.isinf(simulate([100.0] * 10, Cluster(1, mtbf=50), "scratch", limit=5000).wall)


def test_blocks_hold_all_prompts_within_the_budget():
    seconds = block_seconds(1000, 5.0, 0.5, tokens_per_second=100, batch_tokens=4096)
    assert (seconds * 100 <= 4096 + 1e-6).all()
    lengths = np.clip(np.random.default_rng(0).lognormal(5.0, 0.5, 1000), 8, 512).astype(int)
    assert seconds.sum() * 100 >= lengths.sum()


def test_impossible_clusters_and_policies_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        simulate([1.0], Cluster(0), "dynamic")
    with pytest.raises(ValueError, match="no policy"):
        simulate([1.0], Cluster(1), "hopeful")  # type: ignore[arg-type]
