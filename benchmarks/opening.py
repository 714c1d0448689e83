"""Opening a LaMP file of 1 GB: the first time, again, and by ``json.load``."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ijson
import numpy as np

from benchmarks.measure import Outcome, Promise, in_own_process, peak_mib
from benchmarks.texts import HOTELS, Reviews

GIGABYTES = 1.0
PROFILE = 150  # documents of a profile in the mean
SEVERAL = 2000  # texts are drawn from that many; a sentence of each stands at another place every time


def records(size: float) -> Iterator[tuple[str, str]]:
    """LaMP-4's questions and golds as JSON text, until the questions have ``size`` bytes."""
    reviews, draw = Reviews(0, HOTELS), np.random.default_rng(0)
    texts = [reviews.text(shortest=30).split() for _ in range(SEVERAL)]
    titles = [reviews.title() for _ in range(SEVERAL)]
    written = 0
    for number in range(10**9):
        chosen = draw.integers(SEVERAL, size=int(draw.integers(PROFILE // 2, PROFILE * 3 // 2)))
        cuts = draw.integers(1, 30, size=len(chosen))
        documents = ", ".join(
            f'{{"id": "{number}-{place}", "title": "{titles[pick]} {number}", '
            f'"text": "{" ".join(texts[pick][cut:])} {" ".join(texts[pick][:cut])} {place}", "date": "2014-06-30"}}'
            for place, (pick, cut) in enumerate(zip(chosen.tolist(), cuts.tolist(), strict=True))
        )
        article = " ".join(texts[number % SEVERAL])
        question = (
            f'{{"id": "{number}", "input": "Generate a headline for the following article: {article}", '
            f'"profile": [{documents}]}}'
        )
        yield question, f'{{"id": "{number}", "output": "headline {number}"}}'
        written += len(question)
        if written >= size:
            return


def write_files(root: Path, size: float) -> int:
    """Write dev questions and outputs below ``root``; return the number of examples."""
    golds = []
    with (root / "dev_questions.json").open("w") as stream:
        for number, (question, gold) in enumerate(records(size)):
            stream.write(("[" if number == 0 else ", ") + question)
            golds.append(gold)
        stream.write("]")
    (root / "dev_outputs.json").write_text(f'{{"task": "LaMP_4", "golds": [{", ".join(golds)}]}}')
    return len(golds)


def facts(inputs: list[str], sizes: list[int], last: str) -> list[object]:
    """What is compared: the inputs' total length, all profiles' sizes, and the last document read."""
    return [len(inputs), sum(map(len, inputs)), sizes, last]


def by_json(root: str) -> tuple[list[object], float, float]:
    """The straightforward way: (facts, seconds, the process's peak memory in MiB)."""
    started = time.perf_counter()
    with (Path(root) / "dev_questions.json").open() as stream:
        examples = json.load(stream)
    taken, peak = time.perf_counter() - started, peak_mib()
    last = examples[-1]["profile"][-1]["text"]
    return facts([e["input"] for e in examples], [len(e["profile"]) for e in examples], last), taken, peak


def by_source(root: str, cache: str) -> tuple[list[object], float, float]:
    """The project's source, as :func:`by_json`; importing it is counted."""
    started = time.perf_counter()
    from ropg.sources import load_examples

    examples = load_examples("lamp", task="LaMP-4", root=root, split="dev", cache_dir=cache)
    last = examples[len(examples) - 1].profile[-1].text
    taken, peak = time.perf_counter() - started, peak_mib()
    return facts([e.input for e in examples], [len(e.profile) for e in examples], last), taken, peak


def parse_only(root: str) -> float:
    """Seconds that ijson alone takes to read the records as a stream."""
    started = time.perf_counter()
    with (Path(root) / "dev_questions.json").open("rb") as stream:
        for _ in ijson.items(stream, "item"):
            pass
    return time.perf_counter() - started


def run(pairs: int = 3, gigabytes: float = GIGABYTES) -> Outcome:
    """Compare each in a process of its own. Memory does not vary: the first opening is measured once, the second
    ``pairs`` times."""
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "data", str(Path(folder) / "cache")
        root.mkdir()
        number = write_files(root, gigabytes * 1e9)
        (wanted, json_seconds, json_peak), _, _ = in_own_process(by_json, str(root))
        (got, first_seconds, first_peak), _, _ = in_own_process(by_source, str(root), cache)
        assert got == wanted, "the source does not hold what the file holds"
        again = []
        for _ in range(pairs):
            (got, taken, peak), _, _ = in_own_process(by_source, str(root), cache)
            assert got == wanted, "the converted file does not hold what the file holds"
            again.append((taken, peak))
        parse, _, _ = in_own_process(parse_only, str(root))
    return Outcome(
        "opening",
        f"peak memory of opening a LaMP file of {gigabytes:g} GB ({number} examples) for the first time, against "
        "json.load",
        (json_peak,),
        (first_peak,),
        at_least=5,
        checked="inputs, sizes of profiles and last document equal",
        unit="MiB",
        limit=f"ijson alone parses it in {parse:.0f} s, {parse / first_seconds:.0%} of the first opening's "
        f"{first_seconds:.0f} s; json.load takes {json_seconds:.0f} s every time",
        notes={"json_seconds": json_seconds, "first_seconds": first_seconds, "again": again},
        more=(
            Promise("opening it again", min(taken for taken, _ in again), 2, "s"),
            Promise("its peak memory", max(peak for _, peak in again), 300, "MiB"),
        ),
    )
