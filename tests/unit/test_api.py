"""The Python interface: what may be handed over, what comes back, and that it equals the command line's figures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import scapo_eval
from scapo_eval import InputError, PresenceOracle, Results, Run, ScapoError, Vocabulary, compare, load_results
from scapo_eval.base.errors import InputWarning, MissingExtra
from scapo_eval.benchmarks.amber import AmberData
from scapo_eval.cli.main import cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BASELINE, ALIGNED, TRUTH = (
    EXAMPLES / name for name in ("captions_baseline.jsonl", "captions_aligned.jsonl", "truth.json")
)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class StandInDataset:
    """What Hugging Face's Dataset has of use here: rows by iteration, features, columns that can be removed."""

    class Image:
        def decode_example(self, value: object) -> object:
            raise AssertionError("an image is decoded")

    def __init__(self, rows: list[dict[str, Any]], features: Mapping[str, object]) -> None:
        self.rows, self.features = rows, features

    def remove_columns(self, names: list[str]) -> StandInDataset:
        kept = {name: feature for name, feature in self.features.items() if name not in names}
        return StandInDataset([{k: v for k, v in row.items() if k in kept} for row in self.rows], kept)

    def to_dict(self) -> dict[str, list[Any]]:
        return {name: [row[name] for row in self.rows] for name in self.features}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            for name, value in row.items():
                decode = getattr(self.features[name], "decode_example", lambda value: value)
                decode(value)
            yield row


def dataset(records: list[dict[str, Any]]) -> StandInDataset:
    rows = [{**record, "image": b"..."} for record in records]
    return StandInDataset(rows, {**dict.fromkeys(records[0], "Value"), "image": StandInDataset.Image()})


FORMS: list[Callable[[list[dict[str, Any]]], Any]] = [list, iter, tuple, pd.DataFrame, dataset]


def of_records(run: Run) -> dict[str, Any]:
    """A run without the number of bytes and their hash, which records in memory have not."""
    found = run.to_dict()
    return {**found, "account": {**found["account"], "bytes": 0, "crc32": None}}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_run_of_the_file(form: Callable[[list[dict[str, Any]]], Any]) -> None:
    from_file = scapo_eval.score(str(BASELINE), truth=TRUTH)
    run = scapo_eval.score(form(lines(BASELINE)), truth=TRUTH, name="captions_baseline")
    assert of_records(run) == of_records(from_file)
    assert run.n_records == len(lines(BASELINE))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_worker_processes_read_records_too(form: Callable[[list[dict[str, Any]]], Any]) -> None:
    captions = lines(BASELINE) * 150
    one = scapo_eval.score(form(captions), truth=TRUTH, resamples=0)
    assert one.n_records == 6000
    if form is list:
        assert scapo_eval.score(captions, truth=TRUTH, resamples=0, workers=2).counts == one.counts


def test_truth_and_vocabulary_as_objects_or_records() -> None:
    objects = {record["image_id"]: ["dog", "person"] for record in lines(BASELINE)}
    vocabulary = Vocabulary.load("coco80")
    by_mapping = scapo_eval.score(BASELINE, truth=objects, vocabulary=vocabulary)
    rows = [{"image_id": image, "objects": labels} for image, labels in objects.items()]
    for truth in (PresenceOracle.from_objects(objects), rows, pd.DataFrame(rows)):
        assert scapo_eval.score(BASELINE, truth=truth).counts == by_mapping.counts
    inline = [{**record, "objects": np.array(["dog", "person"])} for record in lines(BASELINE)]
    assert scapo_eval.score(pd.DataFrame(inline)).counts == by_mapping.counts
    dagger = scapo_eval.score(
        BASELINE, truth=objects, dopa=objects, dopa_vocabulary=Vocabulary.from_mapping({"dog": ["dog"]})
    )
    assert dagger.metrics["cover_rate_dagger"].value is not None
    assert dagger.hal_rate == by_mapping.hal_rate


@pytest.mark.parametrize(
    ("image", "caption"), [("image", "response"), ("image_id", "response"), ("id", "response"), ("file_name", "text")]
)
def test_records_have_the_keys_that_files_have(image: str, caption: str, tmp_path: Path) -> None:
    rows = [{image: f"{k}.jpg", caption: "A dog and a cat."} for k in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    truth = {k: ["dog"] for k in range(3)}
    of_file = scapo_eval.score(tmp_path / "rows.jsonl", truth=truth)
    for given in (rows, pd.DataFrame(rows)):
        run = scapo_eval.score(given, truth=truth)
        assert run.counts == of_file.counts
        assert [note.partition(": ")[2] for note in run.notes] == [note.partition(": ")[2] for note in of_file.notes]


def test_records_under_other_keys_carry_their_own_truth() -> None:
    run = scapo_eval.score([{"image": "1.jpg", "response": "A dog and a cat.", "objects": ["dog"]}])
    assert (run.hal_rate, run.cover_rate) == (0.5, 1.0)


def test_answers_in_memory_are_not_captions() -> None:
    with pytest.raises(InputError, match="if they are captions, name the keys 'image_id' and 'caption'"):
        scapo_eval.score([{"id": 1, "response": "Yes."}], truth={1: ["dog"]})


def test_words_are_a_vocabulary_wherever_one_is_accepted() -> None:
    rows = [{"image_id": 1, "caption": "A puppy and a cat.", "objects": ["dog"]}]
    words = {"dog": ["puppy"], "cat": ()}
    run = scapo_eval.score(rows, vocabulary=words)
    assert (run.hal_rate, run.cover_rate) == (0.5, 1.0)
    assert run.signature == scapo_eval.score(rows, vocabulary=Vocabulary.load(words)).signature
    assert scapo_eval.chair(rows, vocabulary=words, truth={1: ["dog"]}).values["chair_i"] == 0.5
    assert [row["label"] for row in scapo_eval.labels(rows, vocabulary=words).rows] == ["dog", "cat"]
    assert [claim.label for claim in scapo_eval.claims_of("A puppy.", words)] == ["dog"]
    assert scapo_eval.reward_fn(words, {1: ["dog"]})(completions=["There is a puppy."], image_id=[1]) == [1.0]
    with pytest.warns(InputWarning, match="2 words as a vocabulary; each matches only as written"):
        assert scapo_eval.score(rows, vocabulary=["dog", "cat"]).counts["hallucinated"] == 1
    assert scapo_eval.density(rows, truth={1: ["dog"]}, vocabulary=words)[0].values["objects"] == 2


@pytest.mark.parametrize("given", [{}, {"dog": 1}, {"dog": {"puppy": 1}}, 7])
def test_what_is_no_vocabulary(given: Any) -> None:
    with pytest.raises(InputError, match=r"not a valid vocabulary: .*a list of words"):
        Vocabulary.of(given)


def test_numbers_as_pandas_and_numpy_write_them() -> None:
    frame = pd.DataFrame(lines(BASELINE))
    expected = scapo_eval.score(frame, truth=TRUTH).to_dict()
    for dtype in ("int32", "float64", "Int64", "string"):
        assert scapo_eval.score(frame.astype({"image_id": dtype}), truth=TRUTH).to_dict() == expected
    assert scapo_eval.score(frame.to_records(), truth=TRUTH, name="captions").to_dict() == expected
    frame.index = pd.Index(np.arange(len(frame)) + 100)
    assert scapo_eval.score(frame, truth=TRUTH).to_dict() == expected


def with_missing(column: str, value: Any = float("nan")) -> pd.DataFrame:
    frame = pd.DataFrame(lines(BASELINE)).astype(object)
    frame.loc[2, column] = value
    return frame


CAPTION_FAULTS: list[tuple[Any, str]] = [
    (with_missing("caption"), "<DataFrame>:3: 'caption' must be a string, found null"),
    (with_missing("caption", pd.NA), "<DataFrame>:3: 'caption' must be a string, found null"),
    (with_missing("caption", 7), "<DataFrame>:3: 'caption' must be a string, found a number"),
    (with_missing("image_id"), "<DataFrame>:3: 'image_id' must be a number or a string, not null"),
    (with_missing("image_id", 999), "<DataFrame>:3: unknown image id '999'"),
    (pd.DataFrame({"image_id": [1]}), "<DataFrame>:1: missing key 'caption' (found: image_id)"),
    (pd.DataFrame({0: [1], 1: ["a"]}), "<DataFrame>:1: missing key 'image_id' (found: 0, 1)"),
    (pd.DataFrame(), "<DataFrame>: the frame has no columns"),
    (pd.DataFrame([[1, "a", "b"]], columns=["image_id", "caption", "caption"]), "column 'caption' appears twice"),
    (pd.DataFrame({"image_id": [], "caption": []}), "<DataFrame>: no caption is left to score"),
    ([], "<list>: no caption is left to score"),
    ([{"image_id": 1, "caption": "a"}, ["x"]], "<list>:2: expected a JSON object, found an array"),
    ([{"image_id": 1, "caption": float("nan")}], "<list>:1: 'caption' must be a string, found null"),
    ({"train": []}, "one mapping (keys: train), not records"),
    (b"captions.jsonl", "found bytes"),
    (7, "expected a path, a list of records, a DataFrame or a Dataset, found int"),
    (None, "found NoneType"),
    ("nothing.jsonl", "nothing.jsonl: file not found"),
    (Path("nothing.jsonl"), "nothing.jsonl: file not found"),
]


@pytest.mark.parametrize(("captions", "reason"), CAPTION_FAULTS)
@pytest.mark.parametrize("verb", [scapo_eval.score, scapo_eval.chair])
def test_captions_that_cannot_be_scored(verb: Callable[..., Run], captions: Any, reason: str) -> None:
    with pytest.raises(ScapoError) as caught:
        verb(captions, truth=TRUTH)
    assert reason in str(caught.value)


def test_faulty_rows_can_be_skipped_and_are_counted() -> None:
    run = scapo_eval.score(with_missing("caption"), truth=TRUTH, skip_bad=True)
    assert (run.n_records, run.counts["skipped"], run.signature.fields["skip"]) == (len(lines(BASELINE)) - 1, 1, "1")
    run = scapo_eval.score(with_missing("image_id", 999), truth=TRUTH, on_unknown_image="skip")
    assert (run.n_records, run.counts["unknown_images"]) == (len(lines(BASELINE)) - 1, 1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"claims": "some"}, "claims must be one of all, "),
        ({"on_unknown_image": "ignore"}, "on_unknown_image must be one of error, skip"),
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"resamples": -1}, "resamples must be a whole number of at least 0"),
        ({"seed": "a"}, "seed must be a whole number of at least 0, got 'a'"),
        ({"vocabulary": "coco81"}, "unknown vocabulary 'coco81'"),
        ({"truth": "nothing.json"}, "nothing.json: file not found"),
        ({"truth": {1: "dog"}}, "expected a list of labels"),
        ({"truth": [{"image_id": 1}]}, "<list>:1: missing key 'objects'"),
        ({"truth": 5}, "found int"),
        ({"name": 5}, "the name of a run must be a string, got 5"),
    ],
)
def test_settings_that_are_not_valid(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScapoError) as caught:
        scapo_eval.score(BASELINE, **{"truth": TRUTH, **settings})
    assert reason in str(caught.value)


def test_chair_profiles() -> None:
    assert scapo_eval.chair(BASELINE, truth=TRUTH).metrics["chair_s"].value == pytest.approx(
        scapo_eval.score(BASELINE, truth=TRUTH).chair_s
    )
    script = scapo_eval.chair(BASELINE, truth=TRUTH, profile="reference", native=True, resamples=0)
    native = scapo_eval.chair(BASELINE, truth=TRUTH, resamples=0)
    for name in ("chair_s", "chair_i", "recall", "precision", "f1"):
        assert script.values[f"{name}_native"] == native.values[name]
    assert native.values["precision"] == pytest.approx(1 - (native.values["hal_rate"] or 0))
    with pytest.raises(InputError, match="--truth FILE is missing"):
        scapo_eval.chair(BASELINE)
    with pytest.raises(InputError, match="profile must be one of native, reference, opera, got 'best'"):
        scapo_eval.chair(BASELINE, truth=TRUTH, profile="best")  # type: ignore[arg-type]


def test_yesno_of_records() -> None:
    answers = [{"id": 1, "response": "Yes."}, {"id": 2, "response": "No"}, {"id": 3, "response": "Perhaps"}]
    questions = [{"id": k, "label": label} for k, label in ((1, "yes"), (2, "yes"), (3, "no"))]
    run = scapo_eval.yesno(pd.DataFrame(answers), questions=pd.DataFrame(questions))
    assert run.metrics["accuracy"].value == 1 / 3
    assert run.counts["unparsed"] == 1
    dropped = scapo_eval.yesno(answers, questions=questions, unparsed="drop")
    assert dropped.metrics["accuracy"].value == 1 / 2
    own = [{**answer, "label": question["label"]} for answer, question in zip(answers, questions, strict=True)]
    assert scapo_eval.yesno(own).values == run.values
    assert scapo_eval.yesno(answers, questions=questions, parser="contains", name="x").signature.fields["parser"] == (
        "contains"
    )


ANSWER_FAULTS: list[tuple[Any, dict[str, Any], str]] = [
    ([{"id": 1, "response": "Yes"}], {}, "<list>:1: 1 of 1 answers have no label yes or no"),
    ([{"id": 1, "response": None, "label": "yes"}], {}, "<list>:1: 'response' must be a string"),
    (pd.DataFrame({"id": [None], "response": ["Yes"], "label": ["yes"]}), {}, "<DataFrame>:1: 'id' must be"),
    ([], {}, "<list>: there are no records"),
    ([{"a": 1}], {}, "<list>: unknown layout: records with the keys a"),
    ([{"q": 1, "response": "Yes"}], {}, "rename the keys to image_id and caption (of answers: id and response)"),
    ([{"id": 1, "response": "Yes", "label": "yes"}], {"parser": "mine"}, "parser must be one of default, pope,"),
    ([{"id": 1, "response": "Yes", "label": "yes"}], {"unparsed": "right"}, "unparsed must be one of wrong, drop"),
    ([{"id": 1, "response": "Yes"}], {"questions": [{"id": 1}]}, "<list>:1: missing key 'label' (found: id)"),
    ([{"id": 1, "response": "Yes"}], {"questions": ["nothing.json"]}, "nothing.json: file not found"),
]


@pytest.mark.parametrize(("answers", "settings", "reason"), ANSWER_FAULTS)
def test_answers_that_cannot_be_scored(answers: Any, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScapoError) as caught:
        scapo_eval.yesno(answers, **settings)
    assert reason in str(caught.value)


def by_command(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(cli, [*map(str, arguments), "--json", "--resamples", "50", "-q"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_figures_are_those_of_the_verbs(shared: Path) -> None:
    data = shared / "data"
    pope_answers, pope_questions = (
        data / "pope" / "llava-v1.5-13b.answers.jsonl",
        [data / "pope" / f"coco_pope_{category}.json" for category in ("adversarial", "popular", "random")],
    )
    phd_answers, phd_data = data / "phd" / "phd_synthetic_answers.jsonl", data / "phd" / "phd_synthetic.json"
    amber = data / "amber"
    responses = amber / "responses" / "gen_instructblip_agla_small.json.gz"
    few = {"resamples": 50}
    runs = {
        ("score", BASELINE, "--truth", TRUTH): scapo_eval.score(BASELINE, truth=TRUTH, **few),
        ("chair", BASELINE, "--truth", TRUTH): scapo_eval.chair(BASELINE, truth=TRUTH, **few),
        ("amber", responses, "--data", amber): scapo_eval.amber(responses, data=AmberData.load(amber), **few),
        ("pope", pope_answers, *(part for path in pope_questions for part in ("--questions", path))): scapo_eval.pope(
            pope_answers, questions=pope_questions, **few
        ),
        ("phd", phd_answers, "--data", phd_data): scapo_eval.phd(phd_answers, data=phd_data, **few),
    }
    for command, run in runs.items():
        assert run.to_dict() == by_command(*command)["systems"][0]
    in_memory = scapo_eval.amber(
        json.loads(gzip.decompress(responses.read_bytes())), data=amber, name="gen_instructblip_agla_small", **few
    )
    saved = in_memory.to_dict()
    read = runs["amber", responses, "--data", amber].to_dict()
    of_file = ("bytes", "crc32")
    accounts = [{k: v for k, v in run.pop("account").items() if k not in of_file} for run in (saved, read)]
    assert accounts[0] == accounts[1]
    assert saved == read
    answers = scapo_eval.pope(pd.DataFrame(lines(pope_answers)), questions=pope_questions, **few)
    assert answers.values == scapo_eval.pope(pope_answers, questions=pope_questions, **few).values


# ---- results ----


@pytest.fixture(scope="module")
def results() -> Results:
    return compare([scapo_eval.score(path, truth=TRUTH, resamples=50) for path in (BASELINE, ALIGNED)])


def test_compare_equals_the_verb(results: Results, tmp_path: Path) -> None:
    assert results.to_dict() == by_command("score", BASELINE, ALIGNED, "--truth", TRUTH)
    results.save(tmp_path / "results.json")
    again = compare(load_results(tmp_path / "results.json"), resamples=50)
    assert again.to_dict() == results.to_dict()
    assert compare(load_results(tmp_path / "results.json"), resamples=0).comparisons[0]["p_value"] is None


def test_results_files_are_compared_by_their_paths(results: Results, tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", str(tmp_path / "b.json")]
    for path, run in zip(paths, results.runs, strict=True):
        run.save(path)
    assert compare(paths).to_dict() == results.to_dict()
    assert compare([results.runs[0], paths[1]]).to_dict() == results.to_dict()
    assert [run.name for run in compare(paths[1]).runs] == [results.runs[1].name]
    with pytest.raises(InputError, match=r"not a results file .*score captions or answers first"):
        compare([BASELINE])


def test_runs_of_one_name_are_numbered() -> None:
    captions = [lines(BASELINE), lines(ALIGNED)]
    found = compare([scapo_eval.score(each, truth=TRUTH, resamples=0) for each in captions])
    assert [run.name for run in found.runs] == ["captions#1", "captions#2"]


def test_what_cannot_be_compared() -> None:
    first = scapo_eval.score(BASELINE, truth=TRUTH, resamples=0)
    other = scapo_eval.score(ALIGNED, truth=TRUTH, claims="asserted", resamples=0)
    with pytest.raises(InputError, match=r"scored differently.*claims: asserted against all.*allow_different=True"):
        compare([first, other])
    assert len(compare([first, other], allow_different=True).comparisons) == 5
    with pytest.raises(InputError, match="is a run of chair"):
        compare([first, scapo_eval.chair(ALIGNED, truth=TRUTH, resamples=0)], allow_different=True)
    with pytest.raises(InputError, match="there are no runs"):
        compare([])
    with pytest.raises(InputError, match="or paths of results files, found dict"):
        compare([first.to_dict()])  # type: ignore[list-item]


def test_per_image_adds_up() -> None:
    run = scapo_eval.score(BASELINE, truth=TRUTH, resamples=0)
    frame = pd.DataFrame(run.per_image())
    assert len(frame) == run.n_images
    assert list(frame.columns) == ["image_id", *run.table.columns, *run.values]
    assert frame["generated"].sum() == run.counts["generated"]
    record = run.per_image()[0]
    assert record["hal_rate"] == (record["hallucinated"] / record["generated"] if record["generated"] else None)
    silent = scapo_eval.score([{"image_id": 1, "caption": "Nothing."}], truth=TRUTH, resamples=0)
    assert silent.per_image()[0]["hal_rate"] is None


def test_frames_are_tidy(results: Results) -> None:
    frame = results.to_pandas()
    columns = "system metric value ci_low ci_high difference p_value p_holm n_images signature"
    assert list(frame.columns) == columns.split()
    assert len(frame) == 2 * len(results.metric_set.formulas)
    assert frame.groupby("system")["difference"].count().to_dict() == {"captions_aligned": 5, "captions_baseline": 0}
    assert {str(frame[name].dtype) for name in columns.split()[2:8]} == {"float64"}
    row = frame[(frame.system == "captions_aligned") & (frame.metric == "hal_rate")].iloc[0]
    assert row.value == results.runs[1].metrics["hal_rate"].value
    assert row.signature == str(results.runs[1].signature)
    assert list(results.runs[0].to_pandas().columns) == columns.split()


def test_frames_need_pandas(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[pandas\]"):
        results.to_pandas()


def test_tables_of_all_kinds(results: Results) -> None:
    markdown, latex, page = results.to_markdown(), results.to_latex(["cap_score"]), results._repr_html_()
    baseline = results.runs[0].metrics["cap_score"]
    assert "captions\\_baseline" in markdown
    assert str(results.runs[0].signature) in markdown
    assert f"{100 * baseline.value:.1f}" in latex
    assert "Hal. Rate" not in latex
    assert f"{100 * baseline.value:.1f} [{100 * baseline.low:.1f}, {100 * baseline.high:.1f}]" in page
    assert f"{100 * baseline.value:.1f} \\[" in results.to_markdown(["cap_score"], intervals=True)
    with pytest.raises(InputError, match="unknown metric 'bleu'; known: hal_rate"):
        results.to_markdown(["bleu"])


def test_a_page_escapes_and_says_what_a_reader_must_know() -> None:
    truth = PresenceOracle.from_objects({1: ["dog", "unicorn"]}, source="my <truth>")
    found = scapo_eval.score([{"image_id": 1, "caption": "a dog"}], truth=truth, resamples=0, name="<b>a & b</b>")
    page = found._repr_html_()
    assert "<b>a &" not in page
    assert (
        "&lt;b&gt;a &amp; b&lt;/b&gt;: my &lt;truth&gt;: 1 labels of the ground truth are not in the vocabulary" in page
    )


def test_bold_is_what_the_test_supports() -> None:
    """40 images, of which the second system hallucinates on none and the third on all but one."""
    truth = PresenceOracle.from_objects({k: ["dog"] for k in range(40)}, labels=["dog", "cat"])

    def run(name: str, wrong: int) -> Run:
        captions = [{"image_id": k, "caption": "a dog" + " and a cat" * (k < wrong)} for k in range(40)]
        return scapo_eval.score(captions, truth=truth, name=name)

    found = compare([run("base", 40), run("clean", 0), run("same", 39)])
    page = found._repr_html_()
    assert "<td>clean</td><td><b>0.0</b>** [0.0, 9.3]</td>" in page
    assert page.split("<td>same</td>")[1].split("</tr>")[0].count("<b>") == 0
    frame = found.to_pandas().query("metric == 'hal_rate'")
    assert frame.p_holm.tolist()[1] == 2 * frame.p_value.tolist()[1]


def test_evidence_as_a_frame_has_a_row_per_mention() -> None:
    pytest.importorskip("pandas")
    rows = [
        {"image_id": 1, "caption": "A dog and a cat.", "objects": ["dog"]},
        {"image_id": 2, "caption": "", "objects": ["dog"]},
        {"image_id": 3, "caption": "A cat.", "objects": ["cat"]},
    ]
    frame = scapo_eval.evidence(rows).to_pandas()
    assert frame[["image_id", "caption", "text", "label", "verdict"]].values.tolist() == [
        ["1", 0, "dog", "dog", "supported"],
        ["1", 0, "cat", "cat", "hallucinated"],
        ["3", 2, "cat", "cat", "supported"],
    ]
    assert scapo_eval.evidence(rows[1:2]).to_pandas().columns.tolist() == frame.columns.tolist()


def test_captions_as_a_mapping_from_images_equal_their_records() -> None:
    texts, truth = {"1.jpg": "A dog.", "2.jpg": "A cat and a dog."}, {1: ["dog"], 2: ["cat"]}
    records = [{"image_id": image, "caption": text} for image, text in texts.items()]
    assert scapo_eval.score(texts, truth=truth).metrics == scapo_eval.score(records, truth=truth).metrics


def test_a_list_of_files_is_refused_with_the_two_remedies(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for k, path in enumerate(paths):
        path.write_text(json.dumps({"image_id": k, "caption": "A dog.", "objects": ["dog"]}))
    with pytest.raises(InputError, match=r"score each and compare the runs; .* folder or a pattern"):
        scapo_eval.score(paths)
    assert scapo_eval.score(tmp_path).n_images == scapo_eval.score(str(tmp_path / "*.jsonl")).n_images == 2
    with pytest.raises(InputError, match=r"texts without image ids; give records: "):
        scapo_eval.score(["A dog.", "A cat."], truth={1: ["dog"]})


def test_differences_without_a_value_in_the_last_metric_are_drawn() -> None:
    pytest.importorskip("matplotlib")
    rows = [{"image_id": k, "caption": "A dog.", "objects": ["dog", "couch"]} for k in range(30)]
    silent = [{**row, "caption": "Nothing."} for row in rows]  # no claim, so no rate of hallucinations
    given = [scapo_eval.score(each, name=name) for name, each in (("base", rows), ("ours", rows), ("silent", silent))]
    figure = scapo_eval.plots.differences(given, metrics=["cover_rate", "hal_rate"])
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["silent", "ours"]


def test_figures_are_drawn_from_runs_as_from_results() -> None:
    pytest.importorskip("matplotlib")
    rows = [{"image_id": k, "caption": "A dog and a cat.", "objects": ["dog", "couch"]} for k in range(30)]
    better = [{**row, "caption": "A dog on a couch, a cat."} for row in rows[:20]] + rows[20:]
    runs = [scapo_eval.score(rows, name="base"), scapo_eval.score(better, name="ours")]
    results = scapo_eval.compare(runs)
    for draw in (scapo_eval.plots.frontier, scapo_eval.plots.differences):
        ours, theirs = ([text.get_text() for text in draw(given).axes[0].texts] for given in (runs, results))
        assert ours == theirs
    by_label = [scapo_eval.labels(rows, name="base"), scapo_eval.labels(better, name="ours")]
    for given in (by_label, runs):
        (axes,) = scapo_eval.plots.labels(given).axes
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["cat"]
        assert [line.get_xdata().tolist() for line in axes.lines] == [[100.0], [100.0]]
    assert len(scapo_eval.plots.labels(runs[0]).axes[0].lines) == 1
