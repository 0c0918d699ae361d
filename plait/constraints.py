"""Constraints put together from parts, for ``gen(constraint=...)``::

from plait import constraints as c

c.lit("Answer: ") + (c.regex("[0-9]+") | "unknown")
"""

from .lang.constraint import Constraint, choice, grammar, json, lit, ready, regex, sep_by

__all__ = ["Constraint", "choice", "grammar", "json", "lit", "ready", "regex", "sep_by"]
