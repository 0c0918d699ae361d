"""How many KV slots to make.

The rule where nobody says: a quarter of the memory that is available now (of the device; on a CPU the least of the
machine's and the cgroups'), but at least two contexts if half of it holds them, never more than half of it, and never
more than 262,144 tokens. A pool on a CPU takes this memory as it fills, so a number that was asked for is held against
what is available too, and a core that is started again gets the pool of the one before it if that still fits.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import ModelError

MAX_TOKENS = 262_144
MIN_TOKENS = 256  # the least that holds a chat: what template and question come to, and a short answer

_UNLIMITED = 1 << 62


def plan(
    available: int,
    bytes_per_token: int,
    context_length: int,
    *,
    asked: int | None = None,
    before: int | None = None,
    shared: bool = True,
) -> tuple[int, str | None]:
    """Slots for a pool, and what is to be said about them, if anything.

    ``asked``: what the user wants. ``before``: the pool that the core before this one had. ``shared``: others live on
    this memory (a GPU is there for us). Raises ModelError if the pool cannot be had.
    """
    fits = available // bytes_per_token
    if before is not None:
        if before <= fits:
            return before, None
        tokens = min(before, kv_tokens(available, bytes_per_token, context_length))
        return tokens, f"{available >> 20} MiB of memory are available, too little for the {before} tokens of KV before"
    if asked is None:
        return kv_tokens(available, bytes_per_token, context_length), None
    needs = f"kv_tokens={asked} needs {asked * bytes_per_token >> 20} MiB of memory"
    if asked > fits:
        raise ModelError(
            f"{needs}, and {available >> 20} MiB are available; use at most {fits}, or leave kv_tokens out"
        )
    if shared and asked > fits // 2:
        return asked, f"{needs} once it is full, more than half of the {available >> 20} MiB that are available now"
    return asked, None


def kv_tokens(available: int, bytes_per_token: int, context_length: int) -> int:
    """Slots by the rule, from ``available`` bytes. Raises ModelError if not even :data:`MIN_TOKENS` fit in half."""
    if available // 2 < MIN_TOKENS * bytes_per_token:
        raise ModelError(
            f"{available >> 20} MiB of memory are available, too little for {MIN_TOKENS} tokens of KV at "
            f"{bytes_per_token} bytes each; free some memory or use a smaller model"
        )
    quarter = available // 4 // bytes_per_token
    two_contexts = min(2 * context_length, available // 2 // bytes_per_token)
    return max(MIN_TOKENS, min(MAX_TOKENS, max(quarter, two_contexts)))


def available_bytes(device: str) -> int:
    """Free memory of the device, in bytes."""
    if device.startswith("cuda"):
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return min(_machine(), _cgroups())


def _machine(file: Path = Path("/proc/meminfo")) -> int:
    try:
        for line in file.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return 4 << 30


def _cgroups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """What our cgroup and those above it still allow; practically unlimited where there is none."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return _UNLIMITED  # not Linux
    left = _UNLIMITED
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            left = min(left, _walk(root, path, "memory.max", "memory.current", "inactive_file"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            left = min(left, _walk(root / "memory", path, *names))
    return left


def _walk(root: Path, path: str, limit: str, usage: str, reclaimable: str) -> int:
    """The least that is left on the way from the cgroup ``path`` up to the root. In a container the path may be the
    host's, and what is mounted at the root our own."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    left = _UNLIMITED
    for depth in range(len(parts), -1, -1):
        folder = root.joinpath(*parts[:depth])
        try:
            most = (folder / limit).read_text().strip()
            if most == "max" or int(most) >= _UNLIMITED:
                continue
            used = int((folder / usage).read_text()) - _counted(folder / "memory.stat", reclaimable)
            left = min(left, max(0, int(most) - used))
        except (OSError, ValueError):
            continue  # not there, or not ours to read
    return left


def _counted(file: Path, name: str) -> int:
    """Bytes of files that were read, the model's among them: they are given back before anybody is killed."""
    try:
        return next((int(line.split()[1]) for line in file.read_text().splitlines() if line.split()[0] == name), 0)
    except (OSError, ValueError, IndexError):
        return 0
