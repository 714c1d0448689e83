"""Sets of documents whose reward is asked while training: what is asked, and what becomes of the answer."""

import json
import math

import pytest
import torch
from tiny_training import make_rows, run

from ropg.objectives import policy_log_probs, sample_sets, set_policy_gradient_loss
from ropg.training import ScoreBatch, TrainingRow, load_objective, make_batch
from ropg.training.batch import row_generator

LLM = {"set_size": 2, "set_reward": "llm"}


def batch_of(rows, scores, ask=None, seed=0):
    return make_batch(rows, scores, torch.Generator().manual_seed(seed), ask)


def row(k, name="q"):
    rewards = tuple(0.1 * (i + 1) for i in range(k))
    return TrainingRow(name, "q", ("d",) * k, rewards, (0.0,) * k, tuple(range(1, k + 1)), rewards[0])


def test_the_gradient_by_hand():
    """Three equal candidates, k = 2: ∇ log p(a, b) = (2/3, 1/6, −5/6) at a, b and the third document.

    Of the first pick 1 − 1/3 and twice −1/3, of the second, over what is left, 1 − 1/2 and −1/2.
    """
    drawn = []

    def ask(rows, sets):
        drawn.extend(sets[0])
        return [[0.9, 0.4]]

    scores = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    loss, logs = load_objective("ropg_rl", **LLM)(batch_of([row(3)], scores, ask))
    (a, b), first = drawn
    assert first == [0, 1]  # the initial retriever's two best documents are the baseline, 0.4
    expected = torch.full((3,), -5 / 6, dtype=torch.float64)
    expected[a], expected[b] = 2 / 3, 1 / 6
    loss.backward()
    torch.testing.assert_close(scores.grad[0], -(0.9 - 0.4) * expected)
    assert loss.item() == pytest.approx(0.5 * math.log(6))
    assert logs == {"expected_reward": pytest.approx(0.2), "set_reward": pytest.approx(0.9)}


@pytest.mark.parametrize("baseline", ["initial", "leave_one_out"])
def test_it_is_the_set_policy_gradient_with_the_answers_in_place_of_a_guess(baseline):
    """Plackett-Luce draws and log-probabilities are those of the other set rewards; a micro-batch asks once."""
    rows, asked = [row(4, "a"), row(1, "b"), row(3, "c")], []

    def worth(example, columns):  # depends on the order, as a prompt does
        return (ord(example) * 7 + sum((i + 1) * 3 * c for i, c in enumerate(columns))) % 10 / 10

    def ask(rows, sets):
        asked.append(sets)
        return [[worth(r.example_id, c) for c in row_sets] for r, row_sets in zip(rows, sets, strict=True)]

    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    b = batch_of(rows, scores, ask, seed=4)
    options = {**LLM, "samples": 5, "baseline": baseline, "temperature": 2.0}
    loss, logs = load_objective("ropg_rl", **options)(b)
    log_probs = policy_log_probs(scores.detach(), b.mask, 2.0)
    sets = sample_sets(log_probs, b.mask, 2, 5, torch.Generator().manual_seed(4))
    columns = [[[c for c in s if c >= 0] for s in of_row] for of_row in sets.tolist()]
    rewards = torch.tensor(ask(rows, columns))
    first = torch.tensor([worth(n, c) for n, c in (("a", [0, 1]), ("b", [0]), ("c", [0, 1]))])
    expected = set_policy_gradient_loss(
        scores / 2, sets, rewards, first if baseline == "initial" else "leave_one_out", b.mask
    )
    assert loss.item() == expected.item()
    assert logs["set_reward"] == pytest.approx(rewards.mean().item())
    assert len(asked) == 2  # the second is this test's own
    extra = [[[0, 1]], [[0]], [[0, 1]]] if baseline == "initial" else [[], [], []]
    assert asked[0] == [own + more for own, more in zip(columns, extra, strict=True)]
    assert asked[0][1][0] == [0]  # a profile of one document makes a set of one


def test_splitting_a_step_asks_for_the_same_sets():
    """Which rows share a micro-batch is a matter of memory."""
    rows = [row(3, name) for name in "abcd"]
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    objective = load_objective("ropg_rl", **LLM, samples=3)
    found = {}

    def ask(rows, sets):
        found.setdefault(len(rows), []).extend(sets)
        return [[0.5] * len(s) for s in sets]

    objective(make_batch(rows, scores, row_generator(7, 0), ask))
    for i in range(4):
        objective(make_batch(rows[i : i + 1], scores[i : i + 1], row_generator(7, i), ask))
    assert found[1] == found[4]


def test_a_set_of_one_document_is_worth_its_stored_feedback():
    """Nothing is asked for what is known."""
    scores = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    rows = [row(3, "a"), row(2, "b")]
    plain, logs = load_objective("ropg_rl", samples=2)(batch_of(rows, scores))
    loss, same = load_objective("ropg_rl", samples=2, set_reward="llm")(batch_of(rows, scores))
    assert loss.item() == plain.item()
    assert same == logs
    assert not load_objective("ropg_rl", set_reward="llm").asks_sets
    assert load_objective("ropg_rl", **LLM).asks_sets


def test_without_anybody_to_ask_it_says_what_to_do(tmp_path):
    """A notebook that calls the training itself must learn what is missing, before the first step."""
    b = batch_of([row(3)], torch.zeros(1, 3))
    assert isinstance(b, ScoreBatch)
    assert b.set_rewards is None
    with pytest.raises(ValueError, match=r"ask_sets .*SetFeedback"):
        load_objective("ropg_rl", **LLM)(b)
    with pytest.raises(ValueError, match=r"ask_sets .*SetFeedback"):
        run(tmp_path, objective=load_objective("ropg_rl", **LLM))


def test_answers_that_do_not_fit_are_refused():
    """One reward for each set, or a row would be judged by another's."""
    for answers in ([[0.5]], [[0.5, 0.5, 0.5]]):
        b = batch_of([row(3)], torch.zeros(1, 3), lambda rows, sets, found=answers: found)
        with pytest.raises(ValueError, match="not one each"):
            load_objective("ropg_rl", **LLM)(b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**LLM, "advantage_floor": 0.1}, "leave it at null with set_reward=llm"),
        ({**LLM, "estimator": "exact"}, "estimator=sample"),
        ({**LLM, "baseline": "mean"}, "baseline=initial or leave_one_out"),
        ({"set_reward": "lm"}, "did you mean llm"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        load_objective("ropg_rl", **options)


def test_the_loop_asks_about_training_rows_only(tmp_path):
    """Dev is measured on stored feedback, without a loss; training learns from what was asked."""
    dev, asked = make_rows(30, 2), set()

    def ask(rows, sets):
        asked.update(r.example_id for r in rows)
        return [
            [float("sun" in r.documents[columns[0]]) for columns in of]
            for r, of in zip(rows, sets, strict=True)
        ]

    settings = {"objective": load_objective("ropg_rl", **LLM, samples=4, baseline="leave_one_out")}
    settings |= {"rows": make_rows(60, 1), "batch_size": 8, "accumulation": 1, "epochs": 8, "eval_every": 2}
    _, result = run(tmp_path, **settings, dev=dev, ask_sets=ask)
    assert asked
    assert not asked & {r.example_id for r in dev}
    assert result.best_value > result.history[0]["expected_reward"] + 0.05
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all("set_reward" in r for r in lines if r["event"] == "step")
    assert all("loss" not in r for r in lines if r["event"] == "evaluation")
    assert all("train_loss" in r for r in lines[1:] if r["event"] == "evaluation")
