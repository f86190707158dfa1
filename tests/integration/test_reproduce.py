"""``examples/reproduce/reproduce.sh`` from start to report, and the options of the paper's commands."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import pytest

for package in ("torch", "transformers", "fastapi", "uvicorn", "openai", "accelerate", "aiohttp", "PIL", "matplotlib"):
    pytest.importorskip(package)

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary  # noqa: E402
from scapo_eval.annotate.qc.rounds import close_round, open_round, read_rounds  # noqa: E402
from scapo_eval.annotate.store import CellProvenance, Store  # noqa: E402
from scapo_eval.cli.main import cli  # noqa: E402
from scapo_eval.inference.sources import ImageFile  # noqa: E402
from scapo_train.config import load, required  # noqa: E402
from scapo_train.plan import __main__ as plan  # noqa: E402

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLE, PAGE = CHECKOUT / "examples" / "reproduce", CHECKOUT / "docs" / "reproduce.md"
SCRIPT = (EXAMPLE / "reproduce.sh").read_text()


def program(folder: Path, name: str, line: str) -> None:
    """Writes a program with this name for the PATH, as a line of sh."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{line}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def done(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the output folder of the script."""
    work = tmp_path_factory.mktemp("reproduce") / "work"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ended = subprocess.run(
        ["bash", str(EXAMPLE / "reproduce.sh"), str(EXAMPLE / "toy.env")],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "WORK": str(work), "PORT": port},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "Traceback" not in ended.stderr
    return work


def rows(path: Path) -> list[dict[str, Any]]:
    """Returns the records in a JSON Lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_from_drawn_pictures_to_the_report(done: Path) -> None:
    judge_reads_pixels_and_its_planted_error_is_refined_away(done)
    each_stage_reads_what_the_one_before_wrote(done)
    tables_and_report_have_every_system(done)


def judge_reads_pixels_and_its_planted_error_is_refined_away(done: Path) -> None:
    shown = json.loads((done / "toy" / "shown.json").read_text())
    store = Store.open(done / "matrix")
    assert store.labels == tuple(Vocabulary.load(done / "toy" / "vocabulary.json").labels)
    truth = np.array([[label in shown[image] for label in store.labels] for image in store.image_ids])
    assert (store.matrix != truth).sum() <= 3
    fork = store.labels.index("fork")
    knives = [k for k, image in enumerate(store.image_ids) if "knife" in shown[image] and "fork" not in shown[image]]
    assert len(knives) >= 3
    histories = [[(verdict, source.kind) for verdict, source in store.history(k, fork)] for k in knives]
    planted = sum(history[:2] == [(1, "coarse"), (0, "joint")] for history in histories)
    assert planted >= len(knives) - 1
    assert not store.matrix[knives, fork].any()
    assert "shelf" in {row["phrase"] for row in rows(done / "candidates.jsonl")}
    assert "shelf" in Vocabulary.load(done / "draft.yaml").labels


def each_stage_reads_what_the_one_before_wrote(done: Path) -> None:
    shown = json.loads((done / "toy" / "shown.json").read_text())
    matrix = PresenceOracle.load(done / "dopa.npz")
    evaluation = PresenceOracle.load(done / "dopa_evaluation.npz")
    pool = {str(row["image_id"]) for row in rows(done / "pool.jsonl")}
    held_out = {str(row["image_id"]) for row in rows(done / "evaluation.jsonl")}
    assert set(matrix.index) == pool == {str(row["image_id"]) for row in rows(done / "train.jsonl")}
    assert set(evaluation.index) == held_out
    assert len(pool) == 20
    assert len(held_out) == 8
    assert not pool & held_out
    assert len(rows(done / "rollouts.jsonl")) == 8 * len(pool)
    assert not list(done.rglob("*.failed.jsonl"))
    card = json.loads((done / "dopa.npz.card.json").read_text())
    assert [each["kinds"] for each in card["passes"]] == [["coarse"], ["joint"]]
    assert card["people"].keys() == {"Ada"}

    for name in ("scapo", "grpo", "dapo", "coco"):
        run = done / "runs" / name
        assert [row["step"] for row in rows(run / "metrics.jsonl")] == [1, 2]
        oracle = json.loads((run / "card.json").read_text())["oracle"]
        assert (oracle == matrix.fingerprint) == (name != "coco")
        assert load(run / "config.toml").model.path == str(done / "toy" / "policy")
    configs = {name: load(done / "runs" / name / "config.toml") for name in ("scapo", "grpo", "dapo")}
    assert [configs[name].credit.scheme for name in configs] == list(configs)
    assert [configs[name].loss.clip_high for name in configs] == [0.2, 0.2, 0.28]
    for loss in ("dpo", "mdpo", "symmpo"):
        assert rows(done / "runs" / loss / "metrics.jsonl")
        assert load(done / "runs" / loss / "config.toml").preference.loss == loss
        assert (done / "runs" / loss / "model" / "model.safetensors").exists()
    for name in ("base", "scapo", "grpo"):
        made = json.loads((done / "captions" / f"{name}.jsonl.run.json").read_text())
        assert made["engine"]["model"] == (str(done / "toy" / "policy") if name == "base" else f"runs/{name}/model")
    results = json.loads((done / "results" / "coco.json").read_text())
    assert [system["name"] for system in results["systems"]] == ["base", "scapo", "grpo"]
    assert f"dagger_oracle:{evaluation.fingerprint}" in results["systems"][0]["signature"]

    (image, *_) = [image for image in matrix.index if {"knife", "fork"} & set(shown[image]) == {"knife"}]
    reward = SubsentenceReward(Vocabulary.load(done / "toy" / "vocabulary.json"), matrix, RewardConfig(rule="sentence"))
    (result,) = reward([image], ["There is a knife. There is a fork."])
    assert [part.reward for part in result.parts] == [1.0, -1.0]


def payload(page: str, name: str) -> Any:
    (packed,) = re.findall(rf'id="data-{name}">([^<]+)</script>', page)
    return json.loads(gzip.decompress(base64.b85decode(packed.replace(",", "<"))))


def tables_and_report_have_every_system(done: Path) -> None:
    systems = ["base", "scapo", "grpo"]
    rows_of = ((1, systems), (2, systems), (3, ["coco80", "toy"]), (4, ["base", "plain+description", "SCAPO"]))
    for number, expected in rows_of:
        table = (done / "tables" / f"{number}.markdown").read_text()
        assert [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:] == expected
        assert "\\begin{tabular}" in (done / "tables" / f"{number}.latex").read_text()
    assert (done / "tables" / "dynamics.png").read_bytes().startswith(b"\x89PNG")
    page = (done / "report.html").read_text()
    assert "MMHal-Bench" in page
    charts, training = (payload(page, name) for name in ("charts", "training"))
    assert charts["captions"] == systems
    assert [run["name"] for run in training["runs"]] == ["scapo", "grpo", "dapo", "coco"]
    phd = json.loads((done / "results" / "phd.json").read_text())
    assert [system["n_images"] for system in phd["systems"]] == [8 + 2] * len(systems)  # two for the mode ccs
    assert all(system["metrics"]["phd_ccs"]["value"] is not None for system in phd["systems"])
    density = json.loads((done / "density.json").read_text())
    assert [system["name"] for system in density["systems"]] == ["coco80", "toy"]


pytestmark = pytest.mark.filterwarnings("default")  # torch's and transformers' own warnings are theirs


def test_people_continue_an_interrupted_round_and_are_done_after_a_clean_one(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(f"WORK={tmp_path}\nROUND=(--random 2)\nlook() {{ :; }}\n")
    stores = []
    for name in ("matrix", "matrix_evaluation"):
        images = [ImageFile(str(k), f"{k}.jpg", f"{k}.jpg") for k in range(20)]
        stores.append(Store.create(tmp_path / name, images, Vocabulary.from_mapping({"cat": ["cat"]})))
        stores[-1].write(range(20), [0] * 20, [0] * 20, CellProvenance("coarse", "coarse@12345678", "judge-7b"))

    def people() -> tuple[int, list[int]]:
        command = ["bash", str(EXAMPLE / "reproduce.sh"), str(tmp_path / "env"), "people"]
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        code = subprocess.run(command, env=environment, capture_output=True).returncode
        return code, [len(read_rounds(store)) for store in stores]

    for store, rounds in zip(stores, ([1, 0], [1, 1]), strict=True):
        assert [people(), people()] == [(1, rounds)] * 2
        with open_round(store, write=True) as opened:
            opened.answer_many([(k, "no") for k in range(len(opened.answers))], by="Ada")
            close_round(store, opened)
    assert people() == (0, [1, 1])


def test_an_edited_draft_of_the_vocabulary_is_kept(tmp_path: Path) -> None:
    program(tmp_path / "bin", "scapo-eval", f'echo "$2" >>{tmp_path}/said')
    (tmp_path / "env").write_text(f"WORK={tmp_path}\nPOLICY= ENGINE=() LONGEST= DRAFT=() VOCABULARY=\n")
    (tmp_path / "draft.yaml").touch()
    command = ["bash", str(EXAMPLE / "reproduce.sh"), str(tmp_path / "env"), "rollouts"]
    subprocess.run(command, env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}, check=True)
    assert "build" not in (tmp_path / "said").read_text().split()


# --- the paper's size -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records the commands that ``reproduce.sh paper.env`` would run in all stages, and returns the folder."""
    folder = tmp_path_factory.mktemp("paper")
    for name in ("scapo-eval", "python", "torchrun"):
        program(folder / "bin", name, f"printf '%s\\t' {name} \"$@\" >>{folder}/said; echo >>{folder}/said")
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "WORK": str(folder / "work")}
    script = ["bash", str(EXAMPLE / "reproduce.sh"), str(EXAMPLE / "paper.env")]
    subprocess.run(script, env=environment, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def commands(paper: Path) -> list[list[str]]:
    """Returns the recorded commands."""
    return [line.split("\t")[:-1] for line in (paper / "said").read_text().splitlines()]


def test_every_command_of_the_papers_size_has_options_that_exist(
    paper: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paper / "work")  # the folders of outputs must exist
    for name, *arguments in commands:
        if name == "scapo-eval":
            parse(arguments)
    assert sum(name == "scapo-eval" for name, *_ in commands) > 80


def parse(arguments: list[str]) -> None:
    """Parses a command of ``scapo-eval`` with click without running it.

    Raises:
        click.UsageError: If an option or value does not exist.
    """
    command, name = cast(click.Command, cli), "scapo-eval"
    while isinstance(command, click.Group):
        with command.make_context(name, arguments) as context:
            found, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        assert command is not None
        name = found
    command.make_context(name, arguments)


def test_the_papers_runs_are_configured_and_planned(
    commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    runs, preferred = {}, {}
    for name, *arguments in commands:
        if name == "torchrun" and arguments[3] == "scapo_train.preference":
            settings = [value for key, value in itertools.pairwise(arguments) if key == "--set"]
            config = load(arguments[4], settings)
            preferred[config.run.output] = config.preference.loss
        elif name == "torchrun":
            assert arguments[:5] == ["--nproc-per-node", "8", "-m", "scapo_train", "qwen2_5_vl_7b"]
            settings = [value for key, value in itertools.pairwise(arguments) if key == "--set"]
            config = load(arguments[4], settings)
            required(config)
            runs[config.run.output] = config
    assert len(runs) == 10
    assert preferred == {f"runs/{loss}": loss for loss in ("dpo", "mdpo", "symmpo")}
    schemes = {name.removeprefix("runs/"): config.credit for name, config in runs.items()}
    assert {name: (each.scheme, each.reward) for name, each in schemes.items() if each.per_response} == {
        "grpo": ("grpo", "hal"),
        "dapo": ("dapo", "hal"),
        "dr_grpo": ("dr_grpo", "hal"),
        "cap": ("grpo", "cap"),
    }
    assert runs["runs/coco"].data.vocabulary == "coco80"
    assert {schemes[name].ablation for name in ("additive", "full_repeat", "no_reg")} == {
        "additive",
        "full_repeat",
        "no_reg",
    }
    (planned,) = [arguments[2:] for name, *arguments in commands if name == "python" and arguments[0] == "-m"]
    assert plan.main(planned) == 0
    assert "312 steps" in capsys.readouterr().out


def test_the_page_shows_the_scripts_own_commands() -> None:
    script = {" ".join(line.split()) for line in SCRIPT.replace("\\\n", " ").splitlines()}
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = " ".join(line.split("  #")[0].split())
            if command.startswith(("scapo-eval", "python -m", "train_one", "done", "for")):
                assert command in script, line
