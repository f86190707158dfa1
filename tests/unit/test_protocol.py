"""Protocols: every shipped file, what is checked of runs and files, what a mismatch says, and the way to go on."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import scapo_eval
from scapo_eval import InputError, PresenceOracle, Protocol
from scapo_eval.base.hashes import digest
from scapo_eval.benchmarks import systems
from scapo_eval.benchmarks.protocol import ProtocolFacts, read_sample, shipped_protocols
from scapo_eval.benchmarks.published import footnote
from scapo_eval.cli.main import cli
from scapo_eval.cli.protocol import list_
from scapo_eval.cli.screen import SafeConsole
from scapo_eval.results.benchmark import SUMMARIES, benchmark
from scapo_eval.results.results import Resampling, load_results

PROMPT = "Please describe this image in detail."
MINE = {
    "name": "mine", "title": "Three images", "benchmarks": ["capscore", "chair"], "records": [3],
    "image_ids": {"first": 1, "last": 3}, "prompts": [PROMPT], "decoding": {"max_new_tokens": 64},
    "settings": {"chair": {"profile": "opera"}},
}  # fmt: skip


def captions(*images: int, **further: Any) -> list[dict[str, Any]]:
    return [{"image_id": image, "caption": "A dog.", **further} for image in images]


def lines(path: Path, records: Iterable[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(MINE))
    PresenceOracle.from_objects({k: ["dog"] for k in range(1, 9)}).save(tmp_path / "truth.json")
    return path


@pytest.mark.parametrize("name", shipped_protocols())
def test_shipped_files_are_complete(name: str) -> None:
    protocol = Protocol.load(name)
    assert protocol.name == name
    assert set(protocol.benchmarks) <= set(SUMMARIES)
    assert protocol.title
    assert protocol.truth
    assert protocol.publications
    assert protocol.source
    known = {metric for each in protocol.benchmarks for metric in benchmark(each).headline}
    assert known & set(protocol.metrics) or name == "phd"
    stored = json.loads(shipped_protocols()[name].read_bytes())
    assert stored.get("image_ids_hash") == protocol.images_hash


def test_protocols_are_hashable() -> None:
    assert len({Protocol.load(name) for name in [*shipped_protocols(), "chair-opera"]}) == len(shipped_protocols())


def test_image_lists_are_those_of_the_public_files(shared: Path) -> None:
    data = shared / "data"
    for name, path in {
        "chair-opera": "coco_chair/captions/llava-1.5_greedy.jsonl",
        "chair-opera-instructblip": "coco_chair/captions/instructblip_greedy.jsonl",
        "chair-less-is-more": "captions_real/coco_val2014_lessismore_r1_llava15_7b.jsonl",
    }.items():
        protocol = Protocol.load(name)
        assert len(protocol.image_ids or ()) == 500
        assert protocol.differences(read_sample(data / path)) == []
    objects = PresenceOracle.load(data / "objhal" / "coco_objects.json")
    assert set(Protocol.load("objhal").image_ids or ()) == set(objects.image_ids)
    amber = read_sample(data / "amber" / "responses" / "gen_llava_base.json.gz")
    assert Protocol.load("amber-generative").differences(amber) == []
    for split in ("adversarial", "popular", "random"):
        rows = map(json.loads, (data / "pope" / f"coco_pope_{split}.json").read_text().splitlines())
        images = [str(int(row["image"][-16:-4])) for row in rows]
        protocol = Protocol.load(f"pope-{split}")
        assert protocol.differences(ProtocolFacts(images, len(images))) == []


def test_a_run_that_follows_has_it_in_its_signature(mine: Path) -> None:
    truth = {k: ["dog"] for k in range(1, 9)}
    scored = scapo_eval.score(captions(1, 2, 3, prompt=PROMPT), truth=truth, resamples=10)
    followed = Protocol.load(mine).followed_by(scored, captions(1, 2, 3, prompt=PROMPT))
    assert followed.signature.fields["protocol"] == Protocol.load(mine).identity
    assert followed.signature.fields["ids"] == Protocol.load(mine).images_hash == digest(["1", "2", "3"])
    assert followed.values == scored.values
    assert type(followed) is type(scored)
    with pytest.raises(InputError, match=r"protocol: mine@[0-9a-f]{8} against none"):
        scapo_eval.compare([scored, followed])
    native = scapo_eval.chair(captions(1, 2, 3), truth=truth, resamples=0)
    assert (
        "published values of 'mine' use profile opera, but this run uses native"
        in Protocol.load(mine).followed_by(native).notes
    )


def test_the_protocol_of_the_images_is_named() -> None:
    images = [int(image) for image in Protocol.load("chair-less-is-more").image_ids or ()]
    scored = scapo_eval.score(captions(*images), truth={image: ["dog"] for image in images}, resamples=0)
    with pytest.raises(InputError, match="these are the images of the protocol 'chair-less-is-more' "):
        Protocol.load("chair-opera").followed_by(scored)
    doubled = scapo_eval.score(captions(*images, *images), truth={image: ["dog"] for image in images}, resamples=0)
    with pytest.raises(InputError, match=r"1,000 records instead of 500 \(to score"):
        Protocol.load("chair-less-is-more").followed_by(doubled)


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ("wilson", "95 % intervals: Wilson's, by image;"),
        ("percentile", "95 % intervals: bootstrap by image, 20 resamples, seed 12345;"),
    ],
)
def test_the_footnote_names_the_intervals_of_the_run(mine: Path, interval: Any, said: str) -> None:
    truth = {k: ["dog"] for k in range(1, 4)}
    scored = scapo_eval.score(captions(1, 2, 3), truth=truth).redrawn(Resampling(20, interval=interval))
    assert said in footnote(scored, Protocol.load(mine))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (captions(1, 3), "1 of its 3 images are missing (first: 2); 2 records instead of 3"),
        (captions(1, 2, 3, 7), "1 images are not among its images (first: 7); 4 records instead of 3"),
        (captions(1, 2, 2, 3), "4 records instead of 3"),
        (captions(1, 2, 3, prompt="Describe."), f"the prompt 'Describe.' instead of '{PROMPT}'"),
    ],
)
def test_a_mismatch_is_named_and_one_can_go_on(
    mine: Path, tmp_path: Path, records: list[dict[str, Any]], message: str
) -> None:
    path, results = lines(tmp_path / "c.jsonl", records), tmp_path / "r.json"
    quick = ["--truth", tmp_path / "truth.json", "--protocol", mine, "--resamples", 0]
    for verb in ("score", "chair", "objhal"):
        done = run(verb, path, *quick)
        wanted = (
            f"{mine}: the protocol 'mine' is for capscore, chair, not for objhal"
            if verb == "objhal"
            else f"'mine': {message} (to score and mark it anyway: --off-protocol"
        )
        assert wanted in str(done.exception), verb
    done = run("score", path, *quick, "--off-protocol", "-o", results)
    assert done.exit_code == 0
    [kept] = load_results(results)
    assert kept.signature.fields["protocol"].endswith(",off")
    assert f"off the protocol 'mine': {message}" in kept.notes
    checked = CliRunner().invoke(cli, ["protocol", "check", path, "--protocol", str(mine)], standalone_mode=False)
    assert checked.return_value == 2
    assert f"{path}: {message}" in checked.stderr


def test_all_files_are_checked_before_any_is_scored(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed, short = lines(tmp_path / "a.jsonl", captions(1, 2, 3)), lines(tmp_path / "b.jsonl", captions(1, 2))
    scored: list[str] = []
    monkeypatch.setattr(systems, "_keeping", lambda *_: scored.append("a file") or None)
    quick = ["--truth", tmp_path / "truth.json", "--protocol", mine, "--resamples", 0]
    for more in ([], ["--on-unknown-image", "skip"]):
        done = run("score", f"a={followed}", f"b={short}", *quick, *more)
        assert "b does not follow the protocol 'mine': 1 of its 3 images are missing (first: 3)" in str(done.exception)
    with pytest.raises(InputError, match="3 of its 3 images are missing"):
        scapo_eval.chair(captions(7), truth={7: ["dog"]}, protocol=mine, profile="native")
    assert not scored
    assert run("score", short, *quick, "--off-protocol").exit_code == 0
    assert scored


def test_omitted_records_do_not_deviate(mine: Path, tmp_path: Path) -> None:
    path = lines(tmp_path / "c.jsonl", [*captions(1, 2, 3, 99), {"image_id": 2}])
    how = ["--truth", tmp_path / "truth.json", "--protocol", mine, "--resamples", 0, "--on-unknown-image", "skip"]
    assert "c.jsonl:5: missing key 'caption'" in str(run("score", path, *how).exception)
    assert run("score", path, *how, "--on-bad-record", "skip").exit_code == 0
    omitting: Any = {"skip_bad": True, "on_unknown_image": "skip"}
    truth = {k: ["dog"] for k in range(1, 9)}
    scored = scapo_eval.chair(path, truth=truth, protocol=mine, profile="native", resamples=0, **omitting)
    assert scored.signature.fields["protocol"] == Protocol.load(mine).identity


def test_no_source_of_a_published_row_is_cut(mine: Path, tmp_path: Path) -> None:
    row = {"system": "A", "metrics": {"hal_rate": 9.0}, "paper": f"github.com/{'a' * 60}/z", "year": 2024}
    mine.write_text(json.dumps(MINE | {"published": [row]}))
    path = lines(tmp_path / "c.jsonl", captions(1, 2, 3))
    how = ["--truth", tmp_path / "truth.json", "--protocol", mine, "--resamples", 0, "--beside", "--width", 80]
    shown = "".join(run("score", path, *how).stdout.split())
    assert f"{'a' * 20}" in shown
    assert "/z,2024" in shown


def test_the_limit_is_read_from_the_run_card(mine: Path, tmp_path: Path) -> None:
    path = lines(tmp_path / "c.jsonl", captions(1, 2, 3, prompt=PROMPT))
    card = tmp_path / "c.jsonl.run.json"
    checks = ["protocol", "check", path, "--protocol", mine]
    assert run(*checks).stdout == f"{path}: follows 'mine' (not checked, because not known: limit)\n"
    card.write_text(json.dumps({"sampling": {"max_tokens": 64}}))
    assert run(*checks).stdout == f"{path}: follows 'mine'\n"
    card.write_text(json.dumps({"sampling": {"max_tokens": 512}}))
    assert "at most 512 new tokens instead of 64" in run(*checks).stderr


def test_results_files_are_checked_too(mine: Path, tmp_path: Path) -> None:
    results = []
    for name, images in {"a": (1, 2, 3), "b": (1, 2)}.items():
        path = lines(tmp_path / f"{name}.jsonl", captions(*images))
        results.append(tmp_path / f"{name}.json")
        run("score", path, "--truth", tmp_path / "truth.json", "-o", results[-1], "-q")
    assert "b does not follow the protocol 'mine'" in str(run("compare", *results, "--protocol", mine).exception)
    assert run("compare", results[0], results[0], "--protocol", mine, "--json").exit_code == 0


def test_only_the_descriptions_of_amber_count(shared: Path) -> None:
    data = scapo_eval.benchmarks.amber.AmberData.load(shared / "data" / "amber")
    given = [{"id": k, "response": "A beach."} for k in range(1, 1005)] + [{"id": 1005, "response": "Yes"}]
    scored = scapo_eval.amber(given, data=data, resamples=0)
    followed = Protocol.load("amber-generative").followed_by(scored)
    assert followed.signature.fields["protocol"].startswith("amber-generative@")
    with pytest.raises(InputError, match=r"missing \(first: 1004\); 1,003 records instead of 1,004"):
        Protocol.load("amber-generative").followed_by(scapo_eval.amber(given[:1003], data=data, resamples=0))


def test_pope_follows_its_split(shared: Path) -> None:
    pope = shared / "data" / "pope"
    questions = pope / "coco_pope_popular.json"
    scored = scapo_eval.pope(pope / "llava-v1.5-13b.answers.jsonl", questions=questions, resamples=0)
    assert "protocol:pope-popular@" in Protocol.load("pope-popular").followed_by(scored).signature


def test_the_verbs_that_list_and_show(mine: Path) -> None:
    listed = run("protocol", "list").stdout.splitlines()
    assert [line.split("\t")[0] for line in listed[1:]] == list(shipped_protocols())
    assert json.loads(run("protocol", "list", "--json").stdout)["protocols"][0]["name"] == "amber-generative"
    assert run("protocol", "show", "objhal", "--ids").stdout.split()[:2] == ["2529", "6306"]
    shown = run("protocol", "show", "chair-opera").stdout
    assert "max_new_tokens: 512" in shown
    assert "hash b533e624" in shown
    mine.write_text(run("protocol", "show", "chair-opera", "--json").stdout)
    assert Protocol.load(mine) == Protocol.load("chair-opera")
    assert "are not known" in run("protocol", "show", "phd", "--ids").stderr
    assert "exclude each other" in run("protocol", "show", "objhal", "--ids", "--json").stderr


def test_a_terminal_of_80_columns_shows_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("scapo_eval.cli.protocol.sys.stdout", SimpleNamespace(isatty=lambda: True))
    listed = io.StringIO()
    monkeypatch.setattr("scapo_eval.cli.protocol.SafeConsole", partial(SafeConsole, file=listed))
    list_.main([], standalone_mode=False)
    lines = listed.getvalue().splitlines()
    assert "…" not in listed.getvalue()
    assert {line.split(" ")[0] for line in lines} >= set(shipped_protocols())
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"image_ids_hash": "00000000"}, "the hash of the image ids is .*, not 00000000"),
        ({"imags": []}, "not a valid protocol: .*imags"),
        ({"records": "3"}, "not a valid protocol: .*records"),
        ({"decoding": {"max_tokens": 3}}, "not a valid protocol"),
        ({"image_ids": [" "]}, "not a valid protocol"),
    ],
)
def test_damaged_files(mine: Path, changed: dict[str, Any], message: str) -> None:
    mine.write_text(json.dumps({**MINE, **changed}))
    with pytest.raises(InputError, match=message):
        Protocol.load(mine)


def test_unknown_names_and_lone_options(mine: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown protocol 'chair' \(known: amber-generative, "):
        Protocol.load("chair")
    with pytest.raises(InputError, match="expected the name or the file of a protocol, found NoneType"):
        Protocol.load(None)  # type: ignore[arg-type]
    path = lines(tmp_path / "c.jsonl", captions(1))
    said = run(path, "--truth", tmp_path / "truth.json", "--off-protocol").stderr
    assert "--off-protocol and --beside require" in said


def test_a_count_that_a_benchmark_does_not_have_is_named(mine: Path, tmp_path: Path) -> None:
    mine.write_text(json.dumps(MINE | {"counted": "dogs"}))
    given = lines(tmp_path / "captions.jsonl", captions(1, 2, 3))
    asked = run(given, "--truth", tmp_path / "truth.json", "--protocol", mine, "--off-protocol", "--resamples", 0)
    assert isinstance(asked.exception, InputError)
    assert "the protocol 'mine' requires the count 'dogs', which capscore does not have (known: " in str(
        asked.exception
    )
