"""Parity matrix: all figures that an original script prints, and this project's figures for the same inputs.

    python benchmarks/parity.py ../shared [-o docs/lab/parity.md]

``../shared/data`` contains the inputs and the originals' OWN output. No value is computed by a copy of an original. A
cell is ``equal`` (within its tolerance), ``different`` (with a reason) or ``not checked``. The state is computed, and
the reason is written manually. tests/golden/test_parity.py rebuilds the page and rejects differences without a reason.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scapo_eval.base.errors import ScapoError
from scapo_eval.benchmarks import pope as pope_
from scapo_eval.benchmarks.amber import Amber, AmberData, NltkNouns, Similarity, read_responses
from scapo_eval.benchmarks.chair import ChairScorer, Opera, Profile, Reference, Synonyms, score_chair
from scapo_eval.benchmarks.chair.profiles import ObjectColumns
from scapo_eval.benchmarks.facts import facts_run, read_descriptions
from scapo_eval.benchmarks.faithscore import Facts, faithscore_run
from scapo_eval.benchmarks.hallusionbench import hallusionbench_runs, read_hallusionbench, read_questions
from scapo_eval.benchmarks.mmhal import TYPES, Rating, mmhal_run, parse_rating
from scapo_eval.benchmarks.objhal import NameRuns, score_objhal
from scapo_eval.benchmarks.scoring import ScoredBlock
from scapo_eval.files.files import atomic_write
from scapo_eval.files.records import readable
from scapo_eval.readers.parsers import PARSERS
from scapo_eval.results.results import Resampling, Run
from scapo_eval.truths.oracle import PresenceOracle

NO_INTERVALS = Resampling(0)
EXACT = 1e-12
FILES = [f"{model}_{decoder}" for model in ("llava-1.5", "instructblip") for decoder in ("greedy", "beam5", "ours")]
REFINED = {"pedestrian": "person", "coffee table": "dining table"}
"""Words in Object HalBench's ``synonyms_refine.txt`` that occur in these inputs and are not in CHAIR's list."""


@dataclass(frozen=True)
class Cell:
    """Figure of an original script.

    Attributes:
        figure: Name of the figure in the original.
        here: Name of the metric in this project.
        state: ``equal``, ``different`` or ``not checked``.
        inputs: Common inputs of both.
        note: Tolerance of equal figures, or reason for other states.
    """

    figure: str
    here: str
    state: str
    inputs: str
    note: str


@dataclass(frozen=True)
class Table:
    """Original script with its figures."""

    title: str
    script: str
    cells: tuple[Cell, ...]


Pairs = Iterable[tuple[Any, Any]]


def cell(
    figure: str, here: str, pairs: Pairs, inputs: str, *, within: float = 0, reason: str = "", note: str = ""
) -> Cell:
    """Compares a figure for several inputs.

    Args:
        figure, here, inputs: See :class:`Cell`.
        pairs: Pairs of this project's value and the original value. Values are numbers, or are compared for equality.
        within: Maximum difference between equal numbers.
        reason: Reason for a difference.
        note: Additional note.
    """
    compared = list(pairs)
    assert compared, f"{figure}: nothing to compare"
    different = sum(not _same(ours, theirs, within) for ours, theirs in compared)
    if not different:
        tolerance = "exactly" if within == 0 else f"within {within:g}"
        return Cell(figure, here, "equal", inputs, f"{tolerance}{f'; {note}' if note else ''}")
    some = f"{different:,} of {len(compared):,}: " if different < len(compared) else ""
    return Cell(figure, here, "different", inputs, f"{some}{reason}" if reason else "")


def _same(ours: Any, theirs: Any, within: float) -> bool:
    numbers = all(isinstance(each, (int, float)) for each in (ours, theirs))
    return abs(ours - theirs) <= within if numbers else bool(ours == theirs)


def unchecked(figure: str, here: str, reason: str) -> Cell:
    """Returns a cell for a figure without available output from the original, or without an equivalent in this
    project.
    """
    return Cell(figure, here, "not checked", "", reason)


def read(path: Path) -> Any:
    """Reads a JSON file, compressed or uncompressed."""
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def rows(path: Path) -> list[dict[str, Any]]:
    """Reads a compressed JSON Lines file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# --- CHAIR ----------------------------------------------------------------------------------------------------------


def synonyms(data: Path) -> Synonyms:
    """Reads CHAIR's words in the same way as the reference scripts."""
    aliases = read(data / "coco_chair" / "vocabulary.json")["aliases"]
    return Synonyms("synonyms.txt", {word: node for node, words in aliases.items() for word in words})


@dataclass(frozen=True)
class Scored:
    """Run of one file, with the object lists of every caption."""

    run: Run
    lists: list[list[Any]]


def scored(path: Path, profile: Profile, truth: PresenceOracle) -> Scored:
    """Scores a file with CHAIR, and keeps the evidence."""
    lists: list[list[Any]] = []

    def keep(scorer: ChairScorer, block: ScoredBlock) -> None:
        lists.extend([int(r["image_id"]), r["generated"], r["hallucinated"]] for r in scorer.records(block))

    return Scored(score_chair(path, profile, truth, resampling=NO_INTERVALS, on_block=keep), lists)


CHAIR_COUNTS = {
    "hallucinated_captions": "hallucinated_captions",
    "mentions": "mentions",
    "hallucinated_mentions": "hallucinated_mentions",
    "recalled_objects": "covered",
    "ground_truth_objects": "truth",
}


def chair(data: Path) -> Iterator[Table]:
    """Yields the tables of the standalone script, of OPERA's script, and of PAI's script, which adds precision and
    F1.
    """
    folder = data / "coco_chair"
    truth = PresenceOracle.load(folder / "ground_truth.json.gz")
    words = synonyms(data)
    inputs = "3,000 real captions, six files of 500"
    profiles: list[tuple[str, str, str, Profile]] = [
        ("CHAIR, standalone (`--profile reference`)", "Maxlinn/CHAIR-metric-standalone@640c507:chair.py",
         "expected.json", Reference(words)),
        ("CHAIR, OPERA's (`--profile opera`)", "shikiw/OPERA@61426ef:chair.py", "expected_opera.json", Opera(words, 1)),
    ]  # fmt: skip
    for title, script, file, profile in profiles:
        expected = read(folder / file)["files"]
        ours = {name: scored(folder / "captions" / f"{name}.jsonl", profile, truth) for name in FILES}
        theirs = {name: expected[f"{name}.jsonl"] for name in FILES}
        figures = {"CHAIRs": "chair_s", "CHAIRi": "chair_i", "Recall": "recall"}
        if profile.name == "opera":
            figures["Len"] = "len"
        cells = [
            cell(name, here, ((ours[f].run.values[here], theirs[f][name]) for f in FILES), inputs, within=EXACT)
            for name, here in figures.items()
        ]
        cells.append(
            cell(
                "its counts", ", ".join(CHAIR_COUNTS.values()),
                ((ours[f].run.counts[here], theirs[f]["counts"][c]) for f in FILES for c, here in CHAIR_COUNTS.items()),
                inputs,
            )
        )  # fmt: skip
        listed = (
            (one, other) for f in FILES for one, other in zip(ours[f].lists, theirs[f]["per_caption"], strict=True)
        )
        cells.append(cell("object lists of every caption, in order", "`--per-caption`", listed, inputs))
        yield Table(title, script, tuple(cells))
        if profile.name == "opera":
            yield pai(data, ours)
    yield Table(
        "lmms-eval's coco_cap_chair", "EvolvingLMMs-Lab/lmms-eval",
        (unchecked("CHAIRs, CHAIRi, Recall", "chair_s, chair_i, recall", "no output is available. According to "
                   "its source (commit 0124da0), the script follows OPERA's steps (tokenizer, tagger, "
                   "lemmatizer, pairs of words, the toilet's seat) with its own copy of the words, so `--profile "
                   "opera` is the closest; the ground truth is the list in its data set; equality is not claimed"),),
    )  # fmt: skip


def pai(data: Path, ours: Mapping[str, Scored]) -> Table:
    """Returns the table of PAI's script for the same captions."""
    folder = data / "parity" / "pai_chair"
    expected = read(folder / "expected.json")
    names = {"CHAIRs": "chair_s", "CHAIRi": "chair_i", "Recall": "recall", "Precision": "precision", "F1": "f1"}
    inputs = "3,000 real captions, six files of 500"
    cells = [
        cell(
            name, here, ((ours[f].run.values[here], expected[f]["overall"][name]) for f in FILES), inputs, within=EXACT
        )
        for name, here in names.items()
    ]
    lengths = ((ours[f].run.counts["words"], expected[f]["counts"]["tokens"]) for f in FILES)
    cells.append(
        cell(
            "Len",
            "len",
            lengths,
            inputs,
            reason="two tokens of 46,287: the script was run with NLTK 3.10.4, whose word rules differ from "
            "those of 3.8.1, which OPERA and scapo use",
        )
    )
    listed = [
        (mine[1:], [row["generated"], row["hallucinated"]])
        for f in FILES
        for mine, row in zip(ours[f].lists, rows(folder / f"{f}.jsonl.gz"), strict=True)
    ]
    cells.append(cell("object lists of every caption, in order", "`--per-caption`", listed, inputs))
    return Table("CHAIR, PAI's (`--profile opera`)", "LALBJ/PAI@9bbd8bd:chair.py", tuple(cells))


# --- Object HalBench ------------------------------------------------------------------------------------------------


class Reduced:
    """Profile that reads each caption as the reduced list of objects from the script."""

    name = "opera"

    def __init__(self, words: Synonyms, runs: NameRuns, answers: Mapping[str, Mapping[str, Any]]) -> None:
        self.vocabulary = words.vocabulary
        self.fields: Mapping[str, Any] = {}
        self._runs, self._answers = runs, answers

    def find_batch(self, texts: Sequence[str]) -> ObjectColumns:
        """Returns the objects of each caption."""
        return ObjectColumns.of_words([(self._runs.labels(self._answers[text]["objects"]), 0) for text in texts])


def object_halbench(data: Path) -> Iterator[Table]:
    """Yields the table of the judge's lists, reduced to objects by the script's name rule."""
    folder = data / "parity" / "objhal"
    files = ("llava-1.5_greedy", "instructblip_greedy")
    base = synonyms(data)
    words = Synonyms("synonyms_refine.txt", {**base.words, **REFINED})
    opera, runs = Opera(words, 1), NameRuns(words)
    labels = words.vocabulary.labels
    truth = PresenceOracle.load(folder / "truth.json.gz")
    expected = read(folder / "expected.json")
    answers = {name: rows(folder / f"{name}.jsonl.gz") for name in files}
    captions = {
        name: [
            json.loads(line) for line in (data / "coco_chair" / "captions" / f"{name}.jsonl").read_text().splitlines()
        ]
        for name in files
    }
    inputs = "600 real captions, with lists from spaCy's small model instead of a judge"
    every = [row for name in files for row in answers[name]]

    def found(name: str, listed: str) -> Run:
        records = [
            {**caption, "extracted": row[listed]}
            for caption, row in zip(captions[name][: len(answers[name])], answers[name], strict=True)
        ]
        return score_objhal(readable(records), opera, truth, names="runs", resampling=NO_INTERVALS)

    tagger = (
        "the original uses spaCy's small model for tags and lemmas, and scapo uses NLTK (the script itself uses "
        "en_core_web_trf)"
    )
    own = {name: found(name, "extracted") for name in files}
    cells = [
        cell("objects -> COCO's words, every caption", "`--names runs`",
             (([labels[k] for k in runs.labels(row["objects"])], row["generated"]) for row in every), inputs),
        cell("names -> COCO's words, every caption", "`--names runs`",
             ((sorted(labels[k] for k in runs.objects(row["extracted"])), sorted(row["generated"])) for row in every),
             inputs, reason=tagger),
    ]  # fmt: skip
    figures = {"CHAIRs": "chair_s", "CHAIRs_refine": "chair_s_refined", "CHAIRi": "chair_i", "obj_rec": "recall"}
    given = {
        name: score_objhal(
            readable(captions[name][: len(answers[name])]),
            Reduced(words, runs, {c["caption"]: row for c, row in zip(captions[name], answers[name], strict=False)}),
            truth, source="matcher", resampling=NO_INTERVALS,
        )
        for name in files
    }  # fmt: skip
    cells += [
        cell(f"{figure}, of its own objects", here,
             ((given[name].values[here], expected[name]["overall"][figure]) for name in files), inputs, within=EXACT)
        for figure, here in figures.items()
    ]  # fmt: skip
    greatest = {
        figure: max(abs((own[name].values[here] or 0) - expected[name]["overall"][figure]) for name in files)
        for figure, here in figures.items()
    }
    cells += [
        cell(f"{figure}, of the listed names", here,
             ((own[name].values[here], expected[name]["overall"][figure]) for name in files), inputs,
             within=EXACT, reason=f"by at most {100 * greatest[figure]:.1f} points: {tagger}")
        for figure, here in figures.items()
    ]  # fmt: skip
    lengths = ((own[name].values["len"], expected[name]["overall"]["avg_word_len"]) for name in files)
    cells.append(cell("avg_word_len", "len", lengths, inputs, within=EXACT))
    yield Table(
        "Object HalBench (`objhal --names runs --profile opera`)",
        "RLHF-V/RLHF-V@8daac8a:eval/eval_gpt_obj_halbench.py", tuple(cells),
    )  # fmt: skip


# --- HallusionBench -------------------------------------------------------------------------------------------------

HALLUSIONBENCH = {
    "Acc per question pair (qAcc)": "q_acc",
    "Acc per figure (fAcc)": "f_acc",
    "Acc per easy question (easy aAcc)": "easy_acc",
    "Acc per hard question (hard aAcc)": "hard_acc",
    "Acc per question (aAcc)": "a_acc",
    "Yes/No Bias (Pct Diff)": "yes_bias",
    "Yes/No Bias (FP Ratio)": "yes_bias_fp",
    "Consistency Test (correct)": "f_acc",
    "Consistency Test (inconsistent)": "figures_inconsistent",
    "Consistency Test (wrong)": "figures_wrong",
    "LH": "lh",
    "VI": "vi",
    "Mixed": "mixed",
}


def hallusionbench(data: Path) -> Iterator[Table]:
    """Yields the table of the script's last two tables, and of the counts behind them for all questions, VD and VS."""
    folder = data / "parity" / "hallusionbench"
    questions = rows(folder / "questions.jsonl.gz")
    asked = read_questions([readable([{**row, "question": ""} for row in questions])])
    expected = read(folder / "expected.json")
    runs: dict[str, Run] = {}
    for system in expected:
        answers = rows(folder / f"answers_{system}.jsonl.gz")
        results = [
            {**question, "question": "", "model_prediction": answer["answer"], "same": answer["same"]}
            for question, answer in zip(questions, answers, strict=True)
        ]
        joined = read_hallusionbench(readable(results), asked, PARSERS["default"])
        [runs[system]] = hallusionbench_runs({system: joined}, parser="default", resampling=NO_INTERVALS)
    inputs = "the 1,129 questions, three synthetic systems"

    def shown(system: str, figure: str) -> float:
        value = runs[system].values[HALLUSIONBENCH[figure]]
        assert value is not None
        return value if "Bias" in figure else round(100 * value, 4)

    cells = [
        cell(figure, here, ((shown(system, figure), expected[system]["printed"][figure]) for system in runs), inputs,
             within=EXACT if "Bias" in figure else 0, note="" if "Bias" in figure else "the digits printed")
        for figure, here in HALLUSIONBENCH.items()
    ]  # fmt: skip
    for part in ("all", "VD", "VS"):
        prefix = "" if part == "all" else f"{part.lower()}_"
        what = "everything" if part == "all" else part
        pairs = [
            each for system in runs for each in _behind(runs[system], prefix, expected[system]["functions"][part])
        ]  # fmt: skip
        cells.append(cell(f"the counts behind them, {what}", f"{prefix}...", pairs, inputs))
    cells.append(
        unchecked("the judge's verdict on an answer", "`--parser`", "scapo reads yes or no from the answer. In "
                  "these inputs, this agrees with the judge's verdict. A leaderboard value is therefore "
                  "reproduced only if the two agree")
    )  # fmt: skip
    yield Table("HallusionBench", "tianyi-lab/HallusionBench@744007c:evaluation.py, utils.py", tuple(cells))


def _behind(run: Run, prefix: str, wanted: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    units = {"questions": "question", "figures": "figure", "pairs": "pair", "easy": "easy", "hard": "hard"}
    for here, there in units.items():
        yield run.counts[f"{prefix}{here}"], wanted[there]["total"]
        yield run.counts[f"{prefix}{here}_right"], wanted[there]["correct"]
    yield run.counts[f"{prefix}figures_wrong"], wanted["figure"]["wrong"]
    for here, there in {"lh": "LH_cg", "vi": "VI_cg", "mixed": "Mix_cg"}.items():
        yield run.counts[f"{prefix}{here}"], wanted["pair"][there]
    for here, there in {"yes_bias": "diff", "yes_bias_fp": "fp"}.items():
        yield round(run.values[f"{prefix}{here}"] or 0, 12), round(wanted["yes_no"][there], 12)


# --- Claims ---------------------------------------------------------------------------------------------------------


def dcscore(data: Path) -> Iterator[Table]:
    """Yields the table of DeCapBench's figures, from its verdicts."""
    folder = data / "parity" / "dcscore"
    expected = read(folder / "expected.json")
    runs = {}
    for name in expected:
        with TemporaryDirectory() as place:
            for row in rows(folder / f"{name}.jsonl.gz"):
                (Path(place) / f"{row['index']:03}.json").write_text(json.dumps(_decapbench(row)))
            runs[name] = facts_run(name, read_descriptions(place), NO_INTERVALS)
    inputs = "four synthetic sets of 120 descriptions, three verdicts and three matchings each"
    names = {"precision": "precision", "recall": "recall", "f1_score": "f1"}
    names |= {f"{theirs}_relevant": f"{here}_descriptive" for theirs, here in names.items()}
    cells = [
        cell(theirs, here, ((runs[n].values[here], expected[n]["mean"][theirs]) for n in runs), inputs,
             within=1e-8 if theirs.startswith("f1") else 1e-11,
             note="1e-8 is added to its denominator" if theirs.startswith("f1") else "")
        for theirs, here in names.items()
    ]  # fmt: skip
    cells += [
        cell("DCScore", "dcscore", ((runs[n].values["dcscore"], expected[n]["dcscore"]) for n in runs), inputs,
             within=1e-8, note="1e-8 is added to its F1's denominators"),
        cell("DCScore, as printed", "dcscore",
             ((f"DCScore: {100 * (runs[n].values['dcscore'] or 0):.2f}", expected[n]["printed"]) for n in runs),
             inputs),
        cell("descriptions omitted", "unread",
             ((runs[n].counts["unread"], len(expected[n]["invalid"])) for n in runs), inputs,
             note="the descriptions that the script cannot score and marks as invalid"),
    ]  # fmt: skip
    script = "MAGAer13/DeCapBench@9f3fb10:eval/evaluation_decapbench.py, eval/compute_results.py"
    yield Table("DCScore (`facts`)", script, tuple(cells))


def _decapbench(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of the inputs in DeCapBench's format."""
    texts = [claim["fact"] for claim in row["claims"]]
    return {
        "image_name": row["image"],
        "valid": row["official"] is not None,
        "human_annotated_oracle_atomic_facts": [{"id": k, "fact": f"oracle {k}"} for k in range(row["n_oracle"])],
        "eval_details": {
            "pred_atomic_facts": row["claims"],
            "verified_results": [
                [{"fact": text, "verification": flag} for text, flag in zip(texts, verdicts, strict=True)]
                for verdicts in row["verified"]
            ],
            "mappings_with_human": row["mappings"],
        },
    }


def faithscore(data: Path) -> Iterator[Table]:
    """Yields the table of FaithScore's mean share."""
    folder = data / "parity" / "faithscore"
    expected = read(folder / "expected.json")
    facts = [
        Facts(k, str(k), len(row["facts"]), sum(fact["verdict"] for fact in row["facts"]))
        for k, row in enumerate(rows(folder / "answers.jsonl.gz"), 1)
    ]
    run = faithscore_run("x", facts, [], NO_INTERVALS)
    inputs = "184 answers, real facts, drawn verdicts"
    empty = expected["answers_without_facts"]
    yield Table(
        "FaithScore", "bcdnlp/FAITHSCORE@52179e5:src/faithscore/framework.py",
        (
            cell("faithscore", "faithscore, `printed`", [(run.printed["faithscore"], expected["faithscore"])], inputs,
                 within=EXACT),
            cell("faithscore", "faithscore, `value`", [(run.values["faithscore"], expected["faithscore"])], inputs,
                 within=EXACT, reason=f"the {empty} answers without facts have no share in scapo and a share of "
                         "0 in the script"),
            cell("facts, and verified facts", "counts",
                 [(run.counts["facts"], expected["facts"]), (run.counts["verified"], expected["facts_yes"])], inputs),
            unchecked("sentence_faithscore", "-", "not offered: in the script, an entity with a period has an "
                      "empty word, which occurs in every sub-sentence (218 of 471 in these inputs), and one "
                      "such error makes the whole value wrong"),
        ),
    )  # fmt: skip


def mmhal(data: Path) -> Iterator[Table]:
    """Yields the table of MMHal-Bench's rating, hallucination rate, informativeness and question types."""
    folder = data / "parity" / "mmhal"
    expected = read(folder / "expected.json")
    whole = {}
    reviews = {name: rows(folder / f"{name}.jsonl.gz") for name in expected}
    for name, read_as in reviews.items():
        ratings = [
            Rating(k, str(k), parse_rating(row["review"]), TYPES[(k - 1) % len(TYPES)])
            for k, row in enumerate(read_as, 1)
        ]
        whole[name] = mmhal_run(name, ratings, NO_INTERVALS)
    inputs = "96 reviews in the usual wording, 96 in odd wordings"
    full = ("plain", "odd")

    def printed(name: str, start: str) -> float:
        line = next(line for line in expected[name]["printed"] if line.startswith(f"{start}: "))
        return float(line.removeprefix(f"{start}: "))

    headings = {"Average score": "mmhal_score", "Hallucination rate": "mmhal_hal", "Informativeness": "informativeness"}
    unrated = "scapo omits verdicts without exactly one rating, and the script counts them as 0"
    cells = [
        cell(there, f"{here}, `printed`", ((whole[n].printed[here], printed(n, there)) for n in full), inputs)
        for there, here in headings.items()
    ] + [
        cell("score of every review", "`rating`",
             ((parse_rating(row["review"]) or 0, row["score"]) for n in full for row in reviews[n]), inputs,
             note="reviews with no rating or several ratings are 0 in the script and unrated in scapo"),
        cell("Average score for each question type", "attribute_score, ...",
             ((whole[n].values[f"{kind}_score"], value) for n in full
              for kind, value in zip(TYPES, expected[n]["by_type"], strict=True)),
             inputs, within=EXACT, reason=unrated),
        unchecked("files of 95 and of 100 reviews", "notes", "with 95 reviews, the script stops with an "
                  "IndexError; with 100, it averages all, and assigns types to the first 96 by position. scapo "
                  "scores an incomplete file with a note, and uses the types in the file"),
    ]  # fmt: skip
    script = (
        "RLHF-V/RLHF-V@8daac8a:eval/summarize_gpt_mmhal_review.py; llava-rlhf/LLaVA-RLHF@830a083:Eval/eval_gpt_mmhal.py"
    )
    yield Table("MMHal-Bench", script, tuple(cells))


# --- Yes and no -----------------------------------------------------------------------------------------------------

POPE = {
    "Accuracy": "accuracy",
    "Precision": "precision",
    "Recall": "recall",
    "F1 score": "f1",
    "Yes ratio": "yes_ratio",
}


def pope_run(answers: Sequence[Mapping[str, Any]]) -> Run:
    """Computes POPE's figures from answers with labels, with the official parser."""
    joined = pope_.read_pope(readable(list(answers)), None, PARSERS["pope"])
    [run] = pope_.BENCHMARK.runs({"x": joined}, parser="pope", resampling=NO_INTERVALS)
    return run


def pope(data: Path) -> Iterator[Table]:
    """Yields the table of POPE's ``evaluate.py``, for real, unusual and faulty files."""
    folder = data / "parity" / "pope"
    expected = read(folder / "expected.json")
    odd = rows(folder / "odd_answers.jsonl.gz")
    twice = [
        {"id": f"{k}/{label}", "response": row["answer"], "label": label}
        for k, row in enumerate(odd)
        for label in ("yes", "no")
    ]
    runs = {"odd_answers": pope_run(twice)}
    answers = data / "pope" / "llava-v1.5-13b.answers.jsonl"
    for split in ("adversarial", "popular", "random"):
        asked = pope_.read_pope_questions([data / "pope" / f"coco_pope_{split}.json"])
        joined = pope_.read_pope(answers, asked, PARSERS["pope"])
        [runs[f"llava-v1.5-13b/{split}"]] = pope_.BENCHMARK.runs({"x": joined}, parser="pope", resampling=NO_INTERVALS)
    inputs = "8,910 real answers of LLaVA-1.5-13B; 77 odd answers, each with both labels"
    cells = [
        cell(there, here, ((runs[name].values[here], expected[name][there]) for name in runs), inputs, within=EXACT)
        for there, here in POPE.items()
    ]
    parser = PARSERS["pope"]
    cells.append(
        cell("how an answer is read", "`--parser pope`", ((parser(row["answer"]), row["read_as"]) for row in odd),
             "77 odd answers")
    )  # fmt: skip
    files = read(folder / "odd_files.json")
    cells.append(
        cell("small odd files", "any", (_pope_file(case) for case in files), f"{len(files)} files",
             reason="scapo refuses a label that is neither yes nor no, different numbers of answers and labels, "
                    "and empty files; the script treats any label except `yes` as no, and truncates the "
                    "longer list")
    )  # fmt: skip
    yield Table("POPE (`--parser pope`)", "AoiDragon/POPE@08d957b:evaluate.py", tuple(cells))


def _pope_file(case: Mapping[str, Any]) -> tuple[Any, Any]:
    wanted = None if case["error"] else [round(case[name], 12) for name in POPE]
    answers, labels = case["answers"], case["labels"]
    try:
        if len(answers) != len(labels):  # here answers are joined with questions by id, so this is a missing answer
            return None, wanted
        joined = [
            {"id": str(k), "response": answer["answer"], "label": label}
            for k, (answer, label) in enumerate(zip(answers, labels, strict=True))
        ]
        found = pope_run(joined).values
    except (ScapoError, KeyError):
        return None, wanted
    values = [found[here] for here in POPE.values()]
    return None if None in values else [round(value or 0, 12) for value in values], wanted


AMBER_TASKS = {
    "": "discriminative",
    **{f"{name}_": name for name in ("existence", "attribute", "state", "number", "action", "relation")},
}


class Tagged:
    """Noun tagger that returns NLTK's stored nouns by text."""

    version = "3.10.4"

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._nouns = {
            answer["response"]: nouns["nouns"]
            for name in names
            for answer, nouns in zip(
                read(folder / f"{name}.json.gz"), read(folder / f"{name}.nouns.json.gz"), strict=True
            )
        }

    def find_batch(self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None) -> list[list[str]]:
        """Returns the nouns of each text."""
        return [self._nouns[text] for text in texts]


def amber(data: Path) -> Iterator[Table]:
    """Yields the table of AMBER's ``inference.py`` in parity mode."""
    folder = data / "amber"
    benchmark = AmberData.load(folder)
    expected = read(folder / "expected.json")["sets"]
    described = ("gen_instructblip_agla_small", "gen_llava_base")
    relations = {
        "official_script_standin_vectors": Similarity.load(str(folder / "standin_pairs.json"), benchmark.words),
        "official_script_no_vectors": Similarity.load("none", benchmark.words),
    }
    tagged = Tagged(folder / "responses", described)
    texts: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
    traces: list[tuple[Any, Any]] = []
    for name in described:
        for key, relation in relations.items():
            scorer = Amber(benchmark, "parity", similarity=relation, tagger=tagged)
            run = scorer.score(read_responses(folder / "responses" / f"{name}.json.gz", benchmark, official=True))
            texts.append((run.run.printed, expected[name][key]))
            kind = "standin" if "standin" in key else "novectors"
            trace = read(folder / "responses" / f"{name}.trace_{kind}.json.gz")
            traces += [
                ({k: record[k] for k in trace[0]}, told) for record, told in zip(run.records(), trace, strict=True)
            ]
    inputs = "two real files of 1,004 descriptions, without word vectors and with a given table"
    cells = [
        cell(name, name.lower(), ((mine[name.lower()], theirs[name]) for mine, theirs in texts), inputs)
        for name in ("CHAIR", "Cover", "Hal", "Cog")
    ]
    cells.append(cell("every description's nouns, flags and credits", "`--per-answer`", traces, inputs))
    asked = ("disc_synth_a", "disc_messy_a", "disc_real_sentences_relation")
    printed = [
        (Amber(benchmark, "parity", tagger=tagged).score(
            read_responses(folder / "responses" / f"{name}.json.gz", benchmark, official=True)
        ).run.printed, expected[name]["official_script"])
        for name in asked
    ]  # fmt: skip
    for figure in ("Accuracy", "Precision", "Recall", "F1"):
        pairs = [
            (mine[prefix + figure.lower()], theirs[task][figure])
            for mine, theirs in printed
            for prefix, task in AMBER_TASKS.items()
            if figure in theirs.get(task, {})
        ]
        what = "one real and two synthetic files of yes/no answers, all dimensions"
        cells.append(cell(figure, f"{figure.lower()}, existence_{figure.lower()}, ...", pairs, what))
    nltk = Amber(benchmark, "parity", tagger=NltkNouns(workers=1))
    odd = read(data / "parity" / "amber" / "odd_files.json")
    cells.append(
        cell("small odd files", "any", (pair for case in odd for pair in _amber_case(nltk, benchmark, case)),
             f"{len(odd)} files")
    )  # fmt: skip
    answers = [
        {**case, "name": "answer", "input": [{"id": k, "response": case["answer"]} for k in case["ids"]]}
        for case in rows(data / "parity" / "amber" / "odd_answers.jsonl.gz")
    ]
    cells.append(
        cell("odd answers", "`--answers exact`",
             (pair for case in answers for pair in _amber_case(nltk, benchmark, case)),
             f"{len(answers)} answers to a question of each truth",
             reason="an answer that is not a text is refused here; there it is a wrong answer")
    )  # fmt: skip
    yield Table("AMBER (`--mode parity`)", "junyangwang0410/AMBER@534babf:inference.py", tuple(cells))


def _amber_case(scorer: Amber, data: AmberData, case: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{case['name']}.json"
        path.write_text(json.dumps(case["input"]))
        try:
            printed = scorer.score(read_responses(path, data, official=True)).run.printed
        except ScapoError:
            yield None, None if case.get("error") else case.get("printed")
            return
    for task, figures in case.get("printed", {}).items():
        if task == "generative":
            yield from ((printed[name.lower()], value) for name, value in figures.items())
        prefix = next((prefix for prefix, name in AMBER_TASKS.items() if name == task), None)
        if prefix is not None:
            yield from ((printed[prefix + name.lower()], value) for name, value in figures.items())


# --- The page -------------------------------------------------------------------------------------------------------

ORIGINALS = (chair, object_halbench, hallusionbench, dcscore, faithscore, mmhal, pope, amber)


def tables(shared: Path) -> list[Table]:
    """Returns the whole matrix."""
    return [table for original in ORIGINALS for table in original(shared / "data")]


HEAD = " ".join(
    """# Parity

This page compares the figures that the original scripts of several benchmarks print with those that scapo computes
from the same inputs. The original scripts were run unmodified on another machine. `python benchmarks/parity.py
SHARED` makes this comparison and writes this page, and a test checks that the page is up to date.

**equal** means that the figures agree within the stated tolerance on the stated inputs. **different** means that the
figures do not agree; the last column states the reason. **not checked** means that no output of the original script is
available, or that scapo does not compute the figure. The figures for synthetic inputs say nothing about the quality of
a model.
""".replace("\n\n", "\0").split("\n")
).replace("\0", "\n\n")


def page(found: Sequence[Table]) -> str:
    """Returns the text of docs/lab/parity.md."""
    every = [each for table in found for each in table.cells]
    number = {state: sum(each.state == state for each in every) for state in ("equal", "different", "not checked")}
    parts = [
        f"{HEAD.strip()}\n",
        f"{number['equal']} figures are equal, {number['different']} are different, and {number['not checked']} are not "
        "checked.\n",
    ]
    for table in found:
        parts += [
            f"## {table.title}\n",
            f"`{table.script}`\n",
            "| figure | here | | inputs | |",
            "| --- | --- | --- | --- | --- |",
            *(
                f"| {each.figure} | {each.here} | {'equal' if each.state == 'equal' else f'**{each.state}**'} "
                f"| {each.inputs} | {each.note} |"
                for each in table.cells
            ),
            "",
        ]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("-o", "--output", default="docs/lab/parity.md")
    given = parser.parse_args()
    found = tables(given.shared)
    with atomic_write(given.output) as stream:
        stream.write(page(found).encode())
    for table in found:
        for each in table.cells:
            if each.state == "different" and not each.note:
                print(f"{table.title}: {each.figure} differs, and nothing says why", file=sys.stderr)


if __name__ == "__main__":
    main()
