import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropg.evaluation.statistics import Moments, dataset_statistics, statistics_table
from ropg.examples import Document, Example


def _example(number, words, answer, size):
    profile = tuple(Document(str(n), "x") for n in range(size))
    return Example(str(number), "u", " ".join(["w"] * words), answer, profile)


def test_row_by_hand():
    """Table 1 of a user's own data: words 2, 4, 6 are 4 ± sqrt(8/3); profiles 1, 1, 4 are 2 ± sqrt(2)."""
    splits = {
        "train": [_example(1, 2, "a b", 1), _example(2, 4, "a b c d", 1)],
        "test": [_example(3, 6, None, 4)],
    }
    row = dataset_statistics("mine", splits)
    assert (row["n_train"], row["n_test"], row["n_classes"]) == (2, 1, None)
    assert row["input_length"] == pytest.approx((4, (8 / 3) ** 0.5))
    assert row["output_length"] == pytest.approx((3, 1))  # the split without golds does not count
    assert row["profile_size"] == pytest.approx((2, 2**0.5))
    assert statistics_table([row]).splitlines() == [
        "| Task | #train | #test | Input Length | Output Length | #Profile Size | #classes |",
        "|---|---:|---:|---:|---:|---:|---:|",
        "| mine | 2 | 1 | 4.00 ± 1.63 | 3.00 ± 1.00 | 2.00 ± 1.41 | - |",
    ]


def test_tasks_with_labels_have_classes_and_no_output_length():
    row = dataset_statistics("LaMP-1", {"dev": [_example(1, 2, "[1]", 1)]}, labels=("[1]", "[2]"))
    assert (row["output_length"], row["n_classes"]) == (None, 2)


def test_no_examples():
    row = dataset_statistics("none", {"dev": []})
    assert (row["input_length"], row["output_length"]) == ((0.0, 0.0), None)
    assert "| none | 0 |" in statistics_table([row])


def test_splits_that_only_some_rows_have():
    rows = [dataset_statistics("a", {"dev": []}), dataset_statistics("b", {"train": [], "extra": []})]
    assert statistics_table(rows).splitlines()[0].startswith("| Task | #train | #dev | #extra |")
    assert "| a | - | 0 | - |" in statistics_table(rows)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40))
def test_moments_are_those_of_numpy(values):
    np = pytest.importorskip("numpy")
    moments = Moments()
    for value in values:
        moments.add(value)
    assert moments.mean == pytest.approx(np.mean(values))
    assert moments.std == pytest.approx(np.std(values), abs=1e-9)
