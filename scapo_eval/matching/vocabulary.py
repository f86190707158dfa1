"""Vocabularies: canonical labels, their aliases, and ignore phrases.

The shipped vocabularies are in the folder ``vocab/`` (in a wheel, inside the package).
"""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from ..base.errors import InputError, InputErrors, InputWarning, misspelled, short_repr
from ..base.hashes import digest
from ..base.ids import file_name_of
from ..base.reprs import fields_in_short, one_line
from ..base.text import GAP, HYPHENS, fold, is_unspaced_mark, join_of, word_parts
from ..files.files import display_name, read_bytes, shipped_folder
from ..files.yaml_text import load_yaml
from .compiled import SHARED_RULES, SUFFIX, read_compiled
from .rules import IgnoreRule, Names, parse_lists, parse_rules, text_of, texts
from .visible import plain_letters

MAX_WORDS = 100
"""Maximum number of words in an alias or ignore phrase."""


@dataclass(frozen=True, slots=True)
class LabelInfo:
    """Information about a label in addition to its aliases.

    Attributes:
        definition: Description of the objects that count as the label, for judges and annotators.
        group: Coarse class of the label (``person``, ``vehicle``, ``scene region``...).
        coco: COCO-80 categories that the label belongs to. The tuple is empty if the label belongs to no COCO-80
            category.
    """

    definition: str = ""
    group: str = ""
    coco: tuple[str, ...] = ()

    __repr__ = fields_in_short


@dataclass(frozen=True, slots=True)
class Sense:
    """Aliases that have another meaning if the caption contains certain words, such as the "keyboard" of a piano.

    Attributes:
        words: The aliases.
        near: Words, at least one of which must occur in the caption for the other meaning to apply.
        unless: Words whose presence in the caption excludes the other meaning.
    """

    words: tuple[str, ...]
    near: tuple[str, ...]
    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class Vocabulary:
    """An ordered set of labels, together with conflict-free aliases for these labels.

    Attributes:
        name: Name of the vocabulary in signatures and messages.
        labels: Canonical names of the labels, in order.
        aliases: Mapping from aliases, as written, to labels.
        ignore: Phrases that compete with aliases for the longest match but yield no mention.
        compounds: Mapping from the phrases of rules with ``names`` to the labels of their heads (from "baseball cap" to
            "hat"). Compounds are not considered aliases.
        heads: Aliases that are modifiers if they describe the color of the next noun ("an orange shirt", but not "an
            orange").
        kin: Aliases that are modifiers if they refer to an animal, such as "the mother" in a caption about elephants.
            An alias in ``kin`` refers to an animal if the caption names a label in ``kin_of`` and no other word in the
            caption names a person.
        kin_of: Labels of the animals that the aliases in ``kin`` can refer to.
        senses: Aliases that are modifiers if other words of the caption indicate another meaning.
        rules: Rules that define the ignore phrases, for reviewers.
        info: Mapping from labels to their :class:`LabelInfo`.
        reviewed: Mapping from kinds of findings to the aliases for which the author has accepted such a finding (see
            lint.py).
        version: Version of the vocabulary, as free text from the file.
        source: Origin of the vocabulary, stated as free text in the file.

    Example:
        >>> import scapo_eval
        >>> words = scapo_eval.Vocabulary.from_mapping({"dog": ["dog", "puppy"], "cat": ["cat"]}, name="mine")
        >>> words.labels, words.aliases["puppy"]
        (('dog', 'cat'), 'dog')
    """

    name: str
    labels: tuple[str, ...]
    aliases: Mapping[str, str]
    ignore: tuple[str, ...] = ()
    compounds: Mapping[str, str] = field(default_factory=dict)
    heads: tuple[str, ...] = ()
    kin: tuple[str, ...] = ()
    kin_of: tuple[str, ...] = ()
    senses: tuple[Sense, ...] = ()
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
        compounds: Mapping[str, str] | None = None,
        heads: Iterable[str] = (),
        kin: Iterable[str] = (),
        kin_of: Iterable[str] = (),
        senses: Iterable[Sense] = (),
        rules: Iterable[IgnoreRule] = (),
        info: Mapping[str, LabelInfo] | None = None,
        reviewed: Mapping[str, Sequence[str]] | None = None,
        version: str = "",
        source: str = "",
    ) -> Vocabulary:
        """Builds a vocabulary from a mapping and checks it.

        A label is an alias of itself only if it is listed among its aliases. All arguments that are not described below
        are values of the attributes of :class:`Vocabulary`.

        Args:
            labels: Mapping from labels to their aliases.
            ignore: Phrases that name no label.
            name: Name of the vocabulary in signatures and messages.

        Raises:
            InputErrors: If the vocabulary has conflicts, such as an alias with two labels, an alias that is also an
                ignore phrase, an empty or malformed alias, a label without aliases, a head or kin that is not an
                alias, or a label in ``kin_of`` that is not a label. The error lists all conflicts in the vocabulary.
        """
        if not isinstance(labels, Mapping):
            raise InputError(
                f"labels must be a mapping from labels to their aliases, got {short_repr(labels)}", path=name
            )
        table = {label: texts(label, labels[label]) for label in texts("labels", labels)}
        phrases = texts("ignore", ignore)
        senses = tuple(senses)
        special = {"heads": texts("heads", heads), "kin": texts("kin", kin)}
        special["senses"] = [word for sense in senses for word in sense.words]
        kin_of = texts("kin_of", kin_of)
        compounds = dict(compounds or {})
        reasons = _conflicts(table, [*phrases, *compounds], special)
        reasons += [
            f"compound '{phrase}' refers to '{to}', which is not a label"
            for phrase, to in compounds.items()
            if to not in table
        ]
        reasons += [f"'kin_of' lists '{label}', which is not a label" for label in kin_of if label not in table]
        faults = [InputError(reason, path=name) for reason in reasons]
        if faults:
            raise InputErrors(faults)
        return cls(
            name=name,
            labels=tuple(table),
            aliases={alias: label for label, aliases in table.items() for alias in aliases},
            ignore=tuple(phrases),
            compounds=compounds,
            heads=tuple(special["heads"]),
            kin=tuple(special["kin"]),
            kin_of=tuple(kin_of),
            senses=senses,
            rules=tuple(rules),
            info=dict(info or {}),
            reviewed=dict(reviewed or {}),
            version=version,
            source=source,
        )

    @classmethod
    def of(cls, given: VocabularyGiven) -> Vocabulary:
        """Returns a given vocabulary unchanged, loads a vocabulary by its name or path, or builds one from words.

        Args:
            given: Vocabulary, a name or path that :meth:`load` accepts, a list of words, or a mapping from each label
                to further aliases. A list or mapping means the same as a file with this content.

        Raises:
            InputError: If the name is unknown, or if the file or the content is invalid.
            InputErrors: If the aliases have conflicts. The error lists all conflicts in the vocabulary.
        """
        if isinstance(given, Vocabulary):
            return given
        if isinstance(given, (str, os.PathLike)):
            return cls.load(given)
        if isinstance(given, Mapping):
            return _built({label: _listed(aliases) for label, aliases in given.items()}, "custom")
        if not isinstance(given, Iterable):
            kinds = "a Vocabulary, a name, a file, a list of words or {label: [aliases]}"
            raise InputError(f"not a valid vocabulary: expected {kinds}, found {type(given).__name__}")
        words = list(given)
        warnings.warn(
            f"{len(words)} words as a vocabulary; each matches only as written, so give plurals, too: "
            "{'dog': ['dogs']}",
            InputWarning,
            stacklevel=3,
        )
        return _built(words, "custom")

    @classmethod
    def load(cls, name_or_path: VocabularyGiven) -> Vocabulary:
        """Loads a shipped vocabulary such as ``coco80`` or ``dopa160``, or a YAML or JSON file in the format of
        ``docs/vocabulary.md``. Words are also accepted; see :meth:`of`.

        Raises:
            InputError: If the name is unknown, or if the file is invalid.
            InputErrors: If the aliases conflict. The error lists all conflicts in the vocabulary.
        """
        if not isinstance(name_or_path, (str, os.PathLike)):
            return cls.of(name_or_path)
        text = os.fspath(name_or_path)
        shipped = shipped_vocabularies()
        if text in shipped:
            return _shipped(text)
        if not os.path.exists(text) and Path(text).name == text and "." not in text:
            raise InputError(f"unknown vocabulary '{text}'; known: {', '.join(shipped)} (or give a file)")
        folder = Path(text).parent

        def beside(name: str) -> bytes:
            if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
                raise InputError(f"'include': not a valid file beside the vocabulary: {short_repr(name)}")
            try:
                return read_bytes(folder / name)
            except InputError as error:
                raise InputError(f"'include': {error}") from None

        return _parse(read_bytes(text), display_name(text), beside)

    @classmethod
    def parse(cls, data: bytes, name: str) -> Vocabulary:
        """Parses the content of a vocabulary file that does not use ``include``. Raises the same errors as
        :meth:`load`.
        """
        return _parse(data, name, partial(_refuse_including, name))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the labels, aliases, ignore phrases and rules for modifiers.

        Comments, the order of labels, aliases and phrases, and equivalent spellings of an alias do not change the hash.
        """

        def path(alias: str) -> str:
            try:
                return alias_path(alias).replace(PART, "|")
            except ValueError:  # a label such as "dog (animal)"
                return alias

        aliases = sorted({f"{path(alias)}\t{label}" for alias, label in self.aliases.items()})
        lines = [*sorted(self.labels), "aliases", *aliases, "ignore", *sorted(set(map(path, self.ignore)))]
        if self.compounds:
            lines += ["compounds", *sorted(f"{path(phrase)}\t{label}" for phrase, label in self.compounds.items())]
        for name, listed in (("heads", self.heads), ("kin", self.kin), ("kin_of", self.kin_of)):
            if listed:
                lines += [name, *sorted(set(map(path, listed)))]
        lines += [
            f"sense {' '.join(sorted(map(path, s.words)))}|{' '.join(sorted(s.near))}|{' '.join(sorted(s.unless))}"
            for s in self.senses
        ]
        return digest(lines)

    @property
    def identity(self) -> str:
        """The text ``name@fingerprint``, for use in signatures."""
        return f"{self.name}@{self.fingerprint}"

    @cached_property
    def label_ids(self) -> Mapping[str, int]:
        """Mapping from each label to its position in ``labels``."""
        return {label: k for k, label in enumerate(self.labels)}

    def aliases_of(self, label: str) -> list[str]:
        """Returns the aliases of a label, in the order of the vocabulary."""
        return [alias for alias, owner in self.aliases.items() if owner == label]

    def document(self) -> dict[str, Any]:
        """Returns the content of a vocabulary file as plain values. If the values are written as JSON or YAML,
        :meth:`load` can read the file.
        """
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
            "ignore": [*self.ignore, *self._compounds_as_rules()],
            "heads": list(self.heads),
            "kin": list(self.kin),
            "kin_of": list(self.kin_of),
            "senses": [asdict(sense) for sense in self.senses],
            "reviewed": {kind: list(listed) for kind, listed in self.reviewed.items()},
        }

    def _compounds_as_rules(self) -> Iterator[dict[str, Any]]:
        labels, left = _labels_of_words(self.aliases), dict(self.compounds)
        sides: tuple[Names, ...] = ("last", "first")
        for names in sides:
            rule = IgnoreRule("modifier", "", {"": list(left)}, names)
            phrases = [phrase for phrase, label in _named_by([rule], labels) if label == left[phrase]]
            left = {phrase: label for phrase, label in left.items() if phrase not in set(phrases)}
            if phrases:
                yield {"class": rule.kind, "names": names, "phrases": phrases}


VocabularyGiven = Vocabulary | str | os.PathLike[str] | Mapping[str, Iterable[str]] | Iterable[str]
"""Accepted forms of a vocabulary in the Python interface; see :meth:`Vocabulary.of`."""


def shipped_vocabularies() -> dict[str, Any]:
    """Returns the shipped vocabularies as a mapping from names to readable resources."""
    folder = shipped_folder("vocab")
    files = [entry for entry in folder.iterdir() if entry.name.endswith(SUFFIX)] if folder.is_dir() else []
    resources = {entry.name.removesuffix(SUFFIX): entry for entry in sorted(files, key=lambda entry: entry.name)}
    resources.pop(SHARED_RULES, None)
    return resources


@lru_cache
def _shipped(name: str) -> Vocabulary:
    """Returns a shipped vocabulary, which is cached after the first call."""
    return read_compiled(name, Vocabulary) or parse_shipped(name)


def parse_shipped(name: str) -> Vocabulary:
    """Parses a shipped vocabulary from its YAML file."""
    return _parse(shipped_vocabularies()[name].read_bytes(), name, _shared_rules)


def _shared_rules(name: str) -> bytes:
    return bytes((shipped_folder("vocab") / name).read_bytes())


PART = "\0"
"""Separator between the parts of an alias path. No part contains this character."""

_GAP_OF_PATH = f"{PART}{GAP}{PART}"
# lower-case letters, digits and single spaces, as in 90 % of aliases: parsed in a tenth of the time
_is_plain = re.compile(rf"[a-z0-9]+(?: [a-z0-9]+){{0,{MAX_WORDS - 1}}}").fullmatch


def tokenize_alias(alias: str) -> tuple[str, ...]:
    """Splits an alias into case-folded words and the joins between the words, such as ``("t", " ", "shirt")``.

    Raises:
        ValueError: If the alias is empty, if it does not begin and end with a word character, or if it contains control
            characters.
    """
    return tuple(alias_path(alias).split(PART))


@lru_cache(maxsize=1 << 15)
def alias_path(alias: str) -> str:
    """Returns the words and joins of an alias as one text, separated by PART. Raises the same errors as
    :func:`tokenize_alias`.
    """
    if _is_plain(alias):
        return alias.replace(" ", _GAP_OF_PATH)
    text = unicodedata.normalize("NFC", plain_letters(alias)).strip()
    parts = word_parts(text)
    if not text:
        raise ValueError("is empty")
    if parts[0] or parts[-1] or len(parts) < 3:
        raise ValueError("must begin and end with a letter or digit")
    if len(parts) // 2 > MAX_WORDS:
        raise ValueError(f"has {len(parts) // 2:,} words; at most {MAX_WORDS}")
    if is_unspaced_mark(text):
        raise ValueError("begins with a combining mark, so it cannot match")
    parts[1::2] = map(fold, parts[1::2])
    parts[2:-1:2] = map(_join_in_alias, parts[2:-1:2])
    return PART.join(parts[1:-1])


@lru_cache(maxsize=1 << 10)
def _join_in_alias(between: str) -> str:
    """Returns the join between two neighboring words of an alias.

    Raises:
        ValueError: If the text between the words contains an invisible character.
    """
    # a vocabulary may write "t - shirt" or "hot--dog": any mixture of spaces and hyphens means the same join
    join = GAP if between and all(c.isspace() or c in HYPHENS for c in between) else join_of(between)
    if not join.isprintable():
        raise ValueError("contains an invisible character")
    return join


def _conflicts(
    table: Mapping[str, Sequence[str]], ignore: Sequence[str], special: Mapping[str, Sequence[str]]
) -> list[str]:
    faults: list[str] = []
    owners: dict[str, tuple[str, str]] = {}  # path of an alias -> its first label, and the alias
    shared: dict[str, dict[str, str]] = {}  # aliases with several labels: label -> alias
    for label, aliases in table.items():
        if not label.strip():
            faults.append("a label is empty")
        if not aliases:
            faults.append(f"label '{label}' has no alias (the label itself counts only if it is listed)")
        for alias in aliases:
            try:
                path = alias_path(alias)
            except ValueError as error:
                faults.append(f"label '{label}': alias {short_repr(alias)} {error}")
                continue
            owner, first = owners.setdefault(path, (label, alias))
            if owner != label:
                shared.setdefault(path, {owner: first}).setdefault(label, alias)
    for path in owners if shared else ():
        if path in shared:
            where = " and ".join(f"'{label}'" for label in shared[path])
            faults.append(f"alias '{owners[path][1]}' belongs to {where}")
    for phrase in ignore:
        try:
            path = alias_path(phrase)
        except ValueError as error:
            faults.append(f"ignore phrase {short_repr(phrase)} {error}")
            continue
        if path in owners:
            label, first = owners[path]
            for owner, alias in shared.get(path, {label: first}).items():
                faults.append(f"alias '{alias}' of '{owner}' is also the ignore phrase '{phrase}'")
    named = {alias for aliases in table.values() for alias in aliases}
    for key, listed in special.items():
        faults += [f"'{key}' lists '{alias}', which is not an alias" for alias in listed if alias not in named]
    return faults


def _parse(data: bytes, name: str, read: Callable[[str], bytes]) -> Vocabulary:
    """Parses a vocabulary file and the files that it includes. The function ``read`` returns the content of an included
    file.
    """
    document = _load(data, name)
    if (listed := _words_only(document, data)) is not None:
        if all(label.isdecimal() or file_name_of(label) != label for label in map(str, listed)):
            raise InputError("a ground truth ({image: [labels]}), not a vocabulary: use --truth FILE", path=name)
        from ..base.installed import runnable  # importlib.metadata takes 20 ms

        document = {"labels": listed}
        warnings.warn(
            f"{name}: {len(listed)} labels without the keys of a vocabulary; each matches only as written; to print "
            f"their plurals, which you can add: {runnable(f'scapo-eval vocab expand {shlex.quote(name)}')}",
            InputWarning,
            stacklevel=4,
        )
    return _of_document(document, name, read)


def _built(document: Any, name: str) -> Vocabulary:
    """Builds a vocabulary from the parsed content of a file that includes no other file."""
    listed = _words_only(document)
    return _of_document(document if listed is None else {"labels": listed}, name, partial(_refuse_including, name))


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)) else value


def _refuse_including(name: str, include: str) -> bytes:
    raise InputError(f"cannot include '{include}' here", path=name)


def _of_document(document: Any, name: str, read: Callable[[str], bytes]) -> Vocabulary:
    if not isinstance(document, dict) or not isinstance(document.get("labels"), dict):
        raise InputError(
            "not a valid vocabulary: expected the keys 'name', 'version', 'labels' and 'ignore', a list of words, or "
            "{label: [aliases]}; write one word per line, or all words in one line with commas",
            path=name,
        )
    if not document["labels"]:
        raise InputError("not a valid vocabulary: 'labels' is empty", path=name)
    _check_keys(document, _KEYS_OF_FILE, "", name)
    table: dict[str, Any] = {}
    info: dict[str, LabelInfo] = {}
    try:
        for label, entry in document["labels"].items():
            if not isinstance(label, str):
                raise InputError(f"label {short_repr(label)} is not text; put it in quotes")
            fields = entry if isinstance(entry, dict) else {"aliases": entry}
            _check_keys(fields, _KEYS_OF_LABEL, f"label '{label}': ", name)
            table[label] = texts(label, fields.get("aliases") or [])
            coco = fields.get("coco") or ()
            coco = (coco,) if isinstance(coco, str) else tuple(texts(f"{label}: coco", coco))
            info[label] = LabelInfo(
                definition=" ".join(text_of(f"{label}: definition", fields.get("definition")).split()),
                group=text_of(f"{label}: group", fields.get("group")),
                coco=coco,
            )
        own_rules, special, senses = _rules_of(document, name)
        shared: list[IgnoreRule] = []
        include = document.get("include") or []
        aliases = {alias for listed in table.values() for alias in listed}
        for other in texts("include", [include] if isinstance(include, str) else include):
            rules, more, further = _rules_of(load_yaml(read(other), other), other)
            shared += rules
            known_senses = (replace(sense, words=tuple(filter(aliases.__contains__, sense.words))) for sense in further)
            senses += [sense for sense in known_senses if sense.words]
            for key, words in more.items():
                known = table if key == "kin_of" else aliases
                special[key] += [word for word in words if word in known and word not in special[key]]
        by_words = _labels_of_words({alias: label for label, listed in table.items() for alias in listed})
        named = list(_named_by([*own_rules, *shared], by_words))
        ignore = dict.fromkeys(phrase for rule in own_rules if not rule.names for phrase in rule.phrases)
        compounds = {phrase: label for phrase, label in named if label is not None and phrase not in ignore}
        others = [phrase for rule in shared if not rule.names for phrase in rule.phrases]
        others += [phrase for phrase, label in named if label is None]
        ignore |= dict.fromkeys(phrase for phrase in _effective(others, by_words) if phrase not in compounds)
        return Vocabulary.from_mapping(
            table,
            ignore=ignore,
            compounds=compounds,
            name=text_of("name", document.get("name")) or Path(name).stem,
            heads=special["heads"],
            kin=special["kin"],
            kin_of=special["kin_of"],
            senses=senses,
            rules=[*own_rules, *shared],
            info=info,
            reviewed=_reviewed(document.get("reviewed") or {}),
            version=text_of("version", document.get("version")),
            source=" ".join(text_of("source", document.get("source")).split()),
        )
    except InputErrors as errors:
        raise InputErrors([InputError(fault.reason, path=name) for fault in errors.errors], errors.total) from None
    except InputError as error:
        raise InputError(error.reason, path=error.path or name, line=error.line) from None


_KEYS_OF_FILE = (
    "name", "version", "source", "labels", "ignore", "include", "lists", "heads", "kin", "kin_of", "senses", "reviewed",
)  # fmt: skip
_KEYS_OF_LABEL = ("aliases", "definition", "group", "coco")


def _check_keys(fields: Mapping[str, Any], known: Sequence[str], place: str, name: str) -> None:
    """Refuses misspelled keys. Other unknown keys, such as notes, are ignored."""
    for key, meant in misspelled(fields, known):
        raise InputError(f"{place}unknown key {short_repr(key)}; did you mean '{meant}'?", path=name)


_KEYS = frozenset({"name", "version", "source", "labels", "ignore", "include", "lists", "heads", "kin", "senses"})


def is_word_list(data: bytes, name: str) -> bool:
    """Returns True if the content of a file is a word list, with one word per line or list element.

    Raises:
        InputError: If the content cannot be parsed.
    """
    return _words_only(_load(data, name), data) is not None


def _load(data: bytes, name: str) -> Any:
    """Returns the document in a vocabulary file. In a word list, comments between the words are accepted, although YAML
    does not allow them.
    """
    try:
        return load_yaml(data, name)
    except InputError:
        words = _without_comments(data.decode("utf-8", "replace"))
        if len(words) == len(data.decode("utf-8", "replace")) or any(mark in words for mark in ":{[\ufffd"):
            raise
        return words


def _without_comments(text: str) -> str:
    return re.sub(r"(?m)(?:^|\s)#.*$", "", text)


def _words_only(document: Any, data: bytes = b"") -> dict[str, list[str]] | None:
    """Returns the mapping from labels to aliases for a file that contains nothing but a word list or such a mapping.

    A word list contains one word per line or list element, or all words in one line, separated by commas. Returns None
    for any other file.
    """
    if isinstance(document, dict) and isinstance(document.get("labels"), list) and len(document) == 1:
        document = document["labels"]
    if isinstance(document, str):
        lines = [line.strip() for line in _without_comments(data.decode("utf-8-sig")).splitlines() if line.strip()]
        document = [word for word in map(str.strip, lines[0].split(",")) if word] if len(lines) == 1 else lines
        document = (
            document[1:]
            if document and document[0].lower() in ("label", "labels", "word", "words", "name")
            else document
        )
        if any(len(word.split()) > _MAX_WORDS_OF_A_LABEL or "," in word for word in document):
            return None
    if isinstance(document, list) and document and all(isinstance(word, str) and word for word in document):
        return {word: [word] for word in document}
    if isinstance(document, dict) and document and not document.keys() & _KEYS:
        table = {str(label): [value] if isinstance(value, str) else value for label, value in document.items()}
        if all(isinstance(value, list) and all(isinstance(v, str) for v in value) for value in table.values()):
            return {label: [*dict.fromkeys([label, *aliases])] for label, aliases in table.items()}
    return None


_MAX_WORDS_OF_A_LABEL = 5


def _reviewed(reviewed: object) -> dict[str, list[str]]:
    if not isinstance(reviewed, dict):
        raise InputError(f"'reviewed': expected kinds of findings with lists of aliases, found {short_repr(reviewed)}")
    return {str(kind): texts(str(kind), listed) for kind, listed in reviewed.items()}


def _rules_of(document: Any, name: str) -> tuple[list[IgnoreRule], dict[str, list[str]], list[Sense]]:
    """Returns the ignore rules, the conditional aliases and the senses of one file."""
    if not isinstance(document, dict):
        raise InputError(
            "not a valid rules file: expected keys 'lists', 'ignore', 'heads', 'kin', 'kin_of', 'senses'",
            path=name,
        )
    try:
        lists = parse_lists(document.get("lists") or {})
        special = {key: texts(key, document.get(key) or []) for key in ("heads", "kin", "kin_of")}
        senses = document.get("senses") or []
        if not isinstance(senses, list):
            raise InputError(f"'senses': expected a list, found {short_repr(senses)}")
        return list(parse_rules(document.get("ignore") or [], lists)), special, [*map(_sense, senses)]
    except InputError as error:
        raise InputError(error.reason, path=name) from None


def _sense(entry: object) -> Sense:
    if not isinstance(entry, dict) or not {"words", "near"} <= set(entry) <= {"words", "near", "unless"}:
        raise InputError(f"'senses': expected lists 'words', 'near' and perhaps 'unless', found {short_repr(entry)}")
    words, near, unless = (tuple(texts(f"senses: {key}", entry.get(key) or [])) for key in ("words", "near", "unless"))
    if not words or not near:
        raise InputError("'senses': 'words' and 'near' must not be empty")
    return Sense(words, near, unless)


def _effective(phrases: Iterable[str], labels: Mapping[str, str]) -> Iterator[str]:
    """Yields the shared phrases that contain an alias of the vocabulary but are not aliases themselves.

    Malformed phrases are also yielded, because they are reported later.
    """
    alone: set[str] = set()
    sizes: dict[str, set[int]] = {}  # first word of an alias of several -> numbers of words
    for words in labels:
        first, gap, _ = words.partition(" ")
        if gap:
            sizes.setdefault(first, set()).add(words.count(" ") + 1)
        else:
            alone.add(first)
    for phrase in phrases:
        words = _words_of(phrase)
        if words in labels:
            continue
        inside = words.split(" ")
        if (
            not words
            or not alone.isdisjoint(inside)
            or any(
                " ".join(inside[k : k + n]) in labels
                for k, word in enumerate(inside)
                if word in sizes
                for n in sizes[word]
            )
        ):
            yield phrase


def _labels_of_words(aliases: Mapping[str, str]) -> dict[str, str]:
    """Returns a mapping from the words of each alias to its label. Malformed aliases are omitted here, because they are
    reported later.
    """
    labels = {_words_of(alias): label for alias, label in aliases.items()}
    labels.pop("", None)
    return labels


def _named_by(rules: Iterable[IgnoreRule], labels: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yields the compounds of the rules that have ``names``, each paired with the label that it names, or with None if
    it names no label.

    A compound denotes the label of the longest alias that its last (or first) words form. Compounds that are also
    aliases are omitted.
    """
    for rule in rules:
        for phrase in rule.phrases if rule.names else ():
            rest = _words_of(phrase)
            if rest in labels:
                continue
            while rest and rest not in labels:
                rest = rest.partition(" ")[2] if rule.names == "last" else rest.rpartition(" ")[0]
            yield phrase, labels.get(rest)


def _words_of(alias: str) -> str:
    """Returns the words of an alias, joined by single spaces. Returns an empty text for a malformed alias."""
    if _is_plain(alias):
        return alias
    try:
        return " ".join(tokenize_alias(alias)[::2])
    except ValueError:
        return ""
