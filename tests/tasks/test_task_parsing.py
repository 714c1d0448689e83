"""The one reading of model outputs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropg.tasks import get_task

NAMES = ("LaMP-1", "LaMP-2", "LaMP-3", "LaMP-4", "LaMP-7", "pgraphrag_rating", "pgraphrag_title")


@pytest.mark.parametrize(
    ("name", "output", "read"),
    [
        # trouble C09
        ("LaMP-1", "[1]", "[1]"),
        ("LaMP-1", "1", "[1]"),
        ("LaMP-1", "[1].", "[1]"),
        ("LaMP-1", "The answer is [1]", "[1]"),
        ("LaMP-1", "[1] or [2]", None),
        ("LaMP-1", "", None),
        ("LaMP-1", "[11]", None),
        ("LaMP-2", "Sci-Fi", "sci-fi"),
        ("LaMP-2", "sci-fi, action", None),
        ("LaMP-2", "scifi", None),
        ("LaMP-3", "2", "2"),
        ("LaMP-3", "2.0", "2"),
        ("LaMP-3", "4 stars", "4"),
        ("LaMP-3", "nan", None),
        ("LaMP-3", "inf", None),
        ("LaMP-3", "100", None),
        ("LaMP-3", "-3", None),
        ("LaMP-3", "", None),
        # further
        ("LaMP-1", '[2]: "Top 10 ideas of 1990"', "[2]"),
        ("LaMP-1", "[3]", None),
        ("LaMP-1", "(2)", "[2]"),
        ("LaMP-1", "1 or 2", None),
        ("LaMP-2", "The tag is: dark comedy.", "dark comedy"),
        ("LaMP-2", '"comedy"', "comedy"),
        ("LaMP-2", "dark comedy and comedy", None),
        ("LaMP-2", "thought provoking", "thought-provoking"),
        ("LaMP-2", "action-packed", None),
        ("LaMP-2", "reaction", None),
        ("LaMP-2", "COMEDY comedy", "comedy"),
        ("LaMP-3", "four", None),
        ("LaMP-3", "4/5", "4"),
        ("LaMP-3", "5 out of 5", "5"),
        ("LaMP-3", "I give it 3 on a scale of 1 to 5.", "3"),
        ("LaMP-3", "3 or 4", None),
        ("LaMP-3", "3-4", None),
        ("LaMP-3", "2.5", None),
        ("LaMP-3", "5,000", None),
        ("LaMP-3", "0", None),
        ("LaMP-3", "1e0", None),
        ("LaMP-3", "score: 5.", "5"),
    ],
)
def test_readings(name: str, output: str, read: str | None) -> None:
    """If this fails, a right answer earns nothing, or a wrong one is credited by accident."""
    task = get_task(name)
    assert task.is_parsed(output) == (read is not None)
    assert task.parse(output) == (read if read is not None else output.strip())


def test_scores_of_trouble_c09() -> None:
    """If this fails, rewards differ from what the task's metric says."""
    lamp_1, lamp_2, lamp_3 = (get_task(f"LaMP-{i}") for i in (1, 2, 3))
    outputs = ["[1]", "1", "[1].", "The answer is [1]", "[1] or [2]", "", "[11]"]
    assert [lamp_1.score(p, "[1]") for p in outputs] == [1, 1, 1, 1, 0, 0, 0]
    assert [lamp_2.score(p, "sci-fi") for p in ("Sci-Fi", "sci-fi, action", "scifi")] == [1, 0, 0]
    outputs = ["2", "2.0", "4 stars", "nan", "inf", "100", "-3", ""]
    assert [lamp_3.score(p, "2") for p in outputs] == pytest.approx([1, 1, 1 / 3, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("name", "gold"), [("LaMP-1", "[3]"), ("LaMP-2", "Horror"), ("LaMP-3", "6"), ("LaMP-3", "nan")]
)
def test_unknown_gold_raises(name: str, gold: str) -> None:
    """If this fails, an unknown gold and an unknown prediction count as correct, as in the official scorer."""
    task = get_task(name)
    with pytest.raises(ValueError, match="none of the labels"):
        task.score("garbage", gold)
    with pytest.raises(ValueError, match="record 'r7'"):
        task.check_target(gold, record="r7")
    with pytest.raises(ValueError, match="no gold"):
        task.check_target(None)


def test_gold_spellings() -> None:
    """If this fails, golds that differ in case or as 4.0 stop a run."""
    assert get_task("LaMP-2").check_target(" Comedy") == "comedy"
    assert get_task("pgraphrag_rating").check_target("4.0") == "4"


def test_eq_8_for_every_pair() -> None:
    """If this fails, LaMP-3's reward is not Eq. 8."""
    task = get_task("LaMP-3")
    for gold in range(1, 6):
        worst = max(abs(1 - gold), abs(5 - gold))
        for guess in range(1, 6):
            assert task.score(str(guess), str(gold)) == pytest.approx((worst - abs(gold - guess)) / worst)


def test_generated_text() -> None:
    """If this fails, a base model's next block counts as part of its answer, or a two-line answer is lost."""
    output = "\n  Sleepy cats \n\narticle: dogs\nheadline: Dogs"
    assert get_task("LaMP-4", "pattern").parse(output) == "Sleepy cats"
    assert get_task("LaMP-4").parse(output) == output.strip()
    assert get_task("LaMP-2", "pattern").parse("comedy\n\ndescription: action") == "comedy"
    assert get_task("LaMP-4").is_parsed("")


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    template=st.sampled_from(["paper", "pattern"]),
    output=st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            ["[1]", "2", "4.0", "/5", "sci-fi", "Dark", "comedy", "\n", " ", ",", "is", "-", "İ", "5"]
        ),
        max_size=8,
    ).map("".join),
)
def test_parse_is_idempotent(name: str, template: str, output: str) -> None:
    """If this fails, stored predictions score differently from the outputs they came from."""
    task = get_task(name, template)
    parsed = task.parse(output)
    assert task.parse(parsed) == parsed
    assert task.is_parsed(parsed) == task.is_parsed(output)
    if task.labels:
        assert not task.is_parsed(output) or parsed in task.labels
        gold = task.labels[0]
        assert 0.0 <= task.score(output, gold) <= 1.0
    else:
        gold = "sci-fi comedy"
    assert task.score(parsed, gold) == task.score(output, gold)
