"""What the pipeline tests read: files in LaMP's layouts, review files, and models so small that a stage takes moments.

Everything is drawn from seeds. The models are random, but their output layers prefer the words of the golds, so
that rewards differ between candidates and training has something to learn.
"""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

MOVIE_TAGS = [
    "sci-fi", "based on a book", "comedy", "action", "twist ending", "dystopia", "dark comedy", "classic",
    "psychology", "fantasy", "romance", "thought-provoking", "social commentary", "violence", "true story",
]  # fmt: skip
WORDS = [
    "old", "harbour", "quiet", "market", "winter", "garden", "stone", "river", "letter", "morning", "engine",
    "window", "silver", "bridge", "forest", "painter", "mountain", "village", "season", "ocean", "lantern",
    "summer", "orchard", "paper", "station", "valley", "island", "copper", "meadow",
]  # fmt: skip
TITLE_WORDS = ["Notes", "Return", "Story", "Report", "Song", "Guide", "Light", "Night", "Dream", "Road"]
CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)
LAMP = tuple(range(1, 8))
POOL = ("none", "recency", "bm25", "initial", "ropg_rl", "ropg_kd")
SELECTORS = ("rspg_pre", "rspg_post")
COSTS = ("trainable_parameters", "train_seconds", "peak_memory_mib")  # of training, in summary.json
MEASURED = ("seconds", "train_seconds", "peak_memory_mib")  # what differs from one try to the next
# the layouts that a download may have; each task of the tests has another
LAYOUTS = {
    1: "time/LaMP_1/{split}",
    2: "time/LaMP_2/new/{split}",
    3: "time/LaMP_3",
    4: "LaMP_4/{split}",
    5: "time/LaMP_5/{split}",
    6: "LaMP_6/new",
    7: "",
}


def sentence(rng: random.Random, n: int = 7) -> str:
    return " ".join(rng.choices(WORDS, k=n))


def title(rng: random.Random) -> str:
    return " ".join(rng.choices(TITLE_WORDS, k=3))


def lamp_input(task: int, rng: random.Random) -> tuple[str, str]:
    """An input worded as LaMP's are, and its gold."""
    body = sentence(rng)
    if task == 1:
        references = [sentence(rng, 4), sentence(rng, 4)]
        text = (
            f'For an author who has written the paper with the title "{body}", which reference is related? '
            f'Just answer with [1] or [2] without explanation. [1]: "{references[0]}" [2]: "{references[1]}"'
        )
        return text, rng.choice(["[1]", "[2]"])
    if task == 2:
        tags = ", ".join(MOVIE_TAGS)
        text = (
            "Which tag does this movie relate to among the following tags? Just answer with the tag name "
            f"without further explanation. tags: [{tags}] description: {body}"
        )
        return text, rng.choice(["comedy", "fantasy", "classic"])
    if task == 3:
        text = (
            "What is the score of the following review on a scale of 1 to 5? just answer with 1, 2, 3, 4, or 5 "
            f"without further explanation. review: {body}"
        )
        return text, rng.choice("12345")
    instructions = {
        4: "Generate a headline for the following article: ",
        5: "Generate a title for the following abstract of a paper: ",
        6: "Generate a subject for the following email: ",
        7: "Paraphrase the following tweet without any explanation before or after it: ",
    }
    return instructions[task] + body, title(rng)


def lamp_document(task: int, rng: random.Random, key: str) -> dict[str, str]:
    """A document with the fields of its task and a date."""
    document = {"id": key, "date": f"20{rng.randint(10, 20)}-{rng.randint(1, 12):02}-03"}
    text = sentence(rng)
    if task in (1, 5):
        return {**document, "title": title(rng), "abstract": text}
    if task == 2:
        return {**document, "description": text, "tag": rng.choice(MOVIE_TAGS)}
    if task == 3:
        return {**document, "text": text, "score": rng.choice("12345")}
    if task == 7:
        return {**document, "text": text}
    return {**document, "title": title(rng), "text": text}


def write_lamp(
    root: Path,
    task: int,
    sizes: dict[str, int],
    *,
    golds: tuple[str, ...] = ("train", "dev", "test"),
    documents: tuple[int, int] = (4, 5),
    dated: bool = True,
    seed: int = 0,
) -> Path:
    """Write the splits of one task below ``root`` in one of the layouts of LaMP's download; return ``root``."""
    for split, size in sizes.items():
        rng = random.Random(f"{task} {split} {seed}")
        questions, outputs = [], []
        for number in range(size):
            key = f"{split[:2]}{number}"
            text, gold = lamp_input(task, rng)
            profile = [lamp_document(task, rng, f"{key}-{i}") for i in range(rng.randint(*documents))]
            if not dated:
                for document in profile:
                    del document["date"]
            questions.append({"id": key, "input": text, "profile": profile})
            outputs.append({"id": key, "output": gold})
        rng.shuffle(outputs)  # joined by id, never by place
        folder = root / LAYOUTS[task].format(split=split)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}_questions.json").write_text(json.dumps(questions), encoding="utf-8")
        if split in golds:
            content = {"task": f"LaMP_{task}", "golds": outputs}
            (folder / f"{split}_outputs.json").write_text(json.dumps(content), encoding="utf-8")
    return root


def lamp_files(root: Path, task: int, split: str) -> tuple[Path, Path]:
    """The questions and the outputs file that ``write_lamp`` wrote."""
    folder = root / LAYOUTS[task].format(split=split)
    return folder / f"{split}_questions.json", folder / f"{split}_outputs.json"


def write_records(path: Path, sizes: dict[str, int], *, empty: tuple[str, ...] = (), seed: int = 0) -> Path:
    """Own data as JSON lines with names of its own; the users in ``empty`` have no documents."""
    lines = []
    for split, size in sizes.items():
        rng = random.Random(f"records {split} {seed}")
        for number in range(size):
            key = f"{split[:2]}{number}"
            documents = [
                {"id": f"{key}-{i}", "text": sentence(rng), "title": title(rng), "cuisine": rng.choice(WORDS)}
                for i in range(0 if key in empty else 4)
            ]
            record = {"id": key, "split": split, "question": f"Name this recipe: {sentence(rng)}"}
            lines.append(json.dumps({**record, "target": title(rng), "profile": documents}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def corpus() -> list[str]:
    """Texts of all tasks, from which the tiny tokenizers learn their words."""
    rng = random.Random(0)
    texts = [lamp_input(task, rng)[0] for task in LAMP for _ in range(6)]
    return texts + [" ".join(TITLE_WORDS), " ".join(WORDS), "1 2 3 4 5 [1] [2]", " ".join(MOVIE_TAGS)] * 20


def byte_level(specials: list[str], size: int = 700) -> Any:
    """A byte-level tokenizer: any text has tokens, and the words of the corpus are one token each."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def prefer_answers(head: Any, tokenizer: Any) -> None:
    """Spread the logits, and quiet the tokens that are no word of a gold."""
    import torch

    words = [*TITLE_WORDS, *(tag for tag in MOVIE_TAGS if tag.isalpha()), "1", "2", "3", "4", "5"]
    wanted = {ids[0] for word in words for ids in [tokenizer(" " + word, add_special_tokens=False).input_ids]}
    wanted |= set(tokenizer("12345", add_special_tokens=False).input_ids)
    quiet = [i for i in range(head.weight.shape[0]) if i not in wanted]
    with torch.no_grad():
        head.weight.mul_(60)
        head.weight[quiet] *= 0.02


def build_llama(folder: Path) -> None:
    """A LLaMA as they are shipped: no pad token, sampling defaults, a chat template."""
    import torch
    from tokenizers import processors
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    core = byte_level(["<s>", "</s>"])
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config)
    prefer_answers(model.lm_head, tokenizer)
    model.generation_config = GenerationConfig(do_sample=True, top_p=0.9, eos_token_id=1, bos_token_id=0)
    model.save_pretrained(folder)


def build_t5(folder: Path) -> None:
    """A T5 whose tokenizer appends the end-of-sequence token."""
    import torch
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    core = byte_level(["<pad>", "</s>"])
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="</s>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:  # strong attention to the prompt: answers differ between prompts
                parameter.normal_(std=0.9 if "EncDec" in name else 0.3)
        model.lm_head.weight.normal_(std=0.05)
    prefer_answers(model.lm_head, tokenizer)
    model.save_pretrained(folder)


def build_bert(folder: Path) -> None:
    """A BERT of two layers with a word-level vocabulary."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = sorted({word.strip('.,:?[]"').lower() for text in corpus() for word in text.split()} - {""})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    BertTokenizerFast(vocab={token: i for i, token in enumerate(vocabulary)}).save_pretrained(folder)
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)


def overrides(models: Any, folder: Path, *more: str, llm: str = "llama") -> list[str]:
    """Overrides for a run of moments with tiny models, its stores and runs below ``folder``; ``more`` comes last."""
    beams = {"llama": 1, "t5": 2}[llm]
    kind = {"llama": "causal", "t5": "seq2seq"}[llm]
    return [
        f"llm.kind={kind}",
        f"llm.model={getattr(models, llm)}",
        f"llm.num_beams={beams}",
        "llm.max_new_tokens=4",
        f"encoder.model={models.bert}",
        "encoder.max_length=48",
        f"selector.encoder={models.bert}",
        "selector.attention_window=16",
        "selector.max_length=128",
        "candidates.l=3",
        "optim.epochs=1",
        "optim.batch_size=2",
        "optim.accumulation=2",
        "evaluation.resamples=20",
        f"store.dir={folder / 'stores'}",
        f"run.root={folder / 'runs'}",
        *more,
    ]


def texts(folder: Path) -> dict[str, str]:
    """Key -> text of every row of a generation store."""
    found: dict[str, str] = {}
    for path in (folder / "generations").glob("*.sqlite"):
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        rows = list(connection.execute("SELECT key, text FROM generations"))
        connection.close()
        assert len(dict(rows)) == len(rows)
        assert not found.keys() & dict(rows).keys(), "one prompt lies in two files"
        found |= dict(rows)
    return found
