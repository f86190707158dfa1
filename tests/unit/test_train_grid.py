"""Registered grids: order, parts and results of trials, and the decisions that they lead to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

from scapo_eval.base.errors import InputError
from scapo_eval.files.locks import try_lock
from scapo_train.config import Config, to_toml
from scapo_train.monitoring.watch import Interrupted
from scapo_train.world import evaluate, experiment, grid
from scapo_train.world.__main__ import main
from scapo_train.world.experiment import Measured, Rates
from scapo_train.world.grid import Cell, Hypothesis, Key, Registration, Result
from scapo_train.world.pictures import World

TRIALS = Path(__file__).parents[2] / "docs/lab/trials"

PLAIN = Cell("plain", "plain", ("scapo", "cap"), (1, 4))
CROWDED = Cell("crowded", "crowded", ("scapo",), (1, 2), steps=120, priority=2)


def claim(kind: str, metric: str = "cap_score", other: str = "cap", **settings: object) -> Hypothesis:
    return Hypothesis("H", "plain", metric, settings.pop("scheme", "scapo"), kind, 1.6, other=other, **settings)  # type: ignore[arg-type]


def registration(*claims: Hypothesis, **settings: object) -> Registration:
    return Registration("T", "Q", "R", "2026-11-25", (PLAIN, CROWDED), claims, **settings)  # type: ignore[arg-type]


def result(key: Key, cap: float, hal: float = 0.2, cover: float = 0.6) -> Result:
    rates = Rates(hal, cover, cap, 20.0, 1.0, 0.0, 0.0, 1.0)
    return Result(key, grid.design_of(key), Measured(rates, rates), seconds=60.0, where="torch")


def results(caps: dict[str, list[float]]) -> dict[Key, Result]:
    return {
        key: result(key, caps[key.scheme][seed - 1])
        for seed in PLAIN.numbers
        for key in PLAIN.keys(seed)
        if key.scheme in caps and seed <= len(caps[key.scheme])
    }


def test_blocks_run_by_priority_and_seed_and_parts_are_all_of_them() -> None:
    blocks = grid.blocks_of(registration())
    assert [(block[0].world, block[0].seed) for block in blocks] == [
        *(("plain", seed) for seed in (1, 2, 3, 4)),
        *(("crowded", seed) for seed in (1, 2)),
    ]
    assert [key.scheme for key in blocks[0]] == ["start", "scapo", "cap"]
    assert blocks[4][1].trial.settings == ("run.steps=120",)
    parts = [blocks[k::4] for k in range(4)]
    assert sorted(block for part in parts for block in part) == sorted(blocks)
    done = {blocks[0][1]: result(blocks[0][1], 0.7)}
    assert [key.scheme for key in grid.missing(blocks[0], done, retry=False)] == ["start", "cap"]
    failed = {blocks[0][1]: Result(blocks[0][1], "", failed="no memory")}
    assert [key.scheme for key in grid.missing(blocks[0], failed, retry=False)] == ["start", "cap"]
    assert [key.scheme for key in grid.missing(blocks[0], failed, retry=True)] == ["start", "scapo", "cap"]


def test_cells_of_one_start_model_and_priority_share_a_block() -> None:
    other = Cell("more", "plain", ("scapo", "stop"), (1, 2))
    made = Registration("T", "Q", "R", "2026-11-25", (PLAIN, other), ())
    schemes = [[key.scheme for key in block] for block in grid.blocks_of(made)]
    assert schemes == [["start", "scapo", "cap", "stop"]] * 2 + [["start", "scapo", "cap"]] * 2


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--jobs", "0", "argument --jobs: '0' is not a whole number from 1 on"),
        ("--hours", "-1", "argument --hours: '-1' is not a number of hours"),
        ("--hours", "nan", "argument --hours: 'nan' is not a number of hours"),
        ("--part", "5/4", "argument --part: '5/4' is not K/N"),
    ],
)
def test_a_faulty_option_is_named(option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        grid.command([str(TRIALS / "frontier.toml"), "--state", option, value])
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


def test_results_survive_a_killed_writer_and_are_merged(tmp_path: Path) -> None:
    one, two, three = (Key("plain", "full", "scapo", seed, 40, ()) for seed in (1, 2, 3))
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    grid.append(here, [result(one, 0.7), Result(two, grid.design_of(two), failed="no memory")])
    with open(here, "ab") as stream:
        stream.write(b'{"key":{"world"')
    assert set(grid.read_results(here)) == {one, two}
    grid.append(there, [result(one, 0.9), result(two, 0.8), result(three, 0.6)])
    assert grid.merge(here, [there]) == 2
    found = grid.read_results(here)
    assert [found[key].measured.sampled.cap_score for key in (one, two, three)] == [0.7, 0.8, 0.6]  # type: ignore[union-attr]
    assert b'{"key":{"world"\n' not in here.read_bytes()
    assert grid.merge(here, [there]) == 0
    path, more = str(TRIALS / "table1.toml"), tmp_path / "more.jsonl"
    grid.append(more, [result(Key("plain", "full", "scapo", 4, 40, ()), 0.5)])
    own = tmp_path / "own.jsonl"
    assert grid.command([path, "--results", str(own), "--merge", str(there), "--merge", str(more)]) == 0
    assert len(grid.read_results(own)) == 4


def test_results_of_other_settings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, path = Key("plain", "full", "scapo", 1, 40, ()), tmp_path / "results.jsonl"
    assert grid.design_of(key) != grid.design_of(Key("plain", "full", "cap", 1, 40, ()))
    assert grid.design_of(key) != grid.design_of(Key("risky", "full", "scapo", 1, 40, ()))
    assert grid.design_of(key) != grid.design_of(Key("plain", "quick", "scapo", 1, 40, ()))
    large = Key("crowded_16", "full", "scapo", 1, 40, ())
    shortening = [Key("plain", "full", scheme, 1, 40, ()) for scheme in ("short", "deduplicated", "distinct")]
    assert len({grid.design_of(each) for each in shortening}) == 3
    before = grid.design_of(large)
    monkeypatch.setitem(grid.WORLDS, "plain_32", replace(grid.WORLDS["plain_32"], objects=(6, 10)))
    assert grid.design_of(large) != before  # its start model continues that of plain_32
    grid.append(path, [Result(key, "0123")])
    with pytest.raises(InputError, match="other settings now"):
        grid.read_results(path)


def test_no_trial_is_begun_after_a_wait_that_took_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hour = [1]

    @contextmanager
    def alone(_: Path) -> Iterator[None]:
        hour[0] += 1  # another process trains with the same seed
        yield

    monkeypatch.setattr(grid, "time", SimpleNamespace(time=lambda: hour[0]))
    monkeypatch.setattr(grid, "_alone", alone)
    monkeypatch.setattr(grid, "prepare", lambda *_: pytest.fail("a trial was begun"))
    grid.perform_block(tmp_path / "runs", tmp_path / "results.jsonl", grid.blocks_of(registration())[0], 1)
    assert hour == [2]


def test_worlds_with_the_same_base_are_trained_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a process trains in one world, another one finishes its trials in another world with the same seed."""
    prepared: list[str] = []
    locks = tmp_path / "runs" / "full" / "locks"

    def start_model(world: World, *_: object) -> Path:
        prepared.append(world.name)
        with open(locks / f"start-{world.name}-1" / "lock", "r+b") as stream:
            assert not try_lock(stream.fileno())
        return tmp_path

    keys = [Key(world, "full", grid.START, 1, 0, ()) for world in ("risky", "crowded")]
    monkeypatch.setattr(grid, "prepare", start_model)
    monkeypatch.setattr(grid, "describe", lambda *_: None)
    monkeypatch.setattr(grid, "measure", lambda _: result(keys[0], 0.6).measured)
    with grid._alone(locks / "risky-1"):
        grid.perform_block(tmp_path / "runs", tmp_path / "results.jsonl", (keys[1],), None)
    assert prepared == ["plain", "crowded"]
    assert list(grid.read_results(tmp_path / "results.jsonl")) == [keys[1]]


def test_an_interrupted_trial_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> Path:
        raise Interrupted("stopped after step 2 of 40")

    block, kept = grid.blocks_of(registration())[0], tmp_path / "results.jsonl"
    for name, value in {"prepare": lambda *_: tmp_path, "describe": lambda *_: None}.items():
        monkeypatch.setattr(grid, name, value)
    monkeypatch.setattr(grid, "measure", lambda _: result(block[0], 0.6).measured)
    monkeypatch.setattr(experiment.trainer, "train", interrupted)
    world = tmp_path / "runs" / "full" / "plain" / "seed-1" / "world.toml"
    world.parent.mkdir(parents=True)
    world.write_text(to_toml(Config()))
    with pytest.raises(Interrupted):
        grid.perform_block(tmp_path / "runs", kept, block, None)
    assert [key.scheme for key in grid.read_results(kept)] == ["start"]

    monkeypatch.setattr(experiment, "_stopped", Event())
    assert experiment.until_interrupted(len, "word") == 4
    for function in (interrupted, len):  # the next block does not begin
        with pytest.raises(KeyboardInterrupt):
            experiment.until_interrupted(function, "word")


@pytest.mark.parametrize(
    ("former", "new", "message"),
    [
        ('world = "plain"', 'world = "plane"', "unknown world 'plane'"),
        ('"cap", "r_h_half"', '"capp", "r_h_half"', "unknown scheme 'capp'"),
        ('cell = "plain"', 'cell = "main"', "unknown cell 'main'"),
        ('claim = "equivalent"', 'claim = "equal"', "not a valid registration"),
        ('other = "f_half"', 'other = "stop"', "'stop' is not in its cell"),
        ("[families]", "[families]\nmore = ['x']", "family 'more': unknown scheme 'x'"),
        ("title =", "titel =", "not a valid registration"),
        ('metric = "cap_score"', 'metric = "cap"', "hypothesis H1: unknown metric 'cap'"),
        ("[7401, 7424]", "[7424, 7401]", "cell 'plain': 7424 to 7401 are not seeds"),
        ("[7401, 7424]", "[-1, 7424]", "cell 'plain': -1 to 7424 are not seeds"),
        ("[7401, 7424]", "[7401, 7401]", "hypothesis H1: a test needs at least two seeds"),
        ("[7401, 7424]", "[7401, 7424]\nsteps = 0", "cell 'plain': steps must be at least 1"),
        ("[7401, 7424]", "[7401, 7424]\nsettings = ['loss.kll=1']", "cell 'plain': --set: unknown key loss.kll"),
        ("[7401, 7424]", "[7401, 7424]\nsettings = ['run.steps=1']", "run.steps is not a setting of trials"),
        ('name = "crowded"', 'name = "plain"', "the name 'plain' is used twice"),
        ('name = "H2"', 'name = "H1"', "the name 'H1' is used twice"),
        ('metric = "cap_score"', 'metric = "area"', "hypothesis H1: 'scapo' is not a family"),
        ('["r_h_half", "scapo"', '["stop", "scapo"', "hypothesis H4: 'stop' is not in its cell"),
        ('["r_h_half", "scapo", "r_h_double"]', "[]", "hypothesis H4: 'SCAPO' is not a family"),
        ('metric = "repeats"', 'metric = "area"', "hypothesis H13: 'area' compares two families"),
    ],
)
def test_a_faulty_registration_is_refused(
    former: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    text = (TRIALS / "frontier.toml").read_text()
    assert former in text
    path.write_text(text.replace(former, new, 1))
    assert main(["grid", str(path), "--state"]) == 2
    assert message in capsys.readouterr().err


def test_the_tail_of_student_and_the_method_of_holm() -> None:
    for freedom, quantile in ((1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (23, 2.069)):
        assert evaluate.student_tail(quantile, freedom) == pytest.approx(0.025, rel=1e-3)
        assert evaluate.student_tail(-quantile, freedom) == pytest.approx(0.975, rel=1e-3)
    assert evaluate.holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.04, None, 0.09, 0.09])


def test_frontiers_are_compared_by_area_and_at_equal_hal() -> None:
    points = np.array([[10.0, 40.0], [20.0, 60.0], [25.0, 50.0], [60.0, 90.0]])
    assert evaluate.dominated(points) == pytest.approx((10 * 40 + 30 * 60) / 50)
    one, other = np.array([[10.0, 40.0], [20.0, 60.0]]), np.array([[15.0, 45.0], [30.0, 60.0]])
    # between 15 and 20 Hal.: 50 to 60 against 45 to 50
    assert evaluate.matched_cover(one, other) == pytest.approx((5 + 10) / 2)
    assert evaluate.matched_cover(one, one + [11, 0]) is None


@pytest.mark.parametrize(
    ("claimed", "scapo", "cap", "answer"),
    [
        (claim("higher"), [0.80, 0.81, 0.80, 0.81], [0.70, 0.70, 0.71, 0.72], "yes"),
        (claim("higher"), [0.70, 0.705, 0.70, 0.705], [0.70, 0.70, 0.705, 0.705], "no"),
        (claim("lower"), [0.70, 0.70, 0.71, 0.72], [0.80, 0.81, 0.80, 0.81], "yes"),
        (claim("equivalent"), [0.701, 0.70, 0.70, 0.701], [0.70, 0.701, 0.70, 0.70], "yes"),
        (claim("equivalent"), [0.80, 0.81, 0.80, 0.81], [0.70, 0.70, 0.71, 0.72], "no"),
        (claim("equivalent"), [0.70, 0.73, 0.68, 0.71], [0.70, 0.70, 0.71, 0.71], "undecided"),
        (claim("not lower"), [0.70, 0.701, 0.70, 0.70], [0.70, 0.70, 0.701, 0.70], "yes"),
        (claim("not lower"), [0.60, 0.61, 0.60, 0.61], [0.70, 0.70, 0.71, 0.71], "no"),
        (claim("below", "repeats", "", by=5.0), [0.7] * 4, [], "yes"),
        (claim("below", "cap_score", "", by=5.0), [0.70, 0.71, 0.72, 0.70], [], "no"),
        (claim("higher"), [0.80], [0.70], "undecided"),
        (claim("higher"), [], [0.70], "no trials"),
    ],
)
def test_a_claim_is_decided_by_its_interval(
    claimed: Hypothesis, scapo: list[float], cap: list[float], answer: str
) -> None:
    [decision] = evaluate.decide(registration(claimed), results({"scapo": scapo, "cap": cap}))
    assert decision.answer == answer
    assert decision.interim == (len(scapo) < 4)


def test_an_answer_is_final_if_all_trials_are_finished_although_a_seed_has_no_value() -> None:
    families = {"one": ("scapo",), "other": ("cap",)}
    made = registration(claim("higher", "matched", "other", scheme="one"), families=families)
    found = results({"scapo": [0.8] * 4}) | {
        key: result(key, 0.7, hal=0.5) for seed in PLAIN.numbers for key in PLAIN.keys(seed) if key.scheme == "cap"
    }
    [decision] = evaluate.decide(made, found)
    assert (decision.values, decision.answer, decision.interim) == ({}, "no trials", False)


def test_many_hypotheses_make_each_harder() -> None:
    found = results({"scapo": [0.72, 0.74, 0.73, 0.75], "cap": [0.70, 0.71, 0.71, 0.71]})
    assert evaluate.decide(registration(claim("higher", by=0.0)), found)[0].answer == "yes"
    many = [claim("higher", by=0.0), *[claim("equivalent")] * 9]
    assert evaluate.decide(registration(*many), found)[0].answer == "undecided"


def test_power_grows_with_seeds_and_is_the_level_at_the_margin() -> None:
    higher = claim("higher", by=1.0)
    assert evaluate.power(higher, 24, 0.025, 1.0) == pytest.approx(0.025, abs=0.005)
    few, many = (evaluate.power(higher, seeds, 0.025, 2.0) for seeds in (6, 24))
    assert few < 0.35 < 0.8 < many
    assert evaluate.power(claim("equivalent"), 8, 0.025, 0.0) < 0.05


def test_a_page_says_what_failed_and_what_is_missing() -> None:
    found = results({"start": [0.6, 0.6], "scapo": [0.7, 0.71], "cap": [0.7]})
    key = Key("plain", "full", "cap", 2, 40, ())
    found[key] = Result(key, grid.design_of(key), failed="runs/x: no memory")
    text = evaluate.page(registration(claim("higher"), limits="L."), found, "claims.toml", "command", "")
    assert "\npython -m scapo_train.world grid claims.toml --results again.jsonl\n" in text
    assert "5 of 16 trials are finished, 1 have failed, and 10 are missing." in text
    assert "The durations of the finished trials add up to 0.1 hours." in text
    assert "- cap, `plain`, seed 2: runs/x: no memory" in text
    assert "1 of 4 seeds are complete." in text
    assert "| H | `plain`, sampled: Cap. Score of SCAPO is higher" in text


def test_a_page_is_written_although_trials_failed_or_made_no_claims(tmp_path: Path) -> None:
    registered, kept, made = tmp_path / "table1.toml", tmp_path / "other.jsonl", tmp_path / "page.md"
    registered.write_bytes((TRIALS / "table1.toml").read_bytes())
    [block, *_] = grid.blocks_of(grid.load_registration(registered))
    arguments = ["evaluate", str(registered), "--results", str(kept), "--page", str(made)]
    assert main(arguments) == 2  # the file of results does not exist
    grid.append(kept, [Result(key, grid.design_of(key), failed="no memory") for key in block])
    assert main(arguments) == 0
    assert "![" not in made.read_text()
    assert f"table1.toml --results {kept.as_posix()} --page {made.as_posix()} -->" in made.read_text()
    silent = Rates(None, 0.0, 0.0, 1.0, None, 0.0)
    grid.append(kept, [Result(key, grid.design_of(key), Measured(silent, silent)) for key in block])
    assert main(arguments) == 0
    assert "(images/table1.svg)" in made.read_text()
    assert (tmp_path / "images" / "table1.svg").stat().st_size


@pytest.mark.parametrize("path", sorted(TRIALS.glob("*.toml")), ids=lambda path: path.stem)
def test_kept_pages_are_those_of_the_kept_results(path: Path, tmp_path: Path) -> None:
    kept = TRIALS.parent / f"{path.stem}.md"
    made = tmp_path / "page.md"
    assert main(["evaluate", str(path), "--page", str(made)]) == 0
    without = [line for line in made.read_text().splitlines() if not line.startswith("<!--")]
    assert without == [line for line in kept.read_text().splitlines() if not line.startswith("<!--")]


def test_the_paper_is_what_its_command_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TRIALS.parents[2])
    made = tmp_path / "paper.md"
    assert main(["paper", "docs/lab/trials/paper.txt", "--page", str(made)]) == 0
    text = made.read_text().replace(made.as_posix(), "docs/lab/paper.md")
    assert text == (TRIALS.parent / "paper.md").read_text()
    assert "{" not in text
    shown = set(re.findall(r"\((images/.*)\)", text))
    assert shown == {f"images/{path.name}" for path in (tmp_path / "images").iterdir()} >= {"images/table1.svg"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{frontier H99}", "paper.txt:3: unknown placeholder {frontier H99}"),
        ("{frontier trials answer}", "paper.txt:3: unknown placeholder {frontier trials answer}"),
        ("{backyard H1}", "paper.txt:3: there is no registration backyard.toml"),
    ],
)
def test_a_faulty_placeholder_is_named(
    line: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("frontier.toml", "frontier.jsonl"):
        (tmp_path / name).write_bytes((TRIALS / name).read_bytes())
    template = tmp_path / "paper.txt"
    template.write_text(f"# Title\n\n{line}\n")
    assert main(["paper", str(template), "--page", str(tmp_path / "paper.md")]) == 2
    assert message in capsys.readouterr().err
    template.write_text("# Title\n\n{frontier H2}: {frontier H2 answer}, {frontier trials} trials\n")
    assert main(["paper", str(template), "--page", str(tmp_path / "paper.md")]) == 0
    assert "\n-6.6 ± 0.6: yes, 374 trials\n" in (tmp_path / "paper.md").read_text()
    kept = tmp_path / "frontier.jsonl"
    kept.write_bytes(b"".join(kept.read_bytes().splitlines(keepends=True)[:100]))
    assert main(["paper", str(template), "--page", str(tmp_path / "paper.md")]) == 0
    assert ": yes (interim), 100 trials\n" in (tmp_path / "paper.md").read_text()


def test_a_template_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template, page = tmp_path / "paper.txt", tmp_path / "paper.md"
    page.write_text("kept")
    arguments = ["paper", str(template), "--page", str(page)]
    assert main(arguments) == 2
    assert f"{template}: file not found" in capsys.readouterr().err
    template.write_bytes(b"# Title \xff")
    assert main(arguments) == 2
    assert "UTF-8" in capsys.readouterr().err
    assert page.read_text() == "kept"
