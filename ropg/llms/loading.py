"""Finding, naming and loading a model's files, without the noise that loading makes."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropg.hardware import attention_options, computes_in_bf16, require_attention
from ropg.models import default_device, fingerprint, quiet_transformers, resolve_model

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = ("auto", "float32", "bfloat16", "float16")
_UNLIMITED = 10**9  # what a tokenizer is told; the prompt's length is checked here, with an error


@dataclass(frozen=True)
class ModelFiles:
    """Where a model is: a hub name or a folder, and the GGUF file in it if there is one.

    ``name`` is what the user wrote.
    """

    name: str
    source: str
    gguf_file: str | None = None
    revision: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The content's fingerprint of local files; name, file and revision of a hub's. Never a path."""
        local = Path(self.source)
        digest = fingerprint(local / self.gguf_file if self.gguf_file else local)
        if digest is not None:
            return {"fingerprint": digest}
        return {"model": self.source, "gguf_file": self.gguf_file, "revision": self.revision or "main"}


def find_model(name: str, gguf_file: str | None = None, revision: str | None = None) -> ModelFiles:
    """Split a model's name into folder or hub name and GGUF file.

    A name that ends in ``.gguf`` sets the GGUF file itself. Raises FileNotFoundError for a path, or a file
    in a folder, that is not there.

    >>> find_model("google/flan-t5-small").source
    'google/flan-t5-small'
    >>> find_model("./no/such/folder")
    Traceback (most recent call last):
    FileNotFoundError: model './no/such/folder': there is no such folder or file
    """
    source = resolve_model(name)
    if source.endswith(".gguf"):
        path = Path(source)
        if gguf_file not in (None, path.name):
            raise ValueError(f"model {name!r} is a GGUF file already; leave out gguf_file={gguf_file!r}")
        source, gguf_file = str(path.parent), path.name
    local = Path(source)
    if local.exists():
        if gguf_file is not None and not (local / gguf_file).is_file():
            raise FileNotFoundError(f"model {name!r}: there is no file {gguf_file!r} in {source}")
    elif source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise FileNotFoundError(f"model {name!r}: there is no such folder or file")
    return ModelFiles(name, source, gguf_file, revision)


def resolve_device(device: str | None) -> str:
    """ "auto" or None: this process's GPU if there is one, else the CPU."""
    return default_device() if device in (None, "auto") else str(device)


def resolve_dtype(dtype: str, device: str) -> str:
    """ "auto": bfloat16 on a GPU that computes in it, else float32."""
    if dtype != "auto":
        return dtype
    return "bfloat16" if computes_in_bf16(device) else "float32"


def load_tokenizer(files: ModelFiles, padding_side: str) -> PreTrainedTokenizerBase:
    """The tokenizer, with a pad token and the given padding side.

    The tokenizer of a GGUF file is read by the general fast class: it is what transformers' automatic
    choice arrives at too, but only after parsing the whole file for a model configuration.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    with quiet_transformers():
        if files.gguf_file is not None:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(
                files.source, gguf_file=files.gguf_file, revision=files.revision or "main"
            )
        else:
            tokenizer = AutoTokenizer.from_pretrained(
                files.source, revision=files.revision or "main", trust_remote_code=False
            )
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError(
                f"the tokenizer of {files.name!r} has neither a pad nor an end-of-sequence token"
            )
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = padding_side
    tokenizer.model_max_length = _UNLIMITED
    return tokenizer


def load_config(files: ModelFiles) -> Any:
    """The model's configuration; None for a GGUF file, where reading it takes as long as the weights."""
    from transformers import AutoConfig

    if files.gguf_file is not None:
        return None
    with quiet_transformers():
        return AutoConfig.from_pretrained(
            files.source, revision=files.revision or "main", trust_remote_code=False
        )


def load_weights(
    auto_class: Any, files: ModelFiles, dtype: torch.dtype, device: str, attention: str = "auto"
) -> PreTrainedModel:
    """The model on its device, frozen and in evaluation mode. Prints one line.

    Raises ValueError when the files lack weights that the model needs: it would answer at random.
    """
    if os.environ.get("LOCAL_RANK", "0") == "0":
        kind = str(dtype).removeprefix("torch.")
        print(f"loading {files.name} ({kind} on {device})", file=sys.stderr, flush=True)
    places = {} if device == "cpu" else {"device_map": {"": device}}  # straight to the GPU, no copy in RAM
    with quiet_transformers():
        model, info = auto_class.from_pretrained(
            files.source,
            gguf_file=files.gguf_file,
            revision=files.revision or "main",
            dtype=dtype,
            trust_remote_code=False,
            output_loading_info=True,
            **attention_options(attention),
            **places,
        )
    missing = sorted(info["missing_keys"])
    if missing:
        raise ValueError(
            f"model {files.name!r} lacks {len(missing)} of its weights ({', '.join(missing[:3])}, ...): it "
            f"is not a whole {type(model).__name__}"
        )
    require_attention(model, attention)
    return model.requires_grad_(False).eval()
