"""Every document of one read: which URI names which schema, and in which dialect it is written."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from ..interface import ConstraintError
from . import draft3 as _draft3  # noqa: F401 (its keywords register themselves)
from . import drafts
from .drafts import Dialect
from .errors import Problem, SchemaError
from .node import Node
from .options import SchemaOptions
from .references import Resource
from .text import escaped, shown
from .uri import resolve, split
from .values import parse_json


class Document:
    """``uri``: what pointers into it are written with ("" for the root document)."""

    def __init__(self, uri: str, raw: Any, options: SchemaOptions) -> None:
        self.uri = uri
        #: the base URI of its root
        self.base = uri
        self.raw = raw
        self.indexed = False
        #: some schema in it may have a dynamic anchor, so that its resources have to be looked into
        self.dynamic = False
        try:
            data = msgspec.json.encode(raw)
        except UnicodeEncodeError:  # half of a surrogate pair, as JSON may escape it
            data = json.dumps(raw).encode()
        except RecursionError:
            raise ConstraintError(
                f"{self.name} is nested too deeply, or contains itself; use $ref for recursion"
            ) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ConstraintError(f"{self.name} is not JSON: {error}") from None
        if len(data) > options.max_bytes:
            raise ConstraintError(f"{self.name} has {len(data):,} bytes; at most {options.max_bytes:,} are read")
        self.dynamic = b'Anchor"' in data and (b'"$dynamicAnchor"' in data or b'"$recursiveAnchor"' in data)

    @property
    def name(self) -> str:
        return f"the document {self.uri}" if self.uri else "the schema"


class Registry:
    """Every document of one read."""

    def __init__(self, options: SchemaOptions, documents: Mapping[str, Any]) -> None:
        self.options = options
        self.given = {split(uri)[0]: schema for uri, schema in documents.items()}
        self.resources: dict[str, Resource] = {}
        self.documents: list[Document] = []
        #: schemas that were read
        self.count = 0
        #: None: a wrong value is raised. Else it is written down here and its keyword left out (for check())
        self.errors: list[Problem] | None = None
        #: raises ConstraintError for a pattern that cannot be kept; made when the first one is tried
        self.try_pattern: Callable[[str], object] | None = None
        self._patterns: dict[str, str] = {}
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
        document.base = resource.base
        self.documents.append(document)
        self._roots[id(document)] = resource
        self.resources.setdefault(resource.base, resource)
        self.resources.setdefault(uri, resource)
        return resource

    def too_many(self, node: Node, depth: int) -> SchemaError:
        """What is wrong where a limit is passed."""
        if depth > self.options.max_depth:
            said = f"schemas are nested more than {self.options.max_depth} levels deep; use $ref"
        else:
            said = f"more than {self.options.max_schemas:,} schemas are reached"
        return SchemaError("", node.pointer, said)

    def pattern_problem(self, source: str) -> str:
        """Why a pattern (ECMA-262) cannot be kept; "" if it can."""
        found = self._patterns.get(source)
        if found is None:
            if self.try_pattern is None:
                from ..regular.languages import Languages  # not at the top: only check() and strict=False come here

                self.try_pattern = partial(Languages().regex, flavour="ecma")
            try:
                self.try_pattern(source)
                found = ""
            except ConstraintError as error:
                found = f"the pattern {source[:80]!r} cannot be kept: {error}"
            self._patterns[source] = found
        return found

    def keeps(self, source: str, keyword: str, pointer: str) -> bool:
        """Whether a pattern can be kept; if not, that it is dropped is recorded (strict=False)."""
        problem = self.pattern_problem(source)
        return not problem or not self.options.relax(Problem(keyword, pointer, problem))

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
        if found is None:
            base = self.documents[0].base
            for name, schema in self.given.items():
                if uri in (name, split(resolve(base, name))[0]):
                    return self.add(uri, schema)
        if found is None:
            found = self._metaschema(uri)
        if found is None:
            for name in self.given:
                if name not in self.resources:
                    self.index(self.add(name, self.given[name]).document)
            found = self.resources.get(uri)
        return found

    def _metaschema(self, uri: str) -> Resource | None:
        files = drafts.bundled()
        if uri not in files:  # by http for https, or the other way round
            draft = drafts.draft_of_uri(uri)
            same = [one for one in files if draft is not None and drafts.draft_of_uri(one) == draft]
            if not same or "hyper" in uri:
                return None
            return self.add(uri, drafts.metaschema(files[same[0]]))
        return self.add(uri, drafts.metaschema(files[uri]))

    def outermost(self, scope: tuple[str, ...], anchor: str) -> Node | None:
        for name in scope:
            resource = self.resources.get("" if name == "#" else name)
            if resource is not None and anchor in resource.dynamic:
                return resource.target(f"#{anchor}", resource.pointer)
        return None

    def similar(self, uri: str) -> str:
        """A hint: what is known by nearly this name."""
        close = difflib.get_close_matches(uri, [one for one in self.resources if one], 1, 0.8)
        return f" (known: {close[0]!r})" if close else ""

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
