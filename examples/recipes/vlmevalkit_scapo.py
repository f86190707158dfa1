"""A data set of descriptions for VLMEvalKit, scored as the protocol chair-opera is; register it beside its own."""

from typing import Any

from vlmeval.dataset.image_base import ImageBaseDataset

from scapo_eval.integrations.vlmevalkit import evaluate


class COCOChair(ImageBaseDataset):
    """A TSV of index (COCO's image id), image or image_path, question (the protocol's prompt)."""

    TYPE = "Caption"

    def evaluate(self, eval_file: str, **judge_kwargs: Any) -> Any:
        """CHAIR of the predictions, as a frame of one row."""
        return evaluate(eval_file, protocol="chair-opera")
