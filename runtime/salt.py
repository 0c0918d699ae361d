"""Cache salts: what a client gives, of a size that is held against a bound once, and a digest of it everywhere else."""

from __future__ import annotations

import hashlib

MAX_SALT_BYTES = 1024  # as UTF-8


def problem(salt: str, name: str) -> str | None:
    """What is wrong with a salt that a client calls ``name``."""
    size = len(salt.encode("utf-8", "surrogatepass"))
    if size > MAX_SALT_BYTES:
        return f"{name} has {size:,} bytes; at most {MAX_SALT_BYTES:,} fit: give a hash of it"
    return None


def digest(salt: str) -> str:
    """What stands for it: no two salts have the same one. "" stays: KV that everybody shares."""
    return hashlib.sha256(salt.encode("utf-8", "surrogatepass")).hexdigest() if salt else ""
