"""SCAPO's token advantages in a training loop of one's own: what stands between sampling and the loss.

    python examples/plain_loop.py

needs the packages ``tokenizers`` (here for a small one of its own) and scapo. In a real loop the tokenizer
and the ids are the policy's, and the truth is a file.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from scapo_eval import PresenceOracle, RewardConfig, SubsentenceReward, Vocabulary
from scapo_eval.rewarding.batch import advantages_for_batch

SAMPLES = [
    "A dog lies on the grass near a bench. A cat sits beside it. It is a nice day.",
    "A man walks his dog in the park, and a car is parked by the road. The dog is",
]


def small_tokenizer() -> Tokenizer:
    """Byte-level BPE, as Qwen's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    tokenizer.train_from_iterator(SAMPLES, trainer)
    return tokenizer


def main() -> None:
    """Prints every piece of every sample with the advantage that its tokens get."""
    vocabulary = Vocabulary.load("coco80")
    oracle = PresenceOracle.from_objects(
        {"1": ["dog", "bench"], "2": ["person", "dog", "car"]}, labels=vocabulary.labels
    )
    reward = SubsentenceReward(vocabulary, oracle, RewardConfig(), on_error="zero")

    tokenizer = small_tokenizer()
    end = tokenizer.token_to_id("<|end|>")
    finished, cut_off = (tokenizer.encode(text).ids for text in SAMPLES)
    advantages, _ = advantages_for_batch(["1", "2"], [[*finished, end], cut_off], tokenizer, reward)

    # the loss of a step, with log-probabilities lp (B, T), their old values and the mask of sampled tokens:
    #   rho = exp(lp - lp_old)
    #   loss = -(minimum(rho * A, clip(rho, 1 - eps, 1 + eps) * A) * mask).sum() / mask.sum() + beta * kl
    print(f"advantages: {advantages.shape[0]} responses x {advantages.shape[1]} tokens")
    for result in reward(["1", "2"], SAMPLES):
        for part in result.parts:
            print(f"{part.reward:+.1f}  {result.response[part.start : part.end]}")


if __name__ == "__main__":
    main()
