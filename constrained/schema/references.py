"""What a reference means: a resource, and a place in it.

::

    Registry (.registry; one per read)
      Document   root, or one of ``documents``, or a bundled metaschema: one JSON value
        Resource   the document's root, and every schema with its own $id: a base URI, anchors, a dialect
          Node       made when first asked for; one per JSON object, so that recursion comes back to the same Node

Nothing is searched before a reference needs it: ``#/...`` is a walk; identifiers and anchors are collected (one
iterative pass over a document) when a reference names one.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from . import drafts
from .dispatch import Handler, handlers
from .drafts import Dialect
from .errors import SchemaError
from .node import FIELDS, Node
from .text import escaped, shown
from .uri import resolve, split

if TYPE_CHECKING:
    from .registry import Document, Registry


#: every schema that is true or {}, and every one that is false
TRUE = Node("#", always=True)
FALSE = Node("#", always=False)
_shell = Node.__new__
#: a JSON pointer's token for an item; no list that is read has more of them
_INDEX = re.compile("0|[1-9][0-9]{0,8}")


class Resource:
    """A schema with a base URI of its own. ``pointer``: where it stands in its document."""

    __slots__ = (
        "anchors",
        "base",
        "dialect",
        "document",
        "dynamic",
        "hides",
        "nodes",
        "pointer",
        "raw",
        "refs",
        "registry",
        "table",
    )

    def __init__(
        self, registry: Registry, document: Document, base: str, raw: Any, pointer: str, dialect: Dialect
    ) -> None:
        self.registry = registry
        self.document = document
        self.base = base
        self.raw = raw
        self.pointer = pointer
        self.dialect = dialect
        #: name -> the schema, its pointer. Filled when the document is indexed
        self.anchors: dict[str, tuple[Any, str]] = {}
        #: names of anchors that are dynamic; "" for $recursiveAnchor
        self.dynamic: set[str] = set()
        self.nodes: dict[int, Node] = {}
        self.refs: dict[str, Node] = {}
        #: what reads each keyword here; made when the first schema is read
        self.table: dict[str, Handler] | None = None
        #: whether $ref hides what stands beside it
        self.hides = False

    @property
    def name(self) -> str:
        """What dynamic scopes call it; "" if it has no dynamic anchor."""
        if self.document.dynamic:
            self.registry.index(self.document)
            if self.dynamic:
                return self.base or "#"
        return ""

    def child(self, raw: Any, pointer: str, depth: int) -> Node:
        """The Node of a schema that stands in this resource. Raises SchemaError if it is no schema."""
        if type(raw) is dict:
            if not raw:
                return TRUE
            at = self.registry.enter(self, raw, pointer) if "$id" in raw or "id" in raw else self
            node = at.nodes.get(id(raw))
            if node is None:
                node = at.nodes[id(raw)] = _shell(Node)
                node.pointer = pointer
                node.source = (raw, at, depth)
            return node
        if raw is True:
            return TRUE
        if raw is False:
            return FALSE
        raise SchemaError("", pointer, f"a schema is an object, true or false, not {shown(raw)}")

    def children(self, raws: dict[str, Any], pointer: str, depth: int) -> dict[str, Node]:
        """:meth:`child` of each, by name; ``pointer`` is that of the object around them."""
        nodes = self.nodes
        made: dict[str, Node] = {}
        for name, raw in raws.items():
            where = f"{pointer}/{escaped(name) if '/' in name or '~' in name else name}"
            if type(raw) is dict and raw and "$id" not in raw and "id" not in raw:
                node = nodes.get(id(raw))
                if node is None:
                    node = nodes[id(raw)] = _shell(Node)
                    node.pointer = where
                    node.source = (raw, self, depth)
                made[name] = node
            else:
                made[name] = self.child(raw, where, depth)
        return made

    def fill(self, node: Node) -> None:
        """Read the schema of a shell that belongs here. Raises SchemaError, also past a limit."""
        raw, _, depth = node.source
        registry = self.registry
        registry.count += 1
        if depth > registry.options.max_depth or registry.count > registry.options.max_schemas:
            raise registry.too_many(node, depth)
        table = self.table
        if table is None:
            table = self.table = handlers(self.dialect)
            self.hides = self.dialect.draft <= drafts.D7
        Node.__init__(node, node.pointer)
        try:
            if self.hides and "$ref" in raw:
                raw = {"$ref": raw["$ref"]}
            for keyword, value in raw.items():
                handler = table.get(keyword)
                if handler is not None:
                    try:
                        handler(node, value, self)
                    except SchemaError as error:
                        if self.registry.errors is None:
                            raise
                        self.registry.errors.append(error.problem)
            if self.document.dynamic:
                node.resource = self.name
        except BaseException:
            for name in FIELDS - {"source"}:
                delattr(node, name)
            raise

    # ------------------------------------------------------------ references

    def target(self, reference: str, pointer: str, keyword: str = "$ref") -> Node:
        """The Node that ``reference``, standing in this resource at ``pointer``, means. Raises SchemaError."""
        node = self.refs.get(reference)
        if node is None:
            node = self.refs[reference] = self._target(reference, pointer, keyword)
        return node

    def place(self, reference: str, pointer: str, keyword: str) -> tuple[Resource, str]:
        """The resource and the fragment that a reference names."""
        if reference[:1] == "#" or not reference:
            return self, reference[1:]
        base, fragment = split(resolve(self.base, reference))
        if base == self.base:
            return self, fragment or ""
        found = self.registry.find(base)
        if found is None:
            raise SchemaError(
                keyword,
                pointer,
                f"no schema is known as {base!r}"
                + (f" (from {reference!r})" if base != split(reference)[0] else "")
                + f"; nothing is fetched: give it as documents={{{base!r}: {{...}}}}"
                + self.registry.similar(base),
            )
        return found, fragment or ""

    def _target(self, reference: str, pointer: str, keyword: str) -> Node:
        resource, fragment = self.place(reference, pointer, keyword)
        if fragment and fragment[0] != "/":
            found = resource.anchor(fragment) or self.registry.root_of(resource.document).anchor(fragment)
            if found is None:
                hint = ""
                if resource.walk(unquote("/" + fragment)) is not None:
                    hint = f"; write '#/{fragment}' for a JSON pointer"
                raise SchemaError(keyword, pointer, f"{reference!r}: {resource.label} has no anchor {fragment!r}{hint}")
            return resource.child(found[0], found[1], 0)
        try:
            path = unquote(fragment, errors="strict")
        except UnicodeDecodeError:
            raise SchemaError(keyword, pointer, f"{reference!r} is not percent-encoded UTF-8") from None
        walked = resource.walk(path)
        if walked is None and resource.raw is not resource.document.raw:
            # Generated schemas have an "id" in every property and references that mean the document's root.
            walked = self.registry.root_of(resource.document).walk(path)
        if walked is None:
            raise SchemaError(keyword, pointer, f"{reference!r} leads nowhere in {resource.label}{resource.near(path)}")
        at, raw, where = walked
        if type(raw) is not dict and type(raw) is not bool:
            raise SchemaError(keyword, pointer, f"{reference!r} leads to {shown(raw)}, which is not a schema")
        return at.child(raw, where, where.count("/") // 2)

    def anchor(self, name: str) -> tuple[Any, str] | None:
        self.registry.index(self.document)
        return self.anchors.get(name)

    def walk(self, path: str) -> tuple[Resource, Any, str] | None:
        """Follow a JSON pointer: the resource around the target, the JSON, its pointer in the document. None: nowhere.

        Identifiers on the way count where a schema stands; inside an unknown keyword, enum or const they are data.
        """
        at: Resource = self
        raw = self.raw
        where = self.pointer
        kind = "schema"
        first = True
        for token in path.split("/")[1:]:
            key = token.replace("~1", "/").replace("~0", "~")
            if kind == "schema" and not first and type(raw) is dict and ("$id" in raw or "id" in raw):
                at = self.registry.enter(at, raw, where)
            first = False
            if type(raw) is dict:
                if key not in raw:
                    return None
                raw = raw[key]
                kind = (
                    drafts.PLACES.get(key, "data") if kind == "schema" else "schema" if kind == drafts.MAP else "data"
                )
                if kind == drafts.ONE or kind == drafts.MANY:
                    kind = drafts.MANY if type(raw) is list else "schema"
            elif type(raw) is list:
                if not _INDEX.fullmatch(key) or int(key) >= len(raw):
                    return None
                raw = raw[int(key)]
                kind = "schema" if kind == drafts.MANY else "data"
            else:
                return None
            where = f"{where}/{token}"
        return at, raw, where

    @property
    def label(self) -> str:
        return repr(self.base) if self.base else "this schema"

    def near(self, path: str) -> str:
        """A hint: the names that stand where the pointer went wrong."""
        tokens = path.split("/")[1:]
        for cut in range(len(tokens) - 1, -1, -1):
            walked = self.walk("".join(f"/{token}" for token in tokens[:cut]))
            if walked is not None and type(walked[1]) is dict:
                close = difflib.get_close_matches(tokens[cut], [str(key) for key in walked[1]], 3, 0.5)
                there = f"; {walked[2]} has no {tokens[cut]!r}"
                return f"{there} (it has {', '.join(map(repr, close))})" if close else there
        return ""

    def dynamic_target(self, reference: str, pointer: str, scope: tuple[str, ...]) -> Node:
        """$dynamicRef (2020-12): the outermost resource of the scope with that dynamic anchor, if the reference names
        a dynamic anchor itself (the bookend); else as $ref."""
        resource, fragment = self.place(reference, pointer, "$dynamicRef")
        if fragment and fragment[0] != "/":
            resource.anchor(fragment)
            if fragment in resource.dynamic:
                return self.registry.outermost(scope, fragment) or resource.target(f"#{fragment}", pointer)
        return self.target(reference, pointer, "$dynamicRef")

    def recursive_target(self, reference: str, pointer: str, scope: tuple[str, ...]) -> Node:
        """$recursiveRef (2019-09): the outermost resource of the scope with $recursiveAnchor, if the target has it."""
        resource, fragment = self.place(reference, pointer, "$recursiveRef")
        self.registry.index(resource.document)
        if not fragment and "" in resource.dynamic:
            return self.registry.outermost(scope, "") or resource.target("#", pointer)
        return self.target(reference, pointer, "$recursiveRef")
