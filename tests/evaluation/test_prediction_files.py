"""Predictions in LaMP's output format: written, read back, scored without an LLM."""

from __future__ import annotations

import json

import pytest

from ropg.evaluation.predictions import read_predictions, score_predictions, write_predictions
from ropg.examples import Example
from ropg.tasks import get_task


def examples(**targets: str | None) -> list[Example]:
    return [
        Example(i, i, "Generate a headline for the following article: x", y, ()) for i, y in targets.items()
    ]


def test_round_trip(tmp_path):
    """What is written comes back, letter for letter, and writing it again gives the same bytes."""
    texts = {"1": "Größe “zählt”\nnicht", "0012": "", "x-1": '{"a": [1]} </script>'}
    path = write_predictions(tmp_path / "predictions", "bm25", "LaMP-4", texts)
    assert path == tmp_path / "predictions" / "bm25.json"
    assert read_predictions(path) == ("LaMP_4", texts)
    first = path.read_bytes()
    task, again = read_predictions(path)
    assert write_predictions(path.parent, "bm25", task, again).read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == ["bm25.json"]  # no temporary file left


def test_lamps_format_to_the_letter(tmp_path):
    """LaMP's own evaluation script must be able to read the file."""
    path = write_predictions(tmp_path, "ropg_kd", "lamp_4", {"12": "Sleepy cats"})
    assert json.loads(path.read_text()) == {
        "task": "LaMP_4",
        "golds": [{"id": "12", "output": "Sleepy cats"}],
    }


def test_gathered_duplicates_are_written_once(tmp_path):
    """Processes fill an uneven last batch with repeats; five examples stay five predictions (trouble C26)."""
    gathered = [(str(i), f"answer {i}") for i in (0, 2, 4, 1, 3, 0)]
    _, outputs = read_predictions(write_predictions(tmp_path, "none", "LaMP-4", gathered))
    assert sorted(outputs) == ["0", "1", "2", "3", "4"]
    assert len(json.loads((tmp_path / "none.json").read_text())["golds"]) == 5
    with pytest.raises(ValueError, match="two different predictions"):
        write_predictions(tmp_path, "none", "LaMP-4", [("1", "a"), (1, "b")])


def test_system_names_cannot_leave_the_folder(tmp_path):
    """A name from a configuration becomes a file name."""
    with pytest.raises(ValueError, match="file"):
        write_predictions(tmp_path, "../bm25", "LaMP-4", {})


@pytest.mark.parametrize(
    "text",
    [
        '{"task": "LaMP_4", "golds": [{"id": 2, "output": "Dogs bark"}, {"id": "1", "output": "Cats sleep"}]}',
        '[{"id": "2", "output": "Dogs bark"}, {"id": 1, "output": "Cats sleep", "note": "kept out"}]',
        '{"id": "2", "output": "Dogs bark"}\n{"id": "1", "output": "Cats sleep"}\n',
        '\ufeff{"golds": [{"id": "2", "output": "Dogs bark"}, {"id": "1", "output": "Cats sleep"}]}',
    ],
)
def test_shapes_that_are_found_in_the_wild(tmp_path, text):
    """Ids as numbers, bare lists, JSON lines, another order: all join by id as strings (trouble C36)."""
    path = tmp_path / "dev_outputs.json"
    path.write_text(text, encoding="utf-8")
    assert read_predictions(path)[1] == {"2": "Dogs bark", "1": "Cats sleep"}
    golds = examples(**{"1": "Cats sleep", "2": "Dogs bark"})
    rows = score_predictions(path, golds, get_task("LaMP-4"), progress=False)
    assert [(row["system"], row["value"]) for row in rows] == [("dev_outputs", 1.0)] * 2


def test_lamps_outputs_score_full_marks_against_themselves(tmp_path):
    """The golds as predictions: accuracy 1, and labels written "2.0" or "[1]." are read as such."""
    path = tmp_path / "dev_outputs.json"
    path.write_text('{"task":"LaMP_3","golds":[{"id":"7","output":"2"},{"id":"8","output":5}]}')
    rows = score_predictions(path, examples(**{"7": "2.0", "8": "5"}), get_task("LaMP-3"), progress=False)
    assert [(row["metric"], row["value"]) for row in rows] == [("mae", 0.0), ("rmse", 0.0)]


def test_malformed_entries_are_listed_together(tmp_path):
    """One message, not one per try."""
    path = tmp_path / "p.json"
    path.write_text(
        '[{"id": "1", "output": "a"}, {"id": "1", "output": "b"}, {"id": "2"}, {"output": "c"}, 5]'
    )
    with pytest.raises(ValueError, match=r"number '3', '4', '5'.*twice: '1'"):
        read_predictions(path)
    path.write_text('{"task": "LaMP_4", "golds": [')
    with pytest.raises(ValueError, match=r"p\.json is neither"):
        read_predictions(path)
    path.write_text('{"answers": []}')
    with pytest.raises(ValueError, match="output format"):
        read_predictions(path)


def test_missing_and_extra_ids_and_another_task_are_one_error(tmp_path):
    """Predictions of another split or task must not be scored on what happens to overlap (trouble C36)."""
    write_predictions(tmp_path, "bm25", "LaMP-5", {"1": "a", "9": "b"})
    write_predictions(tmp_path, "none", "LaMP-4", {"1": "a"})
    with pytest.raises(ValueError, match="belong together") as error:
        score_predictions(tmp_path, examples(**{"1": "a", "2": "b"}), get_task("LaMP-4"), progress=False)
    message = str(error.value)
    assert "LaMP_5" in message
    assert "unknown examples '9'" in message
    assert message.count("no prediction for '2'") == 2


def test_a_folder_is_scored_with_tests_between_its_systems(tmp_path):
    """An evaluation can be repeated, with another metric or correction, from its predictions alone."""
    golds = {str(i): "sunny quiet stay" for i in range(8)}
    write_predictions(tmp_path, "good", "LaMP-4", {i: g if i != "0" else "sunny" for i, g in golds.items()})
    write_predictions(tmp_path, "poor", "LaMP-4", dict.fromkeys(golds, "noisy"))
    rows = score_predictions(tmp_path, examples(**golds), get_task("LaMP-4"), progress=False)
    assert [row["system"] for row in rows] == ["good", "good", "poor", "poor"]
    assert 0 < rows[0]["p_values"]["poor"] < 0.01
    assert rows[0]["value"] == pytest.approx((7 + 0.5) / 8)


def test_examples_without_golds_are_not_scored(tmp_path):
    """LaMP's test split: predictions exist for all inputs, scores for none."""
    path = write_predictions(tmp_path, "bm25", "LaMP-4", {"1": "a", "2": "b"})
    task = get_task("LaMP-4")
    assert score_predictions(path, examples(**{"1": None, "2": None}), task, progress=False) == []
    (row, _) = score_predictions(path, examples(**{"1": "a", "2": None}), task, progress=False)
    assert row["n"] == 1
    assert (row["ci_low"], row["ci_high"]) == (row["value"], row["value"])


def test_an_unknown_gold_is_refused(tmp_path):
    """An unknown label in the golds must never match an unreadable answer (trouble C09)."""
    path = write_predictions(tmp_path, "bm25", "LaMP-2", {"1": "garbage"})
    with pytest.raises(ValueError, match=r"'1'.*Horror"):
        score_predictions(path, examples(**{"1": "Horror"}), get_task("LaMP-2"), progress=False)
