"""``plait model add | fetch | list``."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .. import store


def add(path: str, name: str | None) -> None:
    with store.progress_bar() as bar:
        stored = store.add(path, name, bar)
    print(f"stored: {stored}")


def fetch(name: str | None) -> None:
    with store.progress_bar() as bar:
        path = store.fetch(name, bar)
    print(f"ready: {path}")


def show() -> None:
    models = store.stored()
    if not models:
        print(f"no models in {store.models_folder()}: `plait model fetch` gets the default one")
        return
    made = Table(pad_edge=False)
    made.add_column("name")
    made.add_column("MB", justify="right")
    made.add_column("path", overflow="fold")
    for model in models:
        name = f"{model.name} (default)" if model.default else model.name
        made.add_row(name, f"{model.nbytes / 1e6:.0f}", str(model.path))
    Console().print(made)
