"""Output of results for people and scripts: 80-column screens, formats, names, metrics, gates, help, completion."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from scapo_eval.cli.main import COMPLETE, VERBS, cli

Outcome = tuple[int, str, str]
ScapoEval = Callable[..., Outcome]

ROOT = Path(__file__).resolve().parents[2]
SCREENS = ROOT / "tests" / "golden" / "screens"
EXAMPLES = [*(ROOT / "examples" / f"captions_{name}.jsonl" for name in ("baseline", "aligned"))]
TRUTH = ["--truth", ROOT / "examples" / "truth.json"]


def write(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes captions of three systems (``few`` shares 6 images with ``a``, ``many`` shares 40), two ground truths, and
    answers.
    """
    monkeypatch.chdir(tmp_path)
    objects = {str(k): ["dog"] if k % 2 else ["cat"] for k in range(100)}
    (tmp_path / "truth.json").write_text(json.dumps({"labels": ["cat", "dog"], "objects": objects}))
    half = {k: v for k, v in objects.items() if v == ["cat"]} | {k: [] for k, v in objects.items() if v == ["dog"]}
    (tmp_path / "half.json").write_text(json.dumps({"labels": ["cat", "dog"], "objects": half}))
    for name, images, caption in (
        ("a", range(60), "A dog."),
        ("many", range(20, 80), "A dog and a cat."),
        ("few", range(54, 100), "A cat."),
    ):
        write(tmp_path / f"{name}.jsonl", [{"image_id": k, "caption": caption} for k in images])
    for name, says in (("yes", "Yes"), ("no", "No")):
        answers = [
            {"id": str(k), "image": f"{k}.jpg", "response": says, "label": "yes", "category": "ab"[k % 2]}
            for k in range(40)
        ]
        write(tmp_path / f"{name}.jsonl", answers)
    return tmp_path


def masked(text: str) -> str:
    """Removes hashes and the version, which change with the shipped vocabularies and releases."""
    flat = re.sub(r"\b[0-9a-f]{8}\b", "xxxxxxxx", text)
    return re.sub(r"v:[\w.]+", "v:VERSION", flat)


SCREEN_COMMANDS = {
    "example": [*EXAMPLES, *TRUTH],
    "example_named": [f"base={EXAMPLES[0]}", f"ours={EXAMPLES[1]}", *TRUTH, "--metrics", "cap_score,hal_rate"],
    "different_images": [
        "a.jsonl",
        "many.jsonl",
        "few.jsonl",
        "--truth",
        "truth.json",
        "--metrics",
        "hal_rate,chair_s",
    ],
    "many_metrics": ["yesno", "yes.jsonl", "no.jsonl"],
    "long_names": ["yesno", "a_very_long_name_of_a_model_that_never_ends=yes.jsonl", "yesno_of_the_other=no.jsonl"],
    "labels": ["labels", EXAMPLES[0], *TRUTH, "--top", "4"],
    "slices": [EXAMPLES[0], *TRUTH, "--by", "length"],
}


@pytest.mark.parametrize("name", SCREEN_COMMANDS)
def test_screens_at_80_columns(run: ScapoEval, world: Path, name: str) -> None:
    code, out, _ = run(*SCREEN_COMMANDS[name], "--width", 80, "--no-color")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    path = SCREENS / f"{name}.txt"
    if os.environ.get("SCAPO_WRITE_SCREENS"):
        path.write_text(masked(out))
    assert masked(out) == path.read_text()


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("name", SCREEN_COMMANDS)
def test_no_value_is_cut_at_any_width(run: ScapoEval, world: Path, name: str, width: int) -> None:
    command = SCREEN_COMMANDS[name]
    _, out, _ = run(*command, "--width", width, "--no-color")
    assert max(map(len, out.splitlines())) <= width
    _, tsv, _ = run(*command, "--format", "tsv")
    rows = list(csv.DictReader(io.StringIO(tsv), delimiter="\t"))
    shown = re.sub(r"\s", "", out)
    for row in rows[:4]:
        assert row["system"] in shown
        if name != "labels":
            assert row["value"] in shown
            assert f"[{row['ci_low']},{row['ci_high']}]" in shown


def test_systems_on_different_images_show_both_values_or_only_how_many(run: ScapoEval, world: Path) -> None:
    files = ["a.jsonl", "many.jsonl", "few.jsonl", "--truth", "truth.json", "--metrics", "chair_s"]
    _, out, _ = run(*files, "--width", 80)
    many, few = (next(line for line in out.splitlines() if line.startswith(f"  {name} ")) for name in ("many", "few"))
    assert many.split("]")[1].strip() == "+50.0**  50.0 -> 100.0 on 40 shared images"
    assert few.split("]")[1].strip() == "6 shared images"
    _, out, _ = run(*files, "--json")
    rows = {row["system"]: row for row in json.loads(out)["comparisons"]}
    assert (rows["many"]["baseline_value"], rows["many"]["system_value"], rows["many"]["n_images"]) == (0.5, 1.0, 40)
    assert (rows["few"]["difference"], rows["few"]["p_value"], rows["few"]["n_images"]) == (None, None, 6)
    for form in ("latex", "markdown"):
        _, out, _ = run(*files, "--format", form)
        changes = (
            r"On the 40 shared images, the metrics change from a to many as follows: CHAIR(\\_s|\\\(_s\\\)) \(native\) "
        )
        assert re.search(changes + r"50\.0 (→|\\\(\\to\\\)) 100\.0\.", out)
        assert "a and few were scored on different images and have only 6 shared images" in out
        assert "-50.0" not in out


def test_different_scoring_is_refused_or_marked_in_every_line(run: ScapoEval, world: Path) -> None:
    for truth in ("truth", "half"):
        assert run("a.jsonl", "--truth", f"{truth}.json", "-o", f"{truth}.results.json", "-q")[0] == 0
    code, _, err = run("compare", "x=truth.results.json", "y=half.results.json")
    assert code == 2
    assert "truth: " in err
    code, out, _ = run("compare", "x=truth.results.json", "y=half.results.json", "--allow-different", "--width", 140)
    assert code == 0
    assert "≠ y was scored differently from x in: truth." in out
    _, out, _ = run("compare", "x=truth.results.json", "y=half.results.json", "--allow-different", "--width", 80)
    assert len(re.findall("≠", out)) == 6  # five metrics and the legend
    _, out, _ = run("compare", "x=truth.results.json", "y=half.results.json", "--allow-different")
    rows = list(csv.DictReader(io.StringIO(out), delimiter="\t"))
    assert {row["differing"] for row in rows if row["system"] == "y"} == {"truth"}


@pytest.mark.parametrize("verb", ["show", "score", "labels"])
def test_a_pipe_that_is_closed_early_is_no_error(world: Path, verb: str) -> None:
    command = [sys.executable, "-m", "scapo_eval.cli.main", verb, *map(str, EXAMPLES[:1]), *map(str, TRUTH)]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_gets_tsv_whatever_force_color_says(world: Path) -> None:
    command = [sys.executable, "-m", "scapo_eval.cli.main", *map(str, EXAMPLES), *map(str, TRUTH)]
    plain = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "COLUMNS")}
    outs = [
        subprocess.run(command, env={**plain, **more}, capture_output=True, text=True, check=True).stdout
        for more in ({}, {"FORCE_COLOR": "1", "COLUMNS": "60"})
    ]
    assert outs[0] == outs[1]
    rows = list(csv.DictReader(io.StringIO(outs[0]), delimiter="\t"))
    assert list(rows[0])[:14] == [
        "system", "metric", "value", "ci_low", "ci_high", "system_value", "baseline_value", "difference",
        "difference_low", "difference_high", "p_value", "p_holm", "n_images", "signature",
    ]  # fmt: skip
    assert len(rows) == 10
    assert {row["n_images"] for row in rows} == {"40"}
    assert all(row["signature"].startswith("capscore|vocab:coco80@") for row in rows)


def test_formats_agree(run: ScapoEval) -> None:
    _, as_json, _ = run(*EXAMPLES, *TRUTH, "--json")
    assert run(*EXAMPLES, *TRUTH, "--format", "json")[1] == as_json
    rows = {row["metric"]: row for row in json.loads(as_json)["comparisons"]}
    _, out, _ = run(*EXAMPLES, *TRUTH, "--format", "tsv")
    for row in csv.DictReader(io.StringIO(out), delimiter="\t"):
        if row["system"] == "captions_aligned":
            assert row["p_value"] == f"{rows[row['metric']]['p_value']:.4f}"
            assert row["p_holm"] == f"{rows[row['metric']]['p_holm']:.4f}"
            assert row["difference"] == f"{100 * rows[row['metric']]['difference']:.1f}"
    _, out, _ = run(*EXAMPLES, *TRUTH, "--format", "markdown", "--intervals")
    value = json.loads(as_json)["systems"][1]["metrics"]["hal_rate"]
    shown = "**{:.1f}**\\*\\* \\[{:.1f}, {:.1f}\\]".format(*(100 * value[k] for k in ("value", "ci_low", "ci_high")))
    assert shown in out
    code, _, err = run(*EXAMPLES, *TRUTH, "--json", "--format", "tsv")
    assert (code, "exclude each other" in err) == (2, True)


def test_raw_and_corrected_p_values_stand_in_every_format(run: ScapoEval, world: Path) -> None:
    write(world / "b.jsonl", [{"image_id": k, "caption": "A cat." if k < 36 else "A dog."} for k in range(60)])
    write(world / "c.jsonl", [{"image_id": k, "caption": "A cat." if k < 33 else "A dog."} for k in range(60)])
    files = ["a.jsonl", "b.jsonl", "c.jsonl", "--truth", "truth.json"]
    _, as_json, _ = run(*files, "--json")
    rows = [row for row in json.loads(as_json)["comparisons"] if row["metric"] == "hal_rate"]
    assert [row["p_holm"] for row in rows] == [min(1.0, 2 * min(r["p_value"] for r in rows)), 1.0] or all(
        row["p_holm"] >= row["p_value"] for row in rows
    )
    _, out, _ = run(*files, "--format", "tsv")
    told = [r for r in csv.DictReader(io.StringIO(out), delimiter="\t") if r["metric"] == "hal_rate" and r["p_value"]]
    assert [(r["p_value"], r["p_holm"]) for r in told] == [(f"{r['p_value']:.4f}", f"{r['p_holm']:.4f}") for r in rows]


def test_an_existing_file_wins_over_a_name(run: ScapoEval, world: Path) -> None:
    (world / "x=a.jsonl").write_bytes((world / "few.jsonl").read_bytes())
    _, out, _ = run("x=a.jsonl", "--truth", "truth.json", "--json")
    assert json.loads(out)["systems"][0]["name"] == "x=a"
    _, out, _ = run("y=a.jsonl", "--truth", "truth.json", "--json")
    assert (json.loads(out)["systems"][0]["name"], json.loads(out)["systems"][0]["n_captions"]) == ("y", 60)
    code, _, err = run("y=a.jsonl", "y=many.jsonl", "--truth", "truth.json")
    assert (code, "system 'y' appears twice" in err) == (2, True)
    code, _, err = run("y=none.jsonl", "--truth", "truth.json")
    assert (code, "none.jsonl: file not found" in err) == (2, True)


def test_metrics_are_chosen(run: ScapoEval, world: Path) -> None:
    _, out, _ = run("a.jsonl", "many.jsonl", "--truth", "truth.json", "--json", "--metrics", "chair_s, hal_rate")
    found = json.loads(out)
    assert list(found["systems"][0]["metrics"]) == ["chair_s", "hal_rate"]
    assert [row["metric"] for row in found["comparisons"]] == ["chair_s", "hal_rate"]
    code, _, err = run("a.jsonl", "--truth", "truth.json", "--metrics", "bleu")
    assert code == 2
    assert "unknown metric 'bleu'; known: hal_rate, cover_rate, cap_score, chair_i, chair_s" in " ".join(err.split())


@pytest.mark.parametrize(
    ("gate", "code", "said"),
    [
        ("cap_score=70", 2, "0.70"),
        ("cap_score=1.5", 2, "fraction between 0 and 1"),
        ("cap_score=-1", 2, "fraction between 0 and 1"),
        ("cap_score=high", 2, "expected METRIC=VALUE"),
        ("bleu=0.5", 2, "unknown metric 'bleu'"),
        ("cap_score=0.70", 3, "gate missed: captions_baseline: cap_score = 0.5"),
        ("cap_score=0.10", 0, ""),
    ],
)
def test_gates(run: ScapoEval, gate: str, code: int, said: str) -> None:
    found, _, err = run(EXAMPLES[0], *TRUTH, "--fail-under", gate)
    assert found == code
    assert said in err


def test_gates_of_several_metrics_are_one_list(run: ScapoEval, world: Path) -> None:
    for names in (["hal_rate,cover_rate"], ["hal_rate", "cover_rate"]):
        gates = [word for name in names for word in ("--fail-worse", name)]
        code, _, err = run(EXAMPLES[1], EXAMPLES[0], *TRUTH, "-q", *gates)
        assert (code, err.count("gate missed")) == (3, 2)
    assert "--fail-worse accepts names separated by commas" in run("a.jsonl", *TRUTH, "--fail-worse", ",")[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "--format", "table"], "--json and --format table exclude each other"),
        (["--beside"], "--off-protocol and --beside require --protocol NAME"),
    ],
)
def test_options_that_exclude_each_other_leave_no_file(
    run: ScapoEval, world: Path, words: list[str], said: str
) -> None:
    code, out, err = run(EXAMPLES[0], *TRUTH, *words, "-o", "late.json")
    assert (code, out) == (2, "")
    assert said in err
    assert not Path("late.json").exists()


def test_results_are_shown_and_exported_under_their_given_names(run: ScapoEval, world: Path) -> None:
    assert run(EXAMPLES[0], *TRUTH, "-q", "-o", "r.json")[0] == 0
    for words in (
        ["power", "mine=r.json"],
        ["show", "-q", "mine=r.json"],
        ["show", "--allow-different", "mine=r.json"],
    ):
        code, out, _ = run(*words)
        assert code == 0
        assert {line.split("\t")[0] for line in out.splitlines()[1:]} == {"mine"}
    assert run("show", "--intervals", "--format", "markdown", "mine=r.json")[1].splitlines()[2].startswith("| mine |")
    assert run("export", "mine=r.json", "--to", "eee", "-o", "e.json", "--model", "mine=a/b")[0] == 0
    assert json.loads(Path("e.json").read_text())["model_info"]["id"] == "a/b"


def test_a_switch_before_the_file_is_no_option_with_a_value(run: ScapoEval, world: Path) -> None:
    code, out, err = run("--plain-cells", "yes.jsonl")
    assert code == 0, err
    assert "accuracy" in out


def test_plain_numbers_have_gates_above_1(run: ScapoEval, world: Path) -> None:
    assert run("chair", "a.jsonl", "--truth", "truth.json", "--fail-above", "len=20")[0] == 0
    assert run("chair", "a.jsonl", "--truth", "truth.json", "--fail-above", "len=1.5")[0] == 3


def test_chair_names_the_profile_of_published_tables(run: ScapoEval, world: Path) -> None:
    _, _, err = run("chair", "a.jsonl", "--truth", "truth.json")
    assert err.count("scapo-eval: note: ") == 1
    assert "most published tables use the profile 'opera'" in err
    assert run("chair", "a.jsonl", "--truth", "truth.json", "-q")[2] == ""


def test_help_has_groups_and_cuts_no_line(run: ScapoEval, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pages = {}
    for words in ((), ("annotate",), ("annotate", "qc"), ("vocab",), ("oracle",), ("judge",)):
        code, out, _ = run(*words, "--help")
        assert code == 0
        assert "..." not in out.replace("[ARGS]...", "")
        assert max(map(len, out.splitlines())) <= 80
        pages[words] = out
    page = pages[()]
    places = [
        page.index(f"\n{heading}:\n") for heading in ("Score captions", "Benchmarks", "Generate", "Look", "Build")
    ]
    assert places == sorted(places)
    assert set(VERBS) <= set(re.findall(r"^  (\w+)", page, re.M))


def _help_pages(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _help_pages(inner, inner.context_class(inner, info_name=name, parent=context))


def test_help_breaks_no_option_at_a_hyphen() -> None:
    pages = dict(_help_pages(cli, cli.context_class(cli, info_name="scapo-eval", terminal_width=78)))
    assert len(pages) > 60
    for path, page in pages.items():
        for line in page.splitlines():
            assert not re.search(r"\S-$", line), (path, line)
            assert len(line) <= 80, (path, line)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("scapo-eval sc", "plain,score"),
        ("scapo-eval captions.jsonl --tru", "plain,--truth"),
        ("scapo-eval score --fail", "plain,--fail-under\nplain,--fail-above\nplain,--fail-worse"),
        ("scapo-eval chair --profile o", "plain,opera"),
        ("scapo-eval compare a b --benchmark chair --synon", "plain,--synonyms"),
        ("scapo-eval oracle conv", "plain,convert"),
        ("scapo-eval annotate co", "plain,coarse\nplain,compare"),
        ("scapo-eval captions.jsonl --truth tr", "file,tr"),
        ("scapo-eval capt", "file,capt"),
    ],
)
def test_bash_completes(
    run: ScapoEval, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, wanted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(COMPLETE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert run() == (0, f"{wanted}\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete(run: ScapoEval, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv(COMPLETE, f"{shell}_source")
    code, out, err = run()
    assert (code, err) == (0, "")
    assert f"{COMPLETE}={shell}_complete" in out
    monkeypatch.setenv(COMPLETE, f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "scapo-eval sc")
    monkeypatch.setenv("COMP_CWORD", "1" if shell == "zsh" else "sc")
    code, out, _ = run()
    assert code == 0
    assert "score" in out


def test_show_without_an_image_shows_the_worst(run: ScapoEval, tmp_path: Path) -> None:
    _, out, _ = run("show", EXAMPLES[0], *TRUTH, "--worst", 3, "--json")
    worst = [json.loads(line) for line in out.splitlines()]
    assert len(worst) == 3
    assert run(EXAMPLES[0], *TRUTH, "--per-caption", tmp_path / "every.jsonl", "--resamples", 0)[0] == 0
    every = [json.loads(line) for line in (tmp_path / "every.jsonl").read_text().splitlines()]

    def key(record: Mapping[str, Any]) -> tuple[int, float]:
        n = record["counts"]
        precise, cover = 1 - n["hallucinated"] / max(1, n["generated"]), n["covered"] / n["truth"]
        return -n["hallucinated"], 2 * precise * cover / (precise + cover) if precise + cover else 0.0

    assert [record["line"] for record in worst] == [record["line"] for record in sorted(every, key=key)[:3]]
    assert run("show", EXAMPLES[0], *TRUTH, "--worst", 1, "--width", 80)[1].count("hallucinated: ") == 1
    code, _, err = run("show", EXAMPLES[0], *TRUTH, "--image", "1", "--worst", 1)
    assert (code, err.splitlines()[-1]) == (2, "Error: --image shows all captions of one image and excludes --worst")


def test_identical_errors_are_said_once(run: ScapoEval, world: Path) -> None:
    code, _, err = run("a.jsonl")
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith("scapo-eval: a.jsonl:1: missing ground truth: use --truth FILE")
    assert line.endswith("(60 records, lines 1-60)")
    write(world / "other.jsonl", [{"image_id": k, "txt": "x"} for k in range(30)])
    code, _, err = run("other.jsonl", "--truth", "truth.json")
    assert code == 2
    assert err.count("\n") == 1
    assert "missing key 'caption' (found: image_id, txt)" in err
    assert "name the keys: scapo-eval score other.jsonl --image-key image_id --caption-key txt" in err
    assert "(30 records, lines 1-30)" in err


def test_labels_in_every_format(run: ScapoEval, world: Path) -> None:
    _, out, _ = run("labels", "many.jsonl", "--truth", "truth.json", "--json")
    (system,) = json.loads(out)["systems"]
    assert [(row["label"], row["hallucinated"], row["claims"]) for row in system["invented"]] == [
        ("cat", 30, 60), ("dog", 30, 60),
    ]  # fmt: skip
    assert system["missed"] == []
    assert system["invented_beside"] == [
        {"invented": "cat", "present": "dog", "captions": 30},
        {"invented": "dog", "present": "cat", "captions": 30},
    ]
    assert system["invented_together"] == []
    write(world / "right.jsonl", [{"image_id": k, "caption": caption} for k, caption in ((0, "A cat."), (1, "A dog."))])
    _, out, _ = run("labels", "right.jsonl", "--truth", "truth.json")  # labels without a fault have a rate, too
    rows = list(csv.DictReader(io.StringIO(out), delimiter="\t"))
    assert [(row["label"], row["claims"], row["rate"]) for row in rows] == [("cat", "1", "0.0"), ("dog", "1", "0.0")]
    (system,) = json.loads(run("labels", "right.jsonl", "--truth", "truth.json", "--json")[1])["systems"]
    assert [row["label"] for row in system["labels"]] == ["cat", "dog"]
    _, out, _ = run("labels", "a.jsonl", "few.jsonl", "--truth", "truth.json")
    rows = list(csv.DictReader(io.StringIO(out), delimiter="\t"))
    assert [(r["system"], r["label"], r["rate"], r["missed"], r["miss_rate"]) for r in rows] == [
        ("a", "dog", "50.0", "0", "0.0"), ("a", "cat", "n/a", "30", "100.0"),
        ("few", "cat", "50.0", "0", "0.0"), ("few", "dog", "n/a", "23", "100.0"),
    ]  # fmt: skip
