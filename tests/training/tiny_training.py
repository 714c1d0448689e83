"""A complete training in a second: a toy encoder of words, seeded rows. Also a program that tests kill.

python tiny_training.py FOLDER [KEY=JSON ...]     trains, printing one line per record
"""

import hashlib
import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from ropg.training import TrainingRow, TrainSettings, bi_encoder_scorer, load_objective, train

WORDS = ["rain", "sun", "cat", "dog", "tea", "hotel", "book", "sea", "train", "jazz"]


class ToyEncoder(nn.Module):
    """Mean of word vectors through a linear layer that a second name shares."""

    def __init__(self, seed=0, dtype=torch.float32, dropout=0.0):
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.words = nn.Embedding(len(WORDS), 6, dtype=dtype)
        self.first = nn.Linear(6, 6, dtype=dtype)
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=rng, dtype=torch.float64))
        self.second = nn.Module()
        self.second.weight = self.first.weight  # tied
        self.register_buffer("scale", torch.tensor(0.5, dtype=dtype))
        self.embedded = []  # what embed was asked for

    def embed(self, texts):
        self.embedded.append(list(texts))
        vectors = [self.words(torch.tensor([WORDS.index(w) for w in t.split()])).mean(0) for t in texts]
        hidden = self.dropout(torch.tanh(self.first(torch.stack(vectors))))
        return torch.nn.functional.linear(hidden, self.second.weight) * self.scale


def make_rows(n, seed, dead=()):
    """Rows with 1 to 6 candidates; "sun" in a document is what the LLM likes."""
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        k = 0 if i in dead else rng.randint(1, 6)
        documents = tuple(" ".join(rng.choices(WORDS, k=3)) for _ in range(k))
        rewards = tuple(0.2 + 0.6 * ("sun" in d) + 0.2 * rng.random() for d in documents)
        scores = tuple(sorted((rng.random() for _ in range(k)), reverse=True))
        query = " ".join(rng.choices(WORDS, k=2))
        baseline = rewards[0] if k else 0.0
        rows.append(
            TrainingRow(f"q{seed}-{i}", query, documents, rewards, scores, tuple(range(1, k + 1)), baseline)
        )
    return rows


def run(
    folder,
    *,
    tracker=None,
    encoder=None,
    objective=None,
    rows=None,
    dev=None,
    identity=None,
    ask_sets=None,
    refresh=None,
    double=False,
    **settings,
):
    """Train a fresh toy encoder in ``folder``; return it and the result. ``double``: in float64."""
    encoder = encoder or ToyEncoder(dtype=torch.float64 if double else torch.float32)
    defaults = {"lr": 0.05, "epochs": 3, "batch_size": 2, "accumulation": 2, "eval_every": 0.5}
    result = train(
        encoder,
        bi_encoder_scorer(encoder),
        make_rows(23, 1, dead=(4, 9)) if rows is None else rows,
        make_rows(9, 2, dead=(3,)) if dev is None else dev,
        objective or load_objective("ropg_rl"),
        TrainSettings(**{**defaults, **settings}),
        folder,
        save_model=lambda path: save_file({"words": encoder.words.weight.data}, path / "model.safetensors"),
        tracker=tracker,
        identity=identity,
        ask_sets=ask_sets,
        refresh=refresh,
        progress=False,
    )
    return encoder, result


def weights(encoder):
    """Weights as bytes, for comparisons bit for bit."""
    return {name: t.detach().numpy().tobytes() for name, t in encoder.state_dict().items()}


def digest(encoder):
    """Weights as one line."""
    return hashlib.sha256(b"".join(weights(encoder).values())).hexdigest()


if __name__ == "__main__":
    options = {key: json.loads(value) for key, _, value in (a.partition("=") for a in sys.argv[2:])}
    trained, outcome = run(Path(sys.argv[1]), tracker=lambda r: print(r["step"], flush=True), **options)
    print("done", digest(trained), outcome.best_step, flush=True)
