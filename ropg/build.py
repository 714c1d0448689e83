"""Objects from a configuration: the task, the examples, the LLM, the encoder, the retrievers.

Each function is the one place where the keys of its part of the configuration are read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropg.configuration import Config, DataConfig
from ropg.examples import Document, Example

if TYPE_CHECKING:
    from ropg.training.settings import TrainSettings


def build_task(config: Config) -> Any:
    """The task of ``config.task``, with the LLM family's template where none is named."""
    from ropg.cli import Refused
    from ropg.tasks import get_task

    if config.task.name == "custom" and config.task.definition is None:
        raise Refused("task=custom needs task.definition=FILE, a YAML file that defines the task")
    template, most = config.task.template or config.llm.template, config.task.max_words
    options = {} if most == "default" else {"max_words": most}
    if options.get("max_words") is not None and template == "pattern":
        raise Refused(
            f"task.max_words={most}: the template pattern has no instruction that could state a limit of words; "
            "add task.template=paper, or leave out task.max_words"
        )
    return get_task(
        config.task.name,
        template=template,
        language=config.task.language,
        metric=config.task.metric,
        rouge_tokenizer=config.task.rouge_tokenizer,  # type: ignore[arg-type]
        definition=config.task.definition,
        **options,
    )


def task_fingerprint(task: Any) -> str:
    """Identify what a task writes: changed templates must not meet tables made with the old ones.

    The hash of the query, document texts and prompts that it makes of two made-up documents.
    """
    pair = [
        Document(
            name, f"text of {name}", title=f"title of {name}", score="3", date="2020-01-01", tag="comedy"
        )
        for name in ("a", "b")
    ]
    parts = [task.name, task.template, task.query("an input"), *map(task.document_text, pair)]
    for documents in ([], pair[:1], pair):
        try:
            parts.append(task.prompt("an input", documents))
        except ValueError as error:  # a task may need fields that these documents lack
            parts.append(str(error))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def build_llm(config: Config, task: Any) -> Any:
    """The frozen LLM; nothing is loaded before the first prompt that is not in the store."""
    from ropg.cli import Refused
    from ropg.llms import LLMS, load_llm
    from ropg.llms.endpoint import LIKELIHOOD_REFUSED

    check_engine(config)
    llm = config.llm
    stop = llm.stop if llm.stop is not None else list(task.stop)
    here: dict[str, Any] = {
        "chat_template": llm.chat_template,
        "dtype": llm.dtype,
        "device": llm.device,
        "batch_tokens": llm.batch_tokens,
        "max_batch_size": llm.max_batch_size,
        "attention": llm.attention,
    }
    if not getattr(LLMS.get(llm.kind), "runs_here", True):  # weights and batches are the server's
        if llm.chat_template or llm.dtype != "auto" or llm.attention != "auto":
            raise Refused(
                "llm.chat_template, llm.dtype and llm.attention are for an LLM in this process; a server decides its "
                "numeric type itself, and llm.options.api=chat makes it use its chat template"
            )
        if "likelihood" in (config.feedback.eval, config.feedback.train_eval):
            raise Refused(LIKELIHOOD_REFUSED)
        here = {}
    options: dict[str, Any] = dict(
        model=llm.model,
        revision=llm.revision,
        num_beams=llm.num_beams,
        max_input_tokens=llm.max_input_tokens,
        max_new_tokens=llm.max_new_tokens,
        stop=stop,
        **here,
        **llm.options,
    )
    if config.feedback.engine == "ray":
        from ropg.llms.ray_actors import spread

        return spread(llm.kind, options, **dataclasses.asdict(config.feedback.ray))
    return load_llm(llm.kind, **options)


def check_engine(config: Config) -> None:
    """Raise Refused for an engine that is not there or has nothing to spread, ValueError where Ray is missing."""
    from ropg.cli import Refused

    engine = config.feedback.engine
    if engine not in ("local", "ray"):
        raise Refused(f"feedback.engine={engine}: it is local or ray")
    if engine == "ray":
        from ropg.llms.ray_actors import check_ray

        if config.llm.kind == "endpoint":
            raise Refused(
                "feedback.engine=ray spreads an LLM that is loaded here, and an endpoint's server loads its own: start "
                "more servers behind the endpoint, and leave out feedback.engine"
            )
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise Refused(
                "feedback.engine=ray shares the work out itself: start one process, without launcher"
            )
        check_ray()


def build_encoder(config: Config, model: str | Path | None = None) -> Any:
    """The bi-encoder: the initial one, or the one that a run saved at ``model``."""
    from ropg.retrievers.encoder import load_encoder

    encoder = config.encoder
    return load_encoder(
        str(model or encoder.model),
        max_length=encoder.max_length,
        batch_tokens=encoder.batch_tokens,
        recompute=encoder.recompute,  # type: ignore[arg-type]  # checked there
        attention=encoder.attention,
        gradient_checkpointing=encoder.gradient_checkpointing,
        compile=encoder.compile,
    )


def build_objective(config: Config) -> Any:
    """What training minimises. Raises ValueError for a name, an option or a value that does not exist."""
    from ropg.training import load_objective

    method = config.method
    return load_objective(method.objective or method.name, temperature=method.temperature, **method.options)


def build_settings(config: Config) -> TrainSettings:
    """The numbers of the training loop. Raises ValueError for one out of its range."""
    from ropg.training.settings import TrainSettings

    optim = dataclasses.asdict(config.optim)
    return TrainSettings(
        **optim,
        seed=config.seed,
        temperature=config.method.temperature,
        refresh_every=config.candidates.refresh,
    )


def base_retriever(name: str, config: Config) -> str:
    """What a retriever of the configuration ranks with in the end: itself, or what its ``of`` names.

    ``retrievers.bm25_own: {of: bm25, provenance: own}`` ranks with ``bm25``; ``of`` may also name a trained
    system (``ropg_kd``) or ``initial``. Raises ValueError for wrappers that wrap each other.
    """
    seen = [name]
    while inner := _options(seen[-1], config).get("of"):
        if inner in seen:
            raise ValueError(f"retrievers.{name}: of goes round in a circle: {' -> '.join([*seen, inner])}")
        seen.append(str(inner))
    return seen[-1]


def restricted(retriever: Any, name: str, config: Config) -> Any:
    """Wrap a retriever as ``retrievers.<name>``, and what that is ``of``, say; as it is where there is no ``of``.

    Raises ValueError, naming the key, for a provenance or a quota that cannot be, and for another key.
    """
    from ropg.retrievers import ProvenanceFilter, Quota

    options = dict(_options(name, config))
    if "of" not in options:
        return retriever
    retriever = restricted(retriever, options.pop("of"), config)
    provenance, quota = options.pop("provenance", None), options.pop("quota", None)
    if options:
        raise ValueError(
            f"retrievers.{name}: {', '.join(options)} belongs to the retriever that it restricts; beside `of` it takes "
            "provenance and quota"
        )
    try:
        if provenance is not None:
            retriever = ProvenanceFilter(retriever, provenance)
        if quota is not None:
            retriever = Quota(retriever, quota)
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"retrievers.{name}: {error}; provenance is own, neighbor or a list of them, and quota a number for each, "
            "as in {own: 2, neighbor: 2}"
        ) from None
    return retriever


def _options(name: str, config: Config) -> dict[str, Any]:
    return config.retrievers.get("dense" if name == "initial" else name) or {}


def takes_encoder(name: str, config: Config) -> bool:
    """Whether a retriever reads vectors, so that an encoder must be loaded for it."""
    return "encoder" in inspect.signature(_retriever_factory(base_retriever(name, config), config)).parameters


def _retriever_factory(name: str, config: Config) -> Any:
    from ropg.retrievers import RETRIEVERS

    kind = "dense" if name == "initial" else name
    return RETRIEVERS.get(_options(name, config).get("target", kind))


def build_retriever(name: str, config: Config, task: Any, encoder: Any = None) -> Any:
    """A retriever by its name, with its options of ``config.retrievers`` and the task's document text.

    ``encoder`` goes to those that take one. A name whose options have ``of`` is that retriever, restricted to a
    ``provenance`` or by a ``quota``. Options that its constructor does not take raise ValueError.
    """
    base = base_retriever(name, config)
    options = {k: v for k, v in _options(base, config).items() if k != "target"}
    factory = _retriever_factory(base, config)
    accepted = inspect.signature(factory).parameters
    if "encoder" in accepted and encoder is not None:
        options["encoder"] = encoder
    if base == "rrf":
        options |= {k: v for k, v in _options("bm25", config).items() if k == "variant"}
    try:
        inspect.signature(factory).bind(text=task.document_text, **options)
    except TypeError as error:
        raise ValueError(f"retrievers.{base}: {error}; it takes {', '.join(accepted)}") from None
    return restricted(factory(text=task.document_text, **options), name, config)


def source_options(data: DataConfig, task_name: str) -> dict[str, Any]:
    """What :func:`ropg.sources.load_examples` is given for one source, split and limit left out."""
    from ropg.cli import Refused

    options: dict[str, Any] = {"on_problem": data.on_problem or None, "cache_dir": data.cache_dir}
    needed = {"lamp": "root", "records": "path", "pgraphrag": "path"}.get(data.source)
    if data.source == "pgraphrag" and data.file and not data.path:
        needed = "root"  # an experiment names the file, and the command line where it lies
    if needed and not getattr(data, needed):
        raise Refused(f"data={data.source} needs data.{needed}={'DIR' if needed == 'root' else 'FILE'}")
    if data.source == "lamp":
        options |= {"root": data.root, "task": task_name, "setting": data.setting}
    elif data.source == "records":
        options |= {"path": data.path, "fields": data.fields or None, "seed": data.seed}
    elif data.source == "pgraphrag":
        family, _, kind = task_name.partition("_")
        if family != "pgraphrag":
            raise Refused(
                f"data=pgraphrag holds reviews, and the task is {task_name}; add task=pgraphrag_title, "
                "pgraphrag_text or pgraphrag_rating"
            )
        options |= {
            "path": data.path or Path(data.root or "") / (data.file or ""),
            "task": kind,
            "seed": data.seed,
            "fields": data.fields or None,
            "max_documents": data.max_documents,
        }
    return options | data.options


def build_examples(config: Config, split: str | None, limit: int | None) -> Sequence[Example]:
    """One split of ``config.data``; lazy."""
    from ropg.sources import load_examples

    options = source_options(config.data, config.task.name)
    return load_examples(config.data.source, split=split, limit=limit, **options)


def examples_fingerprint(examples: Sequence[Example]) -> str:
    """Identify examples by content, so that tables made from other data are noticed (32 hex digits)."""
    known = getattr(examples, "fingerprint", None)
    if isinstance(known, str):
        return known
    digest = hashlib.sha256()
    for example in examples:
        head = (example.id, example.user, example.input, example.target, sorted(example.meta.items()))
        digest.update(repr((head, list(example.profile))).encode())
    return digest.hexdigest()[:32]
