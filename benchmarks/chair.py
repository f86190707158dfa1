"""Speed of CHAIR's profiles, compared with a direct transcription of the scripts' loops on the same captions.

    NLTK_DATA=... python benchmarks/chair.py CAPTIONS.jsonl... --truth TRUTH --synonyms synonyms.txt

Without arguments, the captions of ../shared are used. CPU times are measured in one process, from captions in memory to
counts per caption, and every profile starts with empty tables. The transcribed loops use NLTK's word_tokenize if its
data is available.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from chair_plain import PlainChair, Tokenize

from scapo_eval.base.errors import FaultList, ScapoError
from scapo_eval.benchmarks.chair import ChairScorer, Native, Opera, Profile, Reference, Synonyms
from scapo_eval.benchmarks.chair.tokens import tokens
from scapo_eval.matching.vocabulary import Vocabulary
from scapo_eval.readers.captions import Captions, caption_blocks, parsed
from scapo_eval.truths.oracle import PresenceOracle, Truth

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "coco_chair"
ROUNDS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("captions", nargs="*", type=Path, default=sorted(SHARED.glob("captions/*.jsonl")))
    parser.add_argument("--truth", type=Path, default=SHARED / "ground_truth.json.gz")
    parser.add_argument("--synonyms", type=Path)
    parser.add_argument("--vocabulary", default="coco80")
    arguments = parser.parse_args()
    captions = load_captions(arguments.captions)
    oracle = PresenceOracle.load(arguments.truth)
    synonyms = Synonyms.load(arguments.synonyms) if arguments.synonyms else shared_synonyms()
    n = len(captions.captions)

    tokenize, tokenizer = _tokenizer()
    plain = PlainChair(synonyms, {image: sorted(oracle.present(image)) for image in captions.image_ids}, tokenize)
    began = time.process_time()
    expected = plain.counts(captions.image_ids, captions.captions)
    baseline = (time.process_time() - began) / n
    print(f"{n} captions, {sum(map(len, captions.captions)) / n:.0f} characters each; CPU time")
    print(f"{'way':<34}{'captions/s':>12}{'times plain':>13}")
    print(f"{f'plain loops ({tokenizer})':<34}{1 / baseline:>12,.0f}{1:>13.0f}")

    makers: dict[str, Callable[[], Profile]] = {
        "reference": lambda: Reference(synonyms),
        "native": lambda: Native(Vocabulary.load(arguments.vocabulary)),
        "opera (one process)": lambda: Opera(synonyms, workers=1),
    }
    for name, make in makers.items():
        try:
            rounds = [_measure(make(), oracle, captions) for _ in range(1 if "opera" in name else ROUNDS)]
        except ScapoError as error:
            print(f"{name:<34}{'-':>12}  {error}")
            continue
        seconds = min(seconds for seconds, _ in rounds) / n
        print(f"{name:<34}{1 / seconds:>12,.0f}{baseline / seconds:>13,.0f}")
        if name == "reference":
            found = rounds[0][1]
            same = all(found[key] == value for key, value in expected.items() if key != "words")
            print(f"{'':<34}counts {'equal to' if same else 'DIFFER from'} those of the simple loops'")


def _measure(profile: Profile, oracle: PresenceOracle, captions: Captions) -> tuple[float, dict[str, int]]:
    scorer = ChairScorer((Truth.of(oracle, profile.vocabulary),), profile=profile)
    began = time.process_time()
    block = scorer.score(captions, "benchmark", FaultList())
    seconds = time.process_time() - began
    return seconds, dict(zip(scorer.columns, block.counts.sum(axis=0).tolist(), strict=True))


def load_captions(paths: list[Path]) -> Captions:
    if not paths:
        sys.exit("give caption files, --truth and --synonyms: ../shared is not there")
    joined = Captions()
    for path in paths:
        for part in parsed(caption_blocks(path), FaultList()):
            joined.extend(part)
    return joined


def shared_synonyms() -> Synonyms:
    aliases = json.loads((SHARED / "vocabulary.json").read_text())["aliases"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synonyms.txt"
        path.write_text("\n".join(", ".join(words) for words in aliases.values()))
        return Synonyms.load(path)


def _tokenizer() -> tuple[Tokenize, str]:
    try:
        import nltk

        nltk.word_tokenize("two dogs")
    except (ImportError, LookupError):
        return tokens, "own tokeniser"
    return nltk.word_tokenize, "NLTK tokeniser"


if __name__ == "__main__":
    main()
