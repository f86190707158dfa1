"""A reading for training: a language model determines the uses of mentions in texts that are only now being written.

``scapo-eval judge uses`` judges captions in a file. In a training loop, each step has new responses. This module asks
the same judge about them when the reward is computed, and keeps its answers in a journal.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ..base.columns import MentionColumns
from ..base.errors import InputError, ScapoError, check_choice
from ..base.hashes import digest
from ..base.reprs import one_line
from ..base.types import Mention
from ..engines import Engine, Sampling
from ..matching.judged_uses import CODE_OF
from ..matching.uses import READINGS, UNJUDGED, ReadingName
from ..matching.vocabulary import Vocabulary, VocabularyGiven
from .journal import Journal
from .judge_prompts import USES_TASK
from .judge_uses import MarkedCaption, ask_for_uses, judging_of
from .runner import Session

_log = logging.getLogger(__name__)


class UsesJudge:
    """A reading that asks a language model for the uses of mentions. It can be passed as ``claims`` to a reward.

    The rules determine the uses in texts whose requests fail or whose answers are unreadable in all attempts. The
    number of these texts is logged as a warning. Each distinct text is requested once, and a journal keeps the answers,
    so that a resumed run does not repeat requests. The object can be shared between threads, but not between processes.

    Args:
        engine: Engine of the judge, such as :class:`~scapo_eval.engines.openai_http.OpenAIEngine`.
        vocabulary: Vocabulary of the reward, in any form that :meth:`Vocabulary.of` accepts.
        claims: Name of the reading, which determines the uses that are omitted: ``asserted``, ``certain`` or
            ``visual``.
        journal: Path of the journal, which is created if it does not exist. Only one process can use it at a time.
        task: Instruction to the judge; see :func:`~scapo_eval.inference.judge_uses.uses_turns`.
        sampling: Sampling settings of the judge, or None for the defaults.

    Raises:
        InputError: If the reading is unknown or counts every mention, or if the journal cannot be written.

    Example:
        >>> import scapo_eval
        >>> from scapo_eval.engines.openai_http import OpenAIEngine
        >>> engine = OpenAIEngine("Qwen3-8B", "http://localhost:8000/v1")  # doctest: +SKIP
        >>> judge = scapo_eval.UsesJudge(engine, "coco80", journal="uses.journal")  # doctest: +SKIP
        >>> config = scapo_eval.RewardConfig(claims=judge)  # doctest: +SKIP
    """

    def __init__(
        self,
        engine: Engine,
        vocabulary: VocabularyGiven = "coco80",
        claims: ReadingName = "visual",
        *,
        journal: str | Path,
        task: str = USES_TASK,
        sampling: Sampling | None = None,
    ) -> None:
        check_choice("claims", claims, READINGS)
        if claims == "all":
            raise InputError("the reading all counts every mention and needs no judge; choose visual or asserted")
        self.name: ReadingName = claims
        self.source = str(journal)
        self._vocabulary = Vocabulary.of(vocabulary)
        self.vocabulary = self._vocabulary.identity
        self._task, self._sampling = task, sampling or Sampling()
        self._session = Session(engine, Journal(journal, warn=_log.warning), warn=_log.warning)
        judging = judging_of(str(engine.identity.get("model", "unnamed")), task, self._sampling)
        self.judge = f"{judging.judge} {judging.prompt}"
        self.fingerprint = digest([self.judge, self._sampling.said, str(dict(engine.identity))])
        self._codes = dict[str, NDArray[np.int64] | None]()  # of the last texts; the journal contains all answers
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}, {self.judge}")

    def __reduce__(self) -> NoReturn:
        raise ScapoError(
            "a UsesJudge cannot be sent to other processes; judge the captions with scapo-eval judge uses, and pass "
            "JudgedUses, or use one process"
        )

    def uses_of(self, texts: Sequence[str], mentions: MentionColumns) -> NDArray[np.int64]:
        """Implements ``uses_of``; see :class:`~scapo_eval.matching.uses.JudgedReading`.

        Raises:
            ScapoError: If no request can be completed, for example because the server is not available.
        """
        labels, bounds = self._vocabulary.labels, mentions.indptr.tolist()
        rows = zip(mentions.start.tolist(), mentions.end.tolist(), mentions.label_id.tolist(), strict=True)
        captions = [
            MarkedCaption(
                text,
                tuple(
                    Mention(start, end, labels[label], text[start:end])
                    for start, end, label in itertools.islice(rows, stop - begin)
                ),
            )
            for text, begin, stop in zip(texts, bounds, bounds[1:], strict=False)
        ]
        with self._lock:
            self._ask([caption for caption in captions if caption.mentions])
            found = [self._codes.get(text, _NO_CODES) for text in texts]
        codes = [
            np.full(len(caption.mentions), UNJUDGED, dtype=np.int64) if judged is None else judged
            for caption, judged in zip(captions, found, strict=True)
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *codes])

    def unjudged(self, texts: Iterable[str]) -> int:
        """Returns the number of texts in the last batch whose uses the rules determined, because the judge's answer is
        missing.
        """
        return sum(self._codes.get(text, _NO_CODES) is None for text in texts)

    def close(self) -> None:
        """Closes the engine and the journal."""
        self._session.engine.close()
        self._session.journal.close()

    def _ask(self, captions: Sequence[MarkedCaption]) -> None:
        """Determines the uses in the given captions, and forgets those in other captions."""
        self._session.journal.forget_failed()  # the server may be available again
        new = [*{caption.text: caption for caption in captions if self._codes.get(caption.text) is None}.values()]
        answers = ask_for_uses(new, self._session, self._vocabulary, self._task, self._sampling)
        made = {
            caption.text: None if uses is None else np.array([CODE_OF[use] for use in uses], dtype=np.int64)
            for caption, (uses, _) in zip(new, answers, strict=True)
        }
        known = {**self._codes, **made}
        self._codes = {caption.text: known[caption.text] for caption in captions}
        if missing := sum(codes is None for codes in made.values()):
            errors = [completion.error for _, completion in answers if completion.error]
            why = f"the first error: {errors[0]}" if errors else "their answers are unreadable"
            _log.warning("%d of %d texts were not judged, and rules determine their uses (%s)", missing, len(new), why)


_NO_CODES = np.zeros(0, dtype=np.int64)
