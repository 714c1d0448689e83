"""What the tests of objectives write their numbers with."""

import math

import torch

F64 = torch.float64
NAN, INF = math.nan, math.inf


def tensor(values):
    """Numbers in double precision."""
    return torch.tensor(values, dtype=F64)


def full(*shape):
    """A mask of real documents only."""
    return torch.ones(*shape, dtype=torch.bool)


def gradient(loss, scores):
    """Of a loss by the scores; the graph stays for another one."""
    return torch.autograd.grad(loss, scores, retain_graph=True)[0]


def seeded(seed=0):
    """A generator whose draws are known."""
    return torch.Generator().manual_seed(seed)
