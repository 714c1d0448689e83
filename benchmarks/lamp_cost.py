"""GPU-hours of LaMP at full size, derived from lengths and a GPU's data sheet: ``python -m benchmarks.lamp_cost``.

Reading P prompt tokens takes 2 N P / (peak x mfu) seconds, N being the weights each of them passes. Writing takes, for
each step of a batch, the larger of reading the weights and the cached keys and values once (bytes / (bandwidth x mbu))
and computing 2 N for each row. Nothing here was measured on a GPU: put in your own figures.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import erf, exp, log, sqrt

import numpy as np


@dataclass(frozen=True)
class Model:
    """Weights that a prompt token and a new token pass, bytes cached for a token of the prompt (2 bytes a number)."""

    name: str
    read: float
    written: float
    cached: float


# From the published configurations. FlanT5-XXL: encoder 4.63e9 and the decoder's cross-attention keys and values 0.81e9
# per prompt token; decoder without those, and output layer, 5.57e9 per new token.
MODELS = (
    Model("FlanT5-XXL", 5.44e9, 5.57e9, 24 * 2 * 4096 * 2),
    Model("LLaMA-2-7B", 6.6e9, 6.6e9, 32 * 2 * 4096 * 2),
    Model("LLaMA-3.1-8B", 7.5e9, 7.5e9, 32 * 2 * 1024 * 2),
)


@dataclass(frozen=True)
class Lamp:
    """A row of the paper's Table 1 (time-based split): examples, and words as mean and standard deviation.

    instruction, title: words of the input that are instruction, and words of a document beside its body; ours.
    """

    name: str
    train: int
    dev: int
    test: int
    input: tuple[float, float]
    output: float
    profile: tuple[float, float]
    instruction: int
    title: int = 0


TASKS = (
    Lamp("LaMP-1", 6542, 1500, 1500, (51.43, 5.70), 1, (84.15, 47.54), 42, 0),
    Lamp("LaMP-2", 5073, 1410, 1557, (92.39, 21.95), 2, (86.76, 189.52), 43, 1),
    Lamp("LaMP-3", 20000, 2500, 2500, (128.18, 146.25), 1, (185.40, 129.30), 22, 1),
    Lamp("LaMP-4", 12500, 1500, 1800, (29.97, 12.09), 10.07, (204.59, 250.75), 7, 10),
    Lamp("LaMP-5", 14682, 1500, 1500, (162.34, 65.63), 9.71, (87.88, 53.63), 9, 10),
    Lamp("LaMP-6", 4821, 1250, 1250, (454.87, 889.41), 7.37, (55.67, 36.32), 7, 7),
    Lamp("LaMP-7", 13437, 1498, 1500, (29.72, 7.01), 16.96, (15.71, 14.86), 11, 0),
)


def log_normal(mean: float, deviation: float) -> tuple[float, float]:
    """Mean and spread of the logarithm of a log-normal variable with this mean and standard deviation."""
    variance = log(1 + (deviation / mean) ** 2)
    return log(mean) - variance / 2, sqrt(variance)


def expected_candidates(mean: float, deviation: float, most: int = 16) -> float:
    """E[min(n, most)] of a log-normal profile size n.

    >>> round(expected_candidates(1000, 10)), round(expected_candidates(15.71, 14.86), 1)
    (16, 10.9)
    """
    mu, sigma = log_normal(mean, deviation)

    def below(z: float) -> float:
        return (1 + erf(z / sqrt(2))) / 2

    edge = (log(most) - mu) / sigma
    return exp(mu + sigma**2 / 2) * below(edge - sigma) + most * (1 - below(edge))


def prompt_tokens(
    task: Lamp, documents: int, per_word: float, budget: int, draws: int = 20_000, seed: int = 0
) -> float:
    """Mean tokens of a prompt: a document's body is taken to be as long as an input's; the budget cuts."""
    draw = np.random.default_rng(seed)
    words = draw.lognormal(*log_normal(*task.input), draws)
    for _ in range(documents):
        body = draw.lognormal(*log_normal(*task.input), draws) - task.instruction
        words = words + np.maximum(body, 3) + task.title + 4
    return float(np.minimum(words * per_word, budget).mean())


def gpu_seconds(
    model: Model, prompts: float, tokens: float, new: float, gpu: argparse.Namespace, beams: int, batch: int
) -> float:
    """Seconds of one GPU for so many prompts of ``tokens`` tokens that write ``new`` tokens each."""
    reading = 2 * model.read * tokens / (gpu.tflops * 1e12 * gpu.mfu)
    moved = 2 * model.written + batch * beams * tokens * model.cached
    computed = 2 * model.written * batch * beams / (gpu.tflops * 1e12 * gpu.mfu)
    step = max(moved / (gpu.tbps * 1e12 * gpu.mbu), computed)
    return prompts * (reading + new * step / batch)


def main() -> None:
    """Print prompts, tokens and GPU-hours of each task."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lamp_cost", description=__doc__)
    parser.add_argument("--tflops", type=float, default=312, help="bf16 peak, dense (312: A100)")
    parser.add_argument("--tbps", type=float, default=2.0, help="memory bandwidth in TB/s (2.0: A100 80 GB)")
    parser.add_argument("--mfu", type=float, default=0.45, help="share of the peak reached in reading (0.45)")
    parser.add_argument("--mbu", type=float, default=0.6, help="share of the bandwidth in writing (0.6)")
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="prompts of a batch (32)")
    parser.add_argument("--per-word", type=float, default=1.25, help="tokens per word (1.25)")
    parser.add_argument("--budget", type=int, default=512)
    gpu = parser.parse_args()
    print(
        f"{'':8}{'feedback':>10}{'pool':>9}{'+eval':>8}{'tokens 1':>9}{'tokens 4':>9}{'M tokens':>9}{'new':>5}"
        + "".join(f"{model.name:>14}" for model in MODELS)
    )
    sums = np.zeros(4 + len(MODELS))
    for task in TASKS:
        asked = task.train + task.dev
        feedback = asked * expected_candidates(*task.profile)
        pool, more = 5.0 * asked, 2.0 * task.dev
        zero, one, four = (prompt_tokens(task, n, gpu.per_word, gpu.budget) for n in (0, 1, 4))
        new = task.output * gpu.per_word + 1
        parts = ((asked, zero), (feedback, one), (pool + more, four))
        total = sum(prompts * tokens for prompts, tokens in parts)
        hours = [
            sum(gpu_seconds(model, n, tokens, new, gpu, gpu.beams, gpu.batch) for n, tokens in parts) / 3600
            for model in MODELS
        ]
        sums += [feedback, pool + asked, more, total / 1e6, *hours]
        print(
            f"{task.name:8}{feedback:10,.0f}{pool + asked:9,.0f}{more:8,.0f}{one:9.0f}{four:9.0f}"
            f"{total / 1e6:9.0f}{new:5.0f}" + "".join(f"{h:14.1f}" for h in hours)
        )
    print(
        f"{'sum':8}{sums[0]:10,.0f}{sums[1]:9,.0f}{sums[2]:8,.0f}{'':18}{sums[3]:9,.0f}{'':5}"
        + "".join(f"{h:14.1f}" for h in sums[4:])
    )


if __name__ == "__main__":
    main()
