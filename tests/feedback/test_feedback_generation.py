"""generate_missing: what the store has is never generated again, and batches are those of a first run."""

from __future__ import annotations

import logging

import pytest
from feedback_fakes import FakeLLM
from hypothesis import given, settings
from hypothesis import strategies as st

from ropg.feedback import GenerationRecord, GenerationStore, generate_missing, generation_key

PROMPTS = [f"prompt {i} " + "w " * (i % 5) for i in range(18)]


def test_texts_come_in_the_order_of_the_prompts_and_duplicates_are_asked_once(tmp_path):
    """If this fails, a reward lands on another document."""
    llm = FakeLLM(batch=3)
    prompts = ["b b", "a", "b b", "c c c", "a"]
    with GenerationStore(tmp_path) as store:
        report = generate_missing(llm, prompts, store, progress=False)
    assert llm.planned == [["b b", "a", "c c c"]]
    assert [p for batch in llm.batches for p in batch] == ["c c c", "b b", "a"]
    assert report.texts[0] == report.texts[2] != report.texts[1]
    assert report.keys == [generation_key(llm.identity, p, llm.decoding) for p in prompts]
    assert (report.n_prompts, report.n_distinct, report.n_generated, report.n_from_store) == (5, 3, 3, 0)


def test_a_second_run_generates_nothing_and_loads_nothing(tmp_path):
    """The promise of the store: a run that is repeated costs no LLM call."""
    with GenerationStore(tmp_path) as store:
        first = generate_missing(FakeLLM(), PROMPTS, store, progress=False)
    llm = FakeLLM()
    with GenerationStore(tmp_path) as store:
        second = generate_missing(llm, PROMPTS, store, progress=False)
        assert store.path is None, "nothing to write, no file claimed"
    assert second.texts == first.texts
    assert not llm.loaded
    assert (second.n_generated, second.n_from_store) == (0, 18)
    assert second.n_truncated == first.n_truncated > 0


def test_another_decoding_or_model_is_another_answer(tmp_path):
    """A store shared by several models must not answer for the wrong one."""
    with GenerationStore(tmp_path) as store:
        generate_missing(FakeLLM(), PROMPTS, store, progress=False)
        for other in (FakeLLM(decoding={"num_beams": 4}), FakeLLM(identity={"kind": "fake", "model": "n"})):
            assert generate_missing(other, PROMPTS, store, progress=False).n_generated == 18


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("fail_at", [1, 2, 5])
def test_a_run_that_breaks_off_resumes_as_if_it_had_not(tmp_path, fail_at, error, caplog):
    """Batches before the failure are kept, none of the failing one is, and the rest forms the same batches."""
    with GenerationStore(tmp_path / "whole") as store:
        whole = FakeLLM()
        expected = generate_missing(whole, PROMPTS, store, progress=False).texts
    broken, resumed = FakeLLM(fail_at=fail_at, error=error), FakeLLM()
    with GenerationStore(tmp_path / "broken") as store:
        with caplog.at_level(logging.WARNING), pytest.raises(error):
            generate_missing(broken, PROMPTS, store, progress=False)
        if error is KeyboardInterrupt:
            done = sum(map(len, broken.batches[:-1]))
            assert f"{done} of 18 prompts are answered" in caplog.text
            assert str(tmp_path / "broken") in caplog.text
        report = generate_missing(resumed, PROMPTS, store, progress=False)
    assert report.texts == expected
    assert broken.batches[:-1] + resumed.batches == whole.batches


def test_of_a_partly_stored_batch_only_the_rest_is_generated(tmp_path):
    """Prompts that another run's batches covered are not paid for twice."""
    llm = FakeLLM(batch=4)
    prompts = ["p" * n for n in range(1, 9)]  # planned: lengths 8 7 6 5 | 4 3 2 1
    with GenerationStore(tmp_path) as store:
        generate_missing(llm, ["p" * 6, "p" * 3], store, progress=False)
        llm.batches.clear()
        report = generate_missing(llm, prompts, store, progress=False)
    assert llm.batches == [["p" * 8, "p" * 7, "p" * 5], ["p" * 4, "p" * 2, "p"]]
    assert (report.n_generated, report.n_from_store) == (6, 2)


def test_work_of_another_process_is_seen_during_the_run(tmp_path):
    """Two runs side by side share their work instead of doing everything twice."""
    key = generation_key(FakeLLM().identity, "p", FakeLLM().decoding)

    class Meanwhile(FakeLLM):
        def generate_batch(self, prompts):
            with GenerationStore(tmp_path, "other") as other:
                other.put_many([GenerationRecord(key, "theirs", "stop", 1, 1)])
            return super().generate_batch(prompts)

    llm = Meanwhile(batch=1)
    with GenerationStore(tmp_path) as store:
        report = generate_missing(llm, ["pp", "p"], store, progress=False)
    assert llm.batches == [["pp"]]
    assert report.texts[1] == "theirs"
    assert (report.n_generated, report.n_from_store) == (1, 1)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_shards_together_are_one_run(tmp_path, n):
    """Processes take whole planned batches, so that the shared-out run computes what one process would."""
    with GenerationStore(tmp_path / "one") as store:
        expected = generate_missing(FakeLLM(), PROMPTS, store, progress=False).texts
    generated = 0
    for i in range(n):
        with GenerationStore(tmp_path / "many", f"rank{i}") as store:
            report = generate_missing(FakeLLM(), PROMPTS, store, progress=False, shard=(i, n))
        generated += report.n_generated
    assert generated == 18
    with GenerationStore(tmp_path / "many") as store:
        assert generate_missing(FakeLLM(fail_at=1), PROMPTS, store, progress=False).texts == expected


def test_an_incomplete_shard_gives_no_texts(tmp_path):
    """Half of the answers must not pass for all of them."""
    with GenerationStore(tmp_path) as store:
        report = generate_missing(FakeLLM(), PROMPTS, store, progress=False, shard=(1, 2))
        assert report.n_missing == 10
        with pytest.raises(ValueError, match="10 of 18 prompts belong to other shards"):
            _ = report.texts
        with pytest.raises(ValueError, match="shard"):
            generate_missing(FakeLLM(), PROMPTS, store, shard=(2, 2))


def test_a_plan_or_a_batch_that_does_not_fit_is_refused(tmp_path):
    """An LLM of one's own that loses or repeats prompts is told so before it costs anything."""

    class Loses(FakeLLM):
        def plan(self, prompts):
            return [[0, 0]]

    class Short(FakeLLM):
        def generate_batch(self, prompts):
            return super().generate_batch(prompts)[1:]

    with GenerationStore(tmp_path) as store:
        with pytest.raises(ValueError, match="Loses"):
            generate_missing(Loses(), ["a", "b"], store)
        with pytest.raises(ValueError, match="1 answers to 2 prompts"):
            generate_missing(Short(), ["a", "b"], store, progress=False)
        assert store.contents() == {}


def test_nothing_to_do(tmp_path):
    """No prompts: no plan, no file, an empty report."""
    with GenerationStore(tmp_path / "none") as store:
        report = generate_missing(FakeLLM(), [], store)
    assert report.texts == []
    assert not (tmp_path / "none").exists()


def test_the_bar_starts_at_what_the_store_holds(tmp_path, capsys):
    """Whoever resumes sees at once how much is done; time left counts only what remains."""
    with GenerationStore(tmp_path) as store:
        generate_missing(FakeLLM(), PROMPTS, store, progress=False, shard=(0, 2))
        assert capsys.readouterr().err == ""
        generate_missing(FakeLLM(), PROMPTS, store, description="feedback")
    shown = capsys.readouterr().err
    assert "feedback (10 from the store):  56%" in shown
    assert "18/18" in shown
    assert "tokens/s" in shown


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_any_split_into_interrupted_runs_gives_the_same_texts(tmp_path_factory, data):
    """Whatever the prompts and wherever it breaks off: every prompt is generated once, with the same text."""
    prompts = data.draw(st.lists(st.text(st.characters(), max_size=6), max_size=12))
    folder = tmp_path_factory.mktemp("stores")
    with GenerationStore(folder / "whole") as store:
        expected = generate_missing(FakeLLM(batch=2), prompts, store, progress=False).texts
    asked = 0
    with GenerationStore(folder / "parts") as store:
        while True:
            llm = FakeLLM(batch=2, fail_at=data.draw(st.integers(2, 4)))
            try:
                report = generate_missing(llm, prompts, store, progress=False)
            except RuntimeError:
                asked += sum(map(len, llm.batches[:-1]))
                continue
            asked += report.n_generated
            break
    assert report.texts == expected
    assert asked == len(set(prompts))
