"""Still pictures: orientation, transparency, and what is refused."""

import contextlib
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from muvap_assets.errors import MediaError, ViolationCode
from muvap_assets.media import images
from muvap_assets.media.images import MAX_PIXELS, count_image, read_image


def refused(path):
    with pytest.raises(MediaError) as caught:
        read_image(path)
    assert str(path.parent) not in caught.value.found
    return caught.value.code


def test_exif_orientation_is_applied_before_the_size_is_read(tmp_path):  # B05
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Image.new("RGB", (200, 100), "white")
    picture.paste("black", (0, 0, 100, 50))  # top left, so top right once turned clockwise
    picture.save(tmp_path / "phone.jpg", exif=exif, quality=95)
    facts = count_image(tmp_path / "phone.jpg")
    assert (facts.width, facts.height) == (100, 200)
    pixels = np.asarray(read_image(tmp_path / "phone.jpg"))
    assert pixels[20, 80].max() < 20
    assert pixels[20, 20].min() > 235


def test_transparency_shows_white_and_never_the_colour_under_it(tmp_path):
    rgba = np.zeros((4, 4, 4), np.uint8)
    rgba[..., 0] = 200  # red, hidden
    rgba[0, 0, 3] = 255
    rgba[1, 1, 3] = 128
    Image.fromarray(rgba).save(tmp_path / "cut-out.png")
    pixels = np.asarray(read_image(tmp_path / "cut-out.png"))
    assert pixels[3, 3].tolist() == [255, 255, 255]
    assert pixels[0, 0].tolist() == [200, 0, 0]
    np.testing.assert_allclose(pixels[1, 1], [228, 127, 127], atol=1)


def test_a_palette_with_a_transparent_entry_is_composited(tmp_path):
    picture = Image.new("P", (4, 4), 0)
    picture.putpalette([10, 20, 30, 40, 50, 60])
    picture.putpixel((0, 0), 1)
    picture.save(tmp_path / "logo.png", transparency=0)
    pixels = np.asarray(read_image(tmp_path / "logo.png"))
    assert pixels[3, 3].tolist() == [255, 255, 255]
    assert pixels[0, 0].tolist() == [40, 50, 60]


def test_sixteen_bit_grey_keeps_its_range(tmp_path):
    levels = np.array([[0, 32_896, 65_535]], np.uint16)
    Image.fromarray(levels).save(tmp_path / "depth.png")
    assert np.asarray(read_image(tmp_path / "depth.png"))[0, :, 0].tolist() == [0, 128, 255]


def test_several_frames_are_refused(tmp_path):
    first, second = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    first.save(tmp_path / "moving.gif", save_all=True, append_images=[second])
    assert refused(tmp_path / "moving.gif") is ViolationCode.IMAGE_MULTI_FRAME


def test_a_cut_file_is_refused(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:1500])
    assert refused(tmp_path / "cut.jpg") is ViolationCode.IMAGE_UNREADABLE


@pytest.mark.parametrize("content", [b"", b"<html>404</html>"])
def test_what_is_no_picture_is_refused(tmp_path, content):
    (tmp_path / "page.png").write_bytes(content)
    assert refused(tmp_path / "page.png") is ViolationCode.IMAGE_UNREADABLE


@pytest.mark.parametrize("side", [9_500, 60_000])
def test_a_decompression_bomb_is_refused_by_its_header(tmp_path, side):
    assert side * side > MAX_PIXELS

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    body = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(body)
    assert refused(tmp_path / "bomb.png") is ViolationCode.IMAGE_TOO_LARGE


def test_a_chunk_that_claims_gigabytes_is_asked_for_what_the_file_has(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    content = bytearray((tmp_path / "a.png").read_bytes())
    place = content.index(b"IDAT")
    content[place - 4 : place] = struct.pack(">I", 0xFFFFFFF0)
    (tmp_path / "a.png").write_bytes(content)
    with images._OwnLength(tmp_path / "a.png") as stream:
        assert stream.read(1 << 60) == content  # of a plain file, an error of memory
    with contextlib.suppress(MediaError):  # whether Pillow makes do with what there is, is Pillow's business
        assert read_image(tmp_path / "a.png").size == (4, 4)


@pytest.mark.parametrize("size", [(1, 1), (4_200_000, 2), (3000, 2900), (7, 255)], ids=str)
def test_a_transparent_picture_is_made_opaque_in_bands_as_it_would_be_whole(size):
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 4), np.uint8)
    layer = Image.fromarray(pixels)
    whole = Image.alpha_composite(Image.new("RGBA", layer.size, images.BACKGROUND), layer).convert("RGB")
    assert images._composited(layer).tobytes() == whole.tobytes()


@pytest.mark.parametrize("size", [(70_000, 2), (2, 70_000)])
def test_a_side_longer_than_any_camera_makes_is_refused(tmp_path, size):
    Image.new("L", size).save(tmp_path / "a.png")
    assert refused(tmp_path / "a.png") is ViolationCode.IMAGE_TOO_LARGE


def test_a_picture_that_needs_another_program_is_refused(tmp_path):
    """Pillow hands PostScript to Ghostscript; nothing a row names may start a program."""
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n")
    assert refused(path) is ViolationCode.IMAGE_UNREADABLE
