"""Every kind of picture becomes the same upright 8-bit RGB, or says why not."""

from __future__ import annotations

import base64
import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from scapo_eval.engines import images  # noqa: E402


def decoded(url: str) -> tuple[str, np.ndarray]:
    """MIME type and pixels of a data URL."""
    head, data = url.split(",", 1)
    return head, np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


@pytest.fixture
def picture() -> np.ndarray:
    """Pixels (6, 9, 3) without symmetry."""
    return np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp"])
def test_plain_files_are_sent_as_they_are(tmp_path: Path, picture: np.ndarray, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(picture).save(path)
    head, pixels = decoded(images.data_url(str(path)))
    assert base64.b64decode(images.data_url(str(path)).split(",", 1)[1]) == path.read_bytes()
    assert head.startswith(f"data:image/{'jpeg' if suffix == 'jpg' else suffix};")
    assert np.array_equal(pixels, np.asarray(images.load(str(path))))


def test_rotation_by_exif(tmp_path: Path, picture: np.ndarray) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right
    Image.fromarray(picture).save(tmp_path / "a.png", exif=exif)
    expected = np.rot90(picture, -1)
    assert np.array_equal(np.asarray(images.load(str(tmp_path / "a.png"))), expected)
    head, pixels = decoded(images.data_url(str(tmp_path / "a.png")))
    assert head.startswith("data:image/png")
    assert np.array_equal(pixels, expected)


def test_palette_grey_and_transparency(tmp_path: Path) -> None:
    colors = Image.new("P", (4, 4), 1)
    colors.putpalette([0, 0, 0, 10, 20, 30])
    colors.save(tmp_path / "p.png")
    assert images.load(str(tmp_path / "p.png")).getpixel((0, 0)) == (10, 20, 30)
    clear = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    clear.putpixel((1, 0), (255, 0, 0, 255))
    clear.save(tmp_path / "rgba.png")
    found = images.load(str(tmp_path / "rgba.png"))
    assert [found.getpixel((k, 0)) for k in (0, 1)] == [(255, 255, 255), (255, 0, 0)]
    assert decoded(images.data_url(str(tmp_path / "rgba.png")))[1].tolist() == [[[255, 255, 255], [255, 0, 0]]]
    Image.new("L", (2, 2), 77).save(tmp_path / "l.png")
    assert images.load(str(tmp_path / "l.png")).getpixel((1, 1)) == (77, 77, 77)
    Image.new("1", (2, 2), 1).save(tmp_path / "one.png")
    assert images.load(str(tmp_path / "one.png")).getpixel((1, 1)) == (255, 255, 255)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    values = np.array([[0, 256, 32768, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    gray = np.asarray(images.load(str(tmp_path / "a.png")))[..., 0]
    assert gray.tolist() == [[0, 1, 128, 255]]


def test_cmyk_and_animation(tmp_path: Path) -> None:
    Image.new("CMYK", (3, 3), (0, 255, 255, 0)).save(tmp_path / "a.jpg")
    red = images.load(str(tmp_path / "a.jpg")).getpixel((1, 1))
    assert red[0] > 200
    assert max(red[1:]) < 60
    assert images.data_url(str(tmp_path / "a.jpg")).startswith("data:image/png")
    frames = [Image.new("RGB", (3, 3), color) for color in ("blue", "lime")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert images.load(str(tmp_path / "a.gif")).getpixel((0, 0)) == (0, 0, 255)
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:], lossless=True)
    assert images.data_url(str(tmp_path / "a.webp")).startswith("data:image/png")


def test_faults_say_what_is_wrong(tmp_path: Path, picture: np.ndarray) -> None:
    big = np.random.default_rng(0).integers(0, 256, (80, 80, 3), dtype=np.uint8)
    Image.fromarray(big).save(tmp_path / "a.png")
    Image.fromarray(big).save(tmp_path / "a.jpg")
    for suffix in ("png", "jpg"):
        path = tmp_path / f"cut.{suffix}"
        path.write_bytes((tmp_path / f"a.{suffix}").read_bytes()[:1500])
        with pytest.raises(images.ImageFault, match="damaged image"):
            images.data_url(str(path))
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("hello")
    header = (tmp_path / "a.png").read_bytes()[:30]
    (tmp_path / "header.png").write_bytes(header)
    for name, reason in (
        ("none.png", "file not found"),
        ("empty.png", "empty"),
        ("text.png", "not a valid image"),
        ("header.png", r"damaged image|known format"),
        (".", "directory"),
    ):
        with pytest.raises(images.ImageFault, match=reason):
            images.load(str(tmp_path / name))


def test_too_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (300, 300)).save(tmp_path / "a.png")
    monkeypatch.setattr(images, "MAX_PIXELS", 80_000)
    with pytest.raises(images.ImageFault, match="300 x 300 pixels are too many"):
        images.load(str(tmp_path / "a.png"))


def test_fingerprints_are_of_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"1")
    first = images.fingerprint(str(tmp_path / "a"))
    assert first == images.fingerprint(str(tmp_path / "b"))
    (tmp_path / "b").write_bytes(b"2")
    assert first != images.fingerprint(str(tmp_path / "b"))


def test_the_cache_is_bounded() -> None:
    calls: list[str] = []
    cache = images.Cache(lambda path: calls.append(path) or path.upper(), 2)
    assert [cache(name) for name in "abacab"] == list("ABACAB")
    assert calls == ["a", "b", "c", "b"]


@pytest.mark.slow
def test_what_several_threads_ask_for_is_made_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    asked: list[str] = []
    waiting = threading.Event()

    def slow(path: str) -> str:
        asked.append(path)
        waiting.wait(0.2)
        if path == "bad":
            raise images.ImageFault("bad")
        return path.upper()

    cache = images.Cache(slow, 2)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(cache, ["a"] * 8)) == ["A"] * 8
    assert asked == ["a"]
    for _ in range(2):  # an error is not kept
        with pytest.raises(images.ImageFault):
            cache("bad")
    assert asked == ["a", "bad", "bad"]


def test_large_pictures_are_decoded_one_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr(images, "_LARGE_FROM", 50)
    real, inside, most = images._rgb, [0], [0]

    def watched(image: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.02)
        try:
            return real(image)
        finally:
            inside[0] -= 1

    monkeypatch.setattr(images, "_rgb", watched)
    paths = [str(tmp_path / f"{k}.png") for k in range(4)]
    for path in paths:
        Image.new("L", (10, 10)).save(path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(images.load, paths))
    assert most == [1]
