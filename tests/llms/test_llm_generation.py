"""What an LLM answers: the same in any batch, new text only, ended where it should end."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropg.llms import NonFiniteLogits, load_llm
from ropg.llms.stopping import find_stop

PROMPTS = [
    "short",
    "a much longer prompt with many more words in it",
    "review: quiet\ntitle:",
    "x",
    "y z",
    "",
]


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("stop", [(), ("e",)])
@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_batched_equals_one_at_a_time(kind, beams, stop, request):
    """The answer to a prompt would depend on the prompts beside it: feedback would be noise."""
    folder = request.getfixturevalue({"causal": "llama", "seq2seq": "t5"}[kind])
    llm = load_llm(kind, model=str(folder), num_beams=beams, max_new_tokens=16, stop=stop)
    batched = llm.generate_batch(PROMPTS)
    assert batched == [llm.generate_batch([prompt])[0] for prompt in PROMPTS]
    assert len({answer.text for answer in batched}) > 3  # the models do listen to their prompts


def test_llama_without_pad_token(llama):
    """With right padding, or a pad id that the embedding lacks, short prompts get garbage (C10)."""
    llm = load_llm("causal", model=str(llama), max_new_tokens=8)
    answers = llm.generate(["short", "a much longer prompt with many more words in it"])
    assert (llm.tokenizer.pad_token, llm.tokenizer.padding_side) == ("</s>", "left")
    assert llm.model.generation_config.pad_token_id == llm.tokenizer.eos_token_id
    alone = load_llm("causal", model=str(llama), max_new_tokens=8, max_batch_size=1)
    assert answers == alone.generate(["short", "a much longer prompt with many more words in it"])


def test_max_new_tokens_whatever_the_model_says(llama, recwarn, capfd):
    """Answers would stop at 20 tokens, be sampled, or shrink with the prompt (C12)."""
    llm = load_llm("causal", model=str(llama), max_new_tokens=64)
    prompts = ["abcdefghi", "z " * 150]
    assert llm.count_tokens(prompts[1]) > 300
    answers = llm.generate_batch(prompts)
    assert [answer.new_tokens for answer in answers] == [64, 64]
    assert [answer.finish_reason for answer in answers] == ["length", "length"]
    assert answers == llm.generate_batch(prompts)
    settings = llm.model.generation_config
    assert (settings.do_sample, settings.num_beams, settings.max_length) == (False, 1, None)
    assert settings.temperature in (None, 1.0)
    assert [str(w.message) for w in recwarn if "transformers" in str(w.filename)] == []
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("loading ")


@pytest.mark.parametrize("beams", [1, 2])
def test_ends_by_hand(automaton, beams):
    """An answer would run on past its first line, or a cut one would count as whole."""
    model = automaton({":": "\nAb\n", "x": "y", "y": None, "q": "w##", "e": "r。"})
    llm = load_llm("causal", model=str(model), max_new_tokens=6, num_beams=beams, stop=["\n", "##", "。"])
    answers = llm.generate_batch(["title:", "x", "zz", "q", "longer prompt e"])
    assert [(a.text, a.finish_reason, a.new_tokens) for a in answers] == [
        ("\nAb", "stop", 4),  # the line break before any text does not end it
        ("y", "stop", 2),
        ("zzzzzz", "length", 6),
        ("w", "stop", 3),
        ("r", "stop", 4),  # a stop string of three tokens, each a part of one character
    ]
    assert [a.prompt_tokens for a in answers] == [6, 1, 2, 1, 15]


@given(st.text(alphabet="ab \n#", max_size=12), st.sampled_from([["\n"], ["##"], ["\n", "##"], ["\n#"], []]))
def test_cut_text_holds_no_stop(text, stops):
    """A stored answer would still hold what should have ended it."""
    place = find_stop(text, stops)
    kept = text if place is None else text[:place]
    assert find_stop(kept, stops) is None
    assert place is None or any(text.startswith(stop, place) for stop in stops)


@pytest.mark.parametrize("beams", [1, 2])
def test_nan_stops_the_batch(automaton, beams):
    """Garbage from an overflowing model would be stored as feedback."""
    llm = load_llm("causal", model=str(automaton({"a": "bn"}, nan="n")), max_new_tokens=4, num_beams=beams)
    with pytest.raises(NonFiniteLogits, match=r"1 of 3 prompts .*number 1"):
        llm.generate_batch(["z", "a", "y"])
    assert llm.generate(["z"]) == ["zzzz"]


@pytest.mark.filterwarnings("ignore:out of memory")
def test_out_of_memory_is_halved(llama, monkeypatch):
    """A run would die hours in, on the one batch that is a little too large."""
    llm = load_llm("causal", model=str(llama), max_new_tokens=4)
    expected = llm.generate_batch(PROMPTS)
    forward, refused = llm.model.forward, []

    def at_most_two(input_ids, **others):
        if len(input_ids) > 2:
            refused.append(len(input_ids))
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return forward(input_ids=input_ids, **others)

    monkeypatch.setattr(llm.model, "forward", at_most_two)
    monkeypatch.setattr("ropg.batching.OVERHEAD", {"cpu": 4096})  # a batch is read in one pass
    with pytest.warns(RuntimeWarning, match="batch of 6"):
        assert llm.generate_batch(PROMPTS) == expected
    assert refused == [6, 3, 3]


def test_stream_covers_every_place_once(llama):
    """Results would be lost or shifted where a prompt occurs twice."""
    llm = load_llm("causal", model=str(llama), max_new_tokens=4, max_batch_size=2)
    prompts = ["x", "short", "x", "review: quiet", "short"]
    batches = list(llm.stream(prompts))
    found = {index: text for batch in batches for index, text, _ in batch}
    assert sorted(index for batch in batches for index, _, _ in batch) == list(range(5))
    assert [found[i] for i in range(5)] == llm.generate(prompts)
    assert sum(len({prompts[i] for i, _, _ in batch}) for batch in batches) == 3  # each answered once
    assert llm.generate([]) == []


def test_budget_counts_new_tokens_and_beams(llama):
    """A batch sized for prompts alone runs out of memory while it generates."""
    llm = load_llm("causal", model=str(llama), max_new_tokens=10, num_beams=2, batch_tokens=80)
    assert llm.count_tokens("abcdefghij") == 10
    assert llm.plan(["abcdefghij"] * 5) == [[0, 1], [2, 3], [4]]  # 2 prompts x 2 beams x (10 + 10) = 80


def test_chat_template(llama):
    """BOS would be doubled, or the template's tokens would push a prompt over its budget."""
    plain = load_llm("causal", model=str(llama))
    chat = load_llm("causal", model=str(llama), chat_template=True, max_new_tokens=4)
    text = "<s><user>hello\n<assistant>\n"
    assert chat.tokenizer.decode(chat.encode(["hello"])[0]) == text
    assert chat.encode(["hello"])[0].count(chat.tokenizer.bos_token_id) == 1
    assert plain.encode(["hello"])[0].count(plain.tokenizer.bos_token_id) == 1
    assert chat.count_tokens("hello") == len(chat.encode(["hello"])[0]) > plain.count_tokens("hello")
    assert chat.generate_batch(["hello"])[0].prompt_tokens == chat.count_tokens("hello")


def test_no_warning_for_long_text(llama, recwarn):
    """Every prompt would print that it is longer than the tokenizer's maximum."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_llm("causal", model=str(llama)).count_tokens("word " * 900) > 900


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_half_a_character_does_not_stop_a_run(kind, request):
    """One text with a lone surrogate, which tokenizers refuse, would end hours of feedback."""
    folder = request.getfixturevalue({"causal": "llama", "seq2seq": "t5"}[kind])
    llm = load_llm(kind, model=str(folder), max_new_tokens=4)
    broken, whole = "a quiet \ud83d room", "a quiet ? room"
    assert llm.generate([broken]) == llm.generate([whole])
    assert llm.count_tokens(broken) == llm.count_tokens(whole)
    assert llm.log_likelihood([broken], [broken]) == llm.log_likelihood([whole], [whole])


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_answers_are_those_of_transformers_alone(kind, beams, request):
    """Caches of our own save time; an answer that plain generate() would not give is another model's."""
    family = {"llama": "causal", "t5": "seq2seq"}[kind]
    llm = load_llm(
        family, model=str(request.getfixturevalue(kind)), num_beams=beams, max_new_tokens=9, dtype="float32"
    )
    for prompt, answer in zip(PROMPTS[:5], llm.generate(PROMPTS[:5]), strict=True):
        inputs = llm.tokenizer(prompt, return_tensors="pt")
        with torch.inference_mode():
            output = llm.model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                generation_config=llm.model.generation_config,
            )
        start = inputs["input_ids"].shape[1] if family == "causal" else 1
        assert answer == llm.tokenizer.decode(output[0, start:], skip_special_tokens=True)
