"""One training step of MiniLM, 8 queries with 16 documents of 90 tokens: all weights, LoRA, the query side."""

from __future__ import annotations

import statistics
import time

from benchmarks.dense import MODEL
from benchmarks.measure import Outcome, in_own_process, peak_above
from benchmarks.memory_step import DOCUMENTS, rows_of
from ropg.retrievers.adapters import add_adapters
from ropg.retrievers.encoder import load_encoder
from ropg.retrievers.two_towers import freeze_documents
from ropg.training import bi_encoder_scorer
from ropg.training.objectives import load_objective
from ropg.training.parallel import Processes
from ropg.training.settings import TrainSettings
from ropg.training.step import Stepper

QUERIES, MAX_LENGTH = 8, 90
WAYS = ("full", "lora", "query")


def steps(way: str, count: int) -> dict[str, float]:
    """Seconds of a step (median, without the first), peak MiB above the loaded encoder, trained parameters."""
    encoder = load_encoder(MODEL, max_length=MAX_LENGTH, batch_tokens=4096, device="cpu")
    rows = rows_of(QUERIES, encoder)
    found: dict[str, float] = {}

    def train() -> None:
        trained = encoder
        if way == "lora":
            add_adapters(encoder)
        if way == "query":
            trained = freeze_documents(encoder, MODEL)
        settings = TrainSettings(batch_size=QUERIES, accumulation=1, epochs=count + 1, mixed_precision="no")
        objective = load_objective("ropg_kd", target_temperature=0.1)
        scorer = bi_encoder_scorer(trained, rows)
        stepper = Stepper(trained.module, scorer, rows, objective, settings, Processes(trained.module))
        taken = []
        for number in range(count + 1):
            started = time.perf_counter()
            stepper.take(number)
            taken.append(time.perf_counter() - started)
        found["first"], found["seconds"] = taken[0], statistics.median(taken[1:])
        found["parameters"] = sum(p.numel() for p in stepper.parameters)

    _, found["mib"] = peak_above(train)
    return found


def run(pairs: int = 3) -> Outcome:
    """Compare a step of full training with one of the query side; LoRA is reported beside them."""
    found = {way: in_own_process(steps, way, pairs)[0] for way in WAYS}
    full = found["full"]
    said = "; ".join(
        f"{way} {values['seconds']:.2f} s ({values['seconds'] / full['seconds']:.2f} x), {values['mib']:.0f} MiB "
        f"({values['mib'] / full['mib']:.2f} x), {values['parameters']:,.0f} parameters"
        for way, values in found.items()
    )
    return Outcome(
        "encoders",
        f"a training step, {QUERIES} queries x {DOCUMENTS} documents x {MAX_LENGTH} tokens, of the query side against "
        "all weights",
        (full["seconds"],),
        (found["query"]["seconds"],),
        at_least=5,
        checked="what each way trains is tested",
        limit=f"memory above the loaded encoder. {said}; the query side's first step, with all document vectors, "
        f"{found['query']['first']:.2f} s",
        notes={"ways": found},
    )
