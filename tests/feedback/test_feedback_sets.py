"""The LLM asked about sets while training: the right reward for the right prompt, and nothing asked twice."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
import torch
from feedback_fakes import ByLength, FakeLLM, FakeTask, make_examples, number
from safetensors.torch import save_file

from ropg.feedback import (
    GenerationStore,
    SetFeedback,
    build_candidates,
    generation_key,
    join,
    likelihood_key,
    score_candidates,
)
from ropg.feedback.owners import owner_digest
from ropg.training import TrainSettings, load_objective, train

TASK = FakeTask()


def queries_of(examples, store):
    candidates = build_candidates(examples, TASK, ByLength(), l=4, progress=False)
    feedback = score_candidates(examples, TASK, candidates, FakeLLM(), store, progress=False)
    return join(candidates, feedback, examples, TASK)


@pytest.fixture
def examples():
    return make_examples(3)


@pytest.fixture
def store(tmp_path):
    with GenerationStore(tmp_path / "store") as opened:
        yield opened


def prompt(examples, query, columns):
    documents = {d.id: d for d in examples[int(query.example_id[1:])].profile}
    texts = [documents[query.document_ids[c]].text for c in columns]
    return "\n".join([*texts, examples[int(query.example_id[1:])].input])


def test_the_reward_is_what_the_prompt_earns(examples, store):
    """The documents of a set in their order in one prompt, answered, and scored against this query's target."""
    queries = queries_of(examples, store)
    llm = FakeLLM(batch=100)
    ask = SetFeedback(examples, queries, TASK, llm, store)
    sets = [[[1, 0], [0, 1]], [[2], [3, 1]]]
    found = ask([queries[0], queries[2]], sets)
    wanted = [
        prompt(examples, q, c) for q, of in zip((queries[0], queries[2]), sets, strict=True) for c in of
    ]
    assert llm.planned == [wanted]  # all of a call in one plan
    assert wanted[0] != wanted[1]
    single = wanted.index(prompt(examples, queries[2], [2]))
    (asked,) = llm.batches
    assert sorted(asked) == sorted(w for i, w in enumerate(wanted) if i != single)  # feedback had that one
    answers = {p: float(f"{number(p + chr(10).join(asked)):.6f}") for p in asked}
    assert found[0] == [answers[wanted[0]], answers[wanted[1]]]
    assert found[1] == [queries[2].rewards[2], answers[wanted[3]]]


def test_nothing_is_asked_twice(examples, store):
    """Neither in the same call, nor in a later one, nor by another run; calls and cuts are counted."""
    queries = queries_of(examples, store)
    llm = FakeLLM()
    ask = SetFeedback(examples, queries, TASK, llm, store)
    first = ask(queries[:1], [[[0, 1], [1, 0], [0, 1]]])
    assert first[0][0] == first[0][2]
    assert ask(queries[:1], [[[1, 0], [0, 1]]]) == [[first[0][1], first[0][0]]]
    assert ask.llm_calls == sum(map(len, llm.batches)) == 2
    cut = sum(number(prompt(examples, queries[0], c)) < 0.25 for c in ([0, 1], [1, 0]))
    low = sum(first[0][i] < 0.1 for i in (0, 1))
    assert ask.counts == {
        "sets": 2, "trimmed_prompts": 0, "shortened_documents": 0, "dropped_documents": 0, "unparsed": low,
        "truncated_answers": cut,
    }  # fmt: skip
    other = FakeLLM()
    assert SetFeedback(examples, queries, TASK, other, store)(queries[:1], [[[0, 1]]]) == [[first[0][0]]]
    assert other.batches == []


def test_documents_that_the_budget_drops_are_counted_once(examples, store):
    """A prompt that holds fewer documents than its set says so."""
    queries = queries_of(examples, store)
    llm = FakeLLM(max_input_tokens=4)  # of the texts, "text i j w …", only those of d1 and d0 fit
    ask = SetFeedback(examples, queries, TASK, llm, store)
    for _ in range(2):
        ask(queries[:1], [[[0, 3], [0, 1], [3, 2]]])
    assert queries[0].document_ids == ("d3", "d2", "d1", "d0")
    assert ask.counts["dropped_documents"] == 1 + 2
    assert ask.counts["trimmed_prompts"] == 2
    assert ask.counts["sets"] == 3


def test_the_likelihood_of_the_target_is_an_eval_too(examples, store):
    """``feedback.eval=likelihood`` holds for sets as for single documents."""
    queries, llm = queries_of(examples, store), FakeLLM()
    ask = SetFeedback(examples, queries, TASK, llm, store, "likelihood")
    ((value,),) = ask(queries[:1], [[[1, 0]]])
    text = prompt(examples, queries[0], [1, 0])
    assert value == pytest.approx(math.exp(-2 * number(text + "target 0")))
    assert ask.llm_calls == 1
    key = likelihood_key(llm.identity, text, "target 0")
    assert store.get_likelihoods([key]) == {key: pytest.approx(math.log(value))}
    assert ask.identity["eval"] == "likelihood"


def test_answers_belong_to_the_user(examples, store):
    """So that a user can be forgotten."""
    queries, llm = queries_of(examples, store), FakeLLM()
    SetFeedback(examples, queries, TASK, llm, store)(queries[1:2], [[[1, 0]]])
    key = generation_key(llm.identity, prompt(examples, queries[1], [1, 0]), llm.decoding)
    assert store._owned([key]) == {(key, owner_digest("u1"))}


def test_what_does_not_belong_together_is_named(examples, store):
    """Other data, or a metric that gives no number in [0, 1]."""
    queries = queries_of(examples, store)
    with pytest.raises(ValueError, match="'e2'"):
        SetFeedback(examples[:2], queries, TASK, FakeLLM(), store)

    class Percent(FakeTask):
        def score(self, prediction, target):
            return 100.0

    with pytest.raises(ValueError, match=r"'e0', documents 'd2', 'd3': .* 100\.0"):
        SetFeedback(examples, queries, Percent(), FakeLLM(), store)(queries[:1], [[[1, 0]]])


# -- in training --------------------------------------------------------------------------------------


def learn(folder, examples, store, llm, queries):
    """Train a score for each candidate on sets of two; weights and result."""
    module = torch.nn.ParameterDict({q.example_id: torch.nn.Parameter(torch.zeros(4)) for q in queries})
    ask = SetFeedback(examples, queries, TASK, llm, store)
    result = train(
        module,
        lambda rows: torch.stack([module[row.example_id] for row in rows]),
        queries,
        queries,
        load_objective("ropg_rl", set_size=2, set_reward="llm", samples=2),
        TrainSettings(lr=0.3, epochs=4, batch_size=3, accumulation=1, checkpoint_every=2),
        folder,
        save_model=lambda path: save_file(dict(module.state_dict()), path / "model.safetensors"),
        identity={"sets": ask.identity},
        ask_sets=ask,
        progress=False,
    )
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in module.state_dict().values())).hexdigest()
    return digest, result


def texts(store, llm):
    """Key -> text of all that was asked in batches."""
    keys = [generation_key(llm.identity, p, llm.decoding) for batch in llm.batches for p in batch]
    return {key: record.text for key, record in store.get_many(keys).items()}


def test_killed_at_every_batch_it_ends_as_undisturbed(tmp_path):
    """The LLM's answers depend on their batch: other batches after a kill would be other rewards and weights."""
    examples = make_examples(6)
    with GenerationStore(tmp_path / "a") as store:
        queries = queries_of(examples, store)
        llm = FakeLLM()
        expected, result = learn(tmp_path / "undisturbed", examples, store, llm, queries)
        asked = [p for batch in llm.batches for p in batch]
        kept = texts(store, llm)
    assert len(set(asked)) == len(asked) > 20
    assert result.best_step >= 0

    answered = []
    with GenerationStore(tmp_path / "b") as store:
        assert queries_of(examples, store) == queries
        found, tries = None, 0
        while found is None and tries < 100:
            tries += 1
            llm = FakeLLM(fail_at=3)
            try:
                found, again = learn(tmp_path / "killed", examples, store, llm, queries)
                answered += llm.batches
            except RuntimeError:
                answered += llm.batches[:-1]  # the last one was in flight
        assert tries > 3
        flat = [p for batch in answered for p in batch]
        assert len(set(flat)) == len(flat)
        assert set(flat) == set(asked)
        llm.batches = answered
        assert texts(store, llm) == kept
    assert found == expected
    assert again.history == result.history
    logs = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("undisturbed", "killed")]
    assert logs[0] == logs[1]
    assert all("loss" not in r for r in map(json.loads, logs[0].splitlines()) if r["event"] == "evaluation")
