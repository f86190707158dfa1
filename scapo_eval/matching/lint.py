"""Checks that find duplicate aliases, missing plurals, look-alikes and ambiguous words in a vocabulary that is
otherwise valid.

The vocabulary file lists accepted findings under ``reviewed``. Therefore, if a check reports no findings, every finding
was either fixed or reviewed by a person. :func:`uses_of_rules` counts the matches of the ignore rules in real captions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..base.errors import MissingExtra
from .matcher import AliasMatcher
from .rules import IgnoreRule
from .visible import as_displayed
from .vocabulary import Vocabulary, tokenize_alias

SIMILAR = 92
"""Minimum rapidfuzz ratio at which aliases of two labels count as look-alikes."""

# English words that name an object in one use and something else in another (a color, a material, a verb...).
AMBIGUOUS = frozenset(
    """
    apple back ball band bank bar bark bat bear bed bill board bolt book bowl box bow bridge brush bus can cap car
    card cat chain change chest chicken china clip coach coat cold court crane cross crown cup date deck dish dog
    drill drink duck face fair fan fish fly foot fork frame game glass glasses hand hat head horn horse iron jam jet
    key kid kite lamb leaves letter light line match mint model mouse mug nail net note orange organ pan park pen
    pipe pitcher plane plant plate play pool pot pound present press print ring rock roll row ruler saw scale seal
    shade ship shoot sink ski skis slide spring stand star step stick store swing table tablet tank tap tie tire
    toast top track train trip trunk turkey vessel watch wave wood
    """.split()
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about a vocabulary, to be reviewed by the vocabulary's author.

    Attributes:
        kind: Kind of the finding: ``duplicate``, ``unreachable``, ``plural``, ``similar`` or ``ambiguous``.
        subject: The alias (or ``alias / alias``) by which the finding is listed under ``reviewed``.
        text: A sentence that describes the finding.
    """

    kind: str
    subject: str
    text: str


def check(vocabulary: Vocabulary) -> list[Finding]:
    """Returns all findings about a vocabulary except those that the vocabulary lists as reviewed.

    Args:
        vocabulary: Vocabulary to check.

    Raises:
        MissingExtra: If inflect, which forms English plurals, is not installed.
    """
    findings = [*_duplicates(vocabulary), *_unreachable(vocabulary), *_plurals(vocabulary)]
    findings += [*_similar(vocabulary), *_ambiguous(vocabulary)]
    return [finding for finding in findings if finding.subject not in vocabulary.reviewed.get(finding.kind, ())]


def _duplicates(vocabulary: Vocabulary) -> Iterator[Finding]:
    """Yields the aliases and ignore phrases that match the same text as an earlier, differently spelled entry."""
    for entries in (vocabulary.aliases, vocabulary.ignore, vocabulary.compounds):
        seen: dict[tuple[str, ...], str] = {}
        for entry in entries:
            first = seen.setdefault(tokenize_alias(entry), entry)
            if first != entry:
                yield Finding("duplicate", entry, f"'{entry}' is matched as '{first}' already")


def _unreachable(vocabulary: Vocabulary) -> Iterator[Finding]:
    """Yields the aliases that the matcher does not find even in a text that consists of the alias alone."""
    matcher = AliasMatcher(vocabulary)
    for alias, label in vocabulary.aliases.items():
        mentions = matcher.find(alias)
        if [(mention.label, mention.surface) for mention in mentions] != [(label, alias.strip())]:
            yield Finding("unreachable", alias, f"'{alias}' of '{label}' does not match its own text")


def inflector() -> Any:
    """Returns the inflect engine, which forms English plurals.

    Raises:
        MissingExtra: If inflect is not installed.
    """
    try:
        import inflect
    except ImportError:
        raise MissingExtra("vocab", "looking at plurals") from None
    return inflect.engine()


def _plurals(vocabulary: Vocabulary) -> Iterator[Finding]:
    """Yields the countable aliases whose plural is missing from the vocabulary."""
    engine = inflector()
    known = {tokenize_alias(alias) for alias in (*vocabulary.aliases, *vocabulary.ignore, *vocabulary.compounds)}
    for alias, label in vocabulary.aliases.items():
        plural = plural_of(engine, alias, vocabulary.aliases)
        if plural and tokenize_alias(plural) not in known:
            yield Finding("plural", alias, f"'{alias}' of '{label}' has no plural '{plural}'")


# Words in -s that are both singular and plural, or that have no plural.
_ONE_FORM = frozenset(
    """
    asbestos asparagus barracks bellows biceps billiards binoculars briefs bris chaos chassis chess christmas
    clothes crossroads cutlery darts debris dungarees forceps gallows gasworks goggles headquarters hummus jeans
    kudos leggings mathematics news overalls pajamas panties pants physics pliers pyjamas scissors series shears
    shorts slacks species specs spectacles stairs sunglasses surroundings suspenders sweatpants swiss tennis tights
    tongs triceps trousers tweezers underpants undies
    """.split()
)
# Singular words in -s that have none of the endings -ss, -us and -is.
_SINGULAR = frozenset(
    """
    alias ananas atlas bias biogas canvas cosmos ethos gas judas lens madras pancreas pathos rhinoceros sassafras
    texas thermos
    """.split()
)
# Plurals in -us and -is, whose singular ends in a vowel.
_PLURAL = frozenset(
    """
    alibis bayous beaus bikinis broccolis bureaus caribous chateaus corgis daiquiris emus gnus graffitis gurus
    haikus khakis kiwis kudus luaus macaronis martinis menus milieus okapis origamis paninis paparazzis plateaus
    rabbis raviolis safaris salamis shih-tzus skis spaghettis sushis tableaus tatamis taxis tiramisus tsunamis tutus
    wasabis waterskis yetis zebus zucchinis
    """.split()
)


def singular_of(engine: Any, word: str) -> str:
    """Returns the singular of a plural noun, and any other word unchanged.

    inflect removes the final letter of many singular words, such as "bus", "canvas" and "lens". It is therefore not
    applied to them.
    """
    in_s = word.endswith(("ss", "us", "is")) and word not in _PLURAL
    if in_s or word in _SINGULAR or word in _ONE_FORM:
        return word
    base = word.removesuffix("es")
    return base if base in _SINGULAR else engine.singular_noun(word) or word


_IRREGULAR = {"man": "men", "woman": "women", "child": "children", "person": "people", "thief": "thieves"}
_PLURAL_IN_MANS = ("human", "german", "ottoman", "shaman", "talisman", "caiman")


def plural_of(engine: Any, alias: str, others: Container[str] = ()) -> str | None:
    """Returns the plural of a singular alias, or None for plurals and mass nouns.

    Args:
        engine: Engine that :func:`inflector` returns.
        alias: Alias in any form.
        others: Other aliases. An alias is a plural if they contain it without its final "s" ("ferraris").
    """
    if alias.endswith("s") and alias[:-1] in others:
        return None
    *before, last = alias.split()
    if not last.isalpha() or not last.islower() or set(before) & {"of", "by", "in", "and"}:
        return None
    if last.endswith((*_IRREGULAR.values(), "folk", "by", "staff", "personnel")) or last in _ONE_FORM:
        return None
    if singular_of(engine, last) != last:
        return None
    irregular = next((ending for ending in ("woman", *_IRREGULAR) if last.endswith(ending)), None)
    if last.endswith(_PLURAL_IN_MANS):
        plural = f"{last}s"
    else:
        plural = last.removesuffix(irregular) + _IRREGULAR[irregular] if irregular else str(engine.plural_noun(last))
    if last.endswith("s") and plural == f"{last}s":  # inflect: "thermoss"
        plural = f"{last}es"
    return None if plural == last else " ".join([*before, plural])


def _similar(vocabulary: Vocabulary) -> Iterator[Finding]:
    """Yields pairs of similar aliases with different labels, which indicate a typing error or two labels for one
    object.
    """
    from rapidfuzz import fuzz, process

    aliases = list(vocabulary.aliases)
    scores = process.cdist(aliases, aliases, scorer=fuzz.token_sort_ratio, score_cutoff=SIMILAR)
    for i, j in zip(*scores.nonzero(), strict=True):
        a, b = aliases[i], aliases[j]
        if i < j and vocabulary.aliases[a] != vocabulary.aliases[b]:
            owners = f"'{vocabulary.aliases[a]}' and '{vocabulary.aliases[b]}'"
            yield Finding("similar", f"{a} / {b}", f"'{a}' and '{b}' look alike but belong to {owners}")


def _ambiguous(vocabulary: Vocabulary) -> Iterator[Finding]:
    """Yields the ambiguous aliases that are not part of any ignore phrase, compound or head."""
    guards = (*vocabulary.ignore, *vocabulary.compounds, *vocabulary.heads)
    guarded = {part for phrase in guards for part in tokenize_alias(phrase)}
    for alias, label in vocabulary.aliases.items():
        if alias in AMBIGUOUS and alias not in guarded:
            text = f"'{alias}' of '{label}' has other meanings and no ignore phrase excludes them"
            yield Finding("ambiguous", alias, text)


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """The matches of one template of an ignore rule in a set of captions.

    Attributes:
        rule: Ignore rule that contains the template.
        template: Template as it is written in the file.
        matched: Mapping from matched texts, in lower case, to the number of matches of each text. The mapping is empty
            if the template matches no text.
    """

    rule: IgnoreRule
    template: str
    matched: Counter[str]


def uses_of_rules(vocabulary: Vocabulary, captions: Iterable[str]) -> list[TemplateUse]:
    """Returns the matches of each template of the ignore rules, in file order.

    If several templates generate the same phrase, its matches count for the first of these templates. Templates from
    included files are omitted if the vocabulary uses none of their phrases.

    Args:
        vocabulary: Vocabulary with its own rules and the rules from included files.
        captions: Real captions.
    """
    effective = {*vocabulary.ignore, *vocabulary.compounds}
    uses = [
        TemplateUse(rule, template, Counter())
        for rule in vocabulary.rules
        for template, phrases in rule.templates.items()
        if not effective.isdisjoint(phrases)
    ]
    owner: dict[tuple[str, ...], TemplateUse] = {}
    for use in uses:
        for phrase in effective.intersection(use.rule.templates[use.template]):
            owner.setdefault(tokenize_alias(phrase), use)
    matcher = AliasMatcher(vocabulary)
    for caption in captions:
        named = ((mention.start, mention.end) for mention in matcher.find(caption))
        for start, end in (*matcher.find_ignored(caption), *named):
            surface = " ".join(as_displayed(caption[start:end]).lower().split())
            template_use = owner.get(tokenize_alias(surface))  # None: an alias, or a phrase given without a rule
            if template_use:
                template_use.matched[surface] += 1
    return uses


@dataclass(frozen=True, slots=True)
class VocabularyDifference:
    """The differences between two vocabularies. Every list is sorted alphabetically."""

    labels_added: list[str]
    labels_removed: list[str]
    aliases_added: list[tuple[str, str]]
    aliases_removed: list[tuple[str, str]]
    aliases_moved: list[tuple[str, str, str]]
    ignore_added: list[str]
    ignore_removed: list[str]
    heads_added: list[str]
    heads_removed: list[str]

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


def difference(old: Vocabulary, new: Vocabulary) -> VocabularyDifference:
    """Compares two vocabularies, and returns the labels, aliases and phrases that were added, removed or moved.

    Aliases are given as ``(alias, label)`` pairs, and moved aliases as ``(alias, old label, new label)`` triples.
    """
    before, after = old.aliases, new.aliases
    return VocabularyDifference(
        labels_added=sorted(set(new.labels) - set(old.labels)),
        labels_removed=sorted(set(old.labels) - set(new.labels)),
        aliases_added=sorted((a, after[a]) for a in after.keys() - before.keys()),
        aliases_removed=sorted((a, before[a]) for a in before.keys() - after.keys()),
        aliases_moved=sorted((a, before[a], after[a]) for a in before.keys() & after.keys() if before[a] != after[a]),
        ignore_added=sorted(_guards(new) - _guards(old)),
        ignore_removed=sorted(_guards(old) - _guards(new)),
        heads_added=sorted(set(new.heads) - set(old.heads)),
        heads_removed=sorted(set(old.heads) - set(new.heads)),
    )


def _guards(vocabulary: Vocabulary) -> set[str]:
    """Returns the ignore phrases of a vocabulary, and its compounds in the form ``phrase -> label``."""
    return {*vocabulary.ignore, *(f"{phrase} -> {label}" for phrase, label in vocabulary.compounds.items())}


_SPELLINGS = (("gray", "grey"), ("color", "colour"), ("donut", "doughnut"), ("tire", "tyre"), ("plow", "plough"))


def variants(vocabulary: Vocabulary) -> dict[str, list[str]]:
    """Returns the plural and spelling variants that a vocabulary lacks, as a mapping from labels to variants.

    Raises:
        MissingExtra: If inflect is not installed.
    """
    engine = inflector()
    taken = {tokenize_alias(entry) for entry in (*vocabulary.aliases, *vocabulary.ignore, *vocabulary.compounds)}
    missing: dict[str, list[str]] = {}
    for alias, label in vocabulary.aliases.items():
        plural = plural_of(engine, alias, vocabulary.aliases)
        spelled = [alias.replace(a, b) for pair in _SPELLINGS for a, b in (pair, pair[::-1]) if a in alias]
        for variant in ([plural] if plural else []) + spelled:
            if tokenize_alias(variant) not in taken:
                taken.add(tokenize_alias(variant))
                missing.setdefault(label, []).append(variant)
    return missing
