"""encoder.train as a configuration: what it is named after, and what is refused."""

import dataclasses

import pytest

from ropg.cli import Refused
from ropg.configuration import Config, EncoderConfig, LoraConfig
from ropg.encoder_training import check, trainable
from ropg.runs import decisive, run_folder


def config(**encoder) -> Config:
    return Config(encoder=EncoderConfig(**encoder))


def test_runs_of_before_keep_their_names():
    """Full training has no new key; the numbers of LoRA decide nothing but LoRA."""
    plain = decisive(config())["encoder"]
    assert set(plain) == {"model", "max_length", "dropout"}
    assert run_folder(config(train="full", lora=LoraConfig(rank=3))) == run_folder(Config())
    assert decisive(config(train="query", lora=LoraConfig(rank=3)))["encoder"] == plain | {"train": "query"}
    lora = decisive(config(train="lora"))["encoder"]
    assert lora == plain | {"train": "lora", "lora": {"rank": 8, "alpha": 16.0, "targets": None}}
    ways = [config(train="full"), config(train="query"), config(train="lora")]
    other = config(train="lora", lora=LoraConfig(targets="all-linear"))
    assert len({run_folder(way) for way in (*ways, other)}) == 4


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ({"rank": 0}, r"encoder\.lora\.rank=0: it is a number from 1"),
        ({"alpha": 0}, r"encoder\.lora\.alpha=0: it is above 0"),
        ({"alpha": float("nan")}, r"encoder\.lora\.alpha=nan: it is above 0"),
        ({"targets": []}, r"encoder\.lora\.targets=\[\]: it is a list of layers' names"),
        ({"targets": 3}, r"encoder\.lora\.targets=3: it is a list"),
        ({"targets": ["query", None]}, r"encoder\.lora\.targets=\['query', None\]: it is a list"),
    ],
)
def test_numbers_that_are_none_of_loras(lora, message):
    """They are refused for LoRA, and nobody asks for them elsewhere."""
    with pytest.raises(Refused, match=message):
        check(config(train="lora", lora=LoraConfig(**lora)))
    check(config(train="query", lora=LoraConfig(**lora)))


@pytest.mark.parametrize("targets", [None, "all-linear", "query", ["query", "value"]])
def test_what_loras_targets_may_be(targets):
    check(config(train="lora", lora=LoraConfig(targets=targets)))


def test_a_way_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(Refused, match=r"encoder\.train=loro: it is full .* lora .* or query"):
        check(config(train="loro"))


def test_full_training_gets_the_initial_encoder_itself():
    encoder = object()
    assert trainable(Config(), encoder) is encoder
    assert dataclasses.asdict(Config())["encoder"]["train"] == "full"
