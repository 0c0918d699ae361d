"""Writing a whole response."""

from __future__ import annotations

from starlette.types import Send

from .problems import HttpProblem

JSON = "application/json"


async def send_whole(
    send: Send, status: int, body: bytes, kind: str = JSON, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    fields = [("content-type", kind), ("content-length", str(len(body))), *headers]
    start = {"type": "http.response.start", "status": status}
    await send(start | {"headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]})
    await send({"type": "http.response.body", "body": body})


async def send_problem(send: Send, problem: HttpProblem) -> None:
    await send_whole(send, problem.status, problem.envelope(), headers=problem.headers)
