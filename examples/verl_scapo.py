"""SCAPO in verl: writes verl's data set from training prompts and starts verl with the paper's settings.

    # In a clone of the repository
    pip install '.[verl]' 'verl[vllm]>=0.9,<0.10'
    python examples/verl_scapo.py prompts.jsonl --model Qwen/Qwen2.5-VL-7B-Instruct trainer.n_gpus_per_node=8

Prompts are JSON Lines with ``image`` (a file), ``image_id`` and ``prompt``. Truth, vocabulary and reward
stand in ``examples/verl_scapo.yaml`` (copy it, name yours with ``--agent``). Whatever follows as
``key=value`` goes to verl; ``--print`` only shows the command.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from scapo_eval.files.json_text import iter_records

HERE = Path(__file__).resolve().parent

PAPER = [
    "algorithm.adv_estimator=scapo",
    "algorithm.use_kl_in_reward=false",
    "trainer.use_v1=true",
    "trainer.total_epochs=8",
    "trainer.val_before_train=false",  # the validation data are the training data
    "data.train_batch_size=128",
    "data.max_prompt_length=4096",  # with the tokens of the images
    "data.max_response_length=512",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.rollout.temperature=1.0",
    "actor_rollout_ref.rollout.agent.default_agent_loop=scapo",
    "actor_rollout_ref.actor.ppo_mini_batch_size=128",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
    "actor_rollout_ref.actor.optim.lr=2e-6",
    "actor_rollout_ref.actor.clip_ratio=0.2",
    "actor_rollout_ref.actor.clip_ratio_c=1e6",  # verl's dual clip, which the paper does not have: off
    "actor_rollout_ref.actor.loss_agg_mode=token-mean",
    "actor_rollout_ref.actor.entropy_coeff=0",
    "actor_rollout_ref.actor.use_kl_loss=true",
    "actor_rollout_ref.actor.kl_loss_coef=0.01",
    "actor_rollout_ref.actor.kl_loss_type=low_var_kl",  # the k3 estimator
]


def row(record: dict[str, Any], index: int, folder: Path) -> dict[str, Any]:
    """Returns a row of verl's data set. ``extra_info`` contains the image id."""
    return {
        "data_source": "scapo",
        "prompt": [{"role": "user", "content": f"<image>{record['prompt']}"}],
        "images": [{"image": str((folder / record["image"]).resolve())}],
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": index, "image_id": str(record["image_id"])},
    }


def main() -> int:
    """Writes the data set and runs verl."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts")
    parser.add_argument("--model", required=True)
    parser.add_argument("--agent", default=str(HERE / "verl_scapo.yaml"))
    parser.add_argument("--print", action="store_true", dest="only_print")
    options, overrides = parser.parse_known_args()

    import pyarrow
    import pyarrow.parquet

    source = Path(options.prompts)
    data = source.with_suffix(".verl.parquet")
    rows = [row(record, line, source.parent) for line, record in iter_records(source)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data)

    command = [
        sys.executable, "-m", "verl.trainer.main_ppo", *PAPER,
        f"actor_rollout_ref.model.path={options.model}",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={Path(options.agent).resolve()}",
        f"data.train_files={data.resolve()}", f"data.val_files={data.resolve()}", *overrides,
    ]  # fmt: skip
    print(shlex.join(command))
    return 0 if options.only_print else subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
