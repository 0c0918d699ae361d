"""The HTTP server: OpenAI's routes over any :class:`~plait.runtime.backend.Backend`.

``from plait.runtime.server.app import create_app``; this package itself imports nothing, so that the command line can
name the settings without loading FastAPI.
"""
