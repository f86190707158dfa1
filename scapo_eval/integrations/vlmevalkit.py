"""VLMEvalKit: what the ``evaluate`` of a data set of descriptions returns, with the values of ``scapo-eval chair``.

    class COCOChair(ImageBaseDataset):
        TYPE = "Caption"

        def evaluate(self, eval_file, **judge_kwargs):
            return scapo_eval.integrations.vlmevalkit.evaluate(eval_file, protocol="chair-opera")

Its predictions (xlsx, tsv, json, jsonl) are read as they are; ``examples/recipes/vlmevalkit_scapo.py`` is the whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..base.errors import MissingExtra
from ..benchmarks.chair import chair
from ..truths.oracle import TruthGiven


def evaluate(
    eval_file: str | Path, *, truth: TruthGiven | None = None, protocol: str | None = None, **options: Any
) -> Any:
    """Computes CHAIR of a file of predictions as a frame of one row; beside it ``*_scapo.json``, for compare and
    report.

    Args:
        eval_file: VLMEvalKit's predictions; ``image_path`` or ``index`` names the image.
        truth, protocol, options: see :func:`scapo_eval.chair`.

    Raises:
        InputErrors, InputError: see :func:`scapo_eval.chair`.
        MissingExtra: if pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtra("pandas", "a frame for VLMEvalKit") from None
    run = chair(eval_file, truth=truth, protocol=protocol, **options)
    run.save(str(Path(eval_file).with_suffix("")) + "_scapo.json")
    percent = {
        name: None if value is None else value if name in run.metric_set.plain_numbers else 100 * value
        for name, value in run.values.items()
    }
    return pd.DataFrame([percent])
