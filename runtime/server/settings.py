"""What an operator may set; ``plait serve`` fills it in."""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol import WrapUp


@dataclass(frozen=True)
class ServerSettings:
    """``api_keys``: empty serves everyone who can reach the address. ``max_queue``: choices in flight, running or
    waiting; beyond it 429. ``max_body``: bytes of a request's body; beyond it 413, and 429 when those being
    read at once exceed ``max_bodies``; 408 after ``body_s``. ``max_n``: choices of one prompt.
    ``max_numbers``: log-probabilities that one answer of several choices may hold, alternatives counted; beyond it
    400, and 429 where those of all requests are more than ``max_numbers_held``. ``max_prompt_numbers``: of the prompts'
    tokens in one answer, each choice counted (one takes about 200 bytes while it waits); beyond it 400, and 429 beyond
    ``max_prompt_numbers_held`` of all requests.
    ``max_unsent``: bytes of events that wait for a client to take them (``max_unsent_all``: of all clients); beyond
    it the connection ends, as it does when the client takes nothing for ``write_s``, or sends no request within
    ``head_s``. ``max_connections``: open at once; fewer where the limit of open files is low.
    ``allowed_hosts``: names that the server answers to beside those of its own machine; None for any.
    ``cors_origins``: sites whose pages may use it.
    ``names``: further model names that requests may use. ``wrap_up``: of requests that do not say. ``verdict_s``: how
    long a stream waits for its first event before the headers go out; what is refused by then is an HTTP status, later
    errors are data."""

    api_keys: tuple[str, ...] = ()
    max_queue: int = 512
    max_body: int = 8 * 1024 * 1024
    max_bodies: int = 256 * 1024 * 1024
    body_s: float = 60.0
    max_n: int = 128
    max_numbers: int = 2**20
    max_numbers_held: int = 2**23
    max_prompt_numbers: int = 2**18
    max_prompt_numbers_held: int = 2**21
    max_unsent: int = 16 * 1024 * 1024
    max_unsent_all: int = 128 * 1024 * 1024
    max_connections: int = 1024
    head_s: float = 10.0
    write_s: float = 10.0
    allowed_hosts: tuple[str, ...] | None = None
    cors_origins: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    wrap_up: WrapUp = True
    verdict_s: float = 35.0  # above the front's limit for compiling a constraint (30 s)
