"""The likelihood of a target: against the formula, and the same in any batch."""

from __future__ import annotations

import math

import pytest
import torch

from ropg.llms import NonFiniteLogits, PromptTooLong, load_llm
from ropg.llms.likelihood import IGNORED, mean_log_probabilities

PAIRS = [
    ("review: quiet\ntitle:", "quiet stay"),
    ("a much longer prompt with many more words in it", "cats sleep a lot, dogs do not, and so on"),
    ("x", "y"),
    ("", "an answer to nothing"),
    ("x", "y"),
]


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_batched_equals_single(kind, request):
    """The reward of a document would depend on which other documents were scored beside it."""
    folder = request.getfixturevalue({"causal": "llama", "seq2seq": "t5"}[kind])
    llm = load_llm(kind, model=str(folder))
    prompts, targets = [list(side) for side in zip(*PAIRS, strict=True)]
    batched = llm.log_likelihood(prompts, targets)
    single = [llm.log_likelihood([prompt], [target])[0] for prompt, target in PAIRS]
    assert batched == pytest.approx(single, abs=1e-4)
    assert max(batched) < 0
    assert batched[2] == batched[4]


def test_causal_formula(llama):
    """The value would not be the mean log-probability that the Eval is defined by."""
    llm = load_llm("causal", model=str(llama))
    prompt, target = llm.encode_pair("review: quiet\ntitle:", "quiet stay")
    assert llm.tokenizer.decode(target) == " quiet stay"  # joined by a space; no end-of-sequence token
    with torch.no_grad():
        logs = llm.model(torch.tensor([prompt + target])).logits[0].log_softmax(-1)
    expected = [logs[len(prompt) - 1 + i, token].item() for i, token in enumerate(target)]
    value = llm.log_likelihood(["review: quiet\ntitle:"], ["quiet stay"])[0]
    assert value == pytest.approx(sum(expected) / len(expected), abs=1e-5)


def test_seq2seq_formula(t5):
    """The value would not be the loss that T5 is trained with, end-of-sequence token included."""
    llm = load_llm("seq2seq", model=str(t5))
    prompt, target = llm.encode_pair("review: quiet", "quiet stay")
    assert target[-1] == llm.tokenizer.eos_token_id
    with torch.no_grad():
        loss = llm.model(input_ids=torch.tensor([prompt]), labels=torch.tensor([target])).loss.item()
    assert llm.log_likelihood(["review: quiet"], ["quiet stay"])[0] == pytest.approx(-loss, abs=1e-5)


def test_joining_prompt_and_target(llama):
    """ "title: " and "title:" would give the same answer two likelihoods, or the target a doubled space."""
    llm = load_llm("causal", model=str(llama))
    texts = [llm.encode_pair(p, t) for p, t in (("title:", "stay"), ("title: ", "stay"), ("title:", " stay"))]
    assert texts[0] == texts[1] == texts[2]
    chat = load_llm("causal", model=str(llama), chat_template=True)
    prompt, target = chat.encode_pair("hello", "stay")
    assert chat.tokenizer.decode(prompt + target) == "<s><user>hello\n<assistant>\nstay"


def test_refused_pairs(llama):
    """An empty target would be a perfect one; a long one would run past the position table."""
    llm = load_llm("causal", model=str(llama), max_input_tokens=500)
    with pytest.raises(ValueError, match="target 1 is empty"):
        llm.log_likelihood(["a", "b"], ["x", " "])
    with pytest.raises(PromptTooLong, match="prompt 0"):
        llm.log_likelihood(["long " * 400], ["x"])
    with pytest.raises(ValueError, match="over the 640 positions"):
        llm.log_likelihood(["a"], ["é" * 640])
    with pytest.raises(ValueError, match="zip"):
        llm.log_likelihood(["a"], [])


def test_mean_by_hand():
    """Padding would count, or the mean would be a sum."""
    logits = torch.tensor([[[0.0, math.log(3)], [0.0, 0.0]], [[5.0, 5.0], [float("inf"), 1.0]]])
    labels = torch.tensor([[1, 0], [0, IGNORED]])
    expected = [(math.log(0.75) + math.log(0.5)) / 2, math.log(0.5)]
    assert mean_log_probabilities(logits, labels) == pytest.approx(expected)
    with pytest.raises(NonFiniteLogits):
        mean_log_probabilities(logits, torch.tensor([[1, 0], [0, 1]]))
    with pytest.raises(ValueError, match="without tokens"):
        mean_log_probabilities(logits, torch.full((2, 2), IGNORED))
