"""One ROPG-KD step of 64 queries with 16 documents each: all at once, or in the memory of one batch."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from benchmarks.dense import MODEL
from benchmarks.kd_step import straightforward
from benchmarks.measure import Outcome, available_mib, in_own_process, peak_above
from benchmarks.texts import HOTELS, Reviews
from ropg.retrievers.encoder import Encoder, load_encoder
from ropg.training import TrainingRow, bi_encoder_scorer
from ropg.training.objectives import load_objective
from ropg.training.parallel import Processes
from ropg.training.settings import TrainSettings
from ropg.training.step import Stepper

QUERIES, DOCUMENTS = 64, 16
BATCH_TOKENS = 2048
MIB_PER_TOKEN = 0.17  # of MiniLM's activations, measured; decides what fits into memory


def rows_of(queries: int, encoder: Encoder) -> list[TrainingRow]:
    """Queries and documents that are all as long as the encoder reads, with made-up rewards."""
    reviews, draw = Reviews(0, HOTELS), torch.Generator().manual_seed(0)

    def text() -> str:
        return reviews.text(shortest=encoder.max_length)

    return [
        TrainingRow(
            f"q{i}",
            text(),
            tuple(text() for _ in range(DOCUMENTS)),
            torch.rand(DOCUMENTS, generator=draw).tolist(),
            [0.0] * DOCUMENTS,
            range(1, DOCUMENTS + 1),
            0.0,
        )
        for i in range(queries)
    ]


def ours(encoder: Encoder, rows: list[TrainingRow]) -> None:
    """The project's step up to the optimizer: micro-batches of 8 queries, gradients batch by batch inside each."""
    settings = TrainSettings(batch_size=8, accumulation=-(-len(rows) // 8), mixed_precision="no")
    objective = load_objective("ropg_kd", temperature=2.0, target_temperature=0.1)
    processes = Processes(encoder.module)
    stepper = Stepper(encoder.module, bi_encoder_scorer(encoder), rows, objective, settings, processes)
    stepper.accumulate(0, rows)


def step(way: str, queries: int, length: int, device: str, file: str) -> dict[str, float]:
    """Take the gradient of one step, write it to ``file``, and say what it took above the loaded encoder."""
    encoder = load_encoder(
        MODEL, max_length=length, batch_tokens=BATCH_TOKENS, recompute="always", device=device
    )
    encoder.embed(["warm up"]).sum().backward()
    encoder.module.zero_grad()
    rows = rows_of(queries, encoder)
    function: Any = {"straightforward": straightforward, "ours": ours}[way]
    on_gpu = device == "cuda"
    before = torch.cuda.memory_allocated() if on_gpu else 0
    started = time.perf_counter()
    _, mib = peak_above(lambda: function(encoder, rows))
    if on_gpu:
        torch.cuda.synchronize()
        mib = (torch.cuda.max_memory_allocated() - before) / 2**20
    taken = time.perf_counter() - started
    save_file({n: p.grad for n, p in encoder.module.named_parameters() if p.grad is not None}, file)
    return {"mib": mib, "seconds": taken}


def fitting(length: int, device: str) -> int:
    """How many queries the straightforward way has memory for: 64, or half as often as needed."""
    free = torch.cuda.mem_get_info()[0] / 2**20 if device == "cuda" else available_mib()
    queries = QUERIES
    while queries > 8 and 1.3 * MIB_PER_TOKEN * queries * (DOCUMENTS + 1) * length > free:
        queries //= 2
    return queries


def run(pairs: int = 3) -> Outcome:
    """Compare peak memory of one step. Memory does not vary from one time to the next: one pair is enough."""
    del pairs
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length = 512 if device == "cuda" else 64
    queries = fitting(length, device)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {way: str(Path(folder) / way) for way in ("straightforward", "ours")}
        for way, file in files.items():
            found[way], _, _ = in_own_process(step, way, queries, length, device, file)
        wanted, got = load_file(files["straightforward"]), load_file(files["ours"])
    assert wanted.keys() == got.keys(), "other parameters have a gradient"
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, atol=1e-5, rtol=1e-3)
    slow, fast = found["straightforward"], found["ours"]
    weights = sum(gradient.numel() for gradient in wanted.values()) * 4 / 2**20
    floor = weights + MIB_PER_TOKEN * BATCH_TOKENS
    less = "" if queries == QUERIES else f" ({QUERIES} would not fit into this machine's free memory)"
    return Outcome(
        "memory_step",
        f"peak memory of a ROPG-KD step above the loaded encoder, {queries} queries{less} x {DOCUMENTS} documents "
        f"x {length} tokens, against all at once",
        (slow["mib"],),
        (fast["mib"],),
        at_least=10,
        checked="gradients equal (1e-5)",
        unit="MiB",
        limit=f"gradients of the weights and activations of one batch: {floor:.0f} of {fast['mib']:.0f} MiB; the "
        f"second forward pass costs {fast['seconds'] / slow['seconds'] - 1:+.0%} time",
        notes={"seconds": [slow["seconds"], fast["seconds"]], "queries": queries},
    )
