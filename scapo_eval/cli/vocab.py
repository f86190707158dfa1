"""``scapo-eval vocab``: checks, describes, compares, mines, drafts and expands vocabularies."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import click
import msgspec

from ..base.errors import FaultList, InputError, InputWarning, short_repr
from ..base.text import printable
from ..files.containers import open_rows
from ..files.files import atomic_write
from ..files.json_text import dump_json, iter_records
from ..matching.lint import check as findings
from ..matching.lint import difference, uses_of_rules, variants
from ..matching.mining import CandidatePhrase, cluster, mine
from ..matching.vocabulary import Vocabulary, shipped_vocabularies, tokenize_alias
from ..readers.captions import caption_blocks, parsed
from ..readers.formats import keys_are_named, keys_of_captions
from .echo import echo
from .files import OUTPUT, PLAIN, source_of
from .groups import Group
from .options import key_options
from .screen import Screen


@click.group("vocab", cls=Group)
def command() -> None:
    """Check, describe, compare, mine, draft and expand vocabularies (format: docs/vocabulary.md)."""


@command.command()
@click.argument("vocabulary", type=PLAIN, nargs=-1)
@click.option(
    "--captions",
    type=PLAIN,
    multiple=True,
    metavar="FILE",
    help="Show the matches of each ignore rule in these captions (may be repeated).",
)
@key_options
@click.pass_context
def check(ctx: click.Context, vocabulary: tuple[str, ...], captions: tuple[str, ...]) -> int:
    """Lists potential problems in vocabularies (default: all shipped ones). Exits with code 2 if there are any."""
    total = 0
    texts = [text for path in captions for text in _texts(path)]
    for name in vocabulary or tuple(shipped_vocabularies()):
        loaded = Vocabulary.load(name)
        if captions:
            _show_rules(name, loaded, texts)
        problems = findings(loaded)
        for finding in problems:
            echo(f"{name}: {finding.kind}: {finding.text}")
        reviewed = sum(map(len, loaded.reviewed.values()))
        sizes = f"{len(loaded.labels)} labels, {len(loaded.aliases)} aliases, {len(loaded.ignore)} ignore phrases"
        echo(f"{name}: {len(problems) or 'no'} findings ({reviewed} reviewed by its author); {sizes}", err=True)
        if problems:
            accepted = f"reviewed: {{{problems[0].kind}: [{_quoted(problems[0].subject)}]}}"
            echo(
                f"{name}: change the aliases and ignore phrases, or accept a finding in the file: {accepted}", err=True
            )
        total += len(problems)
    return 2 if total else 0


def _show_rules(name: str, vocabulary: Vocabulary, texts: list[str]) -> None:
    """Prints each rule with its templates and their matches."""
    shown = None
    uses = uses_of_rules(vocabulary, texts)
    for use in uses:
        if use.rule is not shown:
            shown = use.rule
            echo(f"{name}: {shown.kind or 'no class'}: {shown.reason or 'no reason given'}")
        matched = ", ".join(f"{surface} {n}" for surface, n in use.matched.most_common(5))
        rest = f", {len(use.matched) - 5} more" if len(use.matched) > 5 else ""
        echo(f"{use.matched.total():7}  {use.template}  <- {matched or 'matched nothing'}{rest}")
    silent = sum(not use.matched for use in uses)
    echo(f"{name}: {silent} of {len(uses)} templates matched nothing in {len(texts):,} captions", err=True)


@command.command()
@click.argument("vocabulary", type=PLAIN)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def stats(vocabulary: str, as_json: bool) -> None:
    """Lists the numbers of labels, aliases and groups, and the fingerprint."""
    loaded = Vocabulary.load(vocabulary)
    per_label = Counter(loaded.aliases.values())
    groups = Counter(info.group for info in loaded.info.values() if info.group)
    summary = {
        "name": loaded.name,
        "version": loaded.version,
        "source": loaded.source,
        "fingerprint": loaded.fingerprint,
        "labels": len(loaded.labels),
        "aliases": len(loaded.aliases),
        "aliases_per_label": len(loaded.aliases) / len(loaded.labels),
        "ignore": len(loaded.ignore),
        "rules": len(loaded.rules),
        "heads": len(loaded.heads),
        "with_definition": sum(bool(info.definition) for info in loaded.info.values()),
        "coco_categories": len({coco for info in loaded.info.values() for coco in info.coco}),
        "groups": dict(groups.most_common()),
    }
    if as_json:
        sys.stdout.write(dump_json({**summary, "aliases_by_label": dict(per_label)}).decode() + "\n")
        return
    for key, value in summary.items():
        shown = ", ".join(f"{k} {n}" for k, n in value.items()) if isinstance(value, dict) else value
        echo(
            f"{key.replace('_', ' ')}\t{shown:.2f}" if isinstance(shown, float) else f"{key.replace('_', ' ')}\t{shown}"
        )


@command.command()
@click.argument("old", type=PLAIN)
@click.argument("new", type=PLAIN)
def diff(old: str, new: str) -> None:
    """Prints the changes from OLD to NEW."""
    changed = difference(Vocabulary.load(old), Vocabulary.load(new))
    for label in changed.labels_removed:
        echo(f"- label {label}")
    for label in changed.labels_added:
        echo(f"+ label {label}")
    for alias, label in changed.aliases_removed:
        echo(f"- {label}: {alias}")
    for alias, label in changed.aliases_added:
        echo(f"+ {label}: {alias}")
    for alias, before, after in changed.aliases_moved:
        echo(f"~ {alias}: {before} -> {after}")
    for phrase in changed.ignore_removed:
        echo(f"- ignore {phrase}")
    for phrase in changed.ignore_added:
        echo(f"+ ignore {phrase}")
    for alias in changed.heads_removed:
        echo(f"- head {alias}")
    for alias in changed.heads_added:
        echo(f"+ head {alias}")
    if not changed:
        echo("no difference", err=True)


@command.command("mine")
@click.argument("rollouts", type=PLAIN, nargs=-1, required=True)
@click.option(
    "--vocabulary",
    type=PLAIN,
    default="coco80",
    show_default=True,
    metavar="NAME|FILE",
    help="Vocabulary of the labels that are already covered.",
)
@click.option("--min-captions", type=click.IntRange(1), default=3, show_default=True, help="Omit rarer phrases.")
@click.option(
    "--spacy", "spacy_model", metavar="MODEL", help="Use the noun chunks of this spaCy pipeline instead of the rules."
)
@key_options
@click.option("-o", "--output", metavar="FILE", default="-", type=OUTPUT, help="JSON Lines that `vocab build` reads.")
def mine_command(
    rollouts: tuple[str, ...], vocabulary: str, min_captions: int, spacy_model: str | None, output: str
) -> None:
    """Finds noun phrases in ROLLOUTS (captions or responses) that the vocabulary does not cover, with examples."""
    texts = (text for path in rollouts for text in _texts(path))
    candidates = mine(texts, Vocabulary.load(vocabulary), min_captions=min_captions, spacy_model=spacy_model)
    with atomic_write(output) as stream:
        for candidate in candidates:
            forms = dict(sorted(candidate.forms.items()))
            row = {
                "phrase": candidate.phrase,
                "captions": candidate.captions,
                "forms": forms,
                "examples": candidate.examples,
            }
            stream.write(dump_json(row) + b"\n")
    echo(f"{len(candidates)} phrases", err=True)


def _texts(path: str) -> Iterator[str]:
    """Yields the texts of a file of captions in any layout. If the first record names no image, the records only need
    the key 'caption' or 'response'.
    """
    source = source_of(path)
    rows = open_rows(source)
    if _text_of(rows.first) is None or keys_of_captions(rows.first) is not None or keys_are_named():
        faults = FaultList()
        for captions in parsed(caption_blocks(source, rollouts=True, on_error=faults.add, warn=Screen().warn), faults):
            yield from captions.captions
        faults.raise_if_any()
        return
    for line, record in rows:
        text = _text_of(record)
        if text is None:
            keys = ", ".join(map(str, record))
            raise InputError(f"missing key 'caption' or 'response' (found: {keys})", path=path, line=line)
        yield text


def _text_of(record: Mapping[str, Any]) -> str | None:
    text = record.get("caption", record.get("response"))
    return text if isinstance(text, str) else None


_Phrase = Annotated[str, msgspec.Meta(max_length=1000)]


class _Candidate(msgspec.Struct):
    """Line in the output of ``vocab mine``."""

    phrase: _Phrase
    captions: int
    forms: dict[_Phrase, int]
    examples: list[str] = []

    def candidate(self) -> CandidatePhrase:
        """Converts the line to a candidate. Raises ValueError if a phrase cannot be an alias."""
        for phrase in (self.phrase, *self.forms):
            try:
                tokenize_alias(phrase)
            except ValueError as error:
                raise ValueError(f"phrase {short_repr(phrase)} {error}") from None
        return CandidatePhrase(self.phrase, self.captions, Counter(self.forms), self.examples)


@command.command()
@click.argument("candidates", type=PLAIN)
@click.option("--name", default="draft", show_default=True, help="Name of the new vocabulary.")
@click.option("--min-captions", type=click.IntRange(1), default=5, show_default=True, help="Omit rarer labels.")
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    required=True,
    metavar="FILE.yaml",
    help="Draft vocabulary for review by a person.",
)
def build(candidates: str, name: str, min_captions: int, output: str) -> None:
    """Clusters mined CANDIDATES into a draft vocabulary with example captions for each label."""
    read = []
    for line, record in iter_records(candidates):
        try:
            read.append(msgspec.convert(record, _Candidate).candidate())
        except ValueError as error:
            reason = f"not a valid candidate of `scapo-eval vocab mine`: {error}"
            raise InputError(reason, path=candidates, line=line) from None
    clusters = cluster(read)
    drafts = [draft for draft in clusters if draft.captions >= min_captions]
    if not drafts:
        most = max((draft.captions for draft in clusters), default=0)
        remedy = f"; the most frequent one is in {most}: --min-captions {most}" if most else ""
        raise InputError(f"no label is in at least {min_captions} captions{remedy}", path=candidates)
    lines = [
        "# A draft: delete what is not a visible object, merge what is one thing, write definitions,",
        "# then run: scapo-eval vocab check FILE",
        f"name: {_quoted(name)}",
        'version: "0"',
        f"source: {_quoted(f'mined from {candidates}')}",
        "labels:",
    ]
    for draft in drafts:
        lines.append(f"  {_quoted(draft.label)}:  # {draft.captions} captions")
        lines += [f"    #   {' '.join(printable(example).split())}" for example in draft.examples]
        lines.append(f"    aliases: [{', '.join(map(_quoted, draft.aliases))}]")
        lines.append('    definition: ""')
    lines.append("ignore: []")
    data = ("\n".join(lines) + "\n").encode("utf-8", "replace")
    Vocabulary.parse(data, candidates)  # the written file must be readable
    with atomic_write(output) as stream:
        stream.write(data)
    echo(f"{output}: {len(drafts)} draft labels", err=True)


@command.command()
@click.argument("vocabulary", type=PLAIN)
def expand(vocabulary: str) -> None:
    """Lists plural forms and spelling variants that VOCABULARY lacks, as YAML for review."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # which suggests this command
        found = Vocabulary.load(vocabulary)
    for label, forms in variants(found).items():
        echo(f"{_quoted(label)}: [{', '.join(map(_quoted, forms))}]")


def _quoted(text: str) -> str:
    """Returns a YAML scalar that is always parsed as a string. A JSON string without line-end characters is also valid
    YAML.
    """
    if text.isalpha() and text.casefold() not in {"yes", "no", "on", "off", "true", "false", "null", "y", "n"}:
        return text
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in dump_json(text).decode())
