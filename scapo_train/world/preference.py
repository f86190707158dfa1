"""Baseline that trains on preference pairs, for comparison with the trials that train on rollouts.

The pairs are built from samples of the start model, based on the ``cap_score`` of the samples, as in ``scapo-eval
pairs``. Each prompt has ``rollout.group`` responses. The prompts are the same as in a run on rollouts with the same
number of steps. The pairs are written to the folder of the run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from scapo_eval import PresenceOracle, Vocabulary
from scapo_eval.benchmarks.pairs import PairSettings, pair_record, pairs_of
from scapo_eval.files.files import atomic_write
from scapo_eval.files.json_text import dump_json
from scapo_eval.readers.formats import ForeignCaption
from scapo_eval.rewarding.tokens import decode_batch

from .. import loop
from ..config import Config
from ..data import Prompts, indices_of_step, read_prompts, seed_of
from ..distributed import ProcessGroup
from ..model import load_policy, processor_of
from ..preference.trainer import PreferenceTrainer
from ..rollout import PolicySampler, encode
from .language import PROMPT

PAIRS = "pairs.jsonl"


def make_pairs(config: Config) -> Path:
    """Writes the pairs of a run, unless the file exists.

    Truncated responses are omitted, because training on pairs appends an end-of-sequence token, which these responses
    lack.
    """
    path = Path(config.run.output) / PAIRS
    if path.exists():
        return path
    data, rollout, process_group = config.data, config.rollout, ProcessGroup(0, 1, torch.device("cpu"))
    vocabulary, oracle = Vocabulary.load(data.vocabulary), PresenceOracle.load(data.oracle)
    sources = read_prompts(data.train, data.images, oracle)
    steps = [
        indices_of_step(step, len(sources), data.prompts_per_step, config.run.seed) for step in range(config.run.steps)
    ]
    processor = processor_of(config.model)
    policy = load_policy(config.model, rollout.temperature, process_group)
    sampler = PolicySampler(policy, process_group.device, rollout.max_new_tokens, rollout.prompts_per_batch)
    prompts = Prompts(sources, processor, data.max_bad).take(sorted({k for step in steps for k in step}))
    encoded = encode(policy, prompts, process_group.device)
    responses = sampler.sample(encoded, seed_of(config.run.seed, 0, 0), rollout.group, rollout.temperature)
    texts, _ = decode_batch(processor.tokenizer, [response.ids for response in responses])
    owners = [prompt.source for prompt in prompts for _ in range(rollout.group)]
    captions = [
        ForeignCaption(line, source.image_id, text, prompt=PROMPT)
        for line, (source, text, response) in enumerate(zip(owners, texts, responses, strict=True), 1)
        if response.finished
    ]
    pictures = {source.image_id: os.path.relpath(source.path, path.parent) for source in owners}
    settings = PairSettings()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as stream:
        for pair in pairs_of(captions, vocabulary, oracle, settings):
            stream.write(dump_json(pair_record(pair, "trl", settings.by, pictures[pair.image_id])) + b"\n")
    return path


def train(config: Config) -> Path:
    """Writes the pairs and trains the model on them. Training resumes from the newest checkpoint."""
    pairs = make_pairs(config)
    config = replace(config, data=replace(config.data, train=str(pairs)))
    return loop.train(PreferenceTrainer, config, resume=True)
