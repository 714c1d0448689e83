"""One RSPG step: six prompts of mixed length, each padded to 1024 tokens, or to the windows that it needs."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.dense import MODEL
from benchmarks.kd_step import gradient
from benchmarks.measure import Outcome, and_more, seconds
from benchmarks.texts import HOTELS, Reviews
from rspg.inputs import SelectorInput, encode
from rspg.objectives import selection_loss
from rspg.scorer import Scorer, SelectionRow

MAX_LENGTH = 1024


def pool_prompts() -> list[SelectorInput]:
    """What six retrievers give one input: no document, one, and up to four, with an answer."""
    reviews = Reviews(0, HOTELS)
    x = reviews.text(longest=50)
    counts = (0, 1, 2, 3, 4, 4)
    return [
        SelectorInput(" ".join([*(reviews.text(longest=50) for _ in range(n)), x]), reviews.title())
        for n in counts
    ]


def straightforward(scorer: Scorer, row: SelectionRow) -> None:
    """All six prompts at the full length."""
    scorer.module.zero_grad()
    batch = encode(row.inputs, scorer.tokenizer, MAX_LENGTH)
    scores = scorer.module(**batch)[None]  # (1, R)
    _loss(scores, row).backward()


def ours(scorer: Scorer, row: SelectionRow) -> None:
    """The project's scorer."""
    scorer.module.zero_grad()
    _loss(scorer.score_rows([row]), row).backward()


def _loss(scores: torch.Tensor, row: SelectionRow) -> torch.Tensor:
    rewards = torch.tensor([row.rewards])
    return selection_loss(scores, rewards, torch.ones_like(rewards, dtype=torch.bool), target_temperature=0.1)


def run(pairs: int = 3) -> Outcome:
    """Compare one step's gradient."""
    scorer = Scorer.from_encoder(
        MODEL, reads="post", attention_window=64, max_length=MAX_LENGTH, batch_tokens=4096, device="cpu"
    )
    inputs = pool_prompts()
    rewards = np.random.default_rng(0).random(len(inputs)).tolist()
    row = SelectionRow("q", tuple(inputs), tuple(rewards), (0,) * 6, tuple(range(1, 7)), 0.0)
    scorer.scores(inputs[:1]).sum().backward()  # a warm-up
    first_slow = seconds(lambda: straightforward(scorer, row))
    wanted = gradient(scorer)
    first_fast = seconds(lambda: ours(scorer, row))
    torch.testing.assert_close(gradient(scorer), wanted, atol=1e-5, rtol=1e-3)
    slow, fast = and_more(
        (first_slow, first_fast),
        lambda: straightforward(scorer, row),
        lambda: ours(scorer, row),
        2 * pairs + 1,  # a pair takes seconds only, and one in three may be disturbed
    )
    lengths = [int(n) for n in encode(inputs, scorer.tokenizer)["attention_mask"].sum(dim=1)]
    return Outcome(
        "rspg_step",
        f"RSPG step, six prompts of {min(lengths)} to {max(lengths)} tokens, against padding to {MAX_LENGTH}",
        slow,
        fast,
        at_least=3,
        checked="gradients equal (1e-5)",
        limit="forward and backward pass over as many tokens in whole windows without padding; the straightforward way "
        f"has {6 * MAX_LENGTH / sum(lengths):.1f} times as many",
        notes={"ideal_seconds": round(ideal_seconds(scorer, sum(lengths)), 2)},
    )


def ideal_seconds(scorer: Scorer, tokens: int) -> float:
    """How long forward and backward passes over this many tokens take in batches of four whole windows."""
    ids = torch.randint(1000, 20_000, (6, 256))
    mask = torch.ones_like(ids)
    globally = torch.zeros_like(ids)
    globally[:, 0] = 1

    def once() -> None:
        scorer.module(input_ids=ids, attention_mask=mask, global_attention_mask=globally).sum().backward()

    return min(seconds(once) for _ in range(3)) * tokens / ids.numel()
