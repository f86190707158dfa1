"""The store of verdicts: every version kept, one writer, nothing lost by a kill, nothing confused by a changed file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapo_eval.annotate import store as module
from scapo_eval.annotate.store import CellProvenance, Store
from scapo_eval.base.errors import InputError
from scapo_eval.inference.sources import ImageFile
from scapo_eval.matching.vocabulary import LabelInfo, Vocabulary

COARSE = CellProvenance("coarse", "coarse@1", "judge")
REFINED = CellProvenance("label", "label@2", "judge", 1, "false positives")
PERSON = CellProvenance("human", "", "me", 1)


def vocabulary(**more: list[str]) -> Vocabulary:
    """Three labels, and more."""
    labels = {"dog": ["dog", "dogs"], "cat": ["cat"], "chair": ["chair", "stool"]}
    return Vocabulary.from_mapping(labels | more, info={"dog": LabelInfo("A dog.", "animal", ("dog",))})


def create(folder: Path, images: int = 4) -> Store:
    """A run on images 0, 1, 2..."""
    pictures = [ImageFile(str(k), f"{k}.png", f"/nowhere/{k}.png") for k in range(images)]
    return Store.create(folder, pictures, vocabulary())


def test_every_version_stays_and_the_last_one_counts(tmp_path: Path) -> None:
    with create(tmp_path / "run") as store:
        store.write([0, 0, 1], [0, 1, 2], [1, 0, -1], COARSE)
        store.write([0], [0], [0], REFINED)
    store = Store.open(tmp_path / "run")
    assert store.matrix.tolist() == [[0, 0, -1], [-1, -1, -1], [-1, -1, -1], [-1, -1, -1]]
    assert store.history(0, 0) == [(1, COARSE), (0, REFINED)]
    assert store.provenance_of(0, 0) == REFINED
    assert store.provenance_of(1, 2) == COARSE  # asked, unreadable
    assert store.provenance_of(3, 0) is None
    assert store.labels == ("dog", "cat", "chair")
    assert store.changed() == 1
    assert len(store) == 4
    assert store.vocabulary.aliases == vocabulary().aliases
    assert store.vocabulary.info["dog"] == LabelInfo("A dog.", "animal", ("dog",))
    assert store.vocabulary.fingerprint == vocabulary().fingerprint
    assert [1, 2] in store.open_cells().tolist()
    with pytest.raises(InputError, match="read-only"):
        store.write([0], [0], [1], COARSE)


def test_a_judge_never_overwrites_a_person(tmp_path: Path) -> None:
    with create(tmp_path / "run") as store:
        store.write([0, 1], [0, 0], [1, 1], PERSON)
        store.write([0, 1, 2], [0, 0, 0], [0, 0, 0], REFINED)
        assert store.matrix[:3, 0].tolist() == [1, 1, 0]
        assert store.history(0, 0) == [(1, PERSON)]
        other = CellProvenance("human", "", "you", 2)
        store.write([0], [0], [0], other)
        assert store.matrix[0, 0] == 0
        assert store.provenance_of(0, 0) == other


def test_folding_the_log_loses_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_FROM", 3)
    with create(tmp_path / "run") as store:
        store.write([0, 1, 2], [0, 0, 0], [1, 1, 1], COARSE)
    assert (tmp_path / "run" / "verdicts.npz").exists()
    with Store.open(tmp_path / "run", write=True) as store:
        store.write([0], [0], [0], REFINED)
    reader = Store.open(tmp_path / "run")  # archive and log
    assert reader.history(0, 0) == [(1, COARSE), (0, REFINED)]
    with Store.open(tmp_path / "run", write=True) as store:
        store.write([1, 2, 3], [1, 1, 1], [1, 1, 0], COARSE)
        matrix = store.matrix.copy()
    again = Store.open(tmp_path / "run")
    assert (again.matrix == matrix).all()
    assert len(again) == 7
    assert sorted(path.name for path in (tmp_path / "run").glob("verdicts*")) == ["verdicts.2.log", "verdicts.npz"]


def test_a_kill_between_the_steps_of_folding_doubles_nothing(tmp_path: Path) -> None:
    with create(tmp_path / "run") as store:
        store.write([0, 1], [0, 0], [1, 1], COARSE)
        before = (tmp_path / "run" / "verdicts.0.log").read_bytes()
        store.compact()
    (tmp_path / "run" / "verdicts.0.log").write_bytes(before)  # the archive is there, the old log not yet gone
    with Store.open(tmp_path / "run", write=True) as store:
        assert len(store) == 2
    assert not (tmp_path / "run" / "verdicts.0.log").exists()


@given(size=st.integers(0, 60))
@pytest.mark.slow
def test_a_kill_at_any_byte_leaves_whole_verdicts(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    folder = tmp_path_factory.mktemp("kill") / "run"
    with create(folder) as store:
        for row in range(4):
            store.write([row], [0], [1], COARSE)
    log = folder / "verdicts.0.log"
    log.write_bytes(log.read_bytes()[:size])
    whole = min(size, 44) // 11
    assert len(Store.open(folder)) == whole
    with Store.open(folder, write=True) as store:
        assert store.matrix[:, 0].tolist() == [1] * whole + [-1] * (4 - whole)
        store.write([3], [1], [0], REFINED)
    assert Store.open(folder).history(3, 1) == [(0, REFINED)]


def test_half_a_line_of_any_list_is_cut_off(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with create(folder) as store:
        store.write([0], [0], [1], COARSE)
        store.exclude("3", "no such file")
        store.keep_prompt(
            "coarse@1", prompt := {"prompt": "coarse@1", "kind": "coarse", "labels": ["cat"], "user": "?"}
        )
    for name in ("sources.jsonl", "excluded.jsonl", "prompts.jsonl"):
        with open(folder / name, "ab") as stream:
            stream.write(b'{"half": "a li')
    assert Store.open(folder).excluded == {"3": "no such file"}
    with Store.open(folder, write=True) as store:
        store.write([1], [0], [1], REFINED)
    again = Store.open(folder)
    assert again.provenances == (COARSE, REFINED)
    assert again.prompts == {"coarse@1": prompt}


def test_one_writer_any_number_of_readers(tmp_path: Path) -> None:
    with create(tmp_path / "run"):
        with pytest.raises(InputError, match=r"process \d+ is writing this run; wait for it, or stop it"):
            Store.open(tmp_path / "run", write=True)
        code = f"from scapo_eval.annotate.store import Store\nStore.open({str(tmp_path / 'run')!r}, write=True)"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "is writing this run" in other.stderr
        assert Store.open(tmp_path / "run").matrix.shape == (4, 3)
    Store.open(tmp_path / "run", write=True).close()


def test_a_changed_vocabulary_is_detected_and_the_run_can_still_be_read(tmp_path: Path) -> None:
    create(tmp_path / "run").close()
    assert Store.open(tmp_path / "run", vocabulary=vocabulary()).labels == ("dog", "cat", "chair")
    with pytest.raises(InputError, match=r"was started with the vocabulary 'custom' .* labels or aliases have changed"):
        Store.open(tmp_path / "run", vocabulary=vocabulary(bird=["bird"]))
    with pytest.raises(InputError, match="have changed"):
        Store.open(tmp_path / "run", vocabulary=Vocabulary.load("coco80"), write=True)
    Store.open(tmp_path / "run", write=True).close()  # nothing stays locked


def test_excluded_images_are_unknown_and_can_come_back(tmp_path: Path) -> None:
    with create(tmp_path / "run") as store:
        store.write([0], [0], [1], COARSE)
        store.exclude("0", "damaged")
        store.exclude("0", "damaged")
        assert store.included.tolist() == [False, True, True, True]
        assert len(store.open_cells()) == 9
    with Store.open(tmp_path / "run", write=True) as store:
        assert store.excluded == {"0": "damaged"}
        store.exclude("0", None)
    assert Store.open(tmp_path / "run").excluded == {}
    assert (tmp_path / "run" / "excluded.jsonl").read_bytes().count(b"\n") == 2


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="annotation run not found"):
        Store.open(tmp_path)
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"not an annotation run, and not empty \(thesis.tex\)"):
        create(tmp_path)
    create(tmp_path / "run").close()
    with pytest.raises(InputError, match="already has a run"):
        create(tmp_path / "run")
    with pytest.raises(InputError, match="at least one image"):
        create(tmp_path / "empty", images=0)
    with pytest.raises(InputError, match="cannot be created"):
        create(tmp_path / "thesis.tex" / "run")
    (tmp_path / "run" / "run.json").unlink()
    create(tmp_path / "run").close()  # what a kill in the middle of creating left is made anew


def test_damage_is_named(tmp_path: Path) -> None:
    with create(tmp_path / "run") as store:
        store.write([0], [0], [1], COARSE)
    record = np.array([(9, 0, 0, 1)], module._RECORD)
    with open(tmp_path / "run" / "verdicts.0.log", "ab") as stream:
        stream.write(record.tobytes())
    with pytest.raises(InputError, match="damaged: a verdict refers to row 9"):
        Store.open(tmp_path / "run")
    (tmp_path / "run" / "sources.jsonl").write_bytes(b"not json\n")
    with pytest.raises(InputError, match=r"sources\.jsonl:1: damaged"):
        Store.open(tmp_path / "run")
