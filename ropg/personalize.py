"""Answer one user: rank the profile with a trained retriever, build φ_p, ask the LLM.

In three lines::

    from ropg.personalize import personalizer
    personalize = personalizer("runs/lamp-4-ropg_kd-seed0-1a2b3c4d")
    print(personalize(example).text)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropg.examples import Document, Example


@dataclass(frozen=True, slots=True)
class Personalized:
    """An answer, the documents that stood in the prompt (best first) and the prompt itself."""

    text: str
    documents: tuple[Document, ...]
    prompt: str


def personalize(example: Example, task: Any, retriever: Any, llm: Any, k: int = 4) -> Personalized:
    """M(φ_p(x, top k of R(φ_q(x); P_u))) for one example.

    An empty profile is answered without personalization. ``retriever`` is anything with ``rank``;
    one whose documents must stay out of the prompt (``NoRetrieval``) has ``fills_prompt = False``.
    """
    ranked = retriever.rank(task.query(example.input), example.profile, example=example)
    top = [r.document for r in ranked[:k]] if getattr(retriever, "fills_prompt", True) else []
    prompt = task.build_prompt(
        example.input, top, tokenizer=llm.count_tokens, max_tokens=llm.max_input_tokens
    )
    kept = tuple(document for document in top if document.id in set(prompt.kept_ids))
    return Personalized(task.parse(llm.generate([prompt.text])[0]), kept, prompt.text)


def personalizer(run: str | Path, k: int | None = None) -> Callable[[Example], Personalized]:
    """A function from example to answer, with the task, the LLM and the trained retriever of a finished run.

    Raises :class:`ropg.runs.RunError` where the folder is no run or holds no trained model yet.
    """
    from ropg import build
    from ropg.runs import RunError, load_config

    folder = Path(run)
    config = load_config(folder)
    config.feedback.engine = "local"  # one answer at a time is no work for many
    if not (folder / "model").is_dir():
        raise RunError(f"{folder} holds no trained model yet; run train.py with run.dir={folder} to its end")
    task = build.build_task(config)
    llm = build.build_llm(config, task)
    retriever = build.build_retriever("dense", config, task, build.build_encoder(config, folder / "model"))
    depth = config.retrieval.k if k is None else k

    def answer(example: Example) -> Personalized:
        return personalize(example, task, retriever, llm, depth)

    return answer
