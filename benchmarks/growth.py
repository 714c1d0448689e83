"""1,000, 2,000 and 4,000 profiles through ranking and feedback with a tiny LLM: how time and memory grow."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Outcome, Promise, in_own_process, peak_mib, restart_peak
from benchmarks.texts import CLOTHES, Reviews, vocabulary

SIZES = (1000, 2000, 4000)
PROFILE, L, NEW = 20, 8, 2
TASK = "LaMP-4"


def save_tiny_llm(folder: Path) -> None:
    """A random T5 of one layer with a tokenizer over the reviews' words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    words = {"<pad>": 0, "</s>": 1, "<unk>": 2}
    words |= {word: 3 + i for i, word in enumerate(vocabulary(5000))}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    config = T5Config(
        vocab_size=len(words), **sizes, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)


def write_records(path: Path, n: int) -> None:
    """JSON lines of n users with short reviews; the first users of a longer file are those of a shorter one."""
    reviews, draw = Reviews(0, CLOTHES), np.random.default_rng(0)
    texts = [reviews.text(longest=60) for _ in range(2000)]
    titles = [reviews.title() for _ in range(2000)]
    with path.open("w") as stream:
        for user in range(n):
            picks = draw.choice(len(texts), size=PROFILE + 1, replace=False).tolist()
            profile = [
                {"id": f"{user}-{i}", "title": titles[p], "text": texts[p]} for i, p in enumerate(picks)
            ]
            asked = profile.pop()
            record = {
                "id": str(user),
                "user": str(user),
                "input": f"Generate a headline for the following article: {asked['text']}",
                "target": asked["title"],
                "profile": profile,
            }
            stream.write(json.dumps(record) + "\n")


def both_stages(path: str, model: str, n: int | None, store: str) -> tuple[int, str]:
    """Rank and score the first n users: (number of rewards, the tables' first and last rows)."""
    from ropg.feedback.candidates import build_candidates
    from ropg.feedback.scorer import score_candidates
    from ropg.feedback.store import GenerationStore
    from ropg.llms import load_llm
    from ropg.retrievers import BM25
    from ropg.sources import load_examples
    from ropg.tasks import get_task

    examples = load_examples("records", path=path, cache_dir=str(Path(path).parent / "cache"), limit=n)
    task = get_task(TASK, template="paper")
    llm: Any = load_llm(
        "seq2seq", model=model, max_new_tokens=NEW, batch_tokens=65536, max_batch_size=256, device="cpu"
    )
    candidates = build_candidates(
        examples, task, BM25("lucene", text=task.document_text), l=L, progress=False
    )
    with GenerationStore(store) as generations:
        feedback = score_candidates(examples, task, candidates, llm, generations, progress=False)
    first = feedback.table.slice(0, L * 100).to_pylist()
    return len(feedback), json.dumps(first)


def measured(path: str, model: str, n: int, folder: str) -> dict[str, Any]:
    """CPU seconds and peak memory of both stages, after a warm-up with a few users in a store of its own."""
    both_stages(path, model, 100, f"{folder}/warm-{n}")
    before = restart_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    rewards, first = both_stages(path, model, n, f"{folder}/store-{n}")
    return {
        "n": n,
        "rewards": rewards,
        "first": first,
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "before": before,
        "peak": peak_mib(),
    }


def run(pairs: int = 3) -> Outcome:
    """Run each size in a process of its own. CPU time counts: wall-clock time grows with what else the machine does."""
    del pairs
    with tempfile.TemporaryDirectory() as folder:
        path, model = Path(folder) / "users.jsonl", Path(folder) / "llm"
        in_own_process(save_tiny_llm, model)
        write_records(path, max(SIZES))
        in_own_process(both_stages, str(path), str(model), 10, f"{folder}/first")  # converts the file
        found = [in_own_process(measured, str(path), str(model), n, folder)[0] for n in SIZES]
    for part in found:
        assert part["rewards"] == part["n"] * L, f"{part['n']} profiles gave {part['rewards']} rewards"
        assert part["first"] == found[0]["first"], (
            "the first 100 users' rewards depend on the number of users"
        )
    half, whole = found[:-1], found[1:]
    per_thousand = (found[-1]["peak"] - found[0]["peak"]) / (SIZES[-1] - SIZES[0]) * 1000
    return Outcome(
        "growth",
        f"CPU time of ranking and feedback with a tiny LLM, {' -> '.join(f'{n:,}' for n in SIZES)} profiles x {L} "
        "candidates, against twice that of half as many",
        tuple(2 * part["cpu"] for part in half),
        tuple(part["cpu"] for part in whole),
        at_least=1 / 1.15,
        checked="rewards of the first 100 users equal at every size",
        limit="what grows is the prompts, their keys and answers, some 2 kB for each prompt; no profile stays",
        notes={"sizes": [{k: v for k, v in part.items() if k != "first"} for part in found]},
        more=(
            *(
                Promise(
                    f"time of {b['n']:,} against twice that of {a['n']:,}", b["cpu"] / (2 * a["cpu"]), 1.15
                )
                for a, b in zip(half, whole, strict=True)
            ),
            Promise(
                f"peak memory of {SIZES[-1]:,} against that of {SIZES[0]:,} profiles "
                f"({per_thousand:+.0f} MiB per 1,000)",
                found[-1]["peak"] / found[0]["peak"],
                1.15,
            ),
        ),
    )
