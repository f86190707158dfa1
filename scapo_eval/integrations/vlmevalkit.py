"""Function for the ``evaluate`` method of a VLMEvalKit description data set, which computes the metrics of ``scapo-eval
chair``.

    class COCOChair(ImageBaseDataset):
        TYPE = "Caption"

        def evaluate(self, eval_file, **judge_kwargs):
            return scapo_eval.integrations.vlmevalkit.evaluate(eval_file, protocol="chair-opera")

The function reads VLMEvalKit's prediction files (xlsx, tsv, json, jsonl). See ``examples/recipes/vlmevalkit_scapo.py``
for a complete example.
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
    """Computes CHAIR for a file of predictions, and writes the run to ``*_scapo.json``, which the commands ``compare``
    and ``report`` accept.

    Args:
        eval_file: Path of VLMEvalKit's prediction file, with the image in the column ``image_path`` or ``index``.
        truth, protocol, options: Arguments of :func:`scapo_eval.chair`.

    Returns:
        A pandas data frame with one row, which contains the metrics.

    Raises:
        InputErrors, InputError: Under the same conditions as in :func:`scapo_eval.chair`.
        MissingExtra: If pandas is not installed.
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
