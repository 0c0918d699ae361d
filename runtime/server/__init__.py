"""The HTTP server: OpenAI's routes over any :class:`plait.lang.backend.Backend`."""

from __future__ import annotations

from .app import create_app
from .settings import ServerSettings

__all__ = ["ServerSettings", "create_app"]
