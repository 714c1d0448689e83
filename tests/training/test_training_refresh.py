"""Training rows that follow the module: when they are made anew, and what a killed run makes of them."""

import dataclasses
import json
import random
import re

import numpy as np
import pytest
import torch
from tiny_training import WORDS, ToyEncoder, make_rows, run, weights

from ropg.training import TrainingRow, TrainSettings, bi_encoder_scorer
from ropg.training.bi_encoder import DocumentVectors
from ropg.training.checkpoints import ResumeMismatch
from ropg.training.rows import Refreshed

ROWS, PER_EPOCH = 11, 3  # four rows a step


class Interruption(Exception):
    pass


class TopThree:
    """Three of each query's eight documents, by the encoder as it is. ``kept`` is what a disk would keep."""

    def __init__(self, encoder, kept, room=None):
        self.encoder, self.kept, self.room, self.asked = encoder, kept, room, []
        rng = random.Random(5)
        self.queries = [
            (
                f"q{i}",
                " ".join(rng.choices(WORDS, k=2)),
                [" ".join(rng.choices(WORDS, k=3)) for _ in range(8)],
            )
            for i in range(ROWS)
        ]

    def rows(self):
        found = []
        for name, query, pool in self.queries:
            whole = TrainingRow(name, query, pool, (0,) * 8, (0,) * 8, range(1, 9), 0.5)
            with torch.no_grad():
                scores = bi_encoder_scorer(self.encoder)([whole])[0].tolist()
            best = sorted(range(8), key=lambda i: -scores[i])[:3]
            rewards = [0.2 + 0.6 * ("sun" in pool[i]) + i / 50 for i in best]
            documents = tuple(pool[i] for i in best)
            found.append(TrainingRow(name, query, documents, rewards, (0,) * 3, best, 0.5))
        return found

    def __call__(self, round, begins):
        self.asked.append((round, begins))
        if begins:
            rows = self.rows()
            if self.room == round:
                raise Interruption
            self.kept[round] = rows
        return Refreshed(self.kept[round], {"new": len({d for r in self.kept[round] for d in r.documents})})


def train(folder, kept, room=None, tracker=None, **settings):
    encoder = ToyEncoder()
    refresh = TopThree(encoder, kept, room)
    # the fewest evaluations, so that a round also begins where no other checkpoint is due
    defaults = {"refresh_every": 1, "epochs": 4, "eval_every": 4, "checkpoint_every": 10_000}
    options = {**defaults, **settings}
    _, result = run(folder, encoder=encoder, rows=refresh.rows(), refresh=refresh, tracker=tracker, **options)
    return encoder, result, refresh


def records(folder, event):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["event"] == event]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder, kept = tmp_path_factory.mktemp("undisturbed"), {}
    encoder, result, refresh = train(folder, kept)
    return weights(encoder), (folder / "metrics.jsonl").read_bytes(), kept, result, refresh


def test_rows_are_made_anew_where_a_round_begins(tmp_path, undisturbed):
    """Once a round, by the weights of that moment; the steps are otherwise those of any training."""
    _, metrics, kept, _, refresh = undisturbed
    assert refresh.asked == [(1, True), (2, True), (3, True)]
    documents = [[row.documents for row in kept[round]] for round in (1, 2, 3)]
    assert documents[0] != documents[1] != documents[2]
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "metrics.jsonl").write_bytes(metrics)
    found = records(folder, "refresh")
    assert [(r["step"], r["round"]) for r in found] == [(3, 1), (6, 2), (9, 3)]
    assert all(0 < r["new"] <= 3 * ROWS for r in found)
    _, _, every_second = train(tmp_path / "second", {}, refresh_every=2, epochs=5)
    assert every_second.asked == [(1, True), (2, True)]


def test_a_refresh_that_changes_nothing_changes_nothing(tmp_path):
    """Order, draws and learning rate are those of a training without."""
    rows = make_rows(ROWS, 1, dead=(2,))
    plain, _ = run(tmp_path / "plain", rows=rows)
    same, _ = run(
        tmp_path / "same", rows=rows, refresh_every=1, refresh=lambda round, begins: Refreshed(list(rows), {})
    )
    assert weights(same) == weights(plain)
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("plain", "same")]
    assert lines[0] == [line for line in lines[1] if '"refresh"' not in line] != lines[1]


def test_without_it_nothing_new_is_written(tmp_path):
    """Runs of before can be resumed."""
    run(tmp_path)
    assert "refresh_every" not in TrainSettings().identity()
    states = list(tmp_path.glob("checkpoints/step-*/state.json"))
    assert states
    assert not any("rows" in json.loads(path.read_text()) for path in states)


@pytest.mark.parametrize("every", [1, 2, 10_000])
def test_interrupted_anywhere_it_ends_as_undisturbed(tmp_path, undisturbed, every):
    """Before a round begins, while its rows are made, right after, and some steps later."""
    final, metrics, kept, expected, _ = undisturbed
    rng, mine, tries = random.Random(every), {}, 0
    longest = 2 * PER_EPOCH + 2 if every == 10_000 else 4  # or it would never reach the next checkpoint
    while True:
        left = [rng.randint(2, 2 + longest)]

        def track(record, left=left):
            left[0] -= 1
            if left[0] == 0:
                raise Interruption

        try:
            room = rng.choice([None, None, 1, 2, 3])
            encoder, result, _ = train(tmp_path, mine, room, track, checkpoint_every=every)
            break
        except Interruption:
            tries += 1
            assert tries < 200
    assert tries > 2
    assert weights(encoder) == final
    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics
    assert mine == kept
    assert result.history == expected.history


def stop_at(event, step):
    def track(record):
        if (record["event"], record["step"]) == (event, step):
            raise Interruption

    return track


def test_killed_while_rows_are_made_it_makes_them_from_the_very_weights(tmp_path, undisturbed):
    """The checkpoint of before: a round must never begin from weights that no run had there."""
    with pytest.raises(Interruption):
        train(tmp_path, {}, room=2)
    kept = {}
    encoder, _, refresh = train(tmp_path, kept)
    assert refresh.asked == [(2, True), (3, True)]
    assert kept[2] == undisturbed[2][2]
    assert weights(encoder) == undisturbed[0]


def test_killed_right_after_a_refresh(tmp_path, undisturbed):
    """What the record says of it is written once."""
    with pytest.raises(Interruption):
        train(tmp_path, {}, tracker=stop_at("refresh", 6))
    encoder, _, refresh = train(tmp_path, kept := {})
    assert refresh.asked[0] == (2, True)
    assert (weights(encoder), kept[3]) == (undisturbed[0], undisturbed[2][3])
    assert (tmp_path / "metrics.jsonl").read_bytes() == undisturbed[1]


def test_within_a_round_the_rows_of_then_are_wanted(tmp_path, undisturbed):
    """Rows made by later weights would silently make another training of it."""
    kept = {}
    with pytest.raises(Interruption):
        train(tmp_path, kept, tracker=stop_at("step", 5), checkpoint_every=1)
    other = dict(kept)
    other[1] = [dataclasses.replace(row, rewards=(0.1, 0.2, 0.3)) for row in kept[1]]
    with pytest.raises(
        ResumeMismatch, match=f"rows of round 1 .* step 4 .*remove {re.escape(str(tmp_path))}"
    ):
        train(tmp_path, other, checkpoint_every=1)
    encoder, _, refresh = train(tmp_path, kept, checkpoint_every=1)
    assert refresh.asked[0] == (1, False)
    assert weights(encoder) == undisturbed[0]
    assert (tmp_path / "metrics.jsonl").read_bytes() == undisturbed[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[::-1], "same order"),
        (lambda rows: rows[1:], "not of the same 11 queries"),
        (lambda rows: [dataclasses.replace(r, rewards=(float("nan"),) * 3) for r in rows], "not finite"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path, change, message):
    """A step's rows are chosen by their places, so other queries would shift the order."""
    rows = make_rows(ROWS, 1)
    if "finite" in message:
        rows = TopThree(ToyEncoder(), {}).rows()
    with pytest.raises(ValueError, match=message):
        run(tmp_path, rows=rows, refresh_every=1, refresh=lambda round, begins: Refreshed(change(rows), {}))


def test_half_a_refresh_is_refused(tmp_path):
    """A period without rows, or rows without a period."""
    with pytest.raises(ValueError, match="go together"):
        run(tmp_path, refresh_every=1)
    with pytest.raises(ValueError, match="go together"):
        run(tmp_path, refresh=lambda round, begins: Refreshed([], {}))
    with pytest.raises(ValueError, match="refresh_every=0 is out of range"):
        TrainSettings(refresh_every=0)


def test_vectors_of_documents_after_a_refresh_do_not_depend_on_where_a_run_goes_on():
    """What is encoded together must be the same in a resumed run, or rounding would differ."""

    def row(*documents):
        n = len(documents)
        return TrainingRow("q", "q", documents, (0,) * n, (0,) * n, range(1, n + 1), 0)

    encoded = []

    def encode(texts, progress=False):
        encoded.append(list(texts))
        return np.array([[float(ord(text))] for text in texts], dtype=np.float32)

    first, one, two = [row("a", "b")], [row("b", "c", "d")], [row("d", "e", "a")]
    undisturbed = DocumentVectors(encode, first)
    undisturbed(["b"])
    undisturbed.meet(one)
    undisturbed(["c"])
    undisturbed.meet(two)
    assert undisturbed(["e", "a"]).tolist() == [[101.0], [97.0]]
    assert encoded == [["a", "b"], ["c", "d"], ["d", "e"]]
    encoded.clear()
    resumed = DocumentVectors(encode, first)
    resumed.meet(two)
    resumed(["a"])
    assert encoded == [["a", "b"], ["d", "e"]]
