"""The line beside every score: written and read back, stamped with its resampling, compared."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scapo_eval.base.version import __version__
from scapo_eval.results.signature import DRAWN, IMPLIED, SAMPLE, Signature

NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
FIELDS = st.dictionaries(NAMES.filter(lambda name: name != "v"), st.text(max_size=12) | st.integers() | st.none())


@given(NAMES, FIELDS)
def test_reading_is_the_inverse_of_writing(name: str, fields: dict[str, object]) -> None:
    made = Signature.of(name, **fields)
    again = Signature.parse(str(made))
    assert again == made
    assert str(again) == str(made)
    assert hash(again) == hash(made)
    named = {key: str(value).replace("|", "/") for key, value in fields.items() if value is not None}
    assert made.fields == {**named, "v": __version__}
    assert list(made.fields) == [*named, "v"]
    assert made.metric_set == name


@given(FIELDS)
def test_equal_signatures_have_one_hash(fields: dict[str, object]) -> None:
    forth, back = Signature.of("m", **fields), Signature.of("m", **dict(reversed(fields.items())))
    assert forth == back
    assert hash(forth) == hash(back)


def test_text_is_looked_for_in_the_line() -> None:
    made = Signature.of("capscore", vocab="coco80@1a:2", oracle=None, n=3)
    assert str(made) == f"capscore|vocab:coco80@1a:2|n:3|v:{__version__}"
    assert "|n:3|" in made
    assert "oracle" not in made
    assert made.fields["vocab"] == "coco80@1a:2"


@pytest.mark.parametrize("text", ["", "|n:3", "chair|n", "chair|:3", "chair|n:3|"])
def test_what_is_not_a_signature(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid signature"):
        Signature.parse(text)


RESAMPLES, SEEDS, SHARES = st.integers(0, 10**6), st.integers(0, 10**9), st.sampled_from([0.9, 0.95, 0.99])


@given(FIELDS, st.lists(st.tuples(RESAMPLES, SEEDS, SHARES), min_size=1, max_size=4), st.sampled_from(["0.0.1", None]))
@pytest.mark.slow
def test_the_resampling_is_replaced_and_never_piles_up(
    fields: dict[str, object], draws: list[tuple[int, int, float]], made_by: str | None
) -> None:
    assume(not DRAWN & fields.keys())
    plain = Signature.of("m", **fields)
    if made_by:
        plain = Signature("m", {**plain.fields, "v": made_by})
    signature = plain
    for resamples, seed, confidence in draws:
        signature = signature.drawn(resamples=resamples, seed=seed, confidence=confidence)
    resamples, seed, confidence = draws[-1]
    assert signature == plain.drawn(resamples=resamples, seed=seed, confidence=confidence)
    wanted = {"bs": str(resamples), "seed": str(seed)}
    wanted |= {"interval": "wilson"} if resamples else {}
    wanted |= {} if confidence == 0.95 else {"ci": f"{confidence:g}"}
    wanted |= {"drawn": __version__} if made_by else {}
    assert {key: value for key, value in signature.fields.items() if key in DRAWN} == wanted
    assert {key: value for key, value in signature.fields.items() if key not in DRAWN} == plain.fields
    assert Signature.parse(str(signature)) == signature
    assert signature.differences(plain) == {}


@pytest.mark.parametrize("name", sorted(SAMPLE | DRAWN | {"v"}))
def test_sample_resampling_and_version_make_no_difference(name: str) -> None:
    base = Signature("chair", {"profile": "native"})
    one, other = (Signature("chair", {"profile": "native", name: value}) for value in "12")
    assert one != other
    assert one.differences(other) == one.differences(base) == base.differences(one) == {}


@pytest.mark.parametrize(("name", "value"), IMPLIED.items())
def test_what_older_signatures_mean(name: str, value: str) -> None:
    old, same, other = (Signature("m", fields) for fields in ({}, {name: value}, {name: "other"}))
    assert old.differences(same) == same.differences(old) == {}
    assert old.differences(other) == {name: (value, "other")}


@given(FIELDS, FIELDS)
@pytest.mark.slow
def test_differences_are_those_of_the_fields(ours: dict[str, object], theirs: dict[str, object]) -> None:
    one, other = Signature.of("m", **ours), Signature.of("m", **theirs)
    passed_over = SAMPLE | DRAWN | {"v"}
    found = one.differences(other)
    for name in (ours.keys() | theirs.keys()) - passed_over:
        values = tuple(side.fields.get(name, IMPLIED.get(name)) for side in (one, other))
        assert (values[0] != values[1]) == (name in found)
        assert found.get(name, values) == values
    assert not found.keys() & passed_over
    assert other.differences(one) == {name: (b, a) for name, (a, b) in found.items()}


def test_metric_sets_and_settings_differ() -> None:
    one, other = Signature.of("pope", parser="pope", n=3), Signature.of("yesno", parser="default", n=4)
    assert one.differences(other) == {"metrics": ("pope", "yesno"), "parser": ("pope", "default")}
    assert one.differences(Signature.of("pope", n=9)) == {"parser": ("pope", None)}
