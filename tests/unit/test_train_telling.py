"""The small world that tells numbers, colors and places: what is drawn, said and known agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")

from scapo_eval import ClaimExtractor, ClaimOracle, Scenes, claimscore
from scapo_eval.files.records import Records
from scapo_train.config import load
from scapo_train.world import telling
from scapo_train.world.experiment import SCHEMES
from scapo_train.world.files import write_world
from scapo_train.world.judge import judge_of
from scapo_train.world.language import fluency, vocabulary
from scapo_train.world.pictures import (
    CELL,
    COLORS,
    MOST_OF_A_NOUN,
    NOUNS,
    SCENES,
    WORLDS,
    Scene,
    appearances,
    aspects,
    draw_scene,
    render,
)

WORLD = WORLDS["telling"]


def test_scenes_obey_the_rules() -> None:
    random = np.random.default_rng(5)
    for _ in range(500):
        scene = draw_scene(WORLD, random)
        assert WORLD.objects[0] <= len(set(scene.nouns)) == len(scene.nouns) <= WORLD.objects[1]
        assert set(scene.nouns) <= set(WORLD.of_scene(scene.kind))
        assert set(scene.numbers) <= set(range(1, MOST_OF_A_NOUN + 1))
        assert list(scene.cells) == sorted(set(scene.cells))
        assert (appearances(WORLD, scene).max(axis=1) < aspects(WORLD)).all()


def test_a_gray_thing_shows_no_trace_of_its_color() -> None:
    one, other = (
        render(
            WORLD, Scene(0, (0, 2), (1, 4), (True, True), (color, 1), (True, False), (1, 2)), np.random.default_rng(0)
        )
        for color in (0, 3)
    )
    assert np.array_equal(one, other)
    shown = [
        render(WORLD, Scene(0, (0,), (1,), (True,), (color,), (False,), (number,)), np.random.default_rng(0))
        for color in range(len(COLORS))
        for number in (1, 2)
    ]
    cells = [picture[:CELL, CELL : 2 * CELL] for picture in shown]
    assert all(not np.array_equal(a, b) for k, a in enumerate(cells) for b in cells[:k])


def test_an_appearance_is_what_the_cell_shows() -> None:
    scene = Scene(1, (7, 4), (3, 8), (True, False), (3, 1), (True, False), (2, 1))
    looks, colors, numbers = appearances(WORLD, scene)
    empty = WORLD.words + len(SCENES)
    assert looks.tolist() == [empty] * 3 + [7] + [empty] * 4 + [WORLD.words + 1]
    assert colors.tolist() == [5, 5, 5, len(COLORS), 5, 5, 5, 5, 1]
    assert numbers.tolist() == [0, 0, 0, 2, 0, 0, 0, 0, 1]


def test_captions_are_of_the_grammar_and_careless_as_they_should(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    scenes = [draw_scene(WORLD, random) for _ in range(1500)]
    texts = [telling.caption(WORLD, scene, random) for scene in scenes]
    assert fluency(texts, telling.GRAMMAR) == 1.0
    assert fluency(["There is one dogs of red."], telling.GRAMMAR) == 0.0
    write = [telling.scene_graph(WORLD, scene, k) for k, scene in enumerate(scenes)]

    known = Scenes.load(Records("telling", write), vocabulary())
    captions = [{"image_id": k, "caption": text} for k, text in enumerate(texts)]
    result = claimscore(Records("captions", captions), scenes=Records("telling", write), vocabulary=vocabulary())
    counts = result.table.counts()
    wrong = {kind: counts[f"hallucinated_{kind}"] / counts[f"generated_{kind}"] for kind in telling.CLAIMED}
    assert wrong["relation"] == pytest.approx(telling.WRONG_PLACE, abs=0.04)
    # a gray thing's color is right one time in four, as is another's that is said at random
    gray, careless = 0.25, 0.75 * telling.WRONG_COLOR
    assert wrong["attribute"] == pytest.approx((gray + careless) * 0.75, abs=0.06)
    assert 0.15 <= wrong["count"] <= 0.6  # of what is not there, every number is wrong
    oracle = ClaimOracle(vocabulary(), scenes=(known,))
    claims = ClaimExtractor(vocabulary(), kinds=("count",)).find_batch(texts[:200])
    states = oracle.states(range(200), claims)
    for scene, of_one, said in zip(scenes, claims, states, strict=False):
        for claim, state in zip(of_one, said, strict=True):
            numbers = dict(zip(scene.nouns, scene.numbers, strict=True))
            assert state == int(numbers.get(NOUNS.index(claim.label), 0) == int(claim.value))


def test_the_judge_knows_its_sentences() -> None:
    random = np.random.default_rng(3)
    texts = [telling.caption(WORLD, draw_scene(WORLD, random), random) for _ in range(200)]
    fluent = judge_of(WORLD).fluent(texts)
    assert fluent is not None
    assert fluent > 0.98
    assert judge_of(WORLD).fluent(["There are red two dogs in view."]) == 0


def test_its_files_train_with_claims(tmp_path: Path) -> None:
    write_world(WORLD, tmp_path, train=6, evaluation=4, seed=3)
    settings = [setting.format(world=tmp_path) for setting in SCHEMES["claims"].settings]
    config = load(tmp_path / "world.toml", settings).credit.reward_config()
    assert config.kinds == ("presence", "count", "attribute", "relation")
    known = Scenes.load(config.scenes[0], vocabulary())
    assert len(known.scenes) == 10
    assert not known.notes
    write_world(WORLDS["plain"], tmp_path / "plain", train=2, evaluation=2, seed=3)
    assert not (tmp_path / "plain" / "scenes.jsonl").exists()
