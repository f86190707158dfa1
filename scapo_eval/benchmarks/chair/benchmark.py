"""Record of the CHAIR benchmark, with its options and its Python function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ...base.errors import OptionError
from ...files.records import Given
from ...files.source import Source
from ...matching.uses import Reading
from ...matching.vocabulary import Vocabulary, VocabularyGiven
from ...results.benchmark import Benchmark, CommandExample, OnEngine, Option
from ...results.results import Run
from ...results.stats import DEFAULT_RESAMPLES, DEFAULT_SEED, Bootstrap
from ...truths.oracle import PresenceOracle, TruthGiven
from ..protocol import UNKNOWN_SAMPLE, Protocol, checked_sample
from ..scoring import OnUnknownImage, ScoringOptions
from ..systems import Systems, drawn, naming_inputs
from .choice import DEFAULT_VOCABULARY
from .choice import profile as chosen_profile
from .profiles import PROFILES, Native
from .scoring import METRICS, METRICS_BESIDE, NATIVE, score_chair
from .synonyms import Synonyms

NATIVE_PROFILE = Native.name

OBJECTS: Mapping[str, Option] = {
    "truth": Option(
        file="read",
        metavar="FILE",
        help="Ground truth. The scripts' own values require CHAIR's ground truth as {id: [objects]}."
        "  [default: from --protocol]",
    ),
    "profile": Option(
        choices=PROFILES,
        help="Method of reading captions: the project's matcher, the standalone CHAIR script, or OPERA's script "
        "(extra 'nltk').  [default: from --protocol, else native]",
    ),
    "synonyms": Option(
        file="read",
        metavar="FILE",
        help="For 'reference' and 'opera': a list of words like CHAIR's synonyms.txt, one object a line, separated by "
        "comma and space.  [default: CHAIR's own words]",
    ),
    "vocabulary": Option(
        file="read",
        metavar="NAME|FILE",
        help=f"For 'native': labels and their aliases.  [default: {DEFAULT_VOCABULARY}]",
    ),
    "per_caption": Option(
        file="written",
        metavar="FILE",
        help="Write the ordered object lists of every caption as JSON Lines (one system only).",
    ),
}
"""Options for the ground truth, the reading of captions, and the evidence file."""


def scored_by_profile(
    score: Callable[..., Run],
    systems: Systems,
    *,
    truth: TruthGiven | None,
    profile: str | None,
    synonyms: Synonyms | str | Path | None,
    vocabulary: VocabularyGiven | None,
    per_caption: str | None,
    scoring: ScoringOptions | None,
) -> list[Run]:
    """Scores caption files by the objects that a profile finds. The function ``score`` is called for each file, with
    the path, the profile, the oracle and the options.
    """
    scoring = scoring or ScoringOptions()
    if truth is None:
        raise OptionError("--truth FILE is missing (in Python truth=), or a protocol that contains it (--protocol)")
    profile = profile or NATIVE_PROFILE
    reader = chosen_profile(
        profile, vocabulary=vocabulary, synonyms=synonyms, claims=scoring.claims, workers=scoring.workers
    )
    if profile == "opera":
        scoring = replace(scoring, workers=None)  # the tagger starts its own processes
    return systems.each(partial(score, profile=reader, oracle=PresenceOracle.of(truth), options=scoring), per_caption)


def _score(
    systems: Systems,
    *,
    truth: TruthGiven | None = None,
    profile: str | None = None,
    native: bool = False,
    synonyms: Synonyms | str | Path | None = None,
    vocabulary: VocabularyGiven | None = None,
    per_caption: str | None = None,
    scoring: ScoringOptions | None = None,
) -> list[Run]:
    beside = None
    if native and profile not in (None, NATIVE_PROFILE):
        beside = Native(Vocabulary.load(DEFAULT_VOCABULARY), scoring.claims if scoring else "all")
    return scored_by_profile(
        partial(score_chair, native=beside),
        systems,
        truth=truth,
        profile=profile,
        synonyms=synonyms,
        vocabulary=vocabulary,
        per_caption=per_caption,
        scoring=scoring,
    )


@naming_inputs
def chair(
    captions: Given,
    *,
    truth: TruthGiven | None = None,
    protocol: Protocol | str | Path | None = None,
    profile: Literal["native", "reference", "opera"] | None = None,
    native: bool | None = None,
    synonyms: Synonyms | str | Path | None = None,
    vocabulary: VocabularyGiven | None = None,
    name: str | None = None,
    claims: Reading = "all",
    workers: int | None = None,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    bootstrap: Bootstrap | None = None,
    skip_bad: bool = False,
    on_unknown_image: OnUnknownImage = "error",
    any_fingerprint: bool = False,
    drop_unfinished: bool = False,
    any_ids: bool = False,
    strict: bool = False,
) -> Run:
    """Computes CHAIR_s, CHAIR_i, recall, precision, F1 and mean length of captions.

    Args:
        captions: Records with ``image_id`` and ``caption``.
        truth: Ground truth of the images, or None to use the ground truth of the protocol. To reproduce the values that
            the scripts print, use CHAIR's ground truth.
        protocol: Name of the protocol whose images, prompt and limits the captions must match (``chair-opera``).
        profile: Method of reading captions: ``native`` (the project's matcher), ``reference`` (the standalone CHAIR
            script) or ``opera`` (OPERA's script, extra ``nltk``). The default profile is that of the protocol, or
            ``native`` if there is no protocol.
        native: True to report the metrics of the project's own matcher (``chair_s_native``) in addition to a script's
            metrics. The default is True if there is a protocol.
        synonyms: File with the words for ``reference`` and ``opera``, in the format of CHAIR's ``synonyms.txt``, or
            None for CHAIR's own words.
        vocabulary: Labels and their aliases for the profile ``native``. None selects coco80.
        claims: Reading, which selects the mentions to count with the profile ``native``.
        name, resamples, seed, bootstrap, strict: Same as in :func:`scapo_eval.score`.
        skip_bad, on_unknown_image, any_fingerprint, drop_unfinished, any_ids: Same as in :func:`scapo_eval.score`.
        workers: Number of processes for parsing and matching or, with ``opera``, for tagging. The default is one
            process; with ``opera``, it is one process per processor.

    Raises:
        InputErrors, InputError: If the input is invalid, or if an option does not apply to the profile. The error lists
            the faults by file and line, or by row.
        MissingExtra: If ``opera`` is requested and NLTK is not installed.

    Example:
        >>> import scapo_eval
        >>> rows = [{"image_id": k, "caption": "A dog and a cat."} for k in range(40)]
        >>> scapo_eval.chair(rows, truth={k: ["dog"] for k in range(40)}).values["chair_i"]
        0.5
    """
    followed = protocol if isinstance(protocol, Protocol) or protocol is None else Protocol.load(protocol)
    options: dict[str, Any] = {"truth": truth, "profile": profile, "native": native}
    options = options if followed is None else followed.filled(options)
    systems = Systems.of(captions, name, "captions", drawn(resamples, seed, bootstrap))
    sample = UNKNOWN_SAMPLE
    if followed is not None:
        [(system, source)] = systems.named().items()
        if isinstance(source, Source):
            source.keep()
        omits = skip_bad or on_unknown_image == "skip"
        sample = checked_sample(followed, system, "chair", source, omits=omits)
    [run] = _score(
        systems,
        truth=options["truth"],
        profile=options["profile"],
        native=bool(options["native"]),
        synonyms=synonyms,
        vocabulary=vocabulary,
        scoring=ScoringOptions(
            claims, skip_bad, on_unknown_image, any_fingerprint, workers, drop_unfinished, strict, any_ids
        ),
    )
    return run if followed is None else followed.followed(run, sample)


def _advice(options: Mapping[str, Any]) -> str | None:
    if options["profile"] not in (None, NATIVE_PROFILE):
        return None
    return "most published tables use the profile 'opera' (--profile opera), not 'native'"


BENCHMARK = Benchmark(
    name="chair",
    title="CHAIR",
    help="""CHAIR_s, CHAIR_i, Recall, Precision, F1 and Len of caption files. Several files are compared with the first.

    --protocol chair-opera requires no other option. It includes the ground truth, the words and OPERA's reading.

    CAPTIONS are JSON Lines with image_id and caption, or a file of any layout that scapo-eval import recognizes
    (docs/data.md), plain, .gz or .zst; - is standard input.
    """,
    metric_set=lambda columns: METRICS_BESIDE if f"captions{NATIVE}" in columns else METRICS,
    meanings={
        "chair_s": "captions with a hallucinated mention",
        "chair_i": "mentions that are hallucinated",
        "recall": "present objects that are mentioned",
        "precision": "different objects that are present (1 - hal_rate)",
        "f1": "harmonic mean of precision and recall (cap_score)",
        "len": "words (or tokens) per caption",
        "hal_rate": "different objects that are hallucinated",
    },
    dataset={"source_type": "url", "url": ["https://cocodataset.org"]},
    dataset_by_protocol=True,
    headline=("chair_s", "chair_i", "recall", "precision", "f1", "len", f"chair_s{NATIVE}", f"chair_i{NATIVE}"),
    score=_score,
    function=chair,
    files="captions",
    takes=("captions", "object lists"),
    captions=True,
    scoring=True,
    options={
        **OBJECTS,
        "native": Option(
            help="Add the project's own reading to a script's (chair_s_native...). Enabled by --protocol."
        ),
    },
    engine=OnEngine(function="chair", needs=("truth",), refuses=("per_caption", "native")),
    advice=_advice,
    command_example=CommandExample(("scapo-eval chair examples/captions_baseline.jsonl --truth examples/truth.json",)),
)
