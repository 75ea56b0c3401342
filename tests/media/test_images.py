"""Still pictures: orientation, transparency, and what is refused."""

import contextlib
import re
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.media import images
from muvap_assets.media.images import MAX_PIXELS, count_image, read_image


def refused(path):
    with pytest.raises(ValidationError) as caught:
        read_image(path)
    assert str(path.parent) not in caught.value.finding.found
    return caught.value.finding.code


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


def write_png(path, depth, colour, rows, transparent):
    """A PNG of one row of packed samples, with a transparent colour in samples of the same depth."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    width = len(rows) * 8 // depth // (3 if colour == 2 else 1)
    header = struct.pack(">IIBBBBB", width, 1, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"tRNS", struct.pack(f">{len(transparent)}H", *transparent))]
    chunks += [(b"IDAT", zlib.compress(b"\0" + rows)), (b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks))
    return path


@pytest.mark.parametrize(
    ("depth", "rows", "transparent", "shown"),
    [
        (16, struct.pack(">4H", 0, 32_896, 32_897, 65_535), 32_896, [0, 255, 128, 255]),
        (16, struct.pack(">2H", 0, 514), 0, [255, 2]),
        (8, bytes([0, 100, 101, 102]), 101, [0, 100, 255, 102]),
        (4, bytes([0x03, 0x7F]), 3, [0, 255, 119, 255]),
        (2, bytes([0b00011011]), 1, [0, 255, 170, 255]),
        (1, bytes([0b01000000]), 0, [255] * 8),
    ],
)
def test_the_transparent_level_of_a_grey_png_is_white_at_any_depth(tmp_path, depth, rows, transparent, shown):
    pixels = np.asarray(read_image(write_png(tmp_path / "a.png", depth, 0, rows, [transparent])))
    assert pixels.tolist() == [[[level] * 3 for level in shown]]


def test_a_transparent_colour_that_pillow_cannot_find_is_refused(tmp_path):
    colour = struct.pack(">3H", 0x1234, 0x5678, 0x9ABC)
    assert refused(write_png(tmp_path / "a.png", 16, 2, colour, [0x1234, 0x5678, 0x9ABC])) is Code.IMAGE_UNREADABLE


@pytest.mark.parametrize(("highest", "bits"), [(65_535, 16), (1023, 10), (4095, 12), (255, 8)])
@pytest.mark.parametrize("magic", [b"P5", b"P2"])
def test_a_portable_graymap_of_any_maximum_has_its_range(tmp_path, highest, bits, magic):
    levels = [0, highest // 3, highest // 2 + 1, highest]
    body = " ".join(map(str, levels)).encode()
    if magic == b"P5":
        body = b"".join(level.to_bytes(2 if bits > 8 else 1) for level in levels)
    (tmp_path / "a.pgm").write_bytes(b"%s\n4 1\n%d\n%s" % (magic, highest, body))
    found = np.asarray(read_image(tmp_path / "a.pgm"))[0, :, 0].tolist()
    assert found == pytest.approx([level * 255 / highest for level in levels], abs=1)
    assert (found[0], found[-1]) == (0, 255)


def test_a_jpeg_with_a_second_picture_behind_it_reads_its_first(tmp_path):
    first, second = (Image.new("RGB", size, colour) for size, colour in (((32, 16), "red"), ((8, 8), "blue")))
    first.save(tmp_path / "phone.jpg", "MPO", save_all=True, append_images=[second])
    first.save(tmp_path / "alone.jpg")
    with Image.open(tmp_path / "phone.jpg") as opened:
        assert (opened.format, opened.n_frames) == ("MPO", 2)
    np.testing.assert_array_equal(read_image(tmp_path / "phone.jpg"), Image.open(tmp_path / "alone.jpg"))


SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


SRGB_COLORANTS = [(0.43607, 0.22249, 0.01392), (0.38515, 0.71687, 0.09708), (0.14307, 0.06061, 0.71410)]
P3 = [(0.51512, 0.24120, -0.00105), (0.29198, 0.69225, 0.04189), (0.15710, 0.06657, 0.78407)]
"""Red, green and blue as XYZ, adapted to D50, as profiles of the two spaces hold them."""


def display_p3():
    """The sRGB profile with the colorants of Display P3, in 16.16 fixed point."""
    profile, tags = bytearray(SRGB), dict(zip((b"rXYZ", b"gXYZ", b"bXYZ"), P3, strict=True))
    for index in range(int.from_bytes(profile[128:132])):
        tag, place, _ = struct.unpack_from(">4sII", profile, 132 + 12 * index)
        if tag in tags:
            struct.pack_into(">3i", profile, place + 8, *(round(value * 65_536) for value in tags[tag]))
    return bytes(profile)


def test_a_profile_that_is_not_srgb_is_named_and_its_pixels_are_not_converted(tmp_path):
    picture = Image.new("RGB", (8, 8), (200, 30, 60))
    for name, profile in {"none": b"", "srgb": SRGB, "p3": display_p3(), "torn": SRGB[:300]}.items():
        picture.save(tmp_path / f"{name}.png", icc_profile=profile)
        assert np.asarray(read_image(tmp_path / f"{name}.png"))[0, 0].tolist() == [200, 30, 60]
    assert [count_image(tmp_path / f"{name}.png").colour for name in ("none", "srgb")] == ["", ""]
    (found,) = re.findall(r"up to (\d+) of 255 levels from sRGB", count_image(tmp_path / "p3.png").colour)
    levels = np.arange(0, 256, 15) / 255
    stored = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(-1, 3)
    linear = np.where(stored <= 0.04045, stored / 12.92, ((stored + 0.055) / 1.055) ** 2.4)  # IEC 61966-2-1
    shown = (linear @ np.array(P3) @ np.linalg.inv(SRGB_COLORANTS)).clip(0, 1)
    shown = np.where(shown <= 0.0031308, shown * 12.92, 1.055 * shown ** (1 / 2.4) - 0.055)
    assert int(found) == pytest.approx(255 * np.abs(shown - stored).max(), abs=2)
    assert "does not read" in count_image(tmp_path / "torn.png").colour


def test_profiles_of_grey_and_of_inks_are_looked_at(tmp_path):
    grey = SRGB.replace(b"RGB XYZ ", b"GRAYXYZ ", 1).replace(b"rTRC", b"kTRC", 1)
    curve = grey.index(b"para")
    linear = grey[:curve] + b"curv" + bytes(7) + b"\x01" + b"\x01\x00" + grey[curve + 14 :]  # gamma 1
    for name, profile in {"grey": grey, "linear": linear}.items():
        Image.new("L", (4, 4)).save(tmp_path / f"{name}.png", icc_profile=profile)
    assert count_image(tmp_path / "grey.png").colour == ""
    (found,) = re.findall(r"up to (\d+) of 255 levels", count_image(tmp_path / "linear.png").colour)
    levels = np.arange(15, 256, 15) / 255
    assert int(found) == pytest.approx(255 * np.abs(1.055 * levels ** (1 / 2.4) - 0.055 - levels).max(), abs=1)
    Image.new("CMYK", (4, 4)).save(tmp_path / "inks.jpg", icc_profile=SRGB.replace(b"mntrRGB ", b"mntrCMYK"))
    assert "an ICC profile of 'CMYK' colours" in count_image(tmp_path / "inks.jpg").colour


def test_several_frames_are_refused(tmp_path):
    first, second = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    first.save(tmp_path / "moving.gif", save_all=True, append_images=[second])
    assert refused(tmp_path / "moving.gif") is Code.IMAGE_MULTI_FRAME


def test_a_cut_file_is_refused(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:1500])
    assert refused(tmp_path / "cut.jpg") is Code.IMAGE_UNREADABLE


@pytest.mark.parametrize("content", [b"", b"<html>404</html>"])
def test_what_is_no_picture_is_refused(tmp_path, content):
    (tmp_path / "page.png").write_bytes(content)
    assert refused(tmp_path / "page.png") is Code.IMAGE_UNREADABLE


@pytest.mark.parametrize("side", [9_500, 60_000])
def test_a_decompression_bomb_is_refused_by_its_header(tmp_path, side):
    assert side * side > MAX_PIXELS

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    body = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(body)
    assert refused(tmp_path / "bomb.png") is Code.IMAGE_TOO_LARGE


def test_a_chunk_that_claims_gigabytes_is_asked_for_what_the_file_has(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    content = bytearray((tmp_path / "a.png").read_bytes())
    place = content.index(b"IDAT")
    content[place - 4 : place] = struct.pack(">I", 0xFFFFFFF0)
    (tmp_path / "a.png").write_bytes(content)
    with images._OwnLength(tmp_path / "a.png") as stream:
        assert stream.read(1 << 60) == content  # of a plain file, an error of memory
    with contextlib.suppress(ValidationError):  # whether Pillow makes do with what there is, is Pillow's business
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
    assert refused(tmp_path / "a.png") is Code.IMAGE_TOO_LARGE


def test_a_picture_that_needs_another_program_is_refused(tmp_path):
    """Pillow hands PostScript to Ghostscript; nothing a row names may start a program."""
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n")
    assert refused(path) is Code.IMAGE_UNREADABLE
