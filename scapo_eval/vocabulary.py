"""Vocabularies: canonical labels, the aliases that name them, and phrases that name nothing.

The data of the project's own vocabularies lies in ``vocab/`` (in a wheel: inside the package).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from .errors import InputError, InputErrors
from .io.files import display_name, read_bytes, shipped_folder
from .reprs import fields_in_short, one_line
from .rules import IgnoreRule, parse_lists, parse_rules, texts
from .signature import digest
from .text import GAP, HYPHENS, fold, is_unspaced_mark, join_of, word_spans

SUFFIX = ".yaml"

SHARED_RULES = "rules"
"""Name of the shipped file that vocabularies include; no vocabulary itself."""


@dataclass(frozen=True, slots=True)
class LabelInfo:
    """What a vocabulary says of a label beside its aliases.

    Attributes:
        definition: what counts and what does not, for judges and annotators.
        group: a coarse class (``person``, ``vehicle``, ``scene region``...).
        coco: the COCO-80 categories that it belongs to; empty where there is none.
    """

    definition: str = ""
    group: str = ""
    coco: tuple[str, ...] = ()

    __repr__ = fields_in_short


@dataclass(frozen=True)
class Vocabulary:
    """An ordered set of labels with a conflict-free alias map.

    Attributes:
        name: for signatures and messages.
        labels: canonical labels in order.
        aliases: alias as written -> label.
        ignore: phrases that take part in the longest match and yield no mention.
        heads: aliases that color what follows them ("an orange", but "an orange shirt"): a modifier there.
        kin: aliases that mean an animal where a caption names one of ``kin_of`` and nobody by another word ("the
            mother" of elephants): a modifier there.
        kin_of: labels.
        rules: where the ignore phrases come from, for people who review them.
        info: label -> LabelInfo.
        reviewed: kind of finding -> aliases whose finding the author has read and accepted (see lint.py).
        version, source: free text of the file.
    """

    name: str
    labels: tuple[str, ...]
    aliases: Mapping[str, str]
    ignore: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    kin: tuple[str, ...] = ()
    kin_of: tuple[str, ...] = ()
    rules: tuple[IgnoreRule, ...] = ()
    info: Mapping[str, LabelInfo] = field(default_factory=dict)
    reviewed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    version: str = ""
    source: str = ""

    def __repr__(self) -> str:
        ignored = f", {len(self.ignore):,} ignore phrases" if self.ignore else ""
        return one_line(self, f"{self.name}: {len(self.labels):,} labels, {len(self.aliases):,} aliases{ignored}")

    @classmethod
    def from_mapping(
        cls,
        labels: Mapping[str, Iterable[str]],
        ignore: Iterable[str] = (),
        name: str = "custom",
        *,
        heads: Iterable[str] = (),
        kin: Iterable[str] = (),
        kin_of: Iterable[str] = (),
        rules: Iterable[IgnoreRule] = (),
        info: Mapping[str, LabelInfo] | None = None,
        reviewed: Mapping[str, Sequence[str]] | None = None,
        version: str = "",
        source: str = "",
    ) -> Vocabulary:
        """Builds and checks a vocabulary; a label is an alias of itself only if it is listed.

        Args:
            labels: label -> its aliases.
            ignore: phrases that name nothing.
            name: for signatures and messages.
            heads, kin, kin_of, rules, info, reviewed, version, source: see the class.

        Raises:
            InputErrors: every conflict: an alias of two labels, an alias that is an ignore phrase, an
                empty or malformed alias, a label without any, a head or kin that is not an alias.
        """
        table = {label: texts(label, aliases) for label, aliases in labels.items()}
        phrases = texts("ignore", ignore)
        special = {"heads": texts("heads", heads), "kin": texts("kin", kin)}
        kin_of = [label for label in texts("kin_of", kin_of) if label in table]
        faults = [InputError(reason, path=name) for reason in _conflicts(table, phrases, special)]
        if faults:
            raise InputErrors(faults)
        return cls(
            name=name,
            labels=tuple(table),
            aliases={alias: label for label, aliases in table.items() for alias in aliases},
            ignore=tuple(phrases),
            heads=tuple(special["heads"]),
            kin=tuple(special["kin"]),
            kin_of=tuple(kin_of),
            rules=tuple(rules),
            info=dict(info or {}),
            reviewed=dict(reviewed or {}),
            version=version,
            source=source,
        )

    @classmethod
    def load(cls, name_or_path: str | Path) -> Vocabulary:
        """Loads ``coco80``, ``dopa160`` or a YAML (or JSON) file in the format of ``docs/vocabulary.md``.

        Raises:
            InputError: an unknown name, or the file is not a valid vocabulary.
            InputErrors: every conflict of the alias map.
        """
        text = str(name_or_path)
        shipped = shipped_vocabularies()
        if text in shipped:
            return _shipped(text)
        if not Path(text).exists() and Path(text).name == text and "." not in text:
            raise InputError(f"unknown vocabulary '{text}'; known: {', '.join(shipped)} (or give a file)")
        folder = Path(text).parent
        return _parse(read_bytes(text), display_name(text), lambda name: read_bytes(folder / name))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of labels, aliases and ignore phrases; comments, order and spellings of one alias do not count."""
        aliases = sorted({f"{'|'.join(tokenize_alias(alias))}\t{label}" for alias, label in self.aliases.items()})
        ignore = sorted({"|".join(tokenize_alias(phrase)) for phrase in self.ignore})
        lines = [*sorted(self.labels), "aliases", *aliases, "ignore", *ignore]
        for name, listed in (("heads", self.heads), ("kin", self.kin), ("kin_of", self.kin_of)):
            if listed:
                lines += [name, *sorted({"|".join(tokenize_alias(alias)) for alias in listed})]
        return digest(lines)

    @property
    def identity(self) -> str:
        """``name@fingerprint``, for signatures."""
        return f"{self.name}@{self.fingerprint}"

    @cached_property
    def label_ids(self) -> Mapping[str, int]:
        """Label -> its position in ``labels``."""
        return {label: k for k, label in enumerate(self.labels)}

    def aliases_of(self, label: str) -> list[str]:
        """The aliases of a label, in order."""
        return [alias for alias, owner in self.aliases.items() if owner == label]

    def document(self) -> dict[str, Any]:
        """The vocabulary as a file holds it: written as JSON or YAML, :meth:`load` gives it back."""
        labels: dict[str, Any] = {label: {"aliases": []} for label in self.labels}
        for alias, label in self.aliases.items():
            labels[label]["aliases"].append(alias)
        for label, info in self.info.items():
            labels[label] |= {"definition": info.definition, "group": info.group, "coco": list(info.coco)}
        return {
            "name": self.name,
            "version": self.version,
            "source": self.source,
            "labels": labels,
            "ignore": list(self.ignore),
            "heads": list(self.heads),
            "kin": list(self.kin),
            "kin_of": list(self.kin_of),
            "reviewed": {kind: list(listed) for kind, listed in self.reviewed.items()},
        }


def shipped_vocabularies() -> dict[str, Any]:
    """Name -> readable resource of the vocabularies that come with the project."""
    folder = shipped_folder("vocab")
    files = [entry for entry in folder.iterdir() if entry.name.endswith(SUFFIX)] if folder.is_dir() else []
    found = {entry.name.removesuffix(SUFFIX): entry for entry in sorted(files, key=lambda entry: entry.name)}
    found.pop(SHARED_RULES, None)
    return found


@lru_cache
def _shipped(name: str) -> Vocabulary:
    """A vocabulary that comes with the project, read once."""
    return _parse(shipped_vocabularies()[name].read_bytes(), name, _shared_rules)


def _shared_rules(name: str) -> bytes:
    return bytes((shipped_folder("vocab") / name).read_bytes())


_PLAIN = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*")


@lru_cache(maxsize=1 << 15)
def tokenize_alias(alias: str) -> tuple[str, ...]:
    """An alias as folded words with the joins between them: ``("t", " ", "shirt")``.

    Raises:
        ValueError: it is empty, does not begin and end with a word character, or holds control characters.
    """
    if _PLAIN.fullmatch(alias):  # nine in ten; the rest says the same, at a tenth of the speed
        first, *others = alias.split(" ")
        return (first, *(part for word in others for part in (GAP, word)))
    text = unicodedata.normalize("NFC", alias).strip()
    spans = word_spans(text)
    if not text:
        raise ValueError("is empty")
    if not spans or spans[0][0] != 0 or spans[-1][1] != len(text):
        raise ValueError("must begin and end with a letter or digit")
    if is_unspaced_mark(text):
        raise ValueError("begins with a mark that belongs to the letter before it, so it can match nothing")
    parts = [fold(text[slice(*spans[0])])]
    for (_, left), (start, end) in zip(spans, spans[1:], strict=False):
        between = text[left:start]
        # a vocabulary may write "t - shirt" or "hot--dog": any mixture of spaces and hyphens means the same join
        join = GAP if between and all(c.isspace() or c in HYPHENS for c in between) else join_of(between)
        if not join.isprintable():
            raise ValueError("holds a character that cannot be seen")
        parts.append(join)
        parts.append(fold(text[start:end]))
    return tuple(parts)


def _conflicts(
    table: Mapping[str, Sequence[str]], ignore: Sequence[str], special: Mapping[str, Sequence[str]]
) -> list[str]:
    faults: list[str] = []
    owners: dict[tuple[str, ...], dict[str, str]] = {}
    for label, aliases in table.items():
        if not label.strip():
            faults.append("a label is empty")
        if not aliases:
            faults.append(f"label '{label}' has no alias (the label itself counts only if it is listed)")
        for alias in aliases:
            try:
                owners.setdefault(tokenize_alias(alias), {}).setdefault(label, alias)
            except ValueError as error:
                faults.append(f"label '{label}': alias {alias!r} {error}")
    for by_label in owners.values():
        if len(by_label) > 1:
            where = " and ".join(f"'{label}'" for label in by_label)
            faults.append(f"alias '{next(iter(by_label.values()))}' belongs to {where}")
    for phrase in ignore:
        try:
            owned = owners.get(tokenize_alias(phrase))
        except ValueError as error:
            faults.append(f"ignore phrase {phrase!r} {error}")
            continue
        for label, alias in (owned or {}).items():
            faults.append(f"alias '{alias}' of '{label}' is also the ignore phrase '{phrase}'")
    named = {alias for aliases in table.values() for alias in aliases}
    for key, listed in special.items():
        faults += [f"'{key}' lists '{alias}', which is not an alias" for alias in listed if alias not in named]
    return faults


def _parse(data: bytes, name: str, read: Callable[[str], bytes]) -> Vocabulary:
    """A vocabulary from its file and those that it includes, which ``read`` gives by name."""
    document = _load_yaml(data, name)
    if not isinstance(document, dict) or not isinstance(document.get("labels"), dict):
        raise InputError(
            "not a valid vocabulary: expected the keys 'name', 'version', 'labels' and 'ignore'", path=name
        )
    table: dict[str, Any] = {}
    info: dict[str, LabelInfo] = {}
    try:
        for label, entry in document["labels"].items():
            if not isinstance(label, str):
                raise InputError(f"label {label!r} is not text; put it in quotes")
            fields = entry if isinstance(entry, dict) else {"aliases": entry}
            table[label] = texts(label, fields.get("aliases") or [])
            coco = fields.get("coco") or ()
            coco = (coco,) if isinstance(coco, str) else tuple(texts(f"{label}: coco", coco))
            info[label] = LabelInfo(
                definition=" ".join(str(fields.get("definition") or "").split()),
                group=str(fields.get("group") or ""),
                coco=coco,
            )
        own, special = _rules_of(document, name)
        shared: list[IgnoreRule] = []
        include = document.get("include") or []
        aliases = {alias for listed in table.values() for alias in listed}
        for other in texts("include", [include] if isinstance(include, str) else include):
            rules, more = _rules_of(_load_yaml(read(other), other), other)
            shared += rules
            for key, words in more.items():
                known = table if key == "kin_of" else aliases
                special[key] += [word for word in words if word in known and word not in special[key]]
        ignore = dict.fromkeys(phrase for rule in own for phrase in rule.phrases)
        ignore |= dict.fromkeys(_effective([phrase for rule in shared for phrase in rule.phrases], aliases))
        return Vocabulary.from_mapping(
            table,
            ignore=ignore,
            name=str(document.get("name") or Path(name).stem),
            heads=special["heads"],
            kin=special["kin"],
            kin_of=special["kin_of"],
            rules=[*own, *shared],
            info=info,
            reviewed={str(kind): texts(str(kind), listed) for kind, listed in (document.get("reviewed") or {}).items()},
            version=str(document.get("version") or ""),
            source=" ".join(str(document.get("source") or "").split()),
        )
    except InputErrors as errors:
        raise InputErrors([InputError(fault.reason, path=name) for fault in errors.errors], errors.total) from None
    except InputError as error:
        raise InputError(error.reason, path=error.path or name, line=error.line) from None


def _rules_of(document: Any, name: str) -> tuple[list[IgnoreRule], dict[str, list[str]]]:
    """The ignore rules of one file, and the words that count only under a condition."""
    if not isinstance(document, dict):
        raise InputError(
            "not a valid rules file: expected the keys 'lists', 'ignore', 'heads', 'kin' and 'kin_of'", path=name
        )
    try:
        lists = parse_lists(document.get("lists") or {})
        special = {key: texts(key, document.get(key) or []) for key in ("heads", "kin", "kin_of")}
        return list(parse_rules(document.get("ignore") or [], lists)), special
    except InputError as error:
        raise InputError(error.reason, path=name) from None


def _effective(phrases: Iterable[str], aliases: Iterable[str]) -> Iterator[str]:
    """The shared phrases that matter to a vocabulary: those that hold an alias and are none."""
    words = {_words_of(alias) for alias in aliases} - {()}
    firsts = {inside[0] for inside in words}
    longest = max(map(len, words), default=0)
    for phrase in phrases:
        inside = _words_of(phrase)
        n = len(inside)
        begins = [k for k in range(n) if inside[k] in firsts]
        if not inside or (
            inside not in words
            and any(inside[k : k + length] in words for k in begins for length in range(1, min(longest, n - k) + 1))
        ):
            yield phrase


def _words_of(alias: str) -> tuple[str, ...]:
    """The words of an alias; none for a malformed one, which is named later."""
    try:
        return tokenize_alias(alias)[::2]
    except ValueError:
        return ()


def _load_yaml(data: bytes, name: str) -> Any:
    """The content of a YAML file in which no key appears twice.

    Raises:
        InputError: it is not valid YAML.
    """
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Refuses a key that appears twice, which YAML would silently overwrite."""

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            key, line = loader.construct_object(key_node), key_node.start_mark.line + 1
            if isinstance(key, (list, dict)):
                raise InputError(f"a key must be text, not {key!r}", path=name, line=line)
            if key in lines:
                raise InputError(f"'{key}' appears twice (lines {lines[key]} and {line})", path=name, line=line)
            lines[key] = line
        return dict(loader.construct_pairs(node, deep=True))

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        return yaml.load(data.decode("utf-8"), Loader=Loader)
    except UnicodeDecodeError:
        raise InputError("not UTF-8", path=name) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"not a valid YAML file: {reason}", path=name, line=mark.line + 1 if mark else None) from None
