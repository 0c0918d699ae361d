"""How many KV slots to make when nobody says.

The rule: a quarter of the memory that is available now (of the device; on a CPU the smaller of the machine's and the
cgroup's), but at least two contexts if half of it holds them, and never more than 262,144 tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import ModelError

MAX_TOKENS = 262_144
MIN_TOKENS = 256


def kv_tokens(available: int, bytes_per_token: int, context_length: int) -> int:
    """Slots for a pool, from ``available`` bytes. Raises ModelError if not even :data:`MIN_TOKENS` fit in half."""
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
    return min(_machine(), _cgroup())


def _machine(read: Callable[[], str] = lambda: Path("/proc/meminfo").read_text()) -> int:
    try:
        for line in read().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return 4 << 30


def _cgroup(root: Path = Path("/sys/fs/cgroup")) -> int:
    """What the cgroup (v2) still allows; practically unlimited where there is none."""
    try:
        limit = (root / "memory.max").read_text().strip()
        if limit != "max":
            return max(0, int(limit) - int((root / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no cgroup v2, or not ours to read
    return 1 << 62
