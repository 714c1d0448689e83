"""Batches: what they cost, that they are the same in every run, and what happens without memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropg.batching import plan_batches
from ropg.llms.batching import halve_on_out_of_memory, is_out_of_memory

LENGTHS = st.lists(st.integers(1, 60), max_size=40)


@given(LENGTHS, st.integers(1, 200), st.integers(1, 8))
def test_every_prompt_once_within_budget(lengths, max_tokens, max_batch):
    """A prompt would be left unanswered, or a batch would not fit the memory it was sized for."""
    batches = plan_batches(lengths, max_tokens, max_batch)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[i] for i in batch)
        assert len(batch) <= max_batch
        assert padded <= max_tokens or len(batch) == 1


@given(LENGTHS, st.integers(1, 200), st.integers(1, 8))
def test_longest_first_and_ties_by_index(lengths, max_tokens, max_batch):
    """A resumed run would form other batches than the first and compute other numbers."""
    order = [index for batch in plan_batches(lengths, max_tokens, max_batch) for index in batch]
    assert order == sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))


def test_batches_are_filled():
    """Half-empty batches would double the time of the expensive stage."""
    assert plan_batches([5] * 7, max_tokens=15, max_batch=9) == [[0, 1, 2], [3, 4, 5], [6]]
    assert plan_batches([], max_tokens=1, max_batch=1) == []


def test_limits_below_one_are_refused():
    """A batch size of 0 would loop for ever or answer nothing."""
    with pytest.raises(ValueError, match="at least 1"):
        plan_batches([1], max_tokens=8, max_batch=0)


@given(st.lists(st.integers(), min_size=1, max_size=20), st.integers(1, 5))
@pytest.mark.filterwarnings("ignore:out of memory")
def test_halving_keeps_order(items, fits):
    """After running out of memory, answers would belong to other prompts."""

    def run(part):
        if len(part) > fits:
            raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes")
        return [item + 1 for item in part]

    assert halve_on_out_of_memory(run, items) == [item + 1 for item in items]


def test_one_prompt_that_does_not_fit_is_named():
    """The run would end with a bare CUDA error that does not say what to change."""

    def run(_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")

    with (
        pytest.warns(RuntimeWarning, match="retried as 1 and 1"),
        pytest.raises(MemoryError, match="num_beams"),
    ):
        halve_on_out_of_memory(run, [1, 2])


def test_other_errors_pass_through():
    """A wrong shape would be retried eight times and then called a lack of memory."""
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("out of memory"))
    with pytest.raises(RuntimeError, match="shape"):
        halve_on_out_of_memory(lambda _: (_ for _ in ()).throw(RuntimeError("shape")), [1, 2])
