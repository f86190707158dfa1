"""Engines that run a model on any OpenAI-compatible server, with vLLM or transformers in this process, or with vLLM on
a Ray cluster.

All engines accept a :class:`Request` and return a :class:`Completion`. Large libraries are imported only when an engine
is created.
"""

from __future__ import annotations

from .base import ONE_TOKEN, YES_NO, Completion, Engine, Request, Sampling, Turn

__all__ = ["ENGINES", "ONE_TOKEN", "YES_NO", "Completion", "Engine", "Request", "Sampling", "Turn"]

ENGINES = ("openai", "vllm", "transformers", "ray")
"""Names of the engines on the command line: :mod:`.openai_http`, :mod:`.vllm_offline`, :mod:`.hf`, :mod:`.ray_vllm`."""
