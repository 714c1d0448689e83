"""What a selector reads: the question and the answer survive any profile, within the budget, as text."""

from __future__ import annotations

import string
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertTokenizerFast, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ropg.examples import Document
from ropg.tasks import get_task
from rspg.inputs import SelectorInput, encode, selector_input

X = "Generate a headline for the following article: the blue whale came back to the bay"
QUESTION = "the blue whale came back to the bay"
TASK = get_task("LaMP-4")
PROFILE = [
    Document(str(i), f"old story {i} " + "of rain and wind " * 40, title=f"news {i}") for i in range(4)
]


def letters() -> PreTrainedTokenizerBase:
    """A BERT tokenizer whose words are letters: [CLS] a [SEP] b [SEP]."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = string.ascii_lowercase + string.digits + string.punctuation
    words = [*special, *characters, *(f"##{c}" for c in characters), "sep", "pad", "whale", "rain", "wind"]
    return BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}, model_max_length=64)


def raw_bytes() -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer like RoBERTa's: several tokens to a letter, <s> a </s></s> b </s>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<s>", "<pad>", "</s>", *alphabet, "ra", "in", "rain", "wh"]
    merges = [("r", "a"), ("i", "n"), ("ra", "in"), ("w", "h")]
    core = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        model_input_names=["input_ids", "attention_mask"],
    )


TOKENIZERS = {"letters": letters(), "bytes": raw_bytes()}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return TOKENIZERS[request.param]


def length(one: SelectorInput, tokenizer: PreTrainedTokenizerBase) -> int:
    return encode([one], tokenizer)["input_ids"].shape[1]


def read(
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    reads: str,
    documents: list[Document] = PROFILE,
    text: str = "",
    name: str | None = None,
    x: str = X,
) -> SelectorInput:
    prompt = TASK.prompt(x, documents)
    return selector_input(TASK, x, documents, prompt, text, tokenizer, max_length, reads, name)


def test_a_prompt_that_fits_is_read_as_it_is(tokenizer: PreTrainedTokenizerBase) -> None:
    """The LLM's own prompt is what the reward is about; to build another one needlessly would blur it."""
    own = "whatever the LLM read: " + X
    pre = selector_input(TASK, X, PROFILE, own, "a whale returns", tokenizer, 300, "pre")
    assert pre == SelectorInput(own, None)
    post = selector_input(TASK, X, PROFILE, own, "a whale returns", tokenizer, 300, "post")
    assert post == SelectorInput(own, "a whale returns")
    exact = length(post, tokenizer)
    assert selector_input(TASK, X, PROFILE, own, "a whale returns", tokenizer, exact, "post") == post
    less = selector_input(TASK, X, [], own, "a whale returns", tokenizer, exact - 1, "post")
    assert less == SelectorInput(X, "a whale returns")  # built anew from x


@pytest.mark.parametrize("reads", ["pre", "post"])
def test_a_long_profile_loses_profile_text_alone(tokenizer: PreTrainedTokenizerBase, reads: str) -> None:
    """If the cut took the end, as a tokenizer's truncation does, Post would be Pre and neither saw x."""
    text = "whale returns to the bay"
    whole = TASK.prompt(X, PROFILE)
    assert length(SelectorInput(whole, text), tokenizer) > 1200
    one = read(tokenizer, 500, reads, text=text)
    assert 400 < length(one, tokenizer) <= 500
    assert one.text == (text if reads == "post" else None)
    assert one.prompt.endswith(QUESTION)
    assert all(f"news {i}" in one.prompt for i in range(4))
    assert "of rain and wind" in one.prompt
    assert one.prompt.count("of rain and wind") < whole.count("of rain and wind")


def test_a_long_answer_keeps_its_head(tokenizer: PreTrainedTokenizerBase) -> None:
    """An LLM that rambles must not push the question out."""
    text = "rain and wind " * 200 + "the end"
    one = read(tokenizer, 400, "post", text=text)
    assert one.text is not None
    assert text.startswith(one.text)
    assert one.text.endswith(("rain", "and", "wind"))  # cut where a word ends
    assert 150 < length(SelectorInput("", one.text), tokenizer) <= 200 + 4
    assert one.prompt.endswith(QUESTION)
    assert length(one, tokenizer) <= 400
    # half is enough to be kept whole
    half = read(tokenizer, 400, "post", text=one.text)
    assert half == one


def test_an_answer_without_spaces_keeps_its_head(tokenizer: PreTrainedTokenizerBase) -> None:
    """Text of another script has no word ends to cut at; a cut inside a letter must not happen."""
    text = "雨が降る🐋" * 300
    one = read(tokenizer, 400, "post", text=text)
    assert one.text is not None
    assert text.startswith(one.text)
    assert one.text
    assert length(one, tokenizer) <= 400


def test_names_are_read_on_demand_and_counted(tokenizer: PreTrainedTokenizerBase) -> None:
    """A name that did not count would push the prompt over the position table."""
    short = read(tokenizer, 400, "pre", documents=[], name="bm25")
    assert short == SelectorInput("bm25: " + X)
    name = "a retriever with a long name " * 3
    for reads in ("pre", "post"):
        one = read(tokenizer, 500, reads, text="whale", name=name)
        assert one.prompt.startswith(f"{name}: ")
        assert one.prompt.endswith(QUESTION)
        assert length(one, tokenizer) <= 500


@settings(max_examples=60, deadline=None)
@given(
    which=st.sampled_from(sorted(TOKENIZERS)),
    max_length=st.integers(min_value=150, max_value=400),
    reads=st.sampled_from(["pre", "post"]),
    text=st.text(max_size=300),
    bodies=st.lists(st.text(max_size=300), max_size=3),
    name=st.none() | st.text(max_size=5),
)
def test_never_over_the_budget(
    which: str, max_length: int, reads: str, text: str, bodies: list[str], name: str | None
) -> None:
    """Past the position table there is an IndexError, or on a GPU an assertion of the device."""
    tokenizer = TOKENIZERS[which]
    documents = [Document(str(i), body, title=f"t{i}") for i, body in enumerate(bodies)]
    one = read(tokenizer, max_length, reads, documents=documents, text=text, name=name)
    assert length(one, tokenizer) <= max_length
    assert one.prompt.endswith(QUESTION)
    assert reads == "pre" or text.startswith(one.text or "")


def test_what_looks_like_a_control_token_is_text(tokenizer: PreTrainedTokenizerBase) -> None:
    """A "[SEP]" in a review must not end the prompt, nor a "[PAD]" shift the positions after it."""
    data = "[SEP] a [PAD] [CLS] </s> <pad> <s> " * 20
    one = read(tokenizer, 300, "post", documents=[Document("1", data, title=data)], text=data)
    assert length(one, tokenizer) <= 300
    ids = encode([one], tokenizer)["input_ids"][0].tolist()
    separators = 2 if tokenizer is TOKENIZERS["letters"] else 3
    assert ids.count(tokenizer.sep_token_id) == separators
    assert ids.count(tokenizer.cls_token_id) == 1
    assert ids.count(tokenizer.pad_token_id) == 0
    if separators == 2:
        words = tokenizer.convert_ids_to_tokens(encode([SelectorInput("[SEP]")], tokenizer)["input_ids"][0])
        assert words == ["[CLS]", "[", "sep", "]", "[SEP]"]


def test_empty_and_broken_texts(tokenizer: PreTrainedTokenizerBase) -> None:
    """No document, no answer, half an emoji: all of them happen in real files."""
    assert read(tokenizer, 300, "post", documents=[]) == SelectorInput(X, "")
    blank = encode([SelectorInput("a", ""), SelectorInput("a")], tokenizer)
    assert blank["attention_mask"].sum(dim=1).tolist() == [
        1 + tokenizer.num_special_tokens_to_add(pair=True),
        1 + tokenizer.num_special_tokens_to_add(pair=False),
    ]
    half = read(tokenizer, 300, "post", documents=[Document("1", "rain \ud83d " * 90)], text="\ud83d whale")
    assert half.text == "\ud83d whale"
    assert length(half, tokenizer) <= 300


def test_encode_hand_worked() -> None:
    """The pair's own format, its types, the padding, and one globally attending token."""
    tokenizer = TOKENIZERS["letters"]
    batch = encode([SelectorInput("whale", "rain"), SelectorInput("wind"), SelectorInput("")], tokenizer, 4)
    name = tokenizer.convert_tokens_to_ids
    cls, sep, padding = name("[CLS]"), name("[SEP]"), name("[PAD]")
    assert batch["input_ids"].tolist() == [
        [cls, name("whale"), sep, name("rain"), sep, padding, padding, padding],
        [cls, name("wind"), sep, *[padding] * 5],
        [cls, sep, *[padding] * 6],
    ]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0] * 8, [0] * 8]
    assert batch["attention_mask"].tolist() == [[1] * 5 + [0] * 3, [1] * 3 + [0] * 5, [1] * 2 + [0] * 6]
    assert batch["global_attention_mask"].tolist() == [[1] + [0] * 7] * 3
    assert {values.dtype for values in batch.values()} == {torch.long}
    assert "token_type_ids" not in encode([SelectorInput("whale", "rain")], tokenizer, type_vocab_size=1)
    assert "token_type_ids" not in encode([SelectorInput("a", "b")], TOKENIZERS["bytes"])
    with pytest.raises(ValueError, match="no input"):
        encode([], tokenizer)


def test_long_texts_say_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """A warning for each text of a run would bury what it prints."""
    tokenizer = TOKENIZERS["letters"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        length(read(tokenizer, 300, "post", text="rain " * 500), tokenizer)
        length(SelectorInput("rain " * 5000, "wind " * 5000), tokenizer)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_no_room() -> None:
    """A length that holds no question is refused with what to change."""
    tokenizer = TOKENIZERS["letters"]
    with pytest.raises(ValueError, match=r"max_length 2 leaves .* no room .* 2 special tokens; raise it"):
        read(tokenizer, 2, "pre")
    with pytest.raises(
        ValueError, match=r"max_length 6 leaves .* beside 3 special tokens and an answer of 3"
    ):
        read(tokenizer, 6, "post")
    with pytest.raises(ValueError, match="a selector's max_length of 20: LaMP-4: a budget of 18 tokens"):
        read(tokenizer, 20, "pre")
