"""Protocols: files that specify the images, prompt, limits, ground truth and profile with which a published number was
obtained.

A number is comparable with a published number only if both were obtained on the same images with the same prompt. A
protocol states these conditions, and the package checks runs against it. The files ``protocols/*.json`` are part of the
package, and users can add their own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..base.errors import InputError, ScapoError
from ..base.hashes import digest
from ..base.ids import canonical_image_id
from ..base.reprs import one_line
from ..files.files import display_name, read_bytes
from ..files.json_text import read_json
from ..files.records import Given, Records, readable
from ..readers.captions_foreign import captions_of
from ..readers.formats import kind_of, open_layout
from ..results.benchmark import benchmarks, other_benchmarks
from ..results.results import Run
from ..results.signature import Signature

SUFFIX = ".json"
FIRST = 3
"""Number of image ids in a message."""


MOST = 10_000_000
"""Maximum number of images in a range of ids."""


class _Range(msgspec.Struct, forbid_unknown_fields=True):
    first: int
    last: int


class _Published(msgspec.Struct, forbid_unknown_fields=True):
    system: str
    metrics: dict[str, float]
    paper: str
    year: int
    note: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    title: str
    benchmarks: list[str]
    records: list[int] | None = None
    image_ids: list[int | str] | _Range | None = None
    image_ids_hash: str | None = None
    counted: str | None = None
    prompts: list[str] = []
    decoding: dict[Literal["max_new_tokens"], int] = {}
    post_processing: str | None = None
    truth: str | None = None
    metrics: list[str] = []
    settings: dict[str, dict[str, str | None]] = {}
    publications: list[str] = []
    source: str | None = None
    note: str | None = None
    facts: str | None = None
    needs: list[str] = []
    published: list[_Published] = []


@dataclass(frozen=True, slots=True)
class ProtocolFacts:
    """Properties of a file or a run that are compared with a protocol.

    Attributes:
        image_ids: Canonical ids of the images, or None if they are unknown.
        records: Number of captions or answers.
        prompts: Prompts for which the texts were generated, if known.
        max_new_tokens: Length limit of the texts, if known.
    """

    image_ids: Collection[str] | None
    records: int
    prompts: Collection[str] = ()
    max_new_tokens: int | None = None


UNKNOWN_SAMPLE = ProtocolFacts(None, 0)
"""Sample whose properties are unknown."""


@dataclass(frozen=True, slots=True)
class Published:
    """Row of a published table of results.

    Attributes:
        system: Name of the model and method, as in the paper.
        metrics: Mapping from each metric to its value as printed in the paper, in percent.
        paper: Paper that contains the row.
        year: Year of the paper.
        note: Additional remark.
    """

    system: str
    metrics: Mapping[str, float] = field(hash=False)
    paper: str
    year: int
    note: str | None = None


@dataclass(frozen=True)
class Protocol:
    """The conditions under which published numbers were obtained, as read from a protocol file.

    Attributes:
        name: Name of the protocol.
        title: Description of the protocol in one line.
        benchmarks: Names of the metric sets that can follow the protocol.
        records: Permitted numbers of captions or answers, or None if unknown.
        image_ids: Sorted canonical ids of the images, or None if they are unknown.
        counted: Name of the run's count that is compared with ``records``, or None to count all records.
        prompts: Prompts of the published runs, or an empty tuple if they are unknown or differ between images.
        decoding: Decoding settings (``max_new_tokens``), if they were published.
        post_processing: Description of how the texts were processed before scoring.
        truth: Description of the ground truth.
        metrics: Metrics that the publications report.
        settings: Mapping from each metric set to the signature fields of the published values (None for absent fields).
        publications: Publications that report numbers under this protocol.
        source: Source that documents the conditions of the protocol.
        note: Additional remark.
        facts: File with the ground truth or the questions, shipped with the project or located beside the protocol
            file.
        needs: Inputs that the benchmark requires in addition to the captions or answers.
        published: Rows of published tables for these images. The captions from which these rows were computed are not
            available.
        path: Path of the protocol file for messages, or None for a shipped protocol.

    Example:
        >>> import scapo_eval
        >>> protocol = scapo_eval.Protocol.load("chair-opera")
        >>> len(protocol.image_ids)
        500
    """

    name: str
    title: str
    benchmarks: tuple[str, ...]
    records: tuple[int, ...] | None
    image_ids: tuple[str, ...] | None
    counted: str | None
    prompts: tuple[str, ...]
    decoding: Mapping[str, int] = field(hash=False)
    post_processing: str | None
    truth: str | None
    metrics: tuple[str, ...]
    settings: Mapping[str, Mapping[str, str | None]] = field(hash=False)
    publications: tuple[str, ...]
    source: str | None
    note: str | None
    facts: str | None
    needs: tuple[str, ...]
    published: tuple[Published, ...]
    path: str | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return one_line(self, f"{self.identity}: {self.title}")

    @classmethod
    def load(cls, name: str | Path) -> Protocol:
        """Loads a shipped protocol by its name, or any protocol from a file.

        Raises:
            InputError: If the name is unknown or the file is invalid.
        """
        if not isinstance(name, (str, os.PathLike)):
            raise InputError(f"expected the name or the file of a protocol, found {type(name).__name__}")
        shipped = shipped_protocols()
        if str(name) in shipped:
            return cls._of(shipped[str(name)].read_bytes(), str(name))
        if not Path(name).is_file():
            close = get_close_matches(str(name), shipped, n=1, cutoff=0.5)
            meant = f"; did you mean '{close[0]}'?" if close else ""
            raise InputError(f"unknown protocol '{name}' (known: {', '.join(shipped)}; or a file){meant}")
        return replace(cls._of(read_bytes(name), display_name(name)), path=display_name(name))

    @classmethod
    def _of(cls, data: bytes, source: str) -> Protocol:
        try:
            file = msgspec.json.decode(data, type=_File)
            ids = file.image_ids
            if isinstance(ids, _Range) and not 0 <= ids.last - ids.first < MOST:
                raise ValueError(f"image_ids: expected a range of 1 to {MOST:,} images")
            listed = range(ids.first, ids.last + 1) if isinstance(ids, _Range) else ids
            images = None if listed is None else tuple(sorted({canonical_image_id(image_id) for image_id in listed}))
        except (msgspec.DecodeError, ValueError) as error:
            raise InputError(f"not a valid protocol: {error}", path=source) from None
        if images is not None and file.image_ids_hash not in (None, digest(images)):
            raise InputError(f"the hash of the image ids is {digest(images)}, not {file.image_ids_hash}", path=source)
        return cls(
            name=file.name,
            title=file.title,
            benchmarks=tuple(file.benchmarks),
            records=None if file.records is None else tuple(file.records),
            image_ids=images,
            counted=file.counted,
            prompts=tuple(file.prompts),
            decoding={str(key): limit for key, limit in file.decoding.items()},
            post_processing=file.post_processing,
            truth=file.truth,
            metrics=tuple(file.metrics),
            settings=file.settings,
            publications=tuple(file.publications),
            source=file.source,
            note=file.note,
            facts=file.facts,
            needs=tuple(file.needs),
            published=tuple(Published(**msgspec.structs.asdict(row)) for row in file.published),
        )

    @property
    def images_hash(self) -> str | None:
        """Hash of the image ids, which equals ``ids`` in a signature, or None if the image ids are unknown."""
        return None if self.image_ids is None else digest(self.image_ids)

    @property
    def identity(self) -> str:
        """Name and hash of the protocol (``name@hash``). The hash covers all conditions that runs are checked
        against.
        """
        checked = (self.image_ids, self.records, self.prompts, sorted(self.decoding.items()))
        return f"{self.name}@{digest(map(repr, checked))}"

    def facts_path(self) -> Path:
        """Returns the path of the protocol's ground truth.

        Raises:
            InputError: If the protocol has no ground truth, or the file is missing.
        """
        if self.facts is None:
            where = f" ({'; '.join(self.needs)})" if self.needs else ""
            raise InputError(f"the protocol '{self.name}' contains no ground truth{where}", path=self.path)
        shipped = Path(str(resources.files(__package__))) / "protocols" / "facts"
        for folder in (Path(self.path).parent, shipped) if self.path else (shipped,):
            if (path := folder / self.facts).is_file():
                return path
        raise InputError(f"the protocol '{self.name}' refers to a missing ground truth: {self.facts}", path=self.path)

    def questions(self) -> Records:
        """Returns the protocol's questions about objects, with their correct answers.

        Raises:
            InputError: If the protocol has no questions.
        """
        path = self.facts_path()
        asked = read_json(path)
        images = asked.get("questions") if isinstance(asked, dict) else None
        if not isinstance(images, dict):
            raise InputError("not a valid table of questions: missing key 'questions'", path=path)
        rows = ((image, name, there) for image, objects in images.items() for name, there in objects.items())
        return Records(
            display_name(path),
            [
                {"question_id": k, "image": image, "text": _question(name), "label": "yes" if there else "no"}
                for k, (image, name, there) in enumerate(rows, 1)
            ],
        )

    def filled(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options of a command. Missing values for the ground truth, the questions and the profile are
        taken from the protocol.

        Raises:
            InputError: If the protocol's ground truth is missing.
        """
        filled = dict(options)
        if "truth" in filled and filled["truth"] is None and self.facts is not None:
            filled["truth"] = str(self.facts_path())
        if "questions" in filled and not filled["questions"] and self.facts is not None:
            filled["questions"] = self.questions()
        if "profile" in filled and filled["profile"] is None:
            filled["profile"] = self.profile
        if "native" in filled and filled["native"] is None:
            filled["native"] = True
        return filled

    @property
    def profile(self) -> str | None:
        """CHAIR profile with which the published values were computed, or None if the protocol does not prescribe a
        profile.
        """
        return self.settings.get("chair", {}).get("profile")

    def to_dict(self) -> dict[str, Any]:
        """Returns the protocol as a mapping with the fields of a protocol file, and with the hash of the image ids."""
        held = asdict(self) | {"image_ids_hash": self.images_hash}
        del held["path"]
        return held

    def differences(self, sample: ProtocolFacts) -> list[str]:
        """Returns a list of phrases, each of which states one deviation of a sample from the protocol. The list is
        empty if no deviation is known.
        """
        return [
            *self._other_images(sample.image_ids),
            *self._other_number(sample.records),
            *self._other_request(sample),
        ]

    def _other_images(self, image_ids: Collection[str] | None) -> Iterator[str]:
        if self.image_ids is None or image_ids is None:
            return
        wanted, seen = set(self.image_ids), set(image_ids)
        if missing := wanted - seen:
            yield f"{len(missing):,} of its {len(wanted):,} images are missing (first: {_first(missing)})"
        if extra := seen - wanted:
            yield f"{len(extra):,} images are not among its images (first: {_first(extra)})"

    def _other_number(self, records: int) -> Iterator[str]:
        if self.records is not None and records not in self.records:
            yield f"{records:,} records instead of {' or '.join(f'{number:,}' for number in self.records)}"

    def _other_request(self, sample: ProtocolFacts) -> Iterator[str]:
        if self.prompts and (others := sorted(set(sample.prompts) - set(self.prompts))):
            yield f"the prompt {others[0]!r:.100} instead of {' or '.join(map(repr, self.prompts))}"
        limit = self.decoding.get("max_new_tokens")
        if limit is not None and sample.max_new_tokens not in (None, limit):
            yield f"at most {sample.max_new_tokens:,} new tokens instead of {limit:,}"

    def remarks(self, run: Run) -> Iterator[str]:
        """Yields one sentence for each setting of a run that differs from the settings of the published values."""
        for key, wanted in self.settings.get(run.metric_set.name, {}).items():
            value = run.signature.fields.get(key)
            if value != wanted:
                own = f"this run uses {value or 'unset'}"
                yield f"published values of '{self.name}' use {key} {wanted or 'unset'}, but {own}"

    def followed_by(self, run: Run, given: Given | None = None, *, off_protocol: bool = False) -> Run:
        """Checks a run against the protocol and adds the protocol to its signature.

        Args:
            run: Run of one of the protocol's benchmarks.
            given: Scored captions, for checking the prompt and the length limit, or None if they are not available.
            off_protocol: True to continue if the run deviates from the protocol. If a run deviates, its signature
                contains ``NAME@HASH,off``.

        Raises:
            InputError: If the run belongs to another benchmark, or if it deviates from the protocol.
        """
        sample = UNKNOWN_SAMPLE if given is None else read_sample(given, skip_bad=True)  # scoring accepted the records
        return self.followed(run, sample, off_protocol=off_protocol)

    def followed(self, run: Run, asked: ProtocolFacts, *, off_protocol: bool = False) -> Run:
        """Checks a run as :meth:`followed_by` does, but receives properties that have already been read."""
        self._check_benchmark(run.metric_set.name)
        records = run.n_records if self.counted is None else run.counts.get(self.counted)
        if records is None:
            raise InputError(
                f"the protocol '{self.name}' requires the count {self.counted!r}, which {run.metric_set.name} "
                f"does not have (known: {', '.join(run.counts)})",
                path=self.path,
            )
        sample = replace(asked, image_ids=run.table.image_ids, records=records)
        differing = self.differences(sample)
        if differing and not off_protocol:
            raise self._deviation(run.name, run.metric_set.name, sample, differing)
        off = [f"off the protocol '{self.name}': {'; '.join(differing)}"] if differing else []
        fields = {**run.signature.fields, "protocol": f"{self.identity}{',off' if differing else ''}"}
        return replace(
            run,
            signature=Signature(run.signature.metric_set, fields),
            notes=(*run.notes, *off, *self.remarks(run)),
        )

    def check_before(self, name: str, benchmark: str, sample: ProtocolFacts, *, omits: bool = False) -> None:
        """Checks captions before they are scored. The method :meth:`followed` checks the resulting run.

        Args:
            name: Name of the system, for the message.
            benchmark: Name of the benchmark that will be computed.
            sample: Properties of the captions.
            omits: True if scoring can omit captions. Additional captions are then not an error.

        Raises:
            InputError: If the protocol is for other benchmarks, or if the run would deviate from it.
        """
        self._check_benchmark(benchmark)
        seen = sample.image_ids
        if omits and seen is not None and self.image_ids is not None:
            seen = set(self.image_ids).intersection(seen)
        countable = sample.image_ids is not None and self.counted is None and not omits
        differing = [
            *self._other_images(seen),
            *(self._other_number(sample.records) if countable else ()),
            *self._other_request(sample),
        ]
        if differing:
            raise self._deviation(name, benchmark, sample, differing)

    def _check_benchmark(self, name: str) -> None:
        if name not in self.benchmarks:
            reason = f"the protocol '{self.name}' is for {', '.join(self.benchmarks)}, not for {name}"
            raise InputError(reason, path=self.path)

    def _deviation(self, name: str, benchmark: str, sample: ProtocolFacts, differing: Sequence[str]) -> InputError:
        return InputError(
            f"{name} does not follow the protocol '{self.name}': {'; '.join(differing)}"
            f"{self._fitting(benchmark, set(sample.image_ids or ()))} "
            "(to score and mark it anyway: --off-protocol, in Python off_protocol=True)"
        )

    def _fitting(self, benchmark: str, images: Set[str]) -> str:
        """Returns ``; these are the images of ...`` with the shipped protocols for exactly these images, or an empty
        text if there are none or if the images are those of this protocol.
        """
        if images == set(self.image_ids or ()):
            return ""
        fitting = [
            f"'{protocol.name}'"
            for protocol in map(Protocol.load, shipped_protocols())
            if benchmark in protocol.benchmarks and images == set(protocol.image_ids or ())
        ]
        return f"; these are the images of the protocol {' and '.join(fitting)}" if fitting else ""


def _question(name: str) -> str:
    """Returns the question about an object in the wording of the published files, including their typo."""
    return f"Is there an {name} in the imange?" if name[0] in "aeiou" else f"Is there a {name} in the image?"


def _first(ids: Iterable[str]) -> str:
    ordered = sorted(ids, key=lambda image: (len(image), image))
    return ", ".join(ordered[:FIRST]) + (", ..." if len(ordered) > FIRST else "")


def shipped_protocols() -> dict[str, Any]:
    """Returns a mapping from names to readable resources, for the shipped protocols and for the protocols of benchmarks
    in other packages.
    """
    installed = [
        Path(benchmark.protocols) for benchmark in benchmarks(other_benchmarks()) if benchmark.protocols is not None
    ]
    folders = [*installed, resources.files(__package__) / "protocols"]
    files = {entry.name: entry for folder in folders for entry in folder.iterdir() if entry.name.endswith(SUFFIX)}
    return {name.removesuffix(SUFFIX): files[name] for name in sorted(files)}


def checked_sample(
    protocol: Protocol, name: str, benchmark: str, given: Given, *, omits: bool, off_protocol: bool = False
) -> ProtocolFacts:
    """Returns the properties of captions and checks them before the captions are scored.

    If the captions have a fault, this function returns unknown properties, because scoring reports the fault.

    Args:
        protocol: Protocol that the run should follow.
        name, benchmark, omits: Same as in :meth:`Protocol.check_before`.
        given: Captions to score, which must be readable twice.
        off_protocol: True to accept deviations.

    Raises:
        InputError: If :meth:`Protocol.check_before` raises it.
    """
    try:
        sample = read_sample(given, skip_bad=omits)
    except ScapoError:
        sample = UNKNOWN_SAMPLE
    if not off_protocol:
        protocol.check_before(name, benchmark, sample, omits=omits)
    return sample


def read_sample(given: Given, *, skip_bad: bool = False) -> ProtocolFacts:
    """Reads a file of captions or answers and returns the sample properties that the records state.

    The length limit is read from the run card that ``describe`` writes.

    Args:
        given: Path, or records in memory.
        skip_bad: True to omit unreadable captions instead of raising an error.

    Raises:
        InputError, InputErrors: If the records are unreadable, or are neither captions nor answers.
    """
    path = readable(given)
    ignore = (lambda error: None) if skip_bad else None
    source = open_layout(path, on_error=ignore, warn=lambda text: None)
    limit = None if isinstance(path, Records) else _limit(f"{path}.run.json")
    if kind_of(source) == "captions":
        images: list[str] = []
        prompts: set[str] = set()
        for caption in captions_of(source, on_error=ignore, warn=lambda text: None):
            images.append(caption.image_id)
            if caption.prompt:
                prompts.add(caption.prompt)
        return ProtocolFacts(images, len(images), prompts, limit)
    from ..readers.answers import answers_of

    answers = list(answers_of(source))
    images = [canonical_image_id(answer.image) for answer in answers if answer.image]
    return ProtocolFacts(images if len(images) == len(answers) else None, len(answers), (), limit)


def _limit(card: str) -> int | None:
    """Returns ``max_tokens`` from a run card, or None if the card does not contain it."""
    if not Path(card).is_file():
        return None
    content = read_json(card)
    sampling = content.get("sampling") if isinstance(content, dict) else None
    limit = sampling.get("max_tokens") if isinstance(sampling, dict) else None
    return limit if isinstance(limit, int) else None
