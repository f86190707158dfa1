"""Engines run a model: any OpenAI-compatible server, vLLM or transformers in this process, or vLLM on a Ray cluster.

All take a :class:`Request` and return a :class:`Completion`; the heavy libraries are imported when an engine is
created.
"""

from __future__ import annotations

from .base import ONE_TOKEN, YES_NO, Completion, Engine, Request, Sampling, Turn

__all__ = ["ENGINES", "ONE_TOKEN", "YES_NO", "Completion", "Engine", "Request", "Sampling", "Turn"]

ENGINES = ("openai", "vllm", "transformers", "ray")
"""Names on the command line: :mod:`.openai_http`, :mod:`.vllm_offline`, :mod:`.hf`, :mod:`.ray_vllm`."""
