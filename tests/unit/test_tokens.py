"""Token spans on real small tokenizers of every kind: they fit the decoded text, whatever the policy sampled."""

from __future__ import annotations

import gc
import random
import weakref
from functools import cache
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from scapo_eval import InputError, PresenceOracle, SubsentenceReward, Vocabulary
from scapo_eval.rewarding import tokens as tokens_module
from scapo_eval.rewarding.tokens import decode_batch, decode_with_offsets, token_offsets

CORPUS = [
    "A dog sits on the grass.The cat looks at it, and a car drives by the tree.",
    "Two people, a café naïve, 日本語の犬 and an emoji 🐕‍🦺 are in this picture...",
    "It's a quiet street: parked cars; trees - and the sky isn't blue!",
] * 4
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def byte_level() -> Tokenizer:
    """As Qwen, GPT-2 and Llama 3 have it; small, so that most characters beyond ASCII are several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, special_tokens=SPECIAL)
    )
    tokenizer.add_tokens([AddedToken("<tool call>", normalized=False), AddedToken("日本", normalized=False), "éà"])
    return tokenizer


def byte_fallback(strip: bool = True) -> Tokenizer:
    """As Llama 2 and Mistral have it (SentencePiece BPE, bytes for what it does not know); Gemma does not strip."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS[:1] + CORPUS[2:3], trainers.BpeTrainer(vocab_size=150))
    pieces = sorted(trained.get_vocab(), key=trained.get_vocab().__getitem__)
    vocabulary = {name: k for k, name in enumerate(dict.fromkeys([*names, "▁", *pieces]))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens(["<image>"])
    return tokenizer


def unigram() -> Tokenizer:
    """As T5 and XLM-R have it (SentencePiece Unigram without bytes)."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=["<unk>", "</s>"], unk_token="<unk>")
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    """As BERT has it."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=220, special_tokens=["[UNK]", "[SEP]"]))
    return tokenizer


def word_level() -> Tokenizer:
    """Without any decoder: words joined by spaces."""
    return Tokenizer(models.WordLevel({"[UNK]": 0, "dog": 1, "cat": 2, "a": 3, ".": 4}, unk_token="[UNK]"))


KINDS = {
    "byte_level": byte_level,
    "byte_fallback": byte_fallback,
    "byte_fallback_unstripped": lambda: byte_fallback(strip=False),
    "unigram": unigram,
    "word_piece": word_piece,
    "word_level": word_level,
}


@cache
def built(kind: str) -> Any:
    """A ``tokenizers.Tokenizer`` under the class that transformers gives its users."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=KINDS[kind](), clean_up_tokenization_spaces=False)


def sampled(rng: random.Random, tokenizer: Any) -> list[int]:
    """Ids as a policy may sample them: any at all, or an encoded sentence with some of them replaced."""
    size = len(tokenizer)
    if rng.random() < 0.5:
        return [rng.randrange(size) for _ in range(rng.randrange(30))]
    ids = tokenizer.encode(rng.choice(CORPUS), add_special_tokens=False)[: rng.randrange(60)]
    return [rng.randrange(size) if rng.random() < 0.1 else k for k in ids]


def check(tokenizer: Any, ids: list[int]) -> None:
    """Every property of token spans, for one sequence."""
    text, offsets = decode_with_offsets(tokenizer, ids)
    assert text == tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert offsets.shape == (len(ids), 2)
    starts, ends = offsets.T
    assert (starts <= ends).all()
    assert (np.diff(starts[starts < ends]) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    covered = np.zeros(len(text), dtype=int)
    for start, end in offsets.tolist():
        covered[start:end] += 1
    assert (covered >= 1).all()  # no character without a token
    shared = np.flatnonzero(covered > 1)
    assert all(not text[k].isascii() for k in shared)  # only characters of several bytes have several tokens
    for k, (start, end) in zip(ids, offsets.tolist(), strict=True):
        alone = tokenizer.decode([k], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if alone and "\ufffd" not in alone and "\ufffd" not in text[start:end]:
            assert text[start:end].strip() in (alone.strip(), alone.removeprefix("##"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_spans_fit_the_text_whatever_was_sampled(kind: str) -> None:
    rng = random.Random(kind)
    tokenizer = built(kind)
    for _ in range(400):
        check(tokenizer, sampled(rng, tokenizer))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_equals_its_sequences(kind: str) -> None:
    rng = random.Random(kind)
    tokenizer = built(kind)
    sequences = [sampled(rng, tokenizer) for _ in range(60)] + [[], []]
    texts, spans = decode_batch(tokenizer, sequences)
    for k, ids in enumerate(sequences):
        text, offsets = decode_with_offsets(tokenizer, ids)
        rows = slice(int(spans.indptr[k]), int(spans.indptr[k + 1]))
        assert texts[k] == text
        np.testing.assert_array_equal(offsets, np.stack([spans.start[rows], spans.end[rows]], axis=1))
    assert decode_batch(tokenizer, [])[0] == []


@pytest.mark.parametrize("kind", KINDS)
def test_each_token_has_exactly_one_subsentence_and_weights_are_preserved(kind: str) -> None:
    rng = random.Random(kind)
    tokenizer = built(kind)
    vocabulary = Vocabulary.from_mapping({"dog": ["dog"], "cat": ["cat"], "car": ["car", "cars"]})
    oracle = PresenceOracle.from_objects({1: ["dog", "car"]}, labels=vocabulary.labels)
    texts, spans = decode_batch(tokenizer, [sampled(rng, tokenizer) for _ in range(150)])
    columns = SubsentenceReward(vocabulary, oracle).batch([1] * len(texts), texts)
    for k, (result, advantages) in enumerate(zip(columns.results(), columns.token_advantages(spans), strict=True)):
        text, parts = texts[k], result.parts
        assert [part.start for part in parts] == [0, *(part.end for part in parts)][: len(parts)]
        assert "".join(text[part.start : part.end] for part in parts) == text
        tokens = np.zeros(len(parts))
        for row, advantage in zip(range(int(spans.indptr[k]), int(spans.indptr[k + 1])), advantages, strict=True):
            start, end = int(spans.start[row]), int(spans.end[row])
            if start == end:
                assert advantage == 0
                continue
            deciding = max((c for c in range(start, end) if not text[c].isspace()), default=start)
            owners = [j for j, part in enumerate(parts) if part.start <= deciding < part.end]
            assert len(owners) == 1
            assert advantage == np.float32(parts[owners[0]].reward)
            tokens[owners[0]] += 1
        weights = np.array([part.reward for part in parts], dtype=np.float32)
        assert float(advantages.sum()) == pytest.approx(float((weights * tokens).sum()), abs=1e-4)


def ids_of(tokenizer: Any, *tokens: str) -> list[int]:
    return [tokenizer.convert_tokens_to_ids(token) for token in tokens]


def test_half_characters_share_the_span_of_the_whole() -> None:
    tokenizer = built("byte_level")
    ids = ids_of(tokenizer, "c", "a", "f", "Ã", "©", "Ġ", "ð", "Ł", "Ĳ", "ķ", "!")
    text, offsets = decode_with_offsets(tokenizer, ids)
    assert text == "café 🐕!"
    assert offsets.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4], [3, 4], [4, 5], *[[5, 6]] * 4, [6, 7]]


def test_illegal_bytes_are_replaced_as_the_tokenizer_does() -> None:
    tokenizer = built("byte_level")
    # a character of three bytes cut off after two, a lone continuation, an impossible byte, a full stop
    ids = ids_of(tokenizer, "æ", "Ĺ", "a", "Ĺ", "ÿ", ".")
    text, offsets = decode_with_offsets(tokenizer, ids)
    assert text == "\ufffda\ufffd\ufffd."
    assert offsets.tolist() == [[0, 1], [0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]
    fallback = built("byte_fallback")
    ids = ids_of(fallback, "<0xE6>", "<0x97>", "▁a", "<0xE6>", "<0x97>", "<0xA5>", "<0xFF>", "<0x41>")
    text, offsets = decode_with_offsets(fallback, ids)
    assert text == "\ufffd\ufffd a" + "\ufffd" * 5  # a run of bytes that is illegal anywhere is replaced byte by byte
    assert offsets.tolist() == [[0, 1], [1, 2], [2, 4], *([k, k + 1] for k in range(4, 9))]
    text, offsets = decode_with_offsets(fallback, ids[3:6])
    assert (text, offsets.tolist()) == ("日", [[0, 1]] * 3)


def test_a_token_may_hold_a_sentence_border() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"grass": 0, ".The": 1, "Ġcat": 2}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    assert token_offsets(tokenizer, [0, 1, 2]).tolist() == [[0, 5], [5, 9], [9, 13]]


def test_special_tokens_and_unknown_ids_are_empty_wherever_they_stand() -> None:
    tokenizer = built("byte_level")
    start, end = ids_of(tokenizer, "<|im_start|>", "<|im_end|>")
    dog = tokenizer.encode("dog")
    text, offsets = decode_with_offsets(tokenizer, [start, *dog, end, 10**6, 2**40, *dog, end, end])
    assert text == "dogdog"
    n = len(dog)
    assert offsets[0].tolist() == [0, 0]
    assert offsets[1 + n : 4 + n].tolist() == [[3, 3]] * 3
    assert offsets[-2:].tolist() == [[6, 6]] * 2


def test_the_leading_space_of_a_first_token_is_not_text() -> None:
    tokenizer = built("byte_fallback")
    ids = ids_of(tokenizer, "</s>", "▁", "▁a")
    assert decode_with_offsets(tokenizer, ids)[0] == " a"
    assert token_offsets(tokenizer, ids).tolist() == [[0, 0], [0, 0], [0, 2]]
    assert token_offsets(tokenizer, ids_of(tokenizer, "<0x20>", "▁a")).tolist() == [[0, 0], [0, 2]]


def test_takes_arrays_processors_and_plain_tokenizers() -> None:
    tokenizer = built("byte_level")
    ids = tokenizer.encode(CORPUS[0])

    class Processor:
        """What a vision-language model comes with."""

    processor = Processor()
    processor.tokenizer = tokenizer  # type: ignore[attr-defined]
    expected = token_offsets(tokenizer, ids).tolist()
    for source, values in (
        (processor, ids),
        (tokenizer, np.array(ids, dtype=np.int32)),
        (tokenizer.backend_tokenizer, ids),
    ):
        assert token_offsets(source, values).tolist() == expected


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([3, -100], r"token ids of response 0: \[1\] is -100"),
        ([[1, 2], [3, 4]], "expected a flat list of integers"),
        ([0.5], "expected a flat list of integers"),
    ],
)
def test_bad_ids_are_named(ids: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        token_offsets(built("byte_level"), ids)


def test_what_is_not_supported_says_so() -> None:
    with pytest.raises(InputError, match="str is not a fast Hugging Face tokenizer"):
        token_offsets("Qwen/Qwen2.5-VL-7B-Instruct", [1])
    clip = byte_level()
    clip.decoder = decoders.BPEDecoder()
    with pytest.raises(InputError, match="token spans are not known for a decoder of BPEDecoder"):
        token_offsets(clip, [1])
    stripping = byte_fallback()
    stripping.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 1)])
    with pytest.raises(InputError, match="token spans are not known for a decoder of Fuse, Strip"):
        token_offsets(stripping, [1])


@pytest.mark.slow
def test_the_table_is_built_once_follows_added_tokens_and_dies_with_its_tokenizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level())
    tables = []
    monkeypatch.setattr(
        tokens_module, "_build_table", lambda *args, _real=tokens_module._build_table: tables.append(1) or _real(*args)
    )
    ids = tokenizer.encode("A dog.")
    for _ in range(3):
        assert decode_with_offsets(tokenizer, ids)[0] == "A dog."
    assert len(tables) == 1
    tokenizer.add_tokens(["<point>"])
    assert decode_with_offsets(tokenizer, [len(tokenizer) - 1])[0] == "<point>"
    assert len(tables) == 2
    alive = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert alive() is None
