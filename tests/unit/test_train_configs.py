"""The shipped configurations, dry-run on the meta device, and what is wrong with others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from scapo_eval.base.errors import InputError, InputErrors  # noqa: E402
from scapo_eval.matching.vocabulary import Vocabulary  # noqa: E402
from scapo_train import config as configs  # noqa: E402
from scapo_train.config import Config  # noqa: E402
from scapo_train.families.shared import SharedPolicy  # noqa: E402
from scapo_train.plan.shapes import PUBLISHED, model_config, shape_of  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("default")]  # torch's and transformers' own warnings are theirs

NAMES = ("qwen2_5_vl_7b", "qwen2_5_vl_3b_80gb", "qwen3_vl_8b")
MODELS = {
    "qwen2_5_vl_7b": ("Qwen2_5_VLForConditionalGeneration", 8_292_166_656, 676_550_144),
    "qwen2_5_vl_3b_80gb": ("Qwen2_5_VLForConditionalGeneration", 3_754_622_976, 668_684_288),
    "qwen3_vl_8b": ("Qwen3VLForConditionalGeneration", 8_767_123_696, 576_388_336),
}
"""Class, parameters on the hub, and those of the tower among them."""


def test_every_shipped_configuration_is_tested() -> None:
    assert {path.stem for path in configs.SHIPPED.glob("*.toml")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_configuration_reads_and_lacks_only_the_users_files(name: str) -> None:
    config = configs.load(name)
    assert configs.load(f"configs/{name}.toml") == config
    with pytest.raises(InputErrors) as caught:
        configs.required(config)
    assert [error.reason.split()[0] for error in caught.value.errors] == ["data.train", "data.oracle"]
    configs.required(configs.load(name, ["data.train=a.jsonl", "data.oracle=b.npz"]))
    assert config.credit.reward_config().level == "subsentence"
    assert len(Vocabulary.load(config.data.vocabulary).labels) == 160


@pytest.mark.parametrize("name", NAMES)
def test_the_resolved_configuration_reads_back_the_same(name: str, tmp_path: Path) -> None:
    config = configs.load(name, ['run.trackers=["wandb", "trackio"]', 'run.output=a "b" \\ ü', "optim.lr=1e-7"])
    (tmp_path / "config.toml").write_text(configs.to_toml(config), encoding="utf-8")
    assert configs.load(tmp_path / "config.toml") == config
    values = sum(len(dataclasses.fields(section.default_factory)) for section in dataclasses.fields(Config))  # type: ignore[arg-type, misc]
    assert configs.to_toml(config).count(" = ") == values


@pytest.mark.parametrize("name", NAMES)
def test_dry_run_on_the_meta_device(name: str) -> None:
    config = configs.load(name)
    kind, parameters, tower = MODELS[name]
    with torch.device("meta"):
        vlm = transformers.AutoModelForImageTextToText.from_config(model_config(config.model.path))
    policy = SharedPolicy(vlm, [151645], config.rollout.temperature)
    assert type(vlm).__name__ == kind
    assert {each.device.type for each in vlm.parameters()} == {"meta"}
    assert sum(each.numel() for each in vlm.parameters()) == parameters
    assert sum(each.numel() for each in vlm.model.visual.parameters()) == tower
    assert set(policy.never) == {151652, 151653, 151655, 151656}
    shape = shape_of(config.model.path)
    assert shape.total == parameters
    assert shape.tower == tower


@pytest.mark.parametrize("path", PUBLISHED)
def test_a_known_shape_has_the_published_number_of_parameters(path: str) -> None:
    assert shape_of(path).total == PUBLISHED[path]


def test_the_papers_table_value_by_value() -> None:
    config = configs.load("qwen2_5_vl_7b")
    table = {  # appendix "Training Configuration", row by row
        "Backbone": (config.model.path, "Qwen/Qwen2.5-VL-7B-Instruct"),
        "Parameter dtype": (config.model.dtype, "bfloat16"),
        "Optimizer": (config.optim.optimizer, "adamw"),
        "Learning rate": (config.optim.lr, 2e-6),
        "Gradient clipping": (config.optim.clip, 1.0),
        "Prompts per optimization step": (config.data.prompts_per_step, 128),
        "Rollouts per prompt": (config.rollout.group, 8),
        "Mini-batch size": (config.data.prompts_per_step // config.optim.mini_batches, 128),
        "Inner update epochs per batch": (config.optim.inner_epochs, 1),
        "Epochs over the training set": (config.data.epochs, 8),
        "Clipping coefficient": ((config.loss.clip_low, config.loss.clip_high), (0.2, 0.2)),
        "KL loss coefficient": (config.loss.kl, 0.01),
        "Novel-supported coefficient": (config.credit.r_g, 1.0),
        "Repeated-supported coefficient": (config.credit.r_rep, 0.0),
        "Hallucination coefficient": (config.credit.r_h, 1.0),
        "No-object penalty": (config.credit.r_reg, 0.1),
        "Informativeness scaling": (config.credit.lam_g, "min1"),
        "Hallucination scaling": (config.credit.lam_h, "min1"),
    }
    text = (configs.SHIPPED / "qwen2_5_vl_7b.toml").read_text(encoding="utf-8")
    for row, (found, wanted) in table.items():
        assert found == wanted, row
        assert row.lower() in text.lower(), f"no line names {row}"
    for row in ("Full fine-tuning", "Vision tower", "Total optimization steps 312", "Micro-batch size per GPU 2"):
        assert row.lower() in text.lower(), f"no line names {row}"
    assert config.run.steps == 0
    assert config.data.epochs * (5000 // config.data.prompts_per_step) == 312 == 8 * 39
    assert config.updates_per_batch == 1
    assert config.credit.scheme == "scapo"
    assert config.credit.eos == "zero"
    assert config.loss.normaliser == "tokens"


def test_the_other_configurations_share_the_papers_settings() -> None:
    paper, *others = (configs.load(name) for name in NAMES)
    for other in others:
        assert other.credit == paper.credit
        assert other.loss == paper.loss
        assert other.optim == paper.optim
        assert other.data == paper.data


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[model]\npaht = 'x'", "unknown key model.paht; known: path, revision, dtype"),
        ("[modell]\n", "unknown section [modell]; known: run, model, lora, data"),
        ("model = 3", "model is a section: write [model]"),
        ("[optim]\nlr = '1e-6'", "optim.lr: expected float, got '1e-6'"),
        ("[optim]\nlr = 0", "optim.lr must be greater than 0"),
        ("[optim]\nlr = nan", "optim.lr: expected a finite number, got nan"),
        ("[optim]\nmini_batches = true", "optim.mini_batches: expected int, got True"),
        ("[optim]\nmini_batches = 1.5", "optim.mini_batches: expected int, got 1.5"),
        ("[optim]\nmini_batches = 200", "optim.mini_batches is greater than data.prompts_per_step"),
        ("[optim]\noptimizer = 'sgd'", "optim.optimizer: expected one of 'adamw', 'adamw8bit', got 'sgd'"),
        ("[model]\ndtype = 'float16'", "model.dtype: expected one of 'bfloat16', 'float32', 'float64', got 'float16'"),
        ("[model]\ngradient_checkpointing = 1", "model.gradient_checkpointing: expected bool, got 1"),
        ("[run]\ntrackers = [1]", "run.trackers: expected a list of strings, got [1]"),
        ("[run]\ntrackers = ['mlflow']", "run.trackers: unknown mlflow; known: tensorboard, wandb, trackio"),
        ("[run]\nkeep = 0", "run.keep must be greater than 0"),
        ("[rollout]\ngroup = 0", "rollout.group must be greater than 0"),
        ("[loss]\nkl = -0.1", "loss.kl must not be negative, got -0.1"),
        ("[credit]\nscheme = 'grpo'", 'credit.scheme = "grpo" needs credit.reward: "hal" or "cap"'),
        ("[credit]\nreward = 'hal'", 'credit.reward applies to grpo, dapo and dr_grpo; "scapo" rewards pieces'),
        (
            "[credit]\nscheme = 'dapo'\nreward = 'cap'\nablation = 'additive'",
            'credit.ablation applies to rewards of pieces; "dapo" rewards responses',
        ),
        (
            "[credit]\nscheme = 'grpo'\nreward = 'cap'\ntokens = 'words'",
            'credit.tokens applies to rewards of pieces; "grpo" rewards responses',
        ),
        (
            "[credit]\nrobust = true\nablation = 'no_reg'",
            "credit.robust applies to rewards of pieces: it requires",
        ),
        (
            "[credit]\nscheme = 'grpo'\nreward = 'cap'\n[rollout]\ngroup = 1",
            'credit.scheme = "grpo" compares responses: rollout.group must be 2 or more',
        ),
        (
            "[credit]\nscheme = 'dapo'\nreward = 'cap'\nform = 'original'\noverlong = 513",
            "credit.overlong is greater than rollout.max_new_tokens",
        ),
        (
            "[credit]\nscheme = 'dapo'\nreward = 'cap'\noverlong = 5",
            'credit.overlong requires credit.scheme = "dapo" with credit.form = "original"',
        ),
        ("[credit]\nform = 'original'", 'credit.form = "original" exists for grpo, dapo, dr_grpo, not for "scapo"'),
        (
            "[credit]\nscheme = 'dapo'\nreward = 'cap'\nform = 'original'\n[loss]\nkl = 0.5",
            'loss.kl = 0.5 contradicts credit.form = "original" of "dapo", which has 0.0: use this value',
        ),
        (
            "[credit]\nscheme = 'dapo'\nreward = 'cap'\nform = 'original'\n[loss]\nclip_high = 0.2",
            'loss.clip_high = 0.2 contradicts credit.form = "original" of "dapo", which has 0.28',
        ),
        ("[credit]\nlam_g = 'cube'", "credit: "),
        ("[credit]\nkinds = ['count', 'presence']", "credit: kinds presence, count require scenes"),
        ("[credit]\nkinds = ['presence', 'colors']", "credit: not a kind of claim: 'colors'"),
        ("[credit]\nkinds = ['count']\nscenes = ['s.json']", "credit: kinds must contain 'presence'"),
        ("[credit]\nscenes = ['s.json']", "credit: scenes require kinds beyond presence"),
        ("[model\n", "not a valid TOML file: "),
    ],
)
def test_a_fault_names_the_file_and_the_key(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        configs.load(path)
    assert str(caught.value).startswith(f"{path}: {reason}")


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[optim]\nlr = 'a'\nbeta3 = 1\n[dta]\n", encoding="utf-8")
    with pytest.raises(InputErrors) as caught:
        configs.load(path, ["model.dtype=int8"])
    assert [error.reason.split(":")[0].split(";")[0] for error in caught.value.errors] == [
        "optim.lr",
        "unknown key optim.beta3",
        "unknown section [dta]",
        "model.dtype",
    ]


def test_a_missing_file_is_answered_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"configuration not found \(shipped: qwen2_5_vl_3b_80gb, qwen2_5_vl_7b"):
        configs.load(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="is a directory, not a file"):
        configs.load(tmp_path)


def test_overrides_take_toml_values_and_bare_words() -> None:
    config = configs.load(
        "qwen2_5_vl_7b",
        ["model.path=/models/my model", "optim.lr = 1e-6", "loss.kl=0", "run.export=false", "run.trackers=wandb"],
    )
    assert config.model.path == "/models/my model"
    assert config.optim.lr == 1e-6
    assert isinstance(config.loss.kl, float)
    assert config.loss.kl == 0
    assert config.run.export is False
    assert config.run.trackers == ("wandb",)


def test_kinds_of_claims_are_read_and_written() -> None:
    given = configs.load("qwen2_5_vl_7b", ["credit.kinds=presence,count", "credit.scenes=a.json"])
    assert given.credit.reward_config().kinds == ("presence", "count")
    assert configs.from_toml(configs.to_toml(given)) == given


def test_repeating_may_cost() -> None:
    assert configs.load("qwen2_5_vl_7b", ["credit.r_rep=-0.1"]).credit.reward_config().r_rep == -0.1
    assert configs.load("qwen2_5_vl_7b", ["credit.tokens=words"]).credit.reward_config().tokens == "words"
    assert configs.load("qwen2_5_vl_7b", ["credit.robust=true"]).credit.reward_config().is_robust
    with pytest.raises(InputError, match=r"credit\.r_reg must not be negative, got -0\.1"):
        configs.load("qwen2_5_vl_7b", ["credit.r_reg=-0.1"])


@pytest.mark.parametrize("override", ["optim.lr", "lr=1", "a.b.c=1", "=1"])
def test_an_override_of_another_form_is_refused(override: str) -> None:
    with pytest.raises(InputError, match=r"--set expects section\.key=value"):
        configs.load("qwen2_5_vl_7b", [override])
