"""A strictly typed program that uses the Python interface, for mypy in ``tests/unit/test_typed_client.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import scapo_eval
from scapo_eval import (
    CaptionScores,
    CountedBenchmark,
    InputError,
    Option,
    PresenceOracle,
    Results,
    RewardResult,
    Run,
    SubsentenceReward,
    Vocabulary,
    ratio,
)


def rows() -> Iterator[dict[str, object]]:
    """Yields records."""
    yield {"image_id": 1, "caption": "A dog."}


def client(path: Path, frame: pd.DataFrame, dataset: Any) -> None:
    """Calls every function with every kind of input."""
    vocabulary: Vocabulary = Vocabulary.load("coco80")
    oracle: PresenceOracle = PresenceOracle.from_objects({1: ["dog"]})
    scores: CaptionScores = scapo_eval.score(path, truth="truth.json", vocabulary=vocabulary, claims="asserted")
    rate: float | None = scores.hal_rate
    runs: list[Run] = [
        scores,
        scapo_eval.score(list(rows()), truth=oracle, name="mine", workers=2, resamples=100, seed=1),
        scapo_eval.score(rows(), truth={1: ["dog"], "2": ("cat",)}, on_unknown_image="skip", skip_bad=True),
        scapo_eval.score(frame, truth=frame),
        scapo_eval.score(dataset),
        scapo_eval.chair(str(path), truth=oracle, profile="opera", synonyms="synonyms.txt"),
        scapo_eval.amber(path, data="AMBER", mode="parity"),
        scapo_eval.pope(path, questions=[Path("a.json"), Path("b.json")], parser="pope"),
        scapo_eval.phd(frame, data=path, unparsed="drop"),
        scapo_eval.yesno([{"id": 1, "response": "Oui"}], questions=[{"id": 1, "label": "yes"}], yes=["oui"]),
        scapo_eval.mmhal(path),
    ]
    value: float | None = runs[0].metrics["hal_rate"].value
    low: float | None = runs[0].metrics["hal_rate"].low
    fields: Mapping[str, str] = runs[0].signature.fields
    differing: dict[str, tuple[str | None, str | None]] = runs[0].signature.differences(runs[1].signature)
    record: dict[str, Any] = runs[0].per_image()[0]
    runs[0].save(path)
    results: Results = scapo_eval.compare(runs, allow_different=True, test="paired_bootstrap", resamples=10)
    again: Results = scapo_eval.compare(scapo_eval.load_results(path))
    texts: list[str] = [results.to_markdown(), again.to_latex(["hal_rate"]), str(runs[0].signature)]
    document: dict[str, Any] = results.to_dict()
    tidy = results.to_pandas()
    reward: list[RewardResult] = SubsentenceReward(vocabulary, oracle)([1], ["A dog."])
    try:
        scapo_eval.score("nothing.jsonl")
    except InputError as error:
        place: tuple[str | None, int | None, str] = (error.path, error.line, error.reason)
        print(place)
    print(rate, value, low, fields, differing, record, texts, document, tidy, reward)


def count(record: Mapping[str, Any], *, words: str = "two three") -> dict[str, int]:
    """Returns a benchmark's counts of one record."""
    return {"captions": 1, "numbered": any(word in words.split() for word in str(record["caption"]).split())}


MINE: CountedBenchmark = CountedBenchmark(
    name="mine",
    count=count,
    columns=("captions", "numbered"),
    formulas={"numbered": ratio("numbered", "captions")},
    options={"words": Option(help="Words that count.")},
)


def mistakes(run: Run, path: Path) -> None:
    """Makes mistakes that mypy must report. An unnecessary ignore is also an error."""
    scapo_eval.score(7)  # type: ignore[arg-type]
    scapo_eval.score(path, claims="some")  # type: ignore[arg-type]
    scapo_eval.score(path, truht="truth.json")  # type: ignore[call-arg]
    scapo_eval.chair(path, protocol=7)  # type: ignore[arg-type]
    scapo_eval.compare([7])  # type: ignore[list-item]
    scapo_eval.pope(path, unparsed="some")  # type: ignore[arg-type]
    CountedBenchmark(name="mine", count=count, columns=("captions",))  # type: ignore[call-arg]
    Option("Words that count.")  # type: ignore[call-arg]
    run.metrics["hal_rate"].valeu  # type: ignore[attr-defined]  # noqa: B018
