"""The functions of scapo_captions.yaml; SCAPO_PROTOCOL (chair-opera) or SCAPO_TRUTH says what is in the images."""

from typing import Any

from scapo_eval.integrations.lmms_eval import chair_i, chair_s, f1, len_, precision, process_results, recall

__all__ = ["chair_i", "chair_s", "doc_to_visual", "f1", "len_", "precision", "process_results", "recall"]


def doc_to_visual(doc: dict[str, Any]) -> list[Any]:
    """Returns the picture of a sample."""
    return [doc["image"].convert("RGB")]
