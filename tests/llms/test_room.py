"""A cache with room holds what transformers' growing cache holds, whatever is done to it."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import DynamicCache

from ropg.llms.room import CHUNK, Room

HEADS, SIZE, LAYERS = 2, 3, 2


def same(ours, plain) -> bool:
    return all(
        torch.equal(a.keys, b.keys) and torch.equal(a.values, b.values)
        for a, b in zip(ours.layers, plain.layers, strict=True)
    )


def write(caches, rows: int, tokens: int) -> None:
    for number in range(LAYERS):
        keys, values = torch.randn(2, rows, HEADS, tokens, SIZE)
        for cache in caches:
            cache.update(keys, values, number)


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_growing_cache(seed):
    """Rows would be taken from where they no longer are, or a full cache would lose its oldest token."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    rows, begin = 6, draw.randint(0, 3)
    ours, plain = Room(8, begin + 7).part(slice(1, 7), begin), DynamicCache()
    write((ours, plain), rows, 5)
    for _ in range(12):
        match draw.choice(["grow", "fewer", "order", "repeat", "beams", "crop"]):
            case "grow":
                write((ours, plain), rows, draw.choice([1, 1, 2, CHUNK + 1]))
            case "fewer":
                kept = torch.tensor(sorted(draw.sample(range(rows), draw.randint(1, rows))))
                rows = len(kept)
                for cache in (ours, plain):
                    cache.batch_select_indices(kept)
            case "order":
                kept = torch.tensor(draw.choices(range(rows), k=rows))
                for cache in (ours, plain):
                    cache.batch_select_indices(kept)
            case "repeat" if rows < 30:
                rows *= 2
                for cache in (ours, plain):
                    cache.batch_repeat_interleave(2)
            case "beams":
                chosen = torch.randint(0, rows, (rows,))
                for cache in (ours, plain):
                    cache.reorder_cache(chosen)
            case "crop":
                for cache in (ours, plain):
                    cache.crop(-1)
                write((ours, plain), rows, 2)
        assert same(ours, plain)


def test_parts_of_a_room_are_one_cache():
    """Passes would write over each other's rows; what no pass has written must be zero, not whatever was there."""
    room = Room(3, 6)
    first, second = torch.randn(2, 2, HEADS, 4, SIZE), torch.randn(2, 1, HEADS, 2, SIZE)
    for rows, begin, states in ((slice(0, 2), 0, first), (slice(2, 3), 2, second)):
        room.part(rows, begin).update(*states, 0)
    whole = room.all(4)
    assert torch.equal(whole.layers[0].keys[:2], first[0])
    assert torch.equal(whole.layers[0].values[2:, :, 2:], second[1])
    assert not whole.layers[0].keys[2:, :, :2].any()
    whole.update(*torch.randn(2, 3, HEADS, 1, SIZE), 0)
    assert whole.get_seq_length() == 5
    assert torch.equal(whole.layers[0].keys[:2, :, :4], first[0])


def test_nothing_written_is_an_empty_cache():
    """A batch of prompts with one token each has nothing to read before its first step."""
    assert Room(3, 6).all(0).get_seq_length() == 0
