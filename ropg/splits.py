"""Which examples train, which choose the checkpoint, and which are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ropg import build
from ropg.cli import Refused
from ropg.configuration import Config
from ropg.console import say
from ropg.examples import Example


def load_splits(config: Config) -> dict[str, Sequence[Example]]:
    """train, dev and heldout by the rule of the data.

    heldout is the test split and dev chooses checkpoints. Where there is no test split or it has no golds
    (LaMP's own), a tenth of the training users, drawn by a hash of the user, chooses checkpoints and dev is
    held out. With ``data.reserved`` retrievers train on one part of the training users and selectors on the
    other, so that a selector sees what the trained retrievers do for users they do not know.
    """
    data = config.data
    train = training_users(config, build.build_examples(config, data.train, data.limit_train))
    dev = build.build_examples(config, data.dev, data.limit_dev)
    test = build.build_examples(config, data.test, data.limit_test) if data.test else []
    for name, part in (("dev", dev), ("test", test)):
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


def training_users(config: Config, train: Sequence[Example]) -> Sequence[Example]:
    """The examples of those training users that this method may learn from; all where none is reserved."""
    say_findings("train", train)
    share = config.data.reserved
    if not 0.0 <= share < 1.0:
        raise Refused(f"data.reserved={share}: it is a share of the training users, from 0 to below 1")
    if share == 0.0:
        return train
    for_selector = config.method.reads is not None
    wanted = [i for i in range(len(train)) if (_place(f"reserved/{train[i].user}") < share) == for_selector]
    if not wanted:
        raise Refused(f"data.reserved={share} leaves no training user of {len(train)}; choose another share")
    others = "retrievers" if for_selector else "selectors"
    say("data", f"{len(wanted)} training examples; the other {len(train) - len(wanted)} are for {others}")
    return _Subset(train, wanted)


def say_findings(split: str, examples: Sequence[Example]) -> None:
    """Print what the validator counted in a split, where its source keeps a report."""
    for line in getattr(getattr(examples, "report", None), "lines", list)():
        say("data", f"{split}: {line}")


def _tenth(user: str) -> bool:
    return hashlib.sha256(user.encode()).digest()[0] % 10 == 0


def _place(name: str) -> float:
    """A number from 0 to below 1 that a name always gets."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32


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
