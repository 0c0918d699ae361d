"""What a person types, over scripted backends; nothing here loads a model."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from server_fake import ScriptedBackend
from talker import Talker

import plait
from plait.runtime.address import is_loopback
from plait.runtime.cli import backends, main
from plait.runtime.cli import chat as chat_command
from plait.runtime.cli.chat import Conversation
from plait.runtime.cli.demo import table
from plait.runtime.cli.serve import bound
from plait.runtime.errors import GenerationError, RequestError
from plait.runtime.front.metrics import Metrics as FrontMetrics
from plait.runtime.protocol import (
    Close,
    Extend,
    Failed,
    Gen,
    Open,
    Sampling,
    Usage,
)
from plait.runtime.server.settings import ServerSettings

TESTS = Path(__file__).parent


def plait_(*arguments: str) -> int:
    """Runs the command line in this process; its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    code = ended.value.code
    return code if isinstance(code, int) else 0 if code is None else 1


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PLAIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PLAIT_MODELS", str(tmp_path / "models"))


# ---------------------------------------------------------------- the face


def test_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait_("--help") == 0
    shown = capsys.readouterr().out
    for name in ("run", "demo", "serve", "chat", "model", "env", "version"):
        assert f"\n  {name} " in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait_("version") == 0
    assert capsys.readouterr().out.strip()[0].isdigit()


def test_version_and_help_have_the_usual_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait_("version") == 0
    version = capsys.readouterr().out
    assert plait_("--version") == 0
    assert capsys.readouterr().out == version
    for command in ([], ["run"], ["chat"], ["check-schema"], ["model"], ["model", "add"]):
        assert plait_(*command, "-h") == 0
        short = capsys.readouterr().out
        assert plait_(*command, "--help") == 0
        assert capsys.readouterr().out == short and "-h, --help" in short


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("plait ", {"run", "demo", "serve", "chat", "check-schema", "env", "version", "model"}),
        ("plait mod", {"model"}),
        ("plait model ", {"add", "fetch", "list"}),
        ("plait serve --mode ", {"auto", "exact", "reference"}),
        ("plait run x.py --ba", {"--backend"}),
    ],
)
def test_a_shell_completes(words: str, offered: set[str]) -> None:
    asked = {"_PLAIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "plait"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) == offered and done.stderr == ""
    asked = {"_PLAIT_COMPLETE": "source_bash"}  # what --install-completion writes for the shell that it finds
    source = subprocess.run(
        command, env={**os.environ, **asked}, capture_output=True, text=True, check=True, timeout=60
    )
    assert "_PLAIT_COMPLETE=complete_bash" in source.stdout


@pytest.mark.parametrize(
    ("arguments", "say"),
    [
        (["nothing"], "No such command"),
        (["chat", "--top-p", "2"], "--top-p"),
        (["serve", "--port", "70000"], "--port"),
        (["serve", "--mode", "magic"], "--mode"),
        (["serve", "no-such-model", "--api-key", ""], "--api-key is empty"),
        (["serve", "no-such-model"], "no such model: tried the path no-such-model"),
        (["demo", "--model", "no-such-model"], "no such model"),
        (["chat", "no-such-model"], "no such model"),
        (["chat", "--backend", "ipc:///x", "--threads", "2"], "has its own threads"),
        (["run", "no-such-file.py"], "no such script"),
        (["model", "add", "no-such-file"], "no such file"),
        (["model", "fetch", "no-such-model"], "no such model"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], say: str, capsys: pytest.CaptureFixture[str]) -> None:
    if arguments[0] == "serve" and "--port" not in arguments:
        arguments = [*arguments, "--port", "0"]
    assert plait_(*arguments) == 2
    shown = capsys.readouterr()
    assert say in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_importing_the_command_line_is_light() -> None:
    code = (
        "import sys; from plait.runtime.cli.app import app; import plait.runtime.cli.chat, plait.runtime.cli.serve;"
        "heavy = {'torch', 'transformers', 'numpy', 'fastapi', 'uvicorn', 'tokenizers'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_serve_option_has_an_environment_twin() -> None:
    from typer.main import get_command

    from plait.runtime.cli.app import app

    for parameter in get_command(app).commands["serve"].params:  # type: ignore[attr-defined]
        if parameter.name != "help":
            assert parameter.envvar == f"PLAIT_{parameter.name.upper()}"


# ---------------------------------------------------------------- models


def test_model_list_add(tmp_path: Path, tiny_model_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plait_("model", "list") == 0
    assert "no models in" in capsys.readouterr().out
    assert plait_("model", "add", str(tiny_model_path), "--name", "mine") == 0
    assert f"stored: {tmp_path / 'models' / 'mine'}" in capsys.readouterr().out
    assert plait_("model", "list") == 0
    assert "mine" in capsys.readouterr().out
    assert plait_("model", "add", str(tiny_model_path), "--name", "mine") == 2


# ---------------------------------------------------------------- run


def with_backend(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    @contextlib.contextmanager
    def started(**options: Any) -> Iterator[Any]:
        yield backend

    monkeypatch.setattr(backends, "started", started)


def test_run_gives_the_script_a_backend_and_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = ScriptedBackend()
    with_backend(monkeypatch, backend)
    given: list[Any] = []
    monkeypatch.setattr(plait, "set_default_backend", given.append)
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, beside\nprint(__name__, sys.argv[1:], beside.NAME)\n")
    before = sys.argv[:], sys.path[:]
    assert plait_("run", str(script), "a", "--b", "-c") == 0
    assert capsys.readouterr().out == "__main__ ['a', '--b', '-c'] beside\n"
    assert given == [backend, None]
    assert (sys.argv, sys.path) == before


@pytest.mark.parametrize(
    ("arguments", "ours", "script_s"),
    [
        (["FILE", "--backend", "ipc:///x"], {"address": "ipc:///x"}, []),
        (["--backend", "ipc:///x", "FILE", "a"], {"address": "ipc:///x"}, ["a"]),
        (["FILE", "a", "--kv-tokens", "9", "b"], {"kv_tokens": 9}, ["a", "b"]),
        (["FILE", "--", "--backend", "x", "-m", "y", "--help"], {}, ["--backend", "x", "-m", "y", "--help"]),
        (["FILE", "--mode", "exact", "--", "--mode", "z"], {"mode": "exact"}, ["--mode", "z"]),
        (["FILE", "--epochs", "3", "-v", "--name=x"], {}, ["--epochs", "3", "-v", "--name=x"]),
        (["FILE", "--", "a", "--", "b"], {}, ["a", "--", "b"]),
    ],
)
def test_options_before_the_dashes_are_ours(
    arguments: list[str],
    ours: dict[str, Any],
    script_s: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from plait.runtime.cli import run

    given: dict[str, Any] = {}

    @contextlib.contextmanager
    def opened(address: str | None, **options: Any) -> Iterator[Any]:
        given.update(options, address=address)
        yield ScriptedBackend()

    monkeypatch.setattr(run, "opened", opened)
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    assert plait_("run", *[str(script) if word == "FILE" else word for word in arguments]) == 0
    assert capsys.readouterr().out == f"{script_s}\n"
    assert {name: value for name, value in given.items() if value not in (None, "auto")} == ours


def test_run_names_the_line_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_backend(monkeypatch, ScriptedBackend())
    script = tmp_path / "script.py"
    script.write_text("from plait.runtime.errors import ModelError\n\nraise ModelError('broken')\n")
    assert plait_("run", str(script)) == 2
    assert capsys.readouterr().err == f"plait: error: broken ({script}:3)\n"
    script.write_text("import sys\nsys.exit(7)\n")
    assert plait_("run", str(script)) == 7
    script.write_text("def f():\n    1 / 0\nf()\n")
    assert plait_("run", str(script)) == 1
    shown = capsys.readouterr().err.splitlines()  # a fault of the script's own keeps its traceback, and only that
    assert shown[:2] == ["Traceback (most recent call last):", f'  File "{script}", line 3, in <module>']
    assert shown[-1] == "ZeroDivisionError: division by zero"
    script.write_text("f(\n")
    assert plait_("run", str(script)) == 1
    assert "runpy" not in (said := capsys.readouterr().err) and "SyntaxError" in said


# ---------------------------------------------------------------- chat


def conversation(backend: Talker, system: str | None = None) -> Conversation:
    return Conversation(backend, system, Sampling(), 7)


def test_turns_extend_one_strand() -> None:
    backend, shown = Talker(), list[str]()
    talk = conversation(backend, "be nice")
    for text in ("one", "two"):
        talk.say(text, shown.append)
    assert backend.texts() == [["be nice", "one"], ["two"]]
    assert len([action for action in backend.sent if isinstance(action, Open)]) == 1
    assert "".join(shown) == "answer 3answer 2"
    numbers = [op.op for action in backend.sent if isinstance(action, Extend) for op in action.ops]
    assert numbers == sorted(set(numbers))
    talk.close()
    assert isinstance(backend.sent[-1], Close)


def test_a_stopped_answer_is_kept_and_the_talk_goes_on() -> None:
    backend = Talker()
    talk = conversation(backend)

    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    assert talk.say("one", interrupt) is None
    assert len(backend.aborted) == 1
    talk.say("two", lambda text: None)
    assert backend.texts()[-1] == ["one", "answer ", "two"]  # replayed as text on a new strand
    assert len([action for action in backend.sent if isinstance(action, Open)]) == 2


def test_a_failed_turn_leaves_the_talk_as_it_was() -> None:
    backend = Talker()
    talk = conversation(backend)
    talk.say("one", lambda text: None)
    backend.fault = lambda strand, op: Failed(strand, op, code="kv_exhausted", message="too long")
    with pytest.raises(GenerationError, match="too long"):
        talk.say("two", lambda text: None)
    talk.say("three", lambda text: None)
    assert backend.texts()[-1] == ["one", "answer 2", "three"]


def test_reset_forgets_all_but_the_system_prompt() -> None:
    backend = Talker()
    talk = conversation(backend, "sys")
    talk.say("one", lambda text: None)
    talk.reset()
    talk.say("two", lambda text: None)
    assert backend.texts()[-1] == ["sys", "two"]


def test_chat_reads_lines_until_the_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    backend = Talker()

    @contextlib.contextmanager
    def opened(address: str | None, **options: Any) -> Iterator[Any]:
        yield backend

    monkeypatch.setattr(chat_command, "opened", opened)
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n/reset\nagain\n"))
    assert plait_("chat", "--system", "s", "--temperature", "0", "--max-tokens", "5") == 0
    assert capsys.readouterr().out == "answer 3\nanswer 3\n"
    gens = [op for action in backend.sent if isinstance(action, Extend) for op in action.ops if isinstance(op, Gen)]
    assert {(gen.sampling.temperature, gen.sampling.max_tokens) for gen in gens} == {(0.0, 5)}


# ---------------------------------------------------------------- demo


def test_demo_table_adds_up() -> None:
    from rich.console import Console

    class Row:
        def __init__(self, usage: Usage) -> None:
            self.usage = usage

    rows = [
        ("a", Row(Usage(100, 20, 30, 11, first_token_s=0.05, total_s=0.55))),
        ("b", Row(Usage(10, 10))),
    ]
    out = io.StringIO()
    Console(file=out, width=100).print(table(rows))
    lines = [line.replace("│", " ").split() for line in out.getvalue().splitlines()]
    assert ["a", "80", "20", "11", "30", "50", "ms", "80"] in lines
    assert ["b", "0", "10", "0", "0"] in lines
    assert ["all", "80", "30", "11", "30"] in lines


# ---------------------------------------------------------------- serve


def test_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "::1", "localhost", "127.9.9.9"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.1.2", "example"]))


SERVE = """
    import contextlib, sys
    sys.path.insert(0, {tests!r})
    from server_fake import Script, ScriptedBackend
    from plait.runtime.cli import main, serve
    from plait.runtime.front.metrics import Metrics

    class Front: metrics = Metrics()

    @contextlib.contextmanager
    def started(**options):
        backend = ScriptedBackend(lambda sent, choice: Script(held="hold" in sent.rendered()))
        backend.front = Front()
        try:
            yield backend
        finally:
            print("aborted", len(backend.aborted), "closed", flush=True)

    serve.started = started
    main(["serve", "--port", "0", "--api-key", "k", "--drain", {drain!r}])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_and_a_signal_ends_it_in_order(number: signal.Signals) -> None:
    """With a request that would never end: it is aborted, and the backend is closed on the way out."""
    code = textwrap.dedent(SERVE).format(tests=str(TESTS), drain="0")
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stderr is not None and child.stdout is not None
            line = child.stderr.readline()
            assert "tiny (exact, 2048 tokens of context" in line, line + child.stderr.read()
            url = line.split(" at ")[1].strip()
            with httpx.Client(headers={"authorization": "Bearer k"}, timeout=30, trust_env=False) as http:
                answer = http.post(f"{url}/completions", json={"model": "smollm2", "prompt": "x"})
                assert answer.json()["choices"][0]["text"] == "Hello, world"
                names = [model["id"] for model in http.get(f"{url}/models").json()["data"]]
                assert names == ["tiny", "smollm2"]  # what it is, and what the user calls it
                assert "plait_num_requests_running" in http.get(url.replace("/v1", "/metrics")).text
                assert httpx.get(f"{url}/models", trust_env=False).status_code == 401
                with http.stream("POST", f"{url}/completions", json={"prompt": "hold", "stream": True}) as stream:
                    lines = stream.iter_lines()
                    assert next(lines).startswith("data: ")
                    child.send_signal(number)
                    rest = "".join(lines)  # a whole answer: an error, and no [DONE]
                    assert '"code":"shutdown"' in rest and "[DONE]" not in rest
            out, err = child.communicate(timeout=30)
        finally:
            child.kill()
    assert (child.returncode, out, err) == (0, "aborted 1 closed\n", "")


def test_two_servers_never_have_one_port() -> None:
    """Also while neither has begun to serve: the second is told before it loads anything."""
    with bound("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        for host in ("127.0.0.1", "0.0.0.0"):
            with pytest.raises(RequestError, match=f"cannot listen on {host}:{port}"), bound(host, port):
                pass
        reuse = socket.SO_REUSEPORT if hasattr(socket, "SO_REUSEPORT") else None
        assert reuse is None or not first.getsockopt(socket.SOL_SOCKET, reuse)
        with socket.create_connection(first.getsockname(), timeout=10) as early:
            assert early.getpeername() == first.getsockname()  # it waits for the server, and is not refused
    with bound("127.0.0.1", port):  # free again at once
        pass


@pytest.mark.parametrize(
    ("arguments", "hosts"),
    [
        ([], ()),
        (["--host", "localhost"], ()),
        (["--host", "0.0.0.0"], None),
        (["--api-key", "k"], None),
        (["--allowed-hosts", "a.example", "--allowed-hosts", "*.b.example"], ("a.example", "*.b.example")),
        (["--api-key", "k", "--allowed-hosts", "a.example"], ("a.example",)),
        (["--allowed-hosts", "*"], ("*",)),
    ],
)
def test_a_server_without_a_key_answers_to_its_own_names(
    arguments: list[str], hosts: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ServerSettings] = []

    class Server:
        def __init__(self, app: object, drain: int, access_log: bool, settings: ServerSettings, ready: str) -> None:
            seen.append(settings)

        def run(self, sockets: object) -> None:
            pass

    @contextlib.contextmanager
    def started(**options: object) -> Iterator[ScriptedBackend]:
        backend = ScriptedBackend()
        backend.front = SimpleNamespace(metrics=FrontMetrics())  # type: ignore[attr-defined]  # a Runtime has one
        yield backend

    monkeypatch.setattr("plait.runtime.server.draining.DrainingServer", Server)
    monkeypatch.setattr("plait.runtime.cli.serve.started", started)
    monkeypatch.setattr("plait.runtime.cli.serve.raise_limit", lambda: None)
    origins = ["--cors-origin", "https://a.example", "--cors-origin", "https://b.example"]
    assert plait_("serve", "--port", "0", "--max-connections", "9", *origins, *arguments) == 0
    assert [(found.allowed_hosts, found.max_connections) for found in seen] == [(hosts, 9)]
    assert seen[0].cors_origins == ("https://a.example", "https://b.example")


def test_the_url_is_said_once_it_answers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    from plait.runtime.server.app import create_app
    from plait.runtime.server.draining import DrainingServer
    from plait.runtime.server.settings import ServerSettings

    app = create_app(ScriptedBackend(), ServerSettings())
    said: list[str] = []

    async def startup(self: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        said.append(capsys.readouterr().err)
        self.started = len(said) == 1  # the second one fails

    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    for _ in range(2):
        asyncio.run(DrainingServer(app, 0, ready="at http://x").startup())
        said.append(capsys.readouterr().err)
    assert said == ["", "at http://x\n", "", ""]


def test_a_port_in_use_is_said_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert plait_("serve", "no-such-model", "--port", str(port)) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
