"""Agreement of metrics with people on public sets of human judgments (docs/lab/validity.md).

    PYTHONPATH=... python benchmarks/people.py -o docs/lab/validity.md [--data ../shared/data/human]

Requires the extra ``ngrams``. The tables contain 95 % bootstrap intervals by image, and no caption is printed. Choices
were made on the half 'fit' of the images in a set, and values are reported on the half 'report'
(``scapo_eval/validation/halves.py``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from scapo_eval import validate
from scapo_eval.base.errors import ScapoError
from scapo_eval.benchmarks.people import CARDS, SHORT, SMOOTHING, UNNAMED, joint_score, word_terms
from scapo_eval.benchmarks.scoring import ScoringOptions
from scapo_eval.files.files import atomic_write
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.matching.words import content_words, tokens
from scapo_eval.truths.oracle import PresenceOracle, Truth
from scapo_eval.truths.references import References, ReferenceWords
from scapo_eval.validation.agreement import Pairing, ResampledImages, interval_of
from scapo_eval.validation.judgements import Judgements
from scapo_eval.validation.validate import Agreement, Validation
from scapo_eval.validation.values import Measures, Texts

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "human"
SYSTEMS = ("Human", "Up-Down", "Unified-VLP", "VinVL-base", "VinVL-large")
NGRAMS = ("cider_d", "rouge_l", "bleu_4")
RATINGS = ("precision", "recall", "total")

INTRODUCTION = """# Agreement with people: measurements

This page compares metrics of hallucination and coverage with human judgments of captions. [Validity](../validity.md)
summarizes the results, and [closed vocabulary](closed_vocabulary.md) describes the limits of a closed vocabulary.
"""

METHOD = """## Method

Before anything was fitted, the images of each set were split into two halves by a hash of the image id
(`scapo_eval/validation/halves.py`). The `fit` half was used to choose definitions and to fit exponents. The figures on
this page are those of the `report` half unless stated otherwise. The statistics are Pearson's r and, for sets for which
other publications report it, Kendall's tau-c. Intervals are computed by resampling images (1,000 resamples).
Differences between two metrics are paired: both metrics are computed on the same captions and resamples. On this page,
greater values are always better, because `hal_rate` stands for one minus the rate. A caption without claims is treated
as free of errors.

The sets are THumB 1.0 (Kasai et al., [arXiv 2111.08940](https://arxiv.org/abs/2111.08940)), the COCO part of Composite
(Aditya et al. 2015), FAITHSCORE (Jing et al., [arXiv 2311.01477](https://arxiv.org/abs/2311.01477)), HaELM (Wang et
al., [arXiv 2308.15126](https://arxiv.org/abs/2308.15126)) and IIW-400 (Garg et al., [arXiv
2405.02793](https://arxiv.org/abs/2405.02793)). The COCO ground truth is the same as CHAIR's: COCO's instances and the
objects named in any of the five reference captions.

Two definitions were changed after results on the `report` half of THumB had been seen. Both changes were chosen using
only the `fit` halves:

- In the score without references, 1 is added to the numerator and the denominator of the cover term. This change was
  chosen on the `fit` halves of THumB and Composite. The result for this score is therefore a blind test on Composite,
  but not on THumB.
- `cover_words` and the term *overlap* were redefined (version 2 of the reference-based scores). The new definitions
  were computed once on the `report` half, and no definition was changed afterwards.
"""

THUMB = """## Rated COCO captions (THumB)

Trained raters scored {n} captions, which four systems generated for {images} images, on scales from 1 to 5 for precision and
recall. The total rating also includes fluency and brevity. The ground truth consists of COCO's objects, and the
references are the four other captions of the image. The last column shows how much the correlation r with the total
rating differs from that of CIDEr-D.
"""

PLACES = """## Ranking of systems

The table shows the mean score and the rank of each of the five systems. Human captions (`Human`) have by far the best
ratings. N-gram metrics rank them last or next to last, because people choose words that the references do not contain.
COCO's ground truth is partly derived from these captions, so their `hal_rate` is 0.0 by construction. The rank of the
human captions by `hal_rate`, and by `cap_people` with the ground truth, therefore does not count as a finding. In
contrast, if `cap_people` is computed from references alone, nothing in its definition determines the rank of the human
captions.
"""

COMPOSITE = """## Captions from people and two systems (Composite, COCO part)

In this set, {n} captions were rated from 1 to 5 for relevance; the metrics compare them only with COCO's objects. For the complete Composite data set, which also contains other captions, the published values of tau-c are 37.7 for CIDEr, 40.3 for SPICE, 53.8 for CLIPScore and 64.2 for RefFLEUR.
"""

FACTS = """## True or false facts (FAITHSCORE)

People judged whether facts in answers from vision-language models are true or false. The metric counts a fact about an
object ("There is a dog.") as true if COCO's ground truth contains all labels that the fact claims. Facts that contain
counts are omitted. There are few images, so the table shows the results for both halves, and the intervals are wide.
Most disagreements concern objects that COCO's annotators did not mark.
"""

LONG = """## Long descriptions (HaELM, IIW-400)

HaELM contains {n} descriptions of 57 words on average, which people judged to be accurate or inaccurate; each has five
references of 10 words on average. The table shows the area under the ROC curve (AUC). Short references do not mention
most of the claims in a long description, so none of these metrics detects inaccurate descriptions. IIW-400 compares
human-written descriptions of 100 images with descriptions from PaLI-5B. Among the pairs with different ratings, the
longer description was rated as more comprehensive in {comprehensive} of the pairs, and as containing fewer
hallucinations in {hallucination}. In almost all pairs, the ratings favor the description from one and the same source,
so agreement with these ratings is uninformative.
"""

CHOICES = """## Choices made on the `fit` half

"""

CARD = """## Definition of `cap_people`

The score of a caption is a product of terms in [0, 1], each raised to a power. The score of a system is the mean score
of its captions. The computation uses neither a model nor random numbers.

| Term | Definition | References | References and ground truth | Ground truth |
| --- | --- | ---: | ---: | ---: |
{rows}

Covered words are the content words that the caption shares with at least one reference. Missed words are the other
words of the references, each weighted by the share of references that contain it. Unnamed words are the caption's words
that no reference contains. The definitions and exponents were chosen on the `fit` half with all five systems, under two
conditions: human captions rank first, and longer captions do not score higher. Without these conditions, r on the
half `fit` would be up to 0.02 higher. The rarity of a word is `log(1 + N / (n + 1))`, computed over the images of the
given references. Because the value of a caption depends on these references, the signature contains them. The page on
[people](people.md) describes how this definition was found.

### Longer captions do not score higher

The table shows the mean `cap_people` with references for unchanged and for changed captions of the `report` half:

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("-o", "--output", default="-")
    arguments = parser.parse_args()
    try:
        text = "\n".join(page(arguments.data)) + "\n"
    except (ScapoError, OSError) as error:
        sys.exit(str(error))
    with atomic_write(arguments.output) as stream:
        stream.write(text.encode())


def page(data: Path) -> Iterator[str]:
    """Yields the page block by block."""
    yield from (INTRODUCTION, METHOD)
    yield from thumb(data)
    yield from composite(data)
    yield from facts(data)
    yield from long_descriptions(data)
    yield from choices(data)
    yield from card(data)


def thumb(data: Path) -> Iterator[str]:
    """Yields the agreement with THumB, and the ranks of its systems."""
    files: dict[str, Any] = {"references": data / "thumb_references.jsonl.gz"}
    truth = {"truth": data / "truth_coco.json.gz"}
    own = ("cap_people", "cover_words", "cover_weighted", "named_words", "named_rate", "length")
    of_truth = ("cap_people", "cap_weighted", "cap_score", "hal_rate", "chair_i", "cover_rate", "cover_weighted")
    runs = {
        "n-grams and references": _thumb(data, metrics=[*NGRAMS, *own], **files),
        "references and COCO's truth": _thumb(data, metrics=["cider_d", *of_truth], **files, **truth),
        "COCO's truth alone": _thumb(data, metrics=["cap_people", "cap_score", "hal_rate", "cover_rate"], **truth),
    }
    first = runs["n-grams and references"]
    images = len({item.image for item in first.judgements.items})
    yield THUMB.format(n=len(first.judgements.items), images=images)
    yield _head(["Held against", "Metric", "precision", "recall", "total", "total, tau-c", "total - CIDEr-D's"], 2)
    for name, found in runs.items():
        for metric in dict.fromkeys(each.metric for each in found.agreements):
            if metric == "cider_d" and found is not first:
                continue
            cells = [_shown(_of(found, metric, rating)) for rating in RATINGS]
            gap = [d for d in found.differences if (d.metric, d.rating, d.statistic) == (metric, "total", "pearson")]
            against = (
                _signed(gap[0].difference, gap[0].low, gap[0].high) if gap and gap[0].baseline == "cider_d" else ""
            )
            tau = _of(found, metric, "total", "kendall_c")
            yield _row([name, f"`{metric}`", *cells, _shown(tau, scale=100), against])
    yield ""
    yield PLACES
    metrics = {"total": "people, total", "cap_people": "`cap_people`", "cover_words": "`cover_words`"}
    metrics |= {"cider_d": "CIDEr-D", "rouge_l": "ROUGE-L", "bleu_4": "BLEU-4"}
    second = {"cap_people": "`cap_people`, with truth", "cap_score": "Cap. Score", "hal_rate": "1 - Hal. Rate"}
    yield _head(["System", *metrics.values(), *second.values()], 1)
    both = [({s.system: s.means for s in first.systems}, metrics)]
    both.append(({s.system: s.means for s in runs["references and COCO's truth"].systems}, second))
    for system in SYSTEMS:
        cells = []
        for means, named in both:
            for metric in named:
                order = sorted(SYSTEMS, key=lambda name: -(means[name][metric] or 0))
                cells.append(f"{means[system][metric]:.3f} ({order.index(system) + 1}.)")
        yield _row([system, *cells])
    lead = "; ".join(f"{system} {text}" for system, text in leads(data))
    yield f"\nIf only references are used, the human captions have a higher `cap_people` than any system. The differences in points are: {lead}.\n"


def _thumb(data: Path, **how: Any) -> Validation:
    return validate(data / "thumb.jsonl.gz", half="report", without=["Human"], ratings=RATINGS, **how)


def composite(data: Path) -> Iterator[str]:
    """Yields the agreement with Composite's relevance."""
    metrics = ["cap_people", "cap_score", "hal_rate", "cover_rate", "length"]
    found = validate(
        data / "composite_coco.jsonl.gz", half="report", metrics=metrics, truth=data / "truth_coco.json.gz"
    )
    yield COMPOSITE.format(n=f"{len(found.judgements.items):,}")
    yield _head(["Metric", "r", "tau-c", "pairs of an image ordered alike"], 1)
    for metric in metrics:
        cells = [_shown(_of(found, metric, "rating"))]
        cells.append(_shown(_of(found, metric, "rating", "kendall_c"), scale=100))
        cells.append(_shown(_of(found, metric, "rating", "pairwise"), scale=100))
        yield _row([f"`{metric}`", *cells])
    yield ""


def facts(data: Path) -> Iterator[str]:
    """Yields the agreement with FAITHSCORE's facts."""
    yield FACTS
    yield _head(["Half", "Facts", "Images", "Agreement, percent", "kappa"], 1)
    for half in ("fit", "report", None):
        found = validate(
            data / "faithscore.jsonl.gz", half=half, metrics=["hal_rate"], ratings=["object"],
            truth=data / "truth_coco.json.gz",
        )  # fmt: skip
        accuracy, kappa = (_of(found, "hal_rate", "object", name) for name in ("accuracy", "kappa"))
        yield _row([half or "both", str(kappa.n), str(kappa.n_images), _shown(accuracy, scale=100), _shown(kappa)])
    yield ""


def long_descriptions(data: Path) -> Iterator[str]:
    """Yields the agreement with HaELM and IIW-400."""
    metrics = ["cap_people", "cover_words", "named_words", "named_rate", *NGRAMS, "length"]
    haelm = validate(data / "haelm.jsonl.gz", metrics=metrics)
    iiw = validate(data / "iiw400.jsonl.gz", metrics=["length"], ratings=["Comprehensiveness", "Hallucination"])
    agreed = [_of(iiw, "length", name, "pairwise") for name in ("Comprehensiveness", "Hallucination")]
    shares = [f"{100 * (each.value or 0):.0f} %" for each in agreed]
    yield LONG.format(n=len(haelm.judgements.items), comprehensive=shares[0], hallucination=shares[1])
    yield _head(["HaELM, all images", "AUC"], 1)
    for metric in metrics:
        yield _row([f"`{metric}`", _shown(_of(haelm, metric, "accurate", "auc"))])
    yield ""


def choices(data: Path) -> Iterator[str]:
    """Yields the choices of reading, vocabulary and weighting on the half 'fit'."""
    yield CHOICES.rstrip() + "\n"
    yield (
        "**Reading.** For each of the two readings, the table shows the correlation r between `hal_rate` and human "
        "ratings. The last column shows r for `visual` minus r for `all`. The table covers both halves, because nothing was fitted for this comparison:\n"
    )
    truth = PresenceOracle.load(data / "truth_coco.json.gz")
    yield _head(["Set", "Rating", "`all`", "`visual`", "Difference"], 2)
    for file, name, rating in (
        ("thumb", "thumb", "precision"),
        ("faithscore", "faithscore-answers", "objects"),
        ("faithscore", "faithscore-answers", "true"),
        ("composite_coco", "composite", "rating"),
    ):
        judged = Judgements.load(data / f"{file}.jsonl.gz", name=name)
        judged = judged.without_systems(["Human"]) if name == "thumb" else judged
        yield _row([name, rating, *_readings(judged, truth, rating)])
    yield (
        "\nThe rated captions contain almost no negations, quotations or guesses, so people's judgments do not show "
        "which reading is better. On annotated captions from recent models, `visual` agrees better with the "
        "annotators ([closed vocabulary](closed_vocabulary.md)), but these annotators are language models. The "
        "default therefore remains `all`.\n"
    )
    yield "**Vocabulary and weights.** The table shows r on THumB's machine captions, with the references as ground truth:\n"
    yield _head(
        ["Vocabulary", "named_rate, precision", "cover_rate, recall", "cover_weighted, recall", "cap_weighted, total"],
        1,
    )
    for vocabulary in ("coco80", "dopa160", "open400"):
        found = _fit(data, vocabulary)
        cells = [
            ("named_rate", "precision"),
            ("cover_rate", "recall"),
            ("cover_weighted", "recall"),
            ("cap_weighted", "total"),
        ]
        yield _row([vocabulary, *(_shown(_of(found, *cell)) for cell in cells)])
    found = _fit(data, "open400")
    cells = [("named_words", "precision"), ("cover_words", "recall"), ("cap_people", "total")]
    shown = [_shown(_of(found, *cell)) for cell in cells]
    yield _row(["words, no list", shown[0], "", f"{shown[1]} (`cover_words`)", f"{shown[2]} (`cap_people`)"])
    yield (
        "\nA larger vocabulary agrees better with people's ratings, and content words without any list agree best, because "
        "verbs, attributes and places also matter to people. If there are references but no ground truth, `open400` "
        "is therefore the default vocabulary, and `cap_people` counts words. The column `cap_weighted` was computed "
        "with `--unnamed absent`.\n"
    )


def _fit(data: Path, vocabulary: str) -> Validation:
    metrics = ["named_rate", "cover_rate", "cover_weighted", "cap_weighted", "named_words", "cover_words", "cap_people"]
    return validate(
        data / "thumb.jsonl.gz", half="fit", without=["Human"], ratings=RATINGS, vocabulary=vocabulary, metrics=metrics,
        references=data / "thumb_references.jsonl.gz", unnamed="absent",
    )  # fmt: skip


def _readings(judged: Judgements, oracle: PresenceOracle, rating: str) -> list[str]:
    texts = Texts([item.image for item in judged.items], [item.caption for item in judged.items])
    truth = Truth.of(oracle, Vocabulary.load("coco80"))
    sample = ResampledImages.of(list(texts.images), resamples=1000, seed=12345)
    found = []
    for claims in ("all", "visual"):
        values = Measures(truth, ScoringOptions(claims), {}).values(["hal_rate"], texts)["hal_rate"]
        found.append(Pairing(values, judged.rating(rating), sample).resampled("pearson"))
    gap, bounds = found[1] - found[0], interval_of(found[1] - found[0])
    return [f"{found[0][0]:.3f}", f"{found[1][0]:.3f}", _signed(float(gap[0]), bounds.low, bounds.high)]


TERMS = {
    "overlap": f"covered / (covered + missed + {UNNAMED:g} unnamed + {SMOOTHING:g}), content words by rarity",
    "repetition": "1 / (1 + repeated words / words of a reference)",
    "brevity": f"1 from {SHORT:g} of the references' length on, proportional to the length below",
    "faithful": "1 - absent labels / (claimed labels + 1)",
    "cover": "(covered labels + 1) / (present labels + 1)",
}


def card(data: Path) -> Iterator[str]:
    """Yields the powers of the card, and the effect of length."""
    names = ("references", "references+truth", "truth")
    rows = []
    for term, meaning in TERMS.items():
        powers = [CARDS[name].powers.get(term) for name in names]  # type: ignore[call-overload]
        rows.append(_row([f"*{term}*", meaning, *("" if power is None else f"{power:.2f}" for power in powers)]))
    yield CARD.format(rows="\n".join(rows))
    yield _head(["Captions", "Words", "`cap_people`"], 1)
    for name, score, length in lengths(data):
        yield _row([name, f"{length:.1f}", f"{100 * score:.1f}"])
    yield ""


def lengths(data: Path) -> Iterator[tuple[str, float, float]]:
    """Yields the change of the captions, the mean score, and the mean number of words."""
    references = References.load(data / "thumb_references.jsonl.gz")
    words = ReferenceWords(references)
    items = Judgements.load(data / "thumb.jsonl.gz").half("report").items
    counted: dict[str, int] = {}
    for texts in references.texts.values():
        for word in (word for text in texts for word in tokens(text) if content_words([word])):
            counted[word] = counted.get(word, 0) + 1
    frequent, random = sorted(counted, key=lambda word: (-counted[word], word))[:200], Random(0)
    filler = "while through along between off around together upon"
    changes: dict[str, Callable[[int, str], str]] = {
        "as they are": lambda k, text: text,
        "and the most frequent word": lambda k, text: f"{text} {frequent[0]}",
        "and the 10 most frequent words": lambda k, text: " ".join([text, *frequent[:10]]),
        "and 10 random frequent words": lambda k, text: " ".join([text, *random.sample(frequent, 10)]),
        "and the 200 most frequent words": lambda k, text: " ".join([text, *frequent]),
        "and 8 function words": lambda k, text: f"{text} {filler}",
        "and the caption of another image": lambda k, text: f"{text} {items[(k + 500) % len(items)].caption}",
        "twice": lambda k, text: f"{text} {text}",
        "the first 7 words": lambda k, text: " ".join(text.split()[:7]),
        "the first 3 words": lambda k, text: " ".join(text.split()[:3]),
        "content words only": lambda k, text: " ".join(word for word in tokens(text) if content_words([word])),
        "function words said once only": lambda k, text: " ".join(_once(text)),
        "one of the references": lambda k, text: references.texts[items[k].image][0],
    }
    for name, change in changes.items():
        captions = [change(k, item.caption) for k, item in enumerate(items)]
        score = scores(words, [item.image for item in items], captions)
        yield name, float(score.mean()), float(np.mean([len(tokens(text)) for text in captions]))


def scores(words: ReferenceWords, images: Sequence[str], captions: Sequence[str]) -> Any:
    """Returns (n,) ``cap_people`` scores, computed only from references."""
    found = word_terms(words, images, captions)
    terms = {"overlap": found[:, 2], "repetition": found[:, 3], "brevity": found[:, 4]}
    return joint_score(CARDS["references"], terms)  # type: ignore[arg-type]


def _once(text: str) -> Iterator[str]:
    """Yields the words of a text, without function words and without repetitions."""
    said = set()
    for word in tokens(text):
        if content_words([word]) or word not in said:
            yield word
        said.add(word)


def leads(data: Path) -> Iterator[tuple[str, str]]:
    """Yields the lead of human captions over each system, in points of ``cap_people`` computed only from
    references.
    """
    references = References.load(data / "thumb_references.jsonl.gz")
    items = Judgements.load(data / "thumb.jsonl.gz").half("report").items
    found = scores(ReferenceWords(references), [i.image for i in items], [i.caption for i in items])
    of = {(item.image, item.system): 100 * value for item, value in zip(items, found, strict=True)}
    images = sorted({item.image for item in items})
    for system in SYSTEMS[1:]:
        gaps = np.array([of[image, SYSTEMS[0]] - of[image, system] for image in images])
        resampled = ResampledImages.of(images, resamples=1000, seed=12345).weights() @ gaps / len(images)
        bounds = interval_of(resampled)
        yield system, f"{resampled[0]:+.1f} [{bounds.low:+.1f}, {bounds.high:+.1f}]"


def _of(found: Validation, metric: str, rating: str, statistic: str = "pearson") -> Agreement:
    return next(a for a in found.agreements if (a.metric, a.rating, a.statistic) == (metric, rating, statistic))


def _shown(each: Agreement, scale: int = 1) -> str:
    def number(value: float) -> str:
        return f"{value * scale:.1f}" if scale > 1 else f"{value:.2f}"

    if each.value is None or each.low is None or each.high is None:
        return "n/a"
    return f"{number(each.value)} [{number(each.low)}, {number(each.high)}]"


def _signed(value: float | None, low: float | None, high: float | None) -> str:
    return "" if value is None or low is None or high is None else f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"


def _head(names: Sequence[str], left: int) -> str:
    return _row(names) + "\n" + _row(["---"] * left + ["---:"] * (len(names) - left))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
