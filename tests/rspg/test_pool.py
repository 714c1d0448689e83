"""The pool's table: every member on every input, each prompt answered once, whatever the order of members."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from feedback_fakes import FakeLLM, FakeTask, make_examples

from ropg.examples import Document
from ropg.feedback.store import GenerationStore
from ropg.retrievers import NoRetrieval, Random, Recency
from ropg.retrievers.base import ScoringRetriever
from rspg.pool import Member, PoolTable, read_one, read_pool
from rspg.qpp import PREDICTORS
from rspg.selector import choose


class Places(ScoringRetriever):
    """Scores documents by their place in the profile, the first or the last one best."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first = first

    def scorer(self):
        sign = -1.0 if self.first else 1.0
        return lambda requests: [[sign * i for i in range(len(r.documents))] for r in requests]


def pool(*names: str) -> list[Member]:
    made = {
        "none": NoRetrieval,
        "random": Random,
        "recency": Recency,
        "first": lambda: Places(True),
        "twin": lambda: Places(True),
        "last": lambda: Places(False),
    }
    return [Member(name, name.title(), made[name]()) for name in names]


NAMES = ("none", "first", "last", "random")


def read(folder, members, examples, llm=None, k: int = 2, **options) -> PoolTable:
    with GenerationStore(folder / "generations") as store:
        return read_pool(members, examples, FakeTask(), llm or FakeLLM(), store, k, progress=False, **options)


def test_every_cell_is_its_member_on_its_input(tmp_path):
    """A row or a column out of place would train the selector on another input's rewards."""
    examples = make_examples(5)
    table = read(tmp_path, pool(*NAMES), examples)
    assert table.names == NAMES
    assert table.labels == ("None", "First", "Last", "Random")
    assert table.example_ids == tuple(f"e{i}" for i in range(5))
    assert table.inputs == tuple(f"input {i}" for i in range(5))
    assert table.rewards.shape == (5, 4)
    prompts = {reading.prompt for row in table.readings for reading in row}
    assert len(set(table.rewards.ravel())) == len(prompts) > 15  # different prompts, different answers
    for q, example in enumerate(examples):
        documents = list(example.profile)
        chosen = {"none": [], "first": documents[:2], "last": documents[:1:-1]}
        for r, name in enumerate(NAMES):
            reading = table.readings[q][r]
            assert reading.member == name
            if name in chosen:
                assert list(reading.top) == list(reading.documents) == chosen[name]
            assert reading.prompt == "\n".join([*(d.text for d in reading.documents), example.input])
            assert table.rewards[q, r] == float(reading.text)


def test_texts_are_the_llms_for_their_own_prompts(tmp_path):
    """A text beside the wrong prompt would be read by Post as that member's."""
    llm = FakeLLM(batch=3)
    table = read(tmp_path, pool(*NAMES), make_examples(4), llm)
    again = FakeLLM(batch=3)
    told = {}
    for batch in llm.batches:
        told |= {p: a.text for p, a in zip(batch, again.generate_batch(batch), strict=True)}
    assert {r.prompt: r.text for row in table.readings for r in row} == told


def test_equal_prompts_are_asked_once(tmp_path):
    """Members that retrieve the same share one LLM call, and the table says how many were needed."""
    llm, examples = FakeLLM(), make_examples(4, documents=3)
    table = read(tmp_path, pool("none", "first", "twin"), examples, llm)
    asked = [prompt for batch in llm.batches for prompt in batch]
    assert len(asked) == len(set(asked)) == 8 == table.llm_calls
    assert (table.counts["prompts"], table.counts["distinct_prompts"]) == (12, 8)
    assert table.distinct_prompts == 2.0
    np.testing.assert_array_equal(table.rewards[:, 1], table.rewards[:, 2])
    assert (table.rewards[:, 0] != table.rewards[:, 1]).all()


def test_nothing_is_asked_twice_over_runs(tmp_path):
    """Post after Pre, another seed, the evaluation: what one generated is read by the next."""
    first = read(tmp_path, pool("none", "first"), make_examples(4))
    llm = FakeLLM()
    again = read(tmp_path, pool("none", "first"), make_examples(4), llm)
    assert not llm.loaded
    assert (first.llm_calls, again.llm_calls) == (8, 0)
    assert again.readings == first.readings
    wider = read(tmp_path, pool("last", "none", "first"), make_examples(4), llm)
    assert wider.llm_calls == 4  # the new member's alone
    np.testing.assert_array_equal(wider.rewards[:, 1:], first.rewards)


def test_interrupted_it_ends_in_the_same_table(tmp_path):
    """The fake's answers depend on the batch: a resumed pool that forms other batches has other texts."""
    examples = make_examples(5)
    whole = read(tmp_path / "whole", pool(*NAMES), examples)
    for fail_at in (2, 1, 3):
        with pytest.raises(RuntimeError, match="gave up"):
            read(tmp_path / "parts", pool(*NAMES), examples, FakeLLM(fail_at=fail_at))
    resumed = read(tmp_path / "parts", pool(*NAMES), examples)
    assert 0 < resumed.llm_calls < whole.llm_calls
    assert resumed.readings == whole.readings
    np.testing.assert_array_equal(resumed.rewards, whole.rewards)


def test_members_in_another_order_are_columns_in_another_order(tmp_path):
    """Nothing of a member may depend on where it stands in the pool."""
    examples = make_examples(4)
    table = read(tmp_path, pool(*NAMES), examples)
    turned = read(tmp_path, pool(*NAMES[::-1]), examples)
    assert turned.names == NAMES[::-1]
    np.testing.assert_array_equal(turned.rewards, table.rewards[:, ::-1])
    for name, values in table.predictions.items():
        np.testing.assert_array_equal(turned.predictions[name], values[:, ::-1])
    assert turned.readings == tuple(row[::-1] for row in table.readings)


def test_documents_over_the_budget_are_cut_and_counted(tmp_path):
    """What stands in the prompt is what the selector reads; the rest was retrieved and dropped."""
    llm = FakeLLM(max_input_tokens=5)  # the texts have 3, 4, 5, 6 words
    table = read(tmp_path, pool("last"), make_examples(2), llm, k=3)
    for (reading,) in table.readings:
        assert [d.id for d in reading.top] == ["d3", "d2", "d1"]
        assert [d.id for d in reading.documents] == ["d2", "d1"]
    assert table.counts["dropped_documents"] == table.counts["trimmed_prompts"] == 2


def test_examples_without_a_target_are_read_and_not_scored(tmp_path):
    """LaMP's test split has no golds: its users still get a choice, and never a reward."""
    examples = make_examples(4)
    examples[1] = replace(examples[1], target=None)
    table = read(tmp_path, pool("none", "first"), examples)
    assert table.scored.tolist() == [True, False, True, True]
    assert np.isnan(table.rewards[1]).all()
    assert all(reading.text for row in table.readings for reading in row)
    assert table.counts["without_target"] == 1
    assert table.counts["examples"] == 4


@pytest.mark.parametrize("without", [(), (1,), (0, 1, 2, 3)])
def test_likelihood_as_eval(tmp_path, without):
    """exp of the LLM's mean log-probability of y, for examples with a target alone."""
    examples = [replace(e, target=None) if i in without else e for i, e in enumerate(make_examples(4))]
    table = read(tmp_path, pool("none", "first"), examples, eval="likelihood")
    assert table.scored.tolist() == [i not in without for i in range(4)]
    for q in np.flatnonzero(table.scored):
        prompts = [r.prompt for r in table.readings[q]]
        logs = FakeLLM().log_likelihood(prompts, [examples[q].target] * 2)
        np.testing.assert_allclose(table.rewards[q], np.exp(logs))
    assert table.llm_calls == 8 + 2 * (4 - len(without))
    assert read(tmp_path, pool("none", "first"), examples, eval="likelihood").llm_calls == 0


def test_a_profile_that_a_member_cannot_rank(tmp_path):
    """One user without dates, one without documents, one with a single document: counted, and answered."""
    examples = make_examples(4)
    dated = tuple(replace(d, date=f"201{i}-01-01") for i, d in enumerate(examples[0].profile))
    profiles = (dated, (), examples[2].profile, (Document("d0", "only one", date="2012"),))
    examples = [replace(e, profile=profile) for e, profile in zip(examples, profiles, strict=True)]
    table = read(tmp_path, pool("none", "recency", "first"), examples)
    assert [d.id for d in table.readings[0][1].top] == ["d3", "d2"]
    for q, r in ((1, 0), (1, 1), (1, 2), (2, 1)):
        assert table.readings[q][r].documents == ()
        assert table.readings[q][r].prompt == examples[q].input
    assert [d.id for d in table.readings[3][1].documents] == ["d0"]
    assert table.counts["empty_rankings"] == 3  # no retrieval ranks nothing by intention
    assert not table.predictions["wig"][1].any()
    np.testing.assert_array_equal(table.rewards[2, 0], table.rewards[2, 1])


def test_predictions_are_those_of_the_whole_ranking(tmp_path):
    """QPP reads the scores of the profile, not of the top k, and the terms of φ_q(x)."""
    examples = make_examples(2, documents=7)
    table = read(tmp_path, pool("none", "last"), examples, k=1)
    assert set(table.predictions) == set(PREDICTORS)
    for name, predict in PREDICTORS.items():
        assert table.predictions[name].shape == (2, 2)
        assert table.predictions[name][0].tolist() == [0.0, predict(np.arange(7.0), 2)]
        assert table.predictions[name][0, 1] != 0


def test_a_part_of_the_pool(tmp_path):
    """Table 5's other column is the same table with fewer columns, in the order that is asked for."""
    table = read(tmp_path, pool(*NAMES), make_examples(3))
    part = table.restricted(["random", "none"])
    assert (part.names, part.labels) == (("random", "none"), ("Random", "None"))
    np.testing.assert_array_equal(part.rewards, table.rewards[:, [3, 0]])
    for name, values in table.predictions.items():
        np.testing.assert_array_equal(part.predictions[name], values[:, [3, 0]])
    assert part.readings == tuple((row[3], row[0]) for row in table.readings)
    assert part.distinct_prompts == 2.0
    for names, message in ((["bm25"], "not bm25"), ([], "not no one")):
        with pytest.raises(ValueError, match=f"the pool has none, first, last, random, and {message}"):
            table.restricted(names)


def test_pools_that_are_none(tmp_path):
    """Named before the LLM works."""
    llm, examples = FakeLLM(), make_examples(3)
    for names in ((), ("first", "first")):
        with pytest.raises(ValueError, match="different names, at least one"):
            read(tmp_path, pool(*names), examples, llm)
    with pytest.raises(ValueError, match="'e1' comes twice"):
        read(tmp_path, pool("first"), [*examples, examples[1]], llm)
    with pytest.raises(ValueError, match="e2: unknown gold 'Horror'"):
        read(tmp_path, pool("first"), [*examples[:2], replace(examples[2], target="Horror")], llm)
    assert not llm.loaded


def test_a_pool_on_no_examples(tmp_path):
    """An empty split must end in a sentence elsewhere, not in an error here."""
    table = read(tmp_path, pool("none", "first"), [])
    assert table.rewards.shape == (0, 2)
    assert table.scored.shape == (0,)
    assert choose(None, FakeTask(), table) == []


def test_one_reading_alone_is_that_of_the_table(tmp_path):
    """The selector at inference reads one user at a time, training reads tables: the same prompts."""
    examples, llm = make_examples(3), FakeLLM()
    table = read(tmp_path, pool("first"), examples, llm)
    (member,) = pool("first")
    for q, example in enumerate(examples):
        ranking = member.retriever.rank(example.input, example.profile, example=example)
        alone = read_one(member, example, ranking, FakeTask(), llm, 2)
        assert alone.text is None
        assert replace(alone, text=table.readings[q][0].text) == table.readings[q][0]
