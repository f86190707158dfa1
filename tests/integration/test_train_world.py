"""The paper's claim in training runs of the real trainer, in a world where it holds by construction.

Of a scene's six nouns three are nearly always there and three are more often not, whatever else a picture shows: naming
one of the first is right nine times out of ten, one of the others four times. So a describer that names both kinds
about equally can say more and invent less at once, without seeing better; the Cap. Score of a response, a harmonic
mean, gains by a claim whose chance exceeds half of it, here at most 0.39: it pays for both kinds.

What is asserted is relative to the model before alignment, of a sampled response to each held-out picture, as means
over seeds, by a margin: single runs moved farther by half and more, with the kernels ``default`` and ``avx2``
(``ATEN_CPU_CAPABILITY``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

from filelock import FileLock  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from scapo_train import trainer  # noqa: E402
from scapo_train.config import load  # noqa: E402
from scapo_train.data import read_pairs  # noqa: E402
from scapo_train.world import __main__ as command  # noqa: E402
from scapo_train.world import experiment, files, grid, preference, pretrain, shorten  # noqa: E402
from scapo_train.world.experiment import SCHEMES, Trial, read_metrics  # noqa: E402
from scapo_train.world.language import repeats  # noqa: E402
from scapo_train.world.pictures import WORLDS, Scene, World  # noqa: E402
from scapo_train.world.pretrain import Lessons  # noqa: E402
from scapo_train.world.shorten import Shortening  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch's and transformers' own warnings are theirs
    pytest.mark.usefixtures("quiet_loggers"),
]
CHANCES = np.repeat((0.9, 0.4), 3)
LESSONS = Lessons(see=3, speak=100, scenes=200, pictures=16)
SEEDS = (0, 1)
FEW = (
    "run.samples=0", "run.export=false", "data.prompts_per_step=8", "optim.lr=1e-3",
    "rollout.max_new_tokens=64",  # a model of so few lessons often does not end; the limits were set with this one
)  # fmt: skip
NAMES = ("hal_rate", "cover_rate", "length")


def uneven_scene(world: World, random: np.random.Generator) -> Scene:
    """A kitchen where each noun is there with a chance of its own, in place of ``pictures.draw_scene``."""
    present = random.random(len(CHANCES)) < CHANCES
    nouns = random.permutation(np.array(world.of_scene(0))[present] if present.any() else [0])
    cells = sorted(random.permutation(world.side**2)[: len(nouns)].tolist())
    return Scene(0, tuple(nouns.tolist()), tuple(cells), (True,) * len(nouns))


@dataclass(frozen=True)
class Said:
    """Means over seeds of one sampled response to each held-out picture: fractions, and tokens of a response."""

    hal: float
    cover: float
    length: float

    @property
    def invented(self) -> float:
        """Number of invented labels per label that is present."""
        return self.cover * self.hal / (1 - self.hal)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world of seed 0 with its model before alignment: made once for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    output = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "worlds"
    torch.set_num_threads(1)
    with FileLock(f"{output}.lock"), pytest.MonkeyPatch.context() as patch:
        for module in (files, pretrain):
            patch.setattr(module, "draw_scene", uneven_scene)
        patch.setattr(experiment, "TRAIN_PICTURES", 160)
        patch.setattr(experiment, "EVALUATION_PICTURES", 200)
        return experiment.prepare(WORLDS["plain"], output, LESSONS, 0)


@pytest.mark.parametrize("missing", ["world.toml", "model/preprocessor_config.json", "model/model.safetensors"])
def test_an_incomplete_start_model_is_built_anew(start: Path, tmp_path: Path, missing: str) -> None:
    folder = shutil.copytree(start, tmp_path / "seed-0", ignore=shutil.ignore_patterns("images"))
    assert experiment.is_prepared(WORLDS["plain"], folder, LESSONS, 0)
    (folder / missing).unlink()
    assert not experiment.is_prepared(WORLDS["plain"], folder, LESSONS, 0)


def before_and_after(start: Path, folder: Path, scheme: str, steps: int) -> tuple[Said, Said]:
    """What the model says of the same held-out pictures before and after alignment."""
    torch.set_num_threads(1)
    rows: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    for seed in SEEDS:
        run = folder / f"{scheme}-{seed}"
        changes = [f"run.output={run}", f"run.seed={seed}", f"run.steps={steps}", f"run.evaluate_every={steps}"]
        trainer.train(load(start / "world.toml", [*changes, *FEW, *SCHEMES[scheme].settings]))
        first, *_, last = read_metrics(run)
        rows[0].append(first)
        rows[1].append(last)
    before, after = (
        Said(*(float(np.mean([row[f"evaluation_{name}"] or 0.0 for row in found])) for name in NAMES)) for found in rows
    )
    assert 0.3 <= before.cover <= 0.6  # it omits and invents
    assert 0.2 <= before.hal <= 0.4
    return before, after


def test_subsentence_credit_says_more_and_invents_less(start: Path, tmp_path: Path) -> None:
    before, after = before_and_after(start, tmp_path, "scapo", steps=14)
    assert after.cover >= before.cover + 0.05
    assert after.hal <= before.hal - 0.04


def test_the_response_level_hal_rate_teaches_saying_less(start: Path, tmp_path: Path) -> None:
    before, after = before_and_after(start, tmp_path, "hal", steps=14)
    assert after.cover <= before.cover / 2
    assert after.length < before.length


def test_the_response_level_cap_score_teaches_guessing(start: Path, tmp_path: Path) -> None:
    before, after = before_and_after(start, tmp_path, "cap", steps=7)
    assert after.cover >= before.cover + 0.15
    assert after.invented >= 1.4 * before.invented


@pytest.mark.parametrize("scheme", ["dpo", "mdpo", "symmpo"])
def test_pairs_by_cap_score_teach_more_of_it(start: Path, tmp_path: Path, scheme: str) -> None:
    rows = []
    for seed in SEEDS:
        run = tmp_path / f"{scheme}-{seed}"
        changes = [f"run.output={run}", f"run.seed={seed}", "run.steps=14", "run.evaluate_every=14", *FEW]
        preference.train(load(start / "world.toml", [*changes, *SCHEMES[scheme].settings]))
        pairs = [json.loads(line) for line in (run / "pairs.jsonl").read_text().splitlines()]
        assert 40 <= len(pairs) <= 14 * 8  # one for each prompt of a run on rollouts, at most
        assert all(pair["metadata"]["gap"] >= 10 and pair["metadata"]["by"] == "cap" for pair in pairs)
        first, *_, last = read_metrics(run)
        assert last["margin"] > 0
        rows.append(last["evaluation_cap_score"] - first["evaluation_cap_score"])
    assert np.mean(rows) >= 0.03


def test_pairs_of_a_run_with_a_relative_name_find_their_pictures(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default folder of the runs is relative, and so are the names of pictures in its prompts."""
    monkeypatch.chdir(start.parent)
    output = Path(os.path.relpath(tmp_path / "runs" / "dpo"))
    train = Path(start.name) / "train.jsonl"
    settings = [f"run.output={output}", f"data.train={train}", "run.steps=1", *FEW]
    pairs = preference.make_pairs(load(start / "world.toml", settings))
    for pair in read_pairs(pairs):
        assert all(Path(picture).is_file() for picture in pair.source.pictures)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("There is a dog. A cat sits. There is a dog. A cat sits.", "There is a dog. A cat sits."),
        (" There is a dog.  There is a dog. There is a cat. There is", "There is a dog. There is a cat. There is"),
        ("There is a dog. There is a dog and a cat.", "There is a dog. There is a dog and a cat."),
    ],
)
def test_only_repeated_sentences_are_deleted(text: str, expected: str) -> None:
    assert shorten.shortened(text) == expected
    assert repeats([expected]) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("There is a dog. A cat sits. There is a dog.......", "There is a dog. A cat sits."),
        ("There is a dog.....There is a cat... There is a dog.", "There is a dog. There is a cat."),
        (" There is a dog.  There is a dog. There is", "There is a dog."),
        ("There is", "There is"),
        ("...", "..."),
    ],
)
def test_a_repetition_before_further_periods_is_deleted(text: str, expected: str) -> None:
    assert shorten.deduplicated(text) == expected
    assert repeats([expected]) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("There is a dog. We can also see a puppy. It has a boat in it.", "There is a dog. It has a boat in it."),
        ("There is a dog. We can see a dog beside a boat.", "There is a dog. We can see a dog beside a boat."),
        (
            "The mood is relaxed and friendly. There is a dog...There is a",
            "The mood is relaxed and friendly. There is a dog.",
        ),
        ("There is", "There is"),
    ],
)
def test_a_sentence_without_a_new_object_is_deleted(text: str, expected: str) -> None:
    assert shorten.edit_of("distinct", WORLDS["crowded"])(text) == expected
    edits = [shorten.edit_of(name, WORLDS["crowded"]) for name in ("shortened", "deduplicated")]
    assert edits == [shorten.shortened, shorten.deduplicated]


def test_an_aligned_model_is_trained_on_its_shortened_captions(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    own = tmp_path / "plain" / "seed-0"
    shutil.copytree(start, own)
    settings = (own / "world.toml").read_text().replace(json.dumps(str(start))[1:-1], json.dumps(str(own))[1:-1])
    (own / "world.toml").write_text(re.sub("max_new_tokens = .*", "max_new_tokens = 64", settings))
    for module in (files, pretrain):
        monkeypatch.setattr(module, "draw_scene", uneven_scene)
    monkeypatch.setattr(experiment, "Shortening", lambda: Shortening(scenes=96, steps=40, pictures=16))
    # captions of few lessons hardly repeat, so that another cut stands in for the deletion
    first = partial(re.sub, r"\..*", ".")
    monkeypatch.setattr(experiment, "edit_of", lambda name, world: first)
    run = experiment.train(tmp_path / "plain", Trial("short", 0), 1)
    teacher = own / "runs" / "scapo"
    assert experiment.finished(teacher, 1)
    assert experiment.finished(run, 1)
    before, after = (load_file(folder / "model" / "model.safetensors") for folder in (teacher, run))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "visual" not in name}
    for folder in (teacher, run):
        experiment.describe(folder / "model", own)
    words = [experiment.measure(folder).greedy.words for folder in (teacher, run)]
    assert words[1] < 0.8 * words[0]
    written = (run / "metrics.jsonl").stat().st_mtime_ns
    assert experiment.train(tmp_path / "plain", Trial("short", 0), 1) == run
    twice = experiment.train(tmp_path / "plain", Trial("short_twice", 0), 1)
    assert (run / "metrics.jsonl").stat().st_mtime_ns == written
    last = load_file(twice / "model" / "model.safetensors")
    assert {name for name in after if not torch.equal(after[name], last[name])} == changed
    schemes = ("scapo", "short", "short_twice", "short_thrice", "deduplicated", "distinct")
    assert [experiment.rounds_of(scheme) for scheme in schemes] == [0, 1, 2, 3, 1, 1]


def test_a_world_of_many_objects_is_trained_from_the_model_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(experiment, "TRAIN_PICTURES", 4)
    monkeypatch.setattr(experiment, "EVALUATION_PICTURES", 2)
    base = replace(WORLDS["plain_64"], lists=1)
    monkeypatch.setitem(WORLDS, base.name, base)
    world = replace(WORLDS["crowded_32"], lists=1)
    start = experiment.prepare(world, tmp_path, Lessons(see=1, speak=2, move=2, scenes=4, pictures=2), 0)
    models = [tmp_path / name / "seed-0" / "model" / "model.safetensors" for name in (base.name, world.name)]
    before, after = map(load_file, models)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "visual" not in name}
    settings = load(start / "world.toml")
    positions = json.loads((start / "model" / "config.json").read_text())["text_config"]["max_position_embeddings"]
    assert positions > settings.rollout.max_new_tokens + world.side**2 + 64
    # an untrained model does not end
    (start / "world.toml").write_text(
        re.sub("max_new_tokens = .*", "max_new_tokens = 48", (start / "world.toml").read_text())
    )
    run = experiment.train(tmp_path / world.name, Trial("scapo", 0, ("data.prompts_per_step=2",)), 1)
    experiment.describe(run / "model", start)
    measured = experiment.measure(run)
    assert measured.sampled.cut is not None
    (metrics,) = read_metrics(run)[-1:]
    assert metrics["step"] == 1


def test_a_finished_experiment_is_not_done_again(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of its trials are done already, the third, with other kernels and a setting, is made by itself."""
    output = tmp_path / "worlds"
    folder, own = output / "plain", output / "plain" / "seed-0"
    shutil.copytree(start, own)
    pictures = (own / "evaluation.jsonl").read_text().splitlines(keepends=True)
    (own / "evaluation.jsonl").write_text("".join(pictures[:8]))  # what is described does not matter here
    settings = (own / "world.toml").read_text().replace(json.dumps(str(start))[1:-1], json.dumps(str(own))[1:-1])
    (own / "world.toml").write_text(settings)
    trials = {scheme: Trial(scheme, 0, ("loss.kl=0.1",), "default") for scheme in ("hal", "cap", "baseline_place")}
    for scheme in ("hal", "cap"):
        run = json.dumps(str(trials[scheme].run(folder)))
        trainer.train(load(own / "world.toml", [f"run.output={run}", "run.steps=1", *SCHEMES[scheme].settings]))
    done = {path: path.stat().st_mtime_ns for path in own.glob("runs/*/metrics.jsonl")}
    assert len(done) == 2
    monkeypatch.setattr(command, "QUICK", LESSONS)
    asked = ["--quick", "--steps", "1", "--schemes", *trials, "--vary", "loss.kl=0.1", "--kernels", "default"]
    asked += ["--output", str(output)]
    assert command.main(asked) == 0
    assert {path: path.stat().st_mtime_ns for path in done} == done
    table, picture = (folder / "table.md").read_bytes(), (folder / "dynamics.png").read_bytes()
    assert capsys.readouterr().out == table.decode()
    titles = ["start", *(trials[scheme].title for scheme in ("hal", "cap", "baseline_place"))]
    assert [line.split("|")[1].strip() for line in table.decode().splitlines()[2:]] == [t for t in titles for _ in "12"]
    written = {path: path.stat().st_mtime_ns for path in own.glob("runs/*/metrics.jsonl")}
    assert len(written) == 3
    assert load(trials["baseline_place"].run(folder) / "config.toml").loss.kl == 0.1
    assert command.main(asked) == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert (folder / "table.md").read_bytes() == table
    assert (folder / "dynamics.png").read_bytes() == picture
    capsys.readouterr()
    assert command.main(["--output", str(output), "--seeds", "1"]) == 2  # other lessons
    assert "contains another world" in capsys.readouterr().err


def test_a_grid_runs_what_is_missing_and_records_what_failed(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    own = tmp_path / "runs" / "full" / "plain" / "seed-0"
    shutil.copytree(start, own)
    pictures = (own / "evaluation.jsonl").read_text().splitlines(keepends=True)
    (own / "evaluation.jsonl").write_text("".join(pictures[:8]))
    settings = (own / "world.toml").read_text().replace(json.dumps(str(start))[1:-1], json.dumps(str(own))[1:-1])
    (own / "world.toml").write_text(settings)
    monkeypatch.setitem(grid.LESSONS, "full", LESSONS)
    cell = grid.Cell("plain", "plain", ("f_half", "vcd", "opening"), (0, 0), steps=1)
    registration = grid.Registration("T", "Q", "R", "2026-11-25", (cell,), ())
    (block,), results = grid.blocks_of(registration), tmp_path / "results.jsonl"
    grid.perform_block(tmp_path / "runs", results, block, 0.0)  # no time is left
    assert grid.read_results(results) == {}
    grid.perform_block(tmp_path / "runs", results, block, None)
    found = grid.read_results(results)
    assert [(key.scheme, result.measured is not None) for key, result in found.items()] == [
        ("start", True), ("f_half", True), ("vcd", False), ("opening", True),
    ]  # fmt: skip
    (failed,) = [result for result in found.values() if result.measured is None]
    assert "captions of another project not found" in failed.failed
    assert load(block[1].trial.run(own.parent) / "config.toml").credit.beta == 0.5
    before = results.read_bytes()
    grid.perform_block(tmp_path / "runs", results, grid.missing(block, found, retry=False), None)
    assert results.read_bytes() == before
    # the captions of another project are put into their slot
    model = block[2].trial.run(own.parent) / "model"
    model.mkdir(parents=True)
    for path in (own / "model").glob("captions_*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        (model / path.name).write_text(
            "".join(json.dumps({k: r[k] for k in ("image_id", "caption")}) + "\n" for r in lines)
        )
    grid.perform_block(tmp_path / "runs", results, grid.missing(block, found, retry=True), None)
    given = grid.read_results(results)[block[2]].measured
    assert given is not None
    assert given.sampled.cut is None
    assert given.sampled.hal_rate == found[block[0]].measured.sampled.hal_rate  # type: ignore[union-attr]
    assert len(list(own.glob("runs/*/metrics.jsonl"))) == 2
