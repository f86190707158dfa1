"""The small world: its pictures, its language, its files, and what could be learned in it at best."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")

from scapo_eval import AliasMatcher, PresenceOracle, Vocabulary, score_captions, split_subsentences
from scapo_train.config import load
from scapo_train.data import read_prompts
from scapo_train.world.__main__ import main
from scapo_train.world.files import NOISY, SPARSE, write_world
from scapo_train.world.ideal import best_guesser, chances, guesser, situations
from scapo_train.world.judge import judge_of
from scapo_train.world.language import _TWO, ALIASES, FILLER, ONE, caption, fluency, listing, plural, vocabulary
from scapo_train.world.pictures import NOUNS, SCENES, WORLDS, Scene, World, appearances, aspects, draw_scene, render

ALL = [world for world in WORLDS.values() if not world.telling]  # that one: test_train_telling.py
LARGE = [world for world in ALL if world.words > 16]


def scenes(world: World, number: int, seed: int = 5) -> list[Scene]:
    random = np.random.default_rng(seed)
    return [draw_scene(world, random) for _ in range(number)]


@pytest.mark.parametrize("world", ALL, ids=lambda world: world.name)
def test_scenes_obey_the_rules_of_their_world(world: World) -> None:
    drawn = scenes(world, 2000)
    low, high = world.objects
    assert {len(scene.nouns) for scene in drawn} == set(range(low, high + 1))
    for scene in drawn:
        assert len(set(scene.nouns)) == len(scene.nouns)
        assert set(scene.nouns) <= set(world.of_scene(scene.kind))
        assert list(scene.cells) == sorted(set(scene.cells))
        assert scene.cells[-1] < world.side**2
    assert {noun for scene in drawn for noun in scene.nouns} == set(range(world.words))
    shown = [clear for scene in drawn for clear in scene.clear]
    assert np.mean(shown) == pytest.approx(1 - world.ambiguous, abs=4 * np.sqrt(0.25 / len(shown)))


def test_a_picture_holds_no_trace_of_which_ambiguous_object_it_is() -> None:
    world = WORLDS["plain"]
    first = Scene(kind=1, nouns=(4, 5, 6), cells=(0, 3, 8), clear=(True, False, True))
    other = replace(first, nouns=(4, 9, 6))
    one, two = (render(world, scene, np.random.default_rng(0)) for scene in (first, other))
    assert one.shape == (84, 84, 3)
    assert np.array_equal(one, two)
    clear = [render(world, replace(scene, clear=(True,) * 3), np.random.default_rng(0)) for scene in (first, other)]
    assert not np.array_equal(*clear)
    assert appearances(world, first).tolist() == [[4, 20, 20, 17, 20, 20, 20, 20, 6]]


def test_all_pictograms_differ_clearly() -> None:
    world = World(nouns=64, words=64)
    tiles = [
        render(world, Scene(0, (noun,), (0,), (True,)), np.random.default_rng(0))[:28, :28].astype(float)
        for noun in range(len(NOUNS))
    ]
    apart = [np.abs(a - b).mean() for k, a in enumerate(tiles) for b in tiles[:k]]
    assert min(apart) > 12


@pytest.mark.parametrize("world", LARGE, ids=lambda world: world.name)
def test_large_worlds_are_drawn_and_described_as_the_small_ones_are(world: World) -> None:
    random = np.random.default_rng(2)
    drawn = scenes(world, 400)
    for scene in drawn[:40]:
        looks = appearances(world, scene)
        assert looks.shape == (1, world.side**2)
        assert (looks != world.words + len(SCENES)).sum() == len(scene.nouns)
        assert looks.max() < aspects(world)[0]
        assert render(world, scene, random).shape == (28 * world.side, 28 * world.side, 3)
    texts = [caption(world, scene, random) for scene in drawn]
    assert fluency(texts) == 1
    named = Counter(mention.label for text in texts for mention in AliasMatcher(vocabulary(world)).find(text))
    assert set(named) == set(world.names)
    judge, last = judge_of(world), world.names[-1]
    judged = judge.fluent(texts)
    assert judged is not None
    assert judged > 0.99
    assert judge.fluent([f"There is a {last} in view. There is in a {last} view."]) == 0.5


def test_listings_name_the_unambiguous_objects_once() -> None:
    world, random = WORLDS["plain_32"], np.random.default_rng(6)
    matcher, orders = AliasMatcher(vocabulary(world)), set()
    for scene in scenes(world, 200):
        clear, _ = parts_of(world, scene)
        named = [NOUNS.index(mention.label) for mention in matcher.find(listing(scene, random))]
        assert sorted(named) == sorted(clear)
        orders.add(named == sorted(named))
    assert orders == {True, False}
    assert listing(Scene(0, (1,), (0,), (False,)), random) == "There is nothing."


def test_start_models_are_built_from_worlds_with_the_same_pictures_and_nouns() -> None:
    for world in WORLDS.values():
        if world.has_base:
            base = WORLDS[world.base]
            assert not base.has_base
            assert (base.side, base.words) == (world.side, world.words)
            apart = {tuple(base.of_scene(kind)) for kind in range(len(SCENES))}
            assert len(apart) == len(SCENES)  # a model that does not look cannot guess the nouns


def test_captions_name_and_invent_as_often_as_they_should() -> None:
    world, random = WORLDS["plain"], np.random.default_rng(1)
    drawn = scenes(world, 4000)
    texts = [caption(world, scene, random) for scene in drawn]
    truth = PresenceOracle.from_objects(
        {str(k): [NOUNS[noun] for noun in scene.nouns] for k, scene in enumerate(drawn)}, labels=NOUNS
    )
    records = [{"image_id": str(k), "caption": text} for k, text in enumerate(texts)]
    counts = score_captions(records, vocabulary(), truth, resamples=0).counts
    assert counts["covered"] / counts["truth"] == pytest.approx(0.65 * 0.72 + 0.35 * 0.55, abs=0.015)
    assert counts["hallucinated"] / (4000 * 6 - counts["truth"]) == pytest.approx(0.15, abs=0.015)
    assert counts["mentions"] == counts["generated"]  # nothing is named twice
    assert fluency(texts) == 1
    sentences = sum(text.count(".") for text in texts)
    assert sum(len(split_subsentences(text)) for text in texts) == sentences  # no sentence is cut or merged


@pytest.mark.parametrize("world", ALL, ids=lambda world: world.name)
def test_the_vocabulary_finds_every_word_and_no_filler(world: World) -> None:
    words = vocabulary(world)
    matcher = AliasMatcher(words)
    assert words.labels == NOUNS[: world.words]
    assert len(words.aliases) == 4 * world.words
    for noun in world.names:
        for word in (noun, ALIASES[noun], plural(noun), plural(ALIASES[noun])):
            found = matcher.find(f"We can see a {word} beside the {word}.")
            assert [mention.label for mention in found] == [noun, noun]
    assert matcher.find(" ".join((*FILLER, *ONE, *_TWO))) == []
    assert [mention.label for mention in matcher.find("There are two puppies and a pew here.")] == ["dog", "bench"]
    assert matcher.find("The light is soft and warm. It is a pleasant view overall.") == []


def test_fluency_is_the_share_of_sentences_that_the_grammar_could_have_written() -> None:
    assert fluency(["There is a dog in view. It mood is soft and warm. There are a"]) == 0.5
    assert fluency([""]) is None


@pytest.mark.parametrize("name", ["plain", "crowded_32"])
def test_files_are_what_the_trainer_reads(tmp_path: Path, name: str) -> None:
    world = WORLDS[name]
    write_world(world, tmp_path, train=12, evaluation=5, seed=0)
    config = load(tmp_path / "world.toml")
    words, oracle = Vocabulary.load(config.data.vocabulary), PresenceOracle.load(config.data.oracle)
    assert words.fingerprint == vocabulary(world).fingerprint == oracle.vocabulary_fingerprint
    assert config.rollout.max_new_tokens == 40 * world.objects[1]
    train = read_prompts(config.data.train, oracle=oracle)
    held_out = read_prompts(config.data.evaluation, oracle=oracle)
    assert (len(train), len(held_out)) == (12, 5)
    assert all(Path(source.path).exists() for source in [*train, *held_out])
    assert not {source.image_id for source in train} & {source.image_id for source in held_out}
    sparse = PresenceOracle.load(tmp_path / "truth_sparse.json")
    whole, part = oracle.states(words.labels), sparse.states(words.labels)
    for percent in NOISY:
        noisy = PresenceOracle.load(tmp_path / f"truth_noisy_{percent}.npz").states(words.labels)
        assert set(np.unique(noisy)) == {0, 1}
        assert abs((noisy != whole).sum() - percent / 100 * whole.size) < 4 * np.sqrt(percent / 100 * whole.size)
    low, high = world.objects
    assert ((low <= whole.sum(axis=1)) & (whole.sum(axis=1) <= high)).all()
    for k in range(world.words):
        assert np.array_equal(part[:, k], whole[:, k] if NOUNS[k % 16] in SPARSE else np.full(17, -1))
    again = tmp_path / "again"
    write_world(world, again, train=12, evaluation=5, seed=0)
    assert (again / "images/3.png").read_bytes() == (tmp_path / "images/3.png").read_bytes()


def parts_of(world: World, scene: Scene) -> tuple[list[int], list[int]]:
    """Returns the clear nouns in the order of the scene, and all other nouns of the scene."""
    clear = {noun for noun, shown in zip(scene.nouns, scene.clear, strict=True) if shown}
    nouns = world.of_scene(scene.kind)
    return [noun for noun in nouns if noun in clear], [noun for noun in nouns if noun not in clear]


def test_frequencies_of_nouns_follow_zipfs_law() -> None:
    world = replace(WORLDS["rare"], objects=(1, 1))
    first = Counter(world.of_scene(scene.kind).index(scene.nouns[0]) for scene in scenes(world, 20000))
    weights = np.arange(1, 7) ** -1.5
    assert [first[k] / 20000 for k in range(6)] == pytest.approx(weights / weights.sum(), abs=0.015)


@pytest.mark.parametrize("world", ALL, ids=lambda world: world.name)
def test_chances_are_those_of_drawn_scenes(world: World) -> None:
    assert sum(each.probability for each in situations(world)) == pytest.approx(1)
    assert sum(share for _, share in chances(world)) == pytest.approx(1)
    threshold = 0.4
    seen, present = Counter[tuple[object, ...]](), Counter[tuple[object, ...]]()
    for scene in scenes(world, 40000, seed=6) if world.rarity else ():
        # how often is a candidate present, given what is clear?
        clear, candidates = parts_of(world, scene)
        for noun in candidates:
            key = (scene.kind, *clear, len(scene.nouns), noun)
            seen[key] += 1
            present[key] += noun in scene.nouns
    covered = named = true = 0
    for scene in scenes(world, 20000):
        clear, candidates = parts_of(world, scene)
        if world.rarity:
            of = [(noun, (scene.kind, *clear, len(scene.nouns), noun)) for noun in candidates]
            guessed = [noun for noun, key in of if present[key] > threshold * max(seen[key], 1)]
        else:
            hidden = len(scene.nouns) - len(clear)
            guessed = candidates if candidates and hidden / len(candidates) > threshold else []
        covered += len(set(scene.nouns) & {*clear, *guessed})
        named += len(clear) + len(guessed)
        true += len(scene.nouns)
    ideal = guesser(world, threshold)
    assert 1 - covered / named == pytest.approx(ideal.hal_rate, abs=0.01)
    assert covered / true == pytest.approx(ideal.cover_rate, abs=0.01)


def test_no_threshold_beats_the_best_one_and_worlds_differ_in_what_a_guess_is_worth() -> None:
    for world in ALL:
        best = best_guesser(world)[1]
        assert best.cap_score >= max(guesser(world, k / 50).cap_score for k in range(51))
    gap = {world.name: best_guesser(world)[1].hal_rate - guesser(world, 0.5).hal_rate for world in ALL}
    assert gap["risky"] > 0.15
    assert max(gap["crowded"], gap["crowded_16"], gap["crowded_32"], gap["plain_64"]) < 0.05
    assert min(gap["plain"], gap["plain_32"]) > 0.05


def test_an_experiment_can_be_continued_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_world(WORLDS["plain"], Path("runs/plain/seed-0"), train=2, evaluation=2, seed=0)
    monkeypatch.chdir(tmp_path / "runs")
    config = load("plain/seed-0/world.toml")
    assert len(read_prompts(Path(config.data.train))) == 2
    assert Path(config.data.vocabulary).is_file()


def test_the_page_shows_the_table_of_ideal_describers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ideal"]) == 0
    table = capsys.readouterr().out
    assert table.count("\n") == 2 + len(WORLDS)
    page = Path(__file__).parents[2] / "docs" / "lab" / "laboratory.md"
    assert table in page.read_text(encoding="utf-8")
