"""A safe subset of YAML for vocabularies: lists, mappings and scalars.

Values are built from parser events without the constructors of a YAML library. Tags, anchors, duplicate keys and deep
nesting are rejected. Aliases are also rejected, because they could expand to more data than fits into memory.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..base.errors import InputError, short_repr
from .limits import MAX_LINE

MAX_DEPTH = 20
"""Maximum nesting depth of lists and mappings."""

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"

_STANDARD = "tag:yaml.org,2002:"
_TAGS_OF_TEXT = (None, "!", f"{_STANDARD}str")


def load_yaml(data: bytes, name: str) -> Any:
    """Returns the only document of a YAML file, which may contain mappings, lists, strings, numbers, True, False and
    None.

    Args:
        data: Content of the file.
        name: Name of the file, for error messages.

    Raises:
        InputError: If the YAML is invalid or uses an unsupported feature. The message names the invalid line.
    """
    import yaml

    if len(data) > MAX_LINE:
        raise InputError(f"not a valid YAML file: more than {MAX_LINE >> 20} MiB", path=name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8", path=name, line=data.count(b"\n", 0, error.start) + 1) from None
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolver = yaml.SafeLoader("")
    try:
        return _document(yaml.parse(text, Loader=loader), resolver, name)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        if "nesting depth" in reason:  # PyYAML 6.0.4 has a limit of its own, which it may reach first
            reason = _TOO_DEEP
        if mark and "".join(text.split("\n")[mark.line : mark.line + 1]).lstrip(" ").startswith("\t"):
            reason = "the indentation contains a tab; indent with spaces"
        raise InputError(f"not a valid YAML file: {reason}", path=name, line=mark.line + 1 if mark else None) from None


def _document(events: Any, resolver: Any, name: str) -> Any:
    import yaml

    def refuse(reason: str, event: Any) -> InputError:
        return InputError(f"not a valid YAML file: {reason}", path=name, line=event.start_mark.line + 1)

    root: list[Any] = []
    open_: list[_Node] = [_Node(root)]
    documents = 0
    for event in events:
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:  # for an alias, its target
            raise refuse("anchors and aliases (&name, *name) are not supported; repeat the text instead", event)
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            if event.tag not in _TAGS_OF_TEXT:
                raise refuse(f"tags such as {short_repr(str(event.tag).replace(_STANDARD, '!!'))} are not read", event)
            if isinstance(event, yaml.ScalarEvent):
                open_[-1].add(_scalar(event, resolver), event, name)
                continue
            node = _Node({} if isinstance(event, yaml.MappingStartEvent) else [])
            open_[-1].add(node.value, event, name)
            open_.append(node)
            if len(open_) > MAX_DEPTH:
                raise refuse(_TOO_DEEP, event)
        elif isinstance(event, yaml.CollectionEndEvent):
            open_.pop()
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise refuse("a second document begins", event)
    return root[0] if root else None


class _Node:
    """A list or mapping that is being built."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._lines: dict[Any, int] = {}
        self._key: Any = None
        self._has_key = False

    def add(self, value: Any, event: Any, name: str) -> None:
        """Adds an element to a list, or a key or a value to a mapping. For a mapping, successive calls add a key and a
        value in turn.

        Raises:
            InputError: If a key is invalid or appears twice.
        """
        if isinstance(self.value, list):
            self.value.append(value)
        elif self._has_key:
            self.value[self._key] = value
            self._has_key = False
        else:
            line = event.start_mark.line + 1
            if isinstance(value, (list, dict)):
                raise InputError(f"a key must be text, not {short_repr(value)}", path=name, line=line)
            if value in self._lines:
                raise InputError(
                    f"'{value}' appears twice (lines {self._lines[value]} and {line})", path=name, line=line
                )
            self._lines[value], self._key, self._has_key = line, value, True


def _scalar(event: Any, resolver: Any) -> Any:
    """Returns the value of a YAML scalar.

    Quoted scalars are always strings. Unquoted scalars are interpreted as in YAML 1.1, except that dates remain
    strings.
    """
    text: str = event.value
    # resolvers recognize values by their first characters
    if event.tag is not None or text[:1] not in resolver.yaml_implicit_resolvers:
        return text
    import yaml

    kind = resolver.resolve(yaml.ScalarNode, text, event.implicit).removeprefix(_STANDARD)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("yes", "true", "on")
    with suppress(ValueError):
        if kind == "int":
            return int(text, 0)
        if kind == "float":
            return float(text)
    return text
