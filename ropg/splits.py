"""Which examples train, which choose the checkpoint, and which are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ropg import build
from ropg.configuration import Config
from ropg.console import say
from ropg.examples import Example


def load_splits(config: Config) -> dict[str, Sequence[Example]]:
    """train, dev and heldout by the rule of the data.

    heldout is the test split and dev chooses checkpoints. Where there is no test split or it has no golds
    (LaMP's own), a tenth of the training users, drawn by a hash of the user, chooses checkpoints and dev is
    held out.
    """
    data = config.data
    train = build.build_examples(config, data.train, data.limit_train)
    dev = build.build_examples(config, data.dev, data.limit_dev)
    test = build.build_examples(config, data.test, data.limit_test) if data.test else []
    for name, part in (("train", train), ("dev", dev), ("test", test)):
        say_findings(name, part)
    if any(example.target is not None for example in test):
        return {"train": train, "dev": dev, "heldout": test}
    say(
        "data",
        "the test split has no gold outputs: a tenth of the training users chooses checkpoints, dev is held out",
    )
    chooses = [_tenth(train[i].user) for i in range(len(train))]
    return {
        "train": _Subset(train, [i for i, c in enumerate(chooses) if not c]),
        "dev": _Subset(train, [i for i, c in enumerate(chooses) if c]),
        "heldout": dev,
    }


def say_findings(split: str, examples: Sequence[Example]) -> None:
    """Print what the validator counted in a split, where its source keeps a report."""
    for line in getattr(getattr(examples, "report", None), "lines", list)():
        say("data", f"{split}: {line}")


def _tenth(user: str) -> bool:
    return hashlib.sha256(user.encode()).digest()[0] % 10 == 0


class _Subset(Sequence[Example]):
    """Some examples of a lazy sequence."""

    def __init__(self, examples: Sequence[Example], indices: list[int]) -> None:
        self.examples, self.indices = examples, indices
        known = getattr(examples, "fingerprint", None)
        if isinstance(known, str):
            self.fingerprint = hashlib.sha256(repr((known, indices)).encode()).hexdigest()[:32]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.examples[i] for i in self.indices[index]]
        return self.examples[self.indices[index]]
