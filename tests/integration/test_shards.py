"""Merged shards of describe, answer, judge and annotate coarse, compared with the output of a single machine."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

Image = pytest.importorskip("PIL.Image")

from scapo_eval.engines import Completion, Request  # noqa: E402
from scapo_eval.engines.base import OnCompletion  # noqa: E402
from scapo_eval.inference.shards import Shard  # noqa: E402

N = 3


class Hashing:
    """Engine that answers every request by its hash, and fails for some hashes."""

    identity: Mapping[str, Any] = {"engine": "hashing", "model": "m"}
    card: Mapping[str, Any] = {}

    def run(self, requests: Iterable[Request], done: OnCompletion) -> None:
        for request in requests:
            said = hashlib.sha256(repr((request.turns, request.sample)).encode()).hexdigest()
            if "marked as [[number:word]]" in request.turns[0].text:
                number = request.turns[-1].text.rpartition("[[")[2].partition(":")[0]
                uses = {str(k): "claim" if said[k % 64] < "8" else "negated" for k in range(1, int(number) + 1)}
                done(request, Completion(text=json.dumps(uses)))
            elif "list every visible object" in request.turns[0].text:
                done(request, Completion(text=f'["{said[:3]}"]'))
            elif '{"present": true}' in request.turns[-1].text:
                done(request, Completion(text=f'{{"present": {"true" if said[0] < "8" else "false"}}}'))
            elif said[0] == "0":
                done(request, Completion(error="no answer"))
            else:
                done(request, Completion(text=f"a dog and a {said[:8]} beside four words"))

    def close(self) -> None:
        pass


Run = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def work(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``scapo-eval`` in a folder with 40 images and questions about them."""
    import scapo_eval.cli.engine_options as options

    monkeypatch.setattr(options, "make_engine", lambda *how: Hashing())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    for k in range(40):
        Image.new("RGB", (8, 8), (k, 2 * k, 3 * k)).save(tmp_path / "images" / f"{k}.png")
    questions = [{"id": k, "image": f"{k % 40}.png", "question": f"What is {k}?"} for k in range(60)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in questions))
    return lambda *arguments: run(*arguments, "--model", "m", "-q") if arguments[0] != "merge" else run(*arguments)


DESCRIBE = ("describe", "images", "--samples", "2", "--temperature", "1")
ANSWER = ("answer", "questions.jsonl", "--images-root", "images", "--describe")
JUDGE = ("judge", "objhal", "captions.jsonl")
USES = ("judge", "uses", "captions.jsonl")


@pytest.mark.parametrize("verb", [DESCRIBE, ANSWER, JUDGE, USES])
def test_merged_shards_are_the_whole(work: Run, verb: tuple[str, ...]) -> None:
    name = "out.jsonl"
    if verb in (JUDGE, USES):
        work("describe", "images", "-o", "captions.jsonl")
    whole, _, said = work(*verb, "-o", name)
    assert Path(name).exists(), said
    codes = [work(*verb, "-o", name, "--shard", f"{k}/{N}")[0] for k in range(1, N + 1)]
    assert max(codes) == whole
    parts = [f"out.{k}-of-{N}.jsonl" for k in range(1, N + 1)]
    code, _, said = work("merge", *reversed(parts), "-o", "merged.jsonl")
    assert (code, said.startswith(f"merged.jsonl: {N} shards, ")) == (0, True), said
    assert Path("merged.jsonl").read_bytes() == Path(name).read_bytes()
    failed = Path(f"{name}.failed.jsonl")
    assert failed.exists() == (verb not in (JUDGE, USES))
    if failed.exists():
        assert Path("merged.jsonl.failed.jsonl").read_bytes() == failed.read_bytes()
    card, merged = (json.loads(Path(f"{each}.run.json").read_text()) for each in (name, "merged.jsonl"))
    assert {key: merged["counts"][key] for key in ("requests", "failed")} == {
        key: card["counts"][key] for key in ("requests", "failed")
    }
    if verb == ANSWER:
        described, together = (Path(f"{each}.descriptions.jsonl") for each in (name, "merged.jsonl"))
        assert together.read_bytes() == described.read_bytes()
        counts = [json.loads(Path(f"{each}.run.json").read_text())["counts"] for each in (described, together)]
        assert counts[0]["requests"] == counts[1]["requests"]
        Path(f"{parts[0]}.descriptions.jsonl.shard.json").unlink()
        code, _, said = work("merge", *parts, "-o", "merged.jsonl")
        assert (code, f"{parts[0]}.descriptions.jsonl.shard.json not found" in said) == (2, True)
    journals = [set(Path(f"{each}.journal").read_text().splitlines()) for each in (name, "merged.jsonl")]
    assert {line for line in journals[0] if '"error"' not in line} == journals[1]
    # with the merged journal the command without --shard asks nothing but what failed
    again = work(*verb, "-o", "merged.jsonl")
    assert again[0] == whole
    assert Path("merged.jsonl").read_bytes() == Path(name).read_bytes()


def test_what_does_not_belong_together_is_named(work: Run) -> None:
    def refused(*arguments: object) -> str:
        code, _, said = work("merge", *arguments, "-o", "merged.jsonl")
        assert (code, Path("merged.jsonl").exists()) == (2, False)
        return said

    for k in (1, 2):
        work("describe", "images", "-o", "a.jsonl", "--shard", f"{k}/2")
    one, two = "a.1-of-2.jsonl", "a.2-of-2.jsonl"
    assert "1 of 2 shards are missing: 2" in refused(one)
    assert f"shard 1/2 appears twice ({one} and {one})" in refused(one, one, two)
    work("describe", "images", "-o", "a.jsonl", "--shard", "2/3")
    assert f"a.2-of-3.jsonl: is shard 2/3, but {one} is shard 1/2" in refused(one, "a.2-of-3.jsonl")
    work("describe", "images", "-o", "b.jsonl", "--limit", "20", "--shard", "2/2")
    assert "b.2-of-2.jsonl: does not belong to the same run as a.1-of-2.jsonl" in refused(one, "b.2-of-2.jsonl")
    work("describe", "images", "-o", "c.jsonl", "--prompt", "What?", "--shard", "2/2")
    assert "c.2-of-2.jsonl: was made with other settings than a.1-of-2.jsonl: prompts differ" in refused(
        one, "c.2-of-2.jsonl"
    )
    assert "questions.jsonl.shard.json not found" in refused(one, "questions.jsonl")

    shard = json.loads(Path(f"{two}.shard.json").read_text())
    other = json.loads(Path(f"{one}.shard.json").read_text())["rows"][0]
    Path(f"{two}.shard.json").write_text(json.dumps({**shard, "rows": [other, *shard["rows"][1:]]}))
    assert f"row {other + 1} is in two shards, with contradicting records" in refused(one, two)
    Path(f"{two}.shard.json").write_text(json.dumps(shard))
    lines = Path(two).read_text().splitlines(keepends=True)
    Path(two).write_text("".join(lines[1:]))
    assert f"{two}: damaged: contains {len(lines) - 1} records, but its shard file lists {len(lines)}" in refused(
        one, two
    )


def test_merged_runs_are_the_whole_matrix(work: Run, run: Run) -> None:
    Path("v.yaml").write_text("name: two\nlabels:\n  dog: [dog]\n  cat: [cat]\n")
    verb = ("annotate", "coarse", "images", "--vocabulary", "v.yaml")
    assert work(*verb, "-o", "whole")[0] == 0
    for k in (1, 2):
        assert work(*verb, "-o", "run", "--shard", f"{k}/2")[0] == 0
    code, _, said = work("merge", "run.2-of-2", "run.1-of-2", "-o", "run")
    assert (code, said.strip()) == (0, "run: 2 shards, 40 images, 0 open cells")
    for name in ("whole", "run"):
        assert run("annotate", "finalize", name, "-o", f"{name}.npz")[0] == 0
    assert Path("run.npz").read_bytes() == Path("whole.npz").read_bytes()
    assert work(*verb, "-o", "run")[0] == 0  # nothing is left to ask

    Path("run.1-of-2/qc/round-1").mkdir(parents=True)
    said = work("merge", "run.2-of-2", "run.1-of-2", "-o", "checked")[2]
    assert "run.1-of-2: people's verdicts are merged, but not the rounds of its quality control" in said
    assert "run.2-of-2: people's" not in said
    Path("run.1-of-2/unread.jsonl").write_text('{"image_id": "nobody", "label": "dog"}\n')
    Path("mine").mkdir()
    Path("mine/.gitignore").write_text("*")
    for output in ("mine", "new"):
        assert "contains a cell that is not in the run" in work("merge", "run.2-of-2", "run.1-of-2", "-o", output)[2]
    assert [path.name for path in Path("mine").iterdir()] == [".gitignore"]
    assert not Path("new").exists()
    Path("run.1-of-2/unread.jsonl").unlink()
    assert "1 of 2 shards are missing: 1" in work("merge", "run.2-of-2", "-o", "x")[2]
    assert "already has a run" in work("merge", "run.1-of-2", "run.2-of-2", "-o", "run")[2]
    shutil.copytree("run.1-of-2", "run.1-of-3")
    assert "was started as shard 1/2" in work(*verb, "-o", "run", "--shard", "1/3")[2]
    Path("run.1-of-3/shard.json").write_text('{"number": 2, "of": 2}')
    said = work("merge", "run.1-of-2", "run.1-of-3", "-o", "x")[2]
    assert "contains verdicts on image" in said
    assert "which is not in shard 2/2" in said
    assert not Path("x").exists()


def test_a_forecast_for_several_servers(work: Run, run: Run) -> None:
    Path("v.yaml").write_text("name: two\nlabels:\n  dog: [dog]\n  cat: [cat]\n")
    said = run(
        "annotate", "coarse", "images", "--vocabulary", "v.yaml", "-o", "run", "--model", "m", "--forecast",
        "--servers", 64, "--price-hour", 2,
    )[2]  # fmt: skip
    assert " on 64 servers, " in said
    assert " for the servers' hours" in said


def test_shards_divide_evenly() -> None:
    keys = [str(k) for k in range(20_000)]
    sizes = [len(Shard(k, 64).share(keys, str).items) for k in range(1, 65)]
    assert sum(sizes) == len(keys)
    assert 240 < min(sizes) <= max(sizes) < 390


def shards_of(work: Run, name: str = "a.jsonl") -> list[str]:
    """Returns the outputs of two shards of describe."""
    for k in (1, 2):
        work("describe", "images", "-o", name, "--shard", f"{k}/2")
    return [name.replace(".jsonl", f".{k}-of-2.jsonl") for k in (1, 2)]


def altered(lines: list[str], how: str) -> list[str]:
    first, second = (json.loads(line) for line in lines[:2])
    if how == "text":
        return [json.dumps({**first, "caption": f"{first['caption']} Altered."}) + "\n", *lines[1:]]
    if how == "id":
        return [json.dumps({**first, "image_id": second["image_id"]}) + "\n", *lines[1:]]
    return [lines[1], lines[0], *lines[2:]]


@pytest.mark.parametrize("how", ["text", "id", "order"])
def test_a_shard_that_was_changed_is_refused(work: Run, how: str) -> None:
    one, two = shards_of(work)
    whole = Path(two).read_text()
    Path(two).write_text("".join(altered(whole.splitlines(keepends=True), how)))
    code, _, said = work("merge", one, two, "-o", "merged.jsonl")
    assert (code, Path("merged.jsonl").exists()) == (2, False), said
    assert said.startswith(f"scapo-eval: {two}")
    Path(two).write_text(whole)
    assert work("merge", one, two, "-o", "merged.jsonl")[0] == 0


def test_other_work_in_the_way_is_refused_and_kept(work: Run) -> None:
    one, two = shards_of(work)
    work("describe", "images", "--samples", "3", "--temperature", "1", "-o", "larger.jsonl")
    kept = {path: path.read_bytes() for path in Path().glob("larger.jsonl*")}
    code, _, said = work("merge", one, two, "-o", "larger.jsonl")
    assert code == 2
    assert "larger.jsonl" in said
    assert {path: path.read_bytes() for path in Path().glob("larger.jsonl*")} == kept


def test_what_was_paid_for_before_stays(work: Run) -> None:
    """Checks that a smaller output of the same work is merged, and that completions of other requests stay in the
    journal.
    """
    one, two = shards_of(work)
    work("describe", "images", "-o", "b.jsonl", "--limit", "20")
    journal = set(Path("b.jsonl.journal").read_text().splitlines())
    extra = json.dumps({**json.loads(min(journal)), "key": "0" * 8, "text": "of a request that no shard has"})
    Path("b.jsonl.journal").write_text(Path("b.jsonl.journal").read_text() + extra + "\n")
    code, _, said = work("merge", one, two, "-o", "b.jsonl")
    assert code == 0, said
    assert "of a request that no shard has" in Path("b.jsonl.journal").read_text()
    work("describe", "images", "-o", "whole.jsonl")
    assert Path("b.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


def test_an_output_keeps_its_mode_and_follows_a_link(work: Run) -> None:
    one, two = shards_of(work)
    Path("real").mkdir()
    Path("real/out.jsonl").touch(mode=0o600)
    Path("real/out.jsonl").chmod(0o640)
    Path("link.jsonl").symlink_to("real/out.jsonl")
    code, _, said = work("merge", one, two, "-o", "link.jsonl")
    assert code == 0, said
    assert Path("link.jsonl").is_symlink()
    assert (Path("real/out.jsonl").stat().st_mode & 0o777, Path("real/out.jsonl").stat().st_size > 0) == (0o640, True)
