"""wandb only where asked for, offline without a key, and never a key in what is logged."""

import sys
import types

import pytest

from ropg.training.tracking import wandb_tracker, without_secrets


@pytest.fixture
def wandb(monkeypatch, tmp_path):
    """A stand-in that remembers what it was told; no key is to be found."""
    calls = {"log": [], "finished": 0}

    class Run:
        def log(self, record, step):
            calls["log"].append((step, record))

        def finish(self):
            calls["finished"] += 1

    def init(**options):
        calls["init"] = options
        return Run()

    module = types.ModuleType("wandb")
    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return calls


def test_disabled_does_not_touch_wandb(tmp_path, wandb):
    """The default must work without an account, a network, or the package."""
    with wandb_tracker("disabled", folder=tmp_path) as tracker:
        assert tracker is None
    assert "init" not in wandb


def test_without_a_key_it_stays_offline(tmp_path, wandb):
    """wandb would otherwise ask at the terminal, where a batch job hangs for ever."""
    with wandb_tracker("auto", folder=tmp_path) as tracker:
        tracker({"event": "step", "step": 3, "loss": 0.5})
        tracker({"event": "evaluation", "step": 3, "loss": 0.25})
    assert wandb["init"]["mode"] == "offline"
    assert wandb["log"] == [
        (3, {"step/step": 3, "step/loss": 0.5}),
        (3, {"evaluation/step": 3, "evaluation/loss": 0.25}),
    ]
    assert wandb["finished"] == 1


def test_with_a_key_it_goes_online_and_passes_no_key_on(tmp_path, wandb, monkeypatch):
    """A key in a logged configuration is a key on a web page."""
    monkeypatch.setenv("WANDB_API_KEY", "not-a-real-one")
    config = {"lr": 1.0, "llm": {"api_key": "not-a-real-one", "model": "m"}}
    with wandb_tracker("auto", folder=tmp_path, config=config):
        pass
    assert wandb["init"]["mode"] == "online"
    assert "not-a-real-one" not in repr(wandb["init"])
    assert wandb["init"]["config"] == {"lr": 1.0, "llm": {"model": "m"}}
    with wandb_tracker("offline", folder=tmp_path):
        pass
    assert wandb["init"]["mode"] == "offline"


def test_a_login_file_counts_as_a_key(tmp_path, wandb):
    """`wandb login` writes ~/.netrc."""
    file = tmp_path / ".netrc"
    file.write_text("machine api.wandb.ai login user password not-a-real-one\n")
    file.chmod(0o600)
    with wandb_tracker("auto", folder=tmp_path):
        pass
    assert wandb["init"]["mode"] == "online"


def test_a_resumed_run_goes_on_in_the_same_wandb_run(tmp_path, wandb):
    """Two halves of one curve belong together."""
    ids = []
    for folder in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
        with wandb_tracker("auto", folder=folder):
            ids.append(wandb["init"]["id"])
    assert ids[0] == ids[1] != ids[2]
    assert wandb["init"]["resume"] == "allow"


def test_unknown_mode_is_refused(tmp_path, wandb):
    """A misspelt mode must not send data out."""
    with pytest.raises(ValueError, match="disabled, auto or offline"), wandb_tracker("on", folder=tmp_path):
        pass


def test_without_secrets_keeps_what_only_looks_like_one():
    """max_new_tokens is a setting worth logging."""
    config = {"max_new_tokens": 3, "monkey": 1, "WANDB_API_KEY": "x", "password": "x", "auth.token": "x"}
    assert without_secrets(config) == {"max_new_tokens": 3, "monkey": 1}
