"""Identifiers and references: which resource a schema belongs to, and which schema a reference means.

::

    Registry (one per read)
      Document   root, or one of ``documents``, or a bundled metaschema: one JSON value
        Resource   the document's root, and every schema with its own $id: a base URI, anchors, a dialect
          Node       made when first asked for; one per JSON object, so that recursion comes back to the same Node

Nothing is searched before a reference needs it: ``#/...`` is a walk; identifiers and anchors are collected (one
iterative pass over a document) when a reference names one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from ..interface import ConstraintError
from . import drafts
from .drafts import Dialect
from .errors import SchemaError
from .keywords import Handler, handlers
from .node import FIELDS, Node
from .options import SchemaOptions
from .text import escaped, shown
from .uri import resolve, split
from .values import parse_json


class Document:
    """``uri``: what pointers into it are written with ("" for the root document)."""

    def __init__(self, uri: str, raw: Any, options: SchemaOptions) -> None:
        self.uri = uri
        self.raw = raw
        self.indexed = False
        #: some schema in it may have a dynamic anchor, so that its resources have to be looked into
        self.dynamic = False
        name = f"the document {uri}" if uri else "the schema"
        try:
            data = msgspec.json.encode(raw)
        except RecursionError:
            raise ConstraintError(f"{name} is nested too deeply, or contains itself; use $ref for recursion") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ConstraintError(f"{name} is not JSON: {error}") from None
        if len(data) > options.max_bytes:
            raise ConstraintError(f"{name} has {len(data):,} bytes; at most {options.max_bytes:,} are read")
        self.dynamic = b'Anchor"' in data and (b'"$dynamicAnchor"' in data or b'"$recursiveAnchor"' in data)


class Resource:
    """A schema with a base URI of its own. ``pointer``: where it stands in its document."""

    __slots__ = ("anchors", "base", "dialect", "document", "dynamic", "nodes", "pointer", "raw", "refs", "registry", "table")

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
        registry = self.registry
        if type(raw) is not dict:
            if raw is True:
                return registry.true
            if raw is False:
                return registry.false
            raise SchemaError("", pointer, f"a schema is an object, true or false, not {shown(raw)}")
        if not raw:
            return registry.true
        at = registry.enter(self, raw, pointer) if "$id" in raw or "id" in raw else self
        node = at.nodes.get(id(raw))
        if node is None:
            if depth > registry.options.max_depth:
                raise SchemaError(
                    "", pointer, f"schemas are nested more than {registry.options.max_depth} levels deep; use $ref"
                )
            registry.count += 1
            if registry.count > registry.options.max_schemas:
                raise SchemaError("", pointer, f"more than {registry.options.max_schemas:,} schemas are reached")
            node = at.nodes[id(raw)] = Node.__new__(Node)
            node.pointer = pointer
            node.source = (raw, at, depth)
        return node

    def fill(self, node: Node) -> None:
        """Read the schema of a shell that belongs here."""
        raw = node.source[0]
        Node.__init__(node, node.pointer)
        try:
            table = self.table
            if table is None:
                table = self.table = handlers(self.dialect)
            if self.dialect.draft <= drafts.D7 and "$ref" in raw:
                table["$ref"](node, raw["$ref"], self)
                return
            for keyword, value in raw.items():
                handler = table.get(keyword)
                if handler is not None:
                    handler(node, value, self)
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
                + f"; nothing is fetched: give it as documents={{{base!r}: {{...}}}}",
            )
        return found, fragment or ""

    def _target(self, reference: str, pointer: str, keyword: str) -> Node:
        resource, fragment = self.place(reference, pointer, keyword)
        if fragment and fragment[0] != "/":
            found = resource.anchor(fragment)
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
        return at.child(raw, where, where.count("/"))

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
                if not (key.isascii() and key.isdigit()) or (key[0] == "0" and key != "0") or int(key) >= len(raw):
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


class Registry:
    """Every document of one read."""

    def __init__(self, options: SchemaOptions, documents: Mapping[str, Any]) -> None:
        self.options = options
        self.given = {split(uri)[0]: schema for uri, schema in documents.items()}
        self.resources: dict[str, Resource] = {}
        self.documents: list[Document] = []
        self.count = 0
        self.true = Node("#", always=True)
        self.false = Node("#", always=False)
        self._inner: dict[tuple[int, str], Resource] = {}
        self._roots: dict[int, Resource] = {}
        self._loading: set[str] = set()
        self._dialects: dict[str, Dialect] = {}

    def add(self, uri: str, raw: Any) -> Resource:
        """A document, retrieved by ``uri`` ("": the root)."""
        if isinstance(raw, (str, bytes)):
            raw = parse_json(raw)
        document = Document(uri, raw, self.options)
        default = drafts.plain(drafts.DRAFT_NAMES.index(self.options.draft))
        resource = Resource(self, document, uri, raw, f"{uri}#", default)
        if type(raw) is dict:
            resource.dialect = self.dialect(raw, default, resource.pointer)
            own = raw.get(resource.dialect.identifier)
            if own is None:
                own = raw.get("$id", raw.get("id"))  # the other drafts' spelling still says what people will refer to
            if isinstance(own, str):
                resource.base = split(resolve(uri, own))[0]
            elif own is not None and resource.dialect.identifier in raw:
                raise SchemaError(resource.dialect.identifier, resource.pointer, f"is a URI, not {shown(own)}")
        self.documents.append(document)
        self._roots[id(document)] = resource
        self.resources.setdefault(resource.base, resource)
        self.resources.setdefault(uri, resource)
        return resource

    def root_of(self, document: Document) -> Resource:
        return self._roots[id(document)]

    def dialect(self, raw: dict[str, Any], inherited: Dialect, pointer: str) -> Dialect:
        """What ``$schema`` says; without it, what the schema around says."""
        uri = raw.get("$schema")
        if uri is None:
            return inherited
        if not isinstance(uri, str):
            raise SchemaError("$schema", pointer, f"is the URI of a metaschema, not {shown(uri)}")
        known = self._dialects.get(uri)
        if known is None:
            known = self._dialects[uri] = self._dialect(uri, pointer)
        return known

    def _dialect(self, uri: str, pointer: str) -> Dialect:
        base = split(uri)[0]
        draft = drafts.draft_of_uri(uri)
        if draft is not None and base not in self.given:
            return drafts.plain(draft)
        default = drafts.plain(drafts.DRAFT_NAMES.index(self.options.draft))
        meta = self.given.get(base)
        if isinstance(meta, (str, bytes)):
            meta = self.given[base] = parse_json(meta)
        if not isinstance(meta, dict) or base in self._loading:
            return drafts.plain(draft) if draft is not None else default._replace(known=False)
        self._loading.add(base)
        try:
            under = self.dialect(meta, drafts.plain(draft) if draft is not None else default, f"{base}#")
        finally:
            self._loading.discard(base)
        vocabularies = meta.get("$vocabulary")
        if not isinstance(vocabularies, dict):
            return under
        groups: set[str] = set()
        draft = under.draft
        for name, needed in vocabularies.items():
            found = drafts.vocabulary(name)
            if found is None:
                if needed is True:
                    raise SchemaError(
                        "$schema", pointer, f"its metaschema {base!r} needs the vocabulary {name!r}, which is not known"
                    )
                continue
            draft, group = found
            groups.add(group)
            if draft == drafts.D2019 and group == "applicator":
                groups.add("unevaluated")
            if draft == drafts.D2019 and group == "format" and needed is True:
                groups.add("format-assertion")
        return Dialect(draft, frozenset(groups & drafts.VOCABULARIES))

    def enter(self, outer: Resource, raw: dict[str, Any], pointer: str) -> Resource:
        """The resource of a schema that stands in ``outer`` and may have an identifier."""
        if raw is outer.raw:
            return outer
        dialect = self.dialect(raw, outer.dialect, pointer) if "$schema" in raw else outer.dialect
        own = raw.get(dialect.identifier)
        if own is None or (dialect.draft <= drafts.D7 and "$ref" in raw):
            return outer
        if not isinstance(own, str):
            raise SchemaError(dialect.identifier, pointer, f"is a URI, not {shown(own)}")
        if own[:1] == "#":
            return outer
        found = self._inner.get((id(raw), outer.base))
        if found is None:
            base = split(resolve(outer.base, own))[0]
            found = self._inner[id(raw), outer.base] = Resource(self, outer.document, base, raw, pointer, dialect)
        return found

    # ------------------------------------------------------------ searching

    def find(self, uri: str) -> Resource | None:
        """The resource that is known by ``uri`` (no fragment)."""
        found = self.resources.get(uri)
        if found is not None:
            return found
        for document in list(self.documents):
            self.index(document)
        found = self.resources.get(uri)
        if found is None and uri in self.given:
            found = self.add(uri, self.given[uri])
        if found is None and uri in drafts.bundled():
            found = self.add(uri, drafts.metaschema(drafts.bundled()[uri]))
        if found is None:
            for name in self.given:
                if name not in self.resources:
                    self.index(self.add(name, self.given[name]).document)
            found = self.resources.get(uri)
        return found

    def outermost(self, scope: tuple[str, ...], anchor: str) -> Node | None:
        for name in scope:
            resource = self.resources.get("" if name == "#" else name)
            if resource is not None and anchor in resource.dynamic:
                return resource.target(f"#{anchor}", resource.pointer)
        return None

    def index(self, document: Document) -> None:
        """Collect the identifiers and anchors of a document."""
        if document.indexed:
            return
        document.indexed = True
        root = self.root_of(document)
        todo: list[tuple[Any, Resource, str]] = [(root.raw, root, root.pointer)]
        other: list[tuple[str, Any, Resource, str]] = []
        while todo:
            raw, outer, pointer = todo.pop()
            if type(raw) is not dict:
                continue
            at = outer
            if "$id" in raw or "id" in raw:
                at = self.enter(outer, raw, pointer)
                if at is not outer:
                    self.resources.setdefault(at.base, at)
                for keyword in ("$id", "id"):
                    own = raw.get(keyword)
                    if isinstance(own, str):
                        target, fragment = split(resolve(at.base, own))
                        if fragment and fragment[0] != "/":
                            at.anchors.setdefault(fragment, (raw, pointer))
                        elif raw is not at.raw:
                            other.append((target, raw, at, pointer))
            for keyword in ("$anchor", "$dynamicAnchor"):
                name = raw.get(keyword)
                if isinstance(name, str):
                    at.anchors.setdefault(name, (raw, pointer))
                    if keyword == "$dynamicAnchor" and at.dialect.draft >= drafts.D2020:
                        at.dynamic.add(name)
            if raw.get("$recursiveAnchor") is True and raw is at.raw and at.dialect.draft >= drafts.D2019:
                at.dynamic.add("")
            todo.extend(reversed([(one, at, f"{pointer}/{where}") for where, one in subschemas(raw)]))
        for uri, raw, at, pointer in other:
            # Another draft's spelling, or hidden by a $ref: no identifier here, but who refers to it means this schema.
            if uri not in self.resources:
                alias = self.resources[uri] = Resource(self, document, at.base, raw, pointer, at.dialect)
                alias.nodes, alias.anchors = at.nodes, at.anchors


def subschemas(raw: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(JSON pointer from here, without its first slash; the schema) for each place where a schema stands."""
    for keyword, value in raw.items():
        kind = drafts.PLACES.get(keyword)
        if kind is None:
            continue
        if type(value) is dict:
            if kind == drafts.ONE:
                yield keyword, value
            elif kind == drafts.MAP:
                for name, one in value.items():
                    yield f"{keyword}/{escaped(name)}", one
        elif type(value) is list and kind != drafts.MAP:
            for at, one in enumerate(value):
                yield f"{keyword}/{at}", one
