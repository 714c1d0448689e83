"""Where the next wall stands: the store, planning and ranking at small scale, for extrapolation.

    python -m benchmarks.walls [NAME …] [--scale 0.1]

Each measurement runs in a fresh process and prints its rates and bytes; ``docs/scaling.md`` says how they grow. What
is written goes to a temporary folder on the disk of ``--dir``, since a commit is as fast as that disk syncs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import in_own_process

SETTINGS = {"identity": {"model": "made-up", "revision": "main"}, "decoding": {"num_beams": 4}}
BATCH = 32


def records(start: int, n: int, characters: int = 60) -> list[Any]:
    """Made-up answers with distinct keys as long as real ones: 64 hexadecimal digits, a title's length of text."""
    from ropg.feedback.keys import digest
    from ropg.feedback.store import GenerationRecord

    return [
        GenerationRecord(digest(i), f"{i} ".ljust(characters, "x"), "stop", 300, 15, 1.8e9)
        for i in range(start, start + n)
    ]


def write_batches(folder: str, writer: str, start: int, batches: int, batch: int = BATCH) -> float:
    """Seconds to commit so many batches; the rows are made before."""
    from ropg.feedback.store import GenerationStore

    made = [records(start + i * batch, batch) for i in range(batches)]
    with GenerationStore(folder, writer) as store:
        store.claim_writer()
        begun = time.perf_counter()
        for rows in made:
            store.put_many(rows, SETTINGS)
        return time.perf_counter() - begun


def _timed_writer(folder: str, number: int, batches: int, queue: Any) -> None:
    queue.put(write_batches(folder, f"w{number}", number * 10**7, batches))


def store_writes(folder: str, scale: float) -> dict[str, float]:
    """Commits per second of one writer, of several at once (together), and of one in larger batches."""
    batches = max(20, int(1000 * scale))
    found = {
        "one writer, batches of 32: commits/s": batches / write_batches(f"{folder}/one", "w", 0, batches)
    }
    found["one writer, batches of 1: commits/s"] = batches / write_batches(f"{folder}/1", "w", 0, batches, 1)
    large = max(5, batches // 8)
    found["one writer, batches of 1024: commits/s"] = large / write_batches(
        f"{folder}/1024", "w", 0, large, 1024
    )
    context = multiprocessing.get_context("spawn")
    for writers in (2, 4):
        queue = context.Queue()
        processes = [
            context.Process(target=_timed_writer, args=(f"{folder}/{writers}", number, batches, queue))
            for number in range(writers)
        ]
        for process in processes:
            process.start()
        slowest = max(queue.get() for _ in processes)
        for process in processes:
            process.join()
        found[f"{writers} writers, a file each: commits/s together"] = writers * batches / slowest
    return found


def store_size(folder: str, scale: float) -> dict[str, float]:
    """Bytes per row and rows per second while one file grows, keys in the order in which they are made: by hash."""
    from ropg.feedback.store import GenerationStore

    rows, step = int(1_000_000 * scale), max(1, int(100_000 * scale))
    found = {}
    with GenerationStore(folder) as store:
        path = store.claim_writer()
        begun = time.perf_counter()
        for start in range(0, rows, 1000):
            store.put_many(records(start, 1000), SETTINGS)
            if (start + 1000) % step < 1000 and start + 1000 in (step, rows):
                found[f"bytes/row at {start + 1000}"] = path.stat().st_size / (start + 1000)
                found[f"rows/s up to {start + 1000}, batches of 1000"] = (start + 1000) / (
                    time.perf_counter() - begun
                )
    return found


def store_reads(folder: str, scale: float) -> dict[str, float]:
    """Keys per second read from a store of several files, where all and where none are there."""
    from ropg.feedback.keys import digest
    from ropg.feedback.store import GenerationStore

    rows, asked = int(1_000_000 * scale), min(20_000, int(200_000 * scale))
    found = {}
    for files in (1, 8):
        part = f"{folder}/{files}"
        for number in range(files):
            with GenerationStore(part, f"w{number}") as store:
                for start in range(0, rows // files, 10_000):
                    n = min(10_000, rows // files - start)
                    store.put_many(records(number * (rows // files) + start, n), SETTINGS)
        draw = np.random.default_rng(0)
        keys = [digest(int(i)) for i in draw.integers(0, files * (rows // files), asked)]
        absent = [digest(f"absent {i}") for i in range(asked)]
        with GenerationStore(part) as store:
            store.get_many(keys[:10])
            for what, wanted in (("there", keys), ("absent", absent)):
                begun = time.perf_counter()
                got = store.get_many(wanted)
                seconds = time.perf_counter() - begun
                assert len(got) == (len(set(keys)) if what == "there" else 0)
                found[f"{rows} rows in {files} files: keys/s, all {what}"] = asked / seconds
    return found


def planning(folder: str, scale: float) -> dict[str, float]:
    """Time and memory of ``generate_missing`` apart from the LLM: prompts, batches, keys, the look-up, the answers."""
    from benchmarks.measure import peak_mib
    from benchmarks.texts import HOTELS, Reviews
    from ropg.feedback.generation import generate_missing, planned_batches
    from ropg.feedback.keys import generation_key
    from ropg.feedback.store import GenerationStore

    llm: Any = Instant()
    n = int(1_000_000 * scale)
    reviews = Reviews(1, HOTELS)
    texts = [reviews.text() for _ in range(2000)]
    draw = np.random.default_rng(0)
    pairs = draw.integers(0, len(texts), (n, 2))
    before = resident_mib()
    prompts = [f"{texts[a]} {i} {texts[b]}" for i, (a, b) in enumerate(pairs.tolist())]
    held = resident_mib() - before
    found = {
        f"{n} prompts: characters each": sum(map(len, prompts)) / n,
        "prompts: MiB per 100,000": held * 1e5 / n,
    }
    begun = time.perf_counter()
    planned_batches(llm, prompts)
    found["planned_batches without a tokenizer: s per 100,000"] = (time.perf_counter() - begun) * 1e5 / n
    begun = time.perf_counter()
    for prompt in prompts:
        generation_key(llm.identity, prompt, llm.decoding)
    found["keys: s per 100,000"] = (time.perf_counter() - begun) * 1e5 / n
    before = peak_mib()
    with GenerationStore(folder) as store:
        begun = time.perf_counter()
        report = generate_missing(llm, prompts, store, progress=False)
        found["generate_missing with an LLM that takes no time: s per 100,000"] = (
            (time.perf_counter() - begun) * 1e5 / n
        )
        del report
        found["generate_missing: MiB per 100,000 beside the prompts"] = (peak_mib() - before) * 1e5 / n
        begun = time.perf_counter()
        generate_missing(llm, prompts, store, progress=False)
        found["the same, all in the store: s per 100,000"] = (time.perf_counter() - begun) * 1e5 / n
    return found


class Instant:
    """An LLM whose answers cost nothing: what remains is the framework."""

    family = "causal"
    identity = SETTINGS["identity"]
    decoding = SETTINGS["decoding"]
    loaded = True
    max_input_tokens = 512

    def plan(self, prompts: Any) -> list[list[int]]:
        """Real batches, over lengths that are guessed from characters."""
        from ropg.batching import plan_batches

        return plan_batches([len(prompt) // 5 + 16 for prompt in prompts], 16384, BATCH)

    def answer_batches(self, batches: Any) -> Iterator[tuple[Any, list[Any]]]:
        """A title each."""
        from ropg.llms import Generation

        for batch in batches:
            yield batch, [Generation("x" * 60, "stop", 300, 15) for _ in batch]


def tokenizing(folder: str, scale: float) -> dict[str, float]:
    """Planning's other half: tokens of every prompt by a real tokenizer, in one process."""
    from benchmarks.measure import peak_mib
    from benchmarks.texts import HOTELS, Reviews
    from benchmarks.token_lengths import MODEL
    from ropg.llms import load_llm

    llm: Any = load_llm("causal", model=MODEL, max_input_tokens=4096, batch_tokens=65536)
    llm.count_tokens("loads the tokenizer")
    reviews = Reviews(0, HOTELS)
    prompts = [f"{reviews.text()} {reviews.text()}" for _ in range(int(200_000 * scale))]
    before, begun = peak_mib(), time.perf_counter()
    llm.plan(prompts)
    seconds = time.perf_counter() - begun
    return {
        "llm.plan with SmolLM2's tokenizer: s per 100,000 prompts": seconds * 1e5 / len(prompts),
        "llm.plan: MiB per 100,000 prompts": (peak_mib() - before) * 1e5 / len(prompts),
        "characters each": sum(map(len, prompts)) / len(prompts),
    }


def ranking(folder: str, scale: float) -> dict[str, float]:
    """Dense ranking of one ever larger profile, with an encoder that takes no time: seconds and memory per document."""
    from benchmarks.measure import peak_mib
    from ropg.examples import Document
    from ropg.retrievers import Request
    from ropg.retrievers.dense import Dense

    found = {}
    for n in (int(50_000 * scale), int(200_000 * scale)):
        documents = [Document(f"d{i}", f"a text that is short {i}") for i in range(n)]
        before, begun = peak_mib(), time.perf_counter()
        for _ in Dense(Vectors()).rank_stream([Request("query", documents)]):
            pass
        found[f"profile of {n}: us per document"] = (time.perf_counter() - begun) * 1e6 / n
        found[f"profile of {n}: KiB per document at the peak"] = (peak_mib() - before) * 1024 / n
    return found


class Vectors:
    """An encoder of random vectors as long as Contriever's."""

    def encode(self, texts: list[str]) -> np.ndarray:
        """One vector per text: (N, 768)."""
        return np.random.default_rng(0).standard_normal((len(texts), 768), dtype=np.float32)


def encoding(folder: str, scale: float) -> dict[str, float]:
    """Tokens per second of MiniLM here: what a refresh of all documents costs on this processor."""
    from benchmarks.dense import MODEL
    from benchmarks.texts import CLOTHES, Reviews
    from ropg.retrievers.encoder import load_encoder

    encoder = load_encoder(MODEL, max_length=256, batch_tokens=4096, device="cpu")
    reviews = Reviews(0, CLOTHES)
    texts = [reviews.text() for _ in range(max(50, int(4000 * scale)))]
    tokens = sum(map(len, encoder.tokenize(texts)))
    begun = time.perf_counter()
    encoder.encode(texts)
    seconds = time.perf_counter() - begun
    return {"tokens/s": tokens / seconds, "tokens per text": tokens / len(texts)}


def resident_mib() -> float:
    """Memory of this process now, in MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


MEASUREMENTS: dict[str, Callable[[str, float], dict[str, float]]] = {
    f.__name__: f for f in (store_writes, store_size, store_reads, planning, tokenizing, ranking, encoding)
}


def measured(name: str, folder: str, scale: float) -> dict[str, float]:
    """One measurement by its name, for :func:`benchmarks.measure.in_own_process`."""
    return MEASUREMENTS[name](folder, scale)


def main() -> None:
    """Print what was measured, one line each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walls", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all by default: {', '.join(MEASUREMENTS)}")
    parser.add_argument("--scale", type=float, default=0.1, help="1: a million rows and prompts (0.1)")
    parser.add_argument("--dir", help="where the temporary folder lies")
    parser.add_argument("--out", type=Path, help="a JSON file to write as well")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.names).difference(MEASUREMENTS))
    if unknown:
        parser.error(f"there is no measurement {', '.join(unknown)}")
    found = {}
    for name in chosen.names or MEASUREMENTS:
        with tempfile.TemporaryDirectory(dir=chosen.dir) as folder:
            found[name], seconds, peak = in_own_process(measured, name, folder, chosen.scale)
        print(f"{name} [{seconds:.0f} s, {peak:.0f} MiB]")
        for what, value in found[name].items():
            print(f"  {what}: {value:,.4g}")
    if chosen.out:
        chosen.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
