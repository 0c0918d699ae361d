"""What an operator may set; ``plait serve`` fills it in."""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol import WrapUp


@dataclass(frozen=True)
class ServerSettings:
    """``api_keys``: empty serves everyone who can reach the address. ``max_queue``: choices in flight, running or
    waiting; beyond it 429. ``max_body``: bytes of a request's body; beyond it 413, and 429 when those being
    read at once exceed ``max_bodies``; 408 after ``body_s``. ``max_n``: choices of one prompt.
    ``most_numbers``: log-probabilities of the prompts' tokens in one answer, alternatives and each choice counted (one
    takes about 200 bytes while it waits); beyond it 400, and 429 beyond ``most_held_numbers`` of all requests.
    ``names``: further model names that requests may use. ``wrap_up``: of requests that do not say. ``verdict_s``: how
    long a stream waits for its first event before the headers go out; what is refused by then is an HTTP status, later
    errors are data."""

    api_keys: tuple[str, ...] = ()
    max_queue: int = 512
    max_body: int = 8 * 1024 * 1024
    max_bodies: int = 256 * 1024 * 1024
    body_s: float = 60.0
    max_n: int = 128
    most_numbers: int = 2**18
    most_held_numbers: int = 2**21
    names: tuple[str, ...] = ()
    wrap_up: WrapUp = True
    verdict_s: float = 35.0  # above the front's limit for compiling a constraint (30 s)
