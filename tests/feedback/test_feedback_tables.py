"""Candidates, feedback, answers and the join: the right number at the right document, nothing dropped unseen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from feedback_fakes import ByLength, FakeLLM, FakeTask, Place, make_examples, number

from ropg.examples import Document, Example
from ropg.feedback import (
    CandidateTable,
    FeedbackTable,
    GenerationStore,
    StaleTable,
    TableError,
    build_candidates,
    feedback_identity,
    generate_answers,
    join,
    score_candidates,
)
from ropg.feedback.tables import offsets

TASK = FakeTask()


def candidates_of(examples, **options) -> CandidateTable:
    return build_candidates(examples, TASK, ByLength(), progress=False, **options)


# -- candidates -------------------------------------------------------------------------------------


def test_candidates_are_the_top_of_the_initial_ranking():
    """Hand-worked: document j's text is longer the larger j, so d3 comes first."""
    retriever = ByLength()
    table = build_candidates(make_examples(2), TASK, retriever, l=3, progress=False)
    assert retriever.requests == [("INPUT 0", "e0"), ("INPUT 1", "e1")]
    assert table.table.to_pylist()[:3] == [
        {"example_id": "e0", "document_id": d, "rank": r, "score": s, "source": "initial", "round": 0}
        for r, (d, s) in enumerate([("d3", 15.0), ("d2", 13.0), ("d1", 11.0)], start=1)
    ]
    assert table.rows("e1").document_ids == ("d3", "d2", "d1")
    assert table.rows("e1").ranks == (1, 2, 3)
    assert len(table) == 6
    assert "e2" not in table


def test_all_keeps_whole_profiles_and_source_and_round_are_kept():
    """``candidates.l=all`` trains on whole profiles; refreshed candidates carry where they come from."""
    table = candidates_of(make_examples(1, documents=30), l="all", source="trained", round=2)
    assert len(table) == 30
    assert set(table.table.column("source").to_pylist()) == {"trained"}
    assert set(table.table.column("round").to_pylist()) == {2}


def test_profiles_with_fewer_than_two_documents_are_counted_and_the_run_goes_on():
    """Trouble C03: one user without documents must not end the run, nor vanish from the counts."""
    empty, one = (
        replace(make_examples(1)[0], id=f"x{n}", profile=make_examples(1)[0].profile[:n]) for n in (0, 1)
    )
    table = candidates_of([empty, *make_examples(2), one])
    assert table.example_ids == ["e0", "e1"]
    assert table.counts == {"examples": 4, "kept": 2, "skipped_profiles": 2, "skipped_rankings": 0}


def test_documents_without_words_are_kept_in_order():
    """Trouble C03: documents that hold no token are candidates like others, at the score they get."""
    blank = Example("q2", "u", "x", "y", [Document("p", ""), Document("r", "")])
    assert candidates_of([blank]).rows("q2").document_ids == ("p", "r")


def test_examples_are_read_one_by_one_and_not_held():
    """A LaMP file has gigabytes of profiles; only ids and scores may pile up."""
    import gc
    import weakref

    alive: list[weakref.ref] = []
    most = 0

    class Profile(list):
        pass

    class Lazy(Sequence):
        def __len__(self):
            return 600

        def __getitem__(self, index):
            nonlocal most
            profile = Profile(make_examples(1)[0].profile)
            alive.append(weakref.ref(profile))
            if index % 100 == 0:
                gc.collect()
            most = max(most, sum(r() is not None for r in alive))
            return Example(f"e{index}", "u", "x", "y", profile)

    assert len(candidates_of(Lazy(), l=2)) == 1200
    assert most <= 102  # those of the last collection, and the one at hand


def test_a_streaming_retriever_gets_one_stream():
    """Dense retrieval encodes what users share once per stream; chunks would encode it once per chunk."""

    class Streams(ByLength):
        streams = 0

        def rank_stream(self, requests):
            self.streams += 1
            return super().rank_stream(requests)

    retriever = Streams()
    build_candidates(make_examples(5), TASK, retriever, progress=False)
    assert retriever.streams == 1
    assert len(retriever.requests) == 5


@pytest.mark.parametrize("l", [0, 1, -3, 2.0, "some", True])
def test_an_impossible_l_is_refused(l):  # noqa: E741
    """One candidate has nothing to learn."""
    with pytest.raises(ValueError, match="from 2 on, or 'all'"):
        candidates_of(make_examples(1), l=l)


def test_bad_rankings_are_named():
    """A NaN score, a document ranked twice or an example given twice would spoil training later, far from here."""

    class Bad(ByLength):
        def __init__(self, change):
            super().__init__()
            self.change = change

        def rank_stream(self, requests):
            return (self.change(ranking) for ranking in super().rank_stream(requests))

    def build(change):
        build_candidates(make_examples(2), TASK, Bad(change), progress=False)

    with pytest.raises(ValueError, match="example 'e0', document 'd3': the retriever's score is nan"):
        build(lambda r: [Place(r[0].document, math.nan), *r[1:]])
    with pytest.raises(ValueError, match="ranks document 'd3' twice"):
        build(lambda r: [r[0], *r])
    with pytest.raises(ValueError, match="example 'e0' comes twice"):
        candidates_of([*make_examples(1), *make_examples(1)])


def test_a_retriever_that_cuts_below_two_is_counted():
    """A filter may leave one document of many: nothing to learn there either."""

    class First(ByLength):
        def rank_stream(self, requests):
            return (ranking[:1] for ranking in super().rank_stream(requests))

    table = build_candidates(make_examples(2), TASK, First(), progress=False)
    assert len(table) == 0
    assert table.counts["skipped_rankings"] == 2


# -- files ------------------------------------------------------------------------------------------


def test_tables_survive_their_files_and_equal_tables_give_equal_bytes(tmp_path):
    """Bit-for-bit comparison of runs needs files without times in them."""
    for name in ("a", "b"):
        candidates_of(make_examples(3), identity={"data": "x"}).write(tmp_path / f"{name}.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "b.parquet"], (
        "no temporary file is left"
    )
    table = candidates_of(make_examples(3), identity={"data": "x"})
    back = CandidateTable.read(tmp_path / "a.parquet")
    assert back.table.equals(table.table)
    assert (back.identity, back.counts) == (table.identity, table.counts)
    assert back.rows("e2") == table.rows("e2")


def test_a_stale_damaged_or_foreign_file_is_refused(tmp_path):
    """Feedback of yesterday's settings must not train today's retriever."""
    path = tmp_path / "t.parquet"
    candidates_of(make_examples(3), identity={"data": {"split": "train"}, "l": 16}).write(path)
    CandidateTable.read(path, {"l": 16, "data": {"split": "train"}})
    with pytest.raises(StaleTable, match=r"t\.parquet.*data\.split: 'train' in the file, 'dev' now"):
        CandidateTable.read(path, {"data": {"split": "dev"}, "l": 16})
    with pytest.raises(TableError, match="holds a candidates table"):
        FeedbackTable.read(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableError, match=r"t\.parquet is damaged"):
        CandidateTable.read(path)
    with pytest.raises(FileNotFoundError):
        CandidateTable.read(tmp_path / "none.parquet")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    """A full disk during the write must not cost the table that was there."""
    path = tmp_path / "t.parquet"
    candidates_of(make_examples(1)).write(path)
    before = path.read_bytes()
    monkeypatch.setattr("ropg.files.os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        candidates_of(make_examples(2)).write(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_rows_of_one_example_must_lie_together():
    """Offsets find an example's rows; scattered rows would be lost silently."""
    assert offsets([], "t") == {}
    with pytest.raises(TableError, match="example 'a'"):
        offsets(["a", "b", "a"], "t")


# -- feedback ---------------------------------------------------------------------------------------


def test_every_candidate_gets_the_reward_of_its_own_prompt(tmp_path):
    """If this fails, the retriever learns from other documents' rewards."""
    examples, llm = make_examples(), FakeLLM(batch=1)
    candidates = candidates_of(list(reversed(examples)), l=3)
    with GenerationStore(tmp_path) as store:
        feedback = score_candidates(examples, TASK, candidates, llm, store, progress=False)
        stored = store.get_many(feedback.table.column("prompt_key").to_pylist())
    rows = feedback.table.to_pylist()
    pairs = [(row["example_id"], row["document_id"]) for row in rows]
    assert pairs == [(r["example_id"], r["document_id"]) for r in candidates.table.to_pylist()]
    by_id = {e.id: e for e in examples}
    for row in rows:
        text = {d.id: d.text for d in by_id[row["example_id"]].profile}[row["document_id"]]
        prompt = f"{text}\n{by_id[row['example_id']].input}"
        assert row["reward"] == float(f"{number(prompt + prompt):.6f}")  # a batch of one is its own prompt
        assert float(stored[row["prompt_key"]].text) == row["reward"]
    assert feedback.counts["rows"] == 15
    assert feedback.counts["examples"] == 5
    assert feedback.counts["unparsed"] == sum(row["reward"] < 0.1 for row in rows)
    assert feedback.counts["truncated_answers"] == feedback.report.n_truncated
    assert feedback.rewards("e4")["d3"] == rows[0]["reward"]


def test_the_budget_is_the_llms_and_what_it_cuts_is_counted(tmp_path):
    """Trouble C15: the LLM's tokenizer measures; a dropped document is a number in the log, not a surprise."""
    llm = FakeLLM(max_input_tokens=5)  # texts have 3, 4, 5 and 6 words
    with GenerationStore(tmp_path) as store:
        feedback = score_candidates(
            make_examples(2), TASK, candidates_of(make_examples(2)), llm, store, progress=False
        )
    assert feedback.counts["dropped_documents"] == feedback.counts["trimmed_prompts"] == 2


def test_examples_without_target_are_counted_and_unknown_targets_stop_before_the_llm(tmp_path):
    """Trouble C09: an unknown gold raises and never matches; nothing is spent before that is known."""
    examples = make_examples(4)
    examples[1] = replace(examples[1], target=None)
    llm = FakeLLM()
    with GenerationStore(tmp_path) as store:
        feedback = score_candidates(examples, TASK, candidates_of(examples), llm, store, progress=False)
        assert feedback.example_ids == ["e0", "e2", "e3"]
        assert feedback.counts["skipped_no_target"] == 1
        examples[3] = replace(examples[3], target="Horror")
        fresh = FakeLLM(identity={"model": "other"})
        with pytest.raises(ValueError, match="e3: unknown gold 'Horror'"):
            score_candidates(examples, TASK, candidates_of(examples), fresh, store, progress=False)
        assert not fresh.loaded
        assert fresh.planned == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.5])
def test_a_reward_outside_0_to_1_is_refused_by_name(tmp_path, bad):
    """A metric of one's own that gives percentages must not reach training."""

    class Percent(FakeTask):
        def score(self, prediction, target):
            return bad if target == "target 1" else 0.5

    with GenerationStore(tmp_path) as store:
        examples = make_examples(2)
        with pytest.raises(
            ValueError, match=rf"example 'e1', document 'd3': the reward by number:1 is {bad}"
        ):
            score_candidates(examples, Percent(), candidates_of(examples), FakeLLM(), store, progress=False)
        llm = FakeLLM()
        score_candidates(examples, TASK, candidates_of(examples), llm, store, progress=False)
        assert not llm.loaded, "the texts were kept, so another metric costs nothing"


def test_tables_of_other_data_are_refused(tmp_path):
    """Candidates built on other profiles are noticed by example and document."""
    candidates = candidates_of(make_examples(2))
    with GenerationStore(tmp_path) as store:
        with pytest.raises(ValueError, match=r"1 examples of the table.*'e1'"):
            score_candidates(make_examples(1), TASK, candidates, FakeLLM(), store, progress=False)
        with pytest.raises(ValueError, match="example 'e0': its profile has no document 'd3'"):
            score_candidates(
                make_examples(2, documents=3), TASK, candidates, FakeLLM(), store, progress=False
            )
        with pytest.raises(ValueError, match="'metric' or 'likelihood'"):
            score_candidates(make_examples(2), TASK, candidates, FakeLLM(), store, eval="bleu")


def test_the_likelihood_of_the_target_is_an_eval_of_its_own(tmp_path):
    """exp of the mean token log-probability, stored apart from texts, computed once."""
    examples, llm = make_examples(2), FakeLLM()
    candidates = candidates_of(examples)
    with GenerationStore(tmp_path) as store:
        feedback = score_candidates(examples, TASK, candidates, llm, store, eval="likelihood", progress=False)
        prompt = f"{examples[1].profile[3].text}\ninput 1"
        assert feedback.rewards("e1")["d3"] == math.exp(-2 * number(prompt + "target 1"))
        assert [len(b) for b in llm.batches] == [4, 4]
        again = FakeLLM()
        second = score_candidates(examples, TASK, candidates, again, store, eval="likelihood", progress=False)
        assert not again.loaded
        assert second.table.equals(feedback.table)
        assert (feedback.llm_calls, second.llm_calls) == (8, 0)
        [(_, counts)] = store.contents().items()
        assert counts == {"generations": 0, "likelihoods": 8}


@pytest.mark.parametrize("value", [math.nan, -math.inf, 0.5])
def test_a_likelihood_that_is_none_is_refused_and_not_stored(tmp_path, value):
    """Overflow in half precision gives NaN; stored once, it would come back for ever."""

    class Overflow(FakeLLM):
        def log_likelihood(self, prompts, targets):
            return [*super().log_likelihood(prompts, targets)[:-1], value]

    with GenerationStore(tmp_path) as store:
        examples = make_examples(1)
        with pytest.raises(ValueError, match=r"'target 0' after 'text 0 0.*is (nan|-inf|0\.5)"):
            score_candidates(
                examples, TASK, candidates_of(examples), Overflow(), store, eval="likelihood", progress=False
            )
        assert store.contents() == {}


def test_feedback_files_are_equal_for_equal_inputs_and_know_their_makers(tmp_path):
    """A fresh run and one from the store write the same bytes; another LLM, Eval or candidate set makes it stale."""
    examples = make_examples()
    candidates = candidates_of(examples, identity={"data": "x"})
    with GenerationStore(tmp_path / "store") as store:
        for name in ("first", "second"):
            score_candidates(examples, TASK, candidates, FakeLLM(), store, progress=False).write(
                tmp_path / name
            )
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    back = FeedbackTable.read(tmp_path / "first", feedback_identity(TASK, candidates, FakeLLM()))
    assert back.counts["rows"] == 20
    for stale in (
        feedback_identity(TASK, candidates, FakeLLM(decoding={"num_beams": 4})),
        feedback_identity(TASK, candidates, FakeLLM(), eval="likelihood"),
        feedback_identity(TASK, candidates_of(examples, identity={"data": "y"}), FakeLLM()),
    ):
        with pytest.raises(StaleTable):
            FeedbackTable.read(tmp_path / "first", stale)


# -- answers ----------------------------------------------------------------------------------------


def test_answers_are_raw_texts_by_example_from_the_same_store(tmp_path):
    """What feedback generated, evaluation reuses; an empty ranking is the question alone."""
    examples, llm = make_examples(3), FakeLLM(batch=1)
    rankings = {"e0": examples[0].profile[:2], "e1": [], "e2": examples[2].profile[:1]}
    with GenerationStore(tmp_path) as store:
        score_candidates(examples, TASK, candidates_of(examples), llm, store, progress=False)
        before = len(llm.batches)
        answers = generate_answers(examples, TASK, rankings, llm, store, progress=False)
    asked = [prompt for batch in llm.batches[before:] for prompt in batch]
    assert asked == [f"{examples[0].profile[0].text}\n{examples[0].profile[1].text}\ninput 0", "input 1"]
    assert list(answers.texts) == ["e0", "e1", "e2"]
    assert answers.texts["e1"] == f"{number('input 1input 1'):.6f}"
    assert answers.kept_ids == {"e0": ("d0", "d1"), "e1": (), "e2": ("d0",)}
    assert answers.counts["examples"] == 3
    assert (answers.report.n_generated, answers.report.n_from_store) == (2, 1)


def test_an_example_without_ranking_is_named(tmp_path):
    """A system that forgets a user must not be averaged over the others."""
    with GenerationStore(tmp_path) as store, pytest.raises(ValueError, match="example 'e1' has no ranking"):
        generate_answers(make_examples(2), TASK, {"e0": []}, FakeLLM(), store, progress=False)


# -- join -------------------------------------------------------------------------------------------


class Given(FakeTask):
    """Rewards that the test names: 0.k for the k-th document of the first example, 0.5 for all others."""

    def score(self, prediction, target):
        return 0.5


def test_the_join_puts_texts_scores_and_rewards_of_one_document_side_by_side(tmp_path):
    """Hand-worked; the baseline is the reward of the initial retriever's first document (Eq. 2)."""
    examples = make_examples(3)
    examples[1] = replace(examples[1], target=None)
    candidates = candidates_of(examples, l=2)
    with GenerationStore(tmp_path) as store:
        feedback = score_candidates(examples, TASK, candidates, FakeLLM(), store, progress=False)
    queries = join(candidates, feedback, examples, TASK)
    assert [q.example_id for q in queries] == ["e0", "e2"]
    first = queries[0]
    assert first.query == "INPUT 0"
    assert first.document_ids == ("d3", "d2")
    assert first.documents == ("t3 text 0 3 w w w ", "t2 text 0 2 w w ")
    assert first.initial_scores == (15.0, 13.0)
    assert first.ranks == (1, 2)
    assert first.rewards == tuple(feedback.rewards("e0").values())
    assert first.baseline == feedback.rewards("e0")["d3"]


def test_tables_that_do_not_belong_together_are_refused(tmp_path):
    """Feedback for other candidates than those at hand would train on holes."""
    examples = make_examples(2)
    with GenerationStore(tmp_path) as store:
        feedback = score_candidates(
            examples, TASK, candidates_of(examples, l=2), FakeLLM(), store, progress=False
        )
    with pytest.raises(ValueError, match="example 'e0': its 2 rewards and 3 candidates"):
        join(candidates_of(examples, l=3), feedback, examples, TASK)
    with pytest.raises(ValueError, match="feedback for example 'e1'"):
        join(candidates_of(examples[:1], l=2), feedback, examples, TASK)


def test_a_metric_that_no_text_has_is_refused_before_the_llm(tmp_path):
    """Found out at the first reward, it would have cost the whole generation."""

    class Likelihood(FakeTask):
        metric = "likelihood"

    llm, examples = FakeLLM(), make_examples(2)
    with GenerationStore(tmp_path) as store, pytest.raises(ValueError, match=r"feedback\.eval=likelihood"):
        score_candidates(examples, Likelihood(), candidates_of(examples), llm, store, progress=False)
    assert not llm.batches


def test_a_flipped_bit_never_gives_other_rewards(tmp_path):
    """A bad disk must cost a rebuild, not a silently different training signal."""
    path = tmp_path / "t.parquet"
    table = candidates_of(make_examples(20))
    table.write(path)
    whole = path.read_bytes()
    noticed = 0
    for position in range(4, len(whole) - 8, 37):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            back = CandidateTable.read(path)
        except (TableError, ValueError):
            noticed += 1
            continue
        assert back.table.equals(table.table), position
    assert noticed > 0
