"""A parsed JSON schema -> its root :class:`.node.Node`. The rest is read when it is looked at.

Written for draft 2020-12, 2019-09, 7, 6 and 4, as ``$schema`` says. What differs between them is gone from the Node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .node import Node
from .options import SchemaOptions
from .registry import Registry


def read(schema: Any, *, documents: Mapping[str, Any] | None = None, options: SchemaOptions | None = None) -> Node:
    """The root Node of ``schema``: a dict, a bool, or JSON text. It is not copied: leave it as it is while it is used.

    ``documents``: URI -> schema, for references that leave this one. The metaschemas of the drafts are known anyway.
    Nothing is ever fetched. Raises :class:`..interface.ConstraintError`, here or when a Node is looked at.
    """
    registry = Registry(options or SchemaOptions(), documents or {})
    root = registry.add("", schema)
    return root.child(root.raw, root.pointer, 0)
