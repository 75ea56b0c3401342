"""Face arrays and folders of crops, on small files; pixels are compared with cv2.imread on the same file."""

from __future__ import annotations

import base64
import subprocess
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.media.faces import (
    decode_jpeg_gray,
    list_frames,
    open_npy_faces,
    read_jpeg,
    stamp_gaps,
)
from muvap_assets.media.npy import npy_header_bytes, read_npy_header

# A 16x16 JPEG of colour noise, encoded once and kept: the pixels below do not depend on an encoder.
GOLDEN_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxO"
    "UlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P"
    "T09PT09PT0//wAARCAAQABADASIAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUF"
    "BAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVW"
    "V1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi"
    "4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAAAAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAEC"
    "AxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVm"
    "Z2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk5ebn6Onq"
    "8vP09fb3+Pn6/9oADAMBAAIRAxEAPwBYYJ5YCJIXmdpGkcbxtXOMZ5zggnocZ7jgiKSK3hCCJI4CQWJI3lVycMGPQgZwPX+7zm5H"
    "IqMkxlnl2qin7quzHhQABnaTleSRz3zmoEuXaKS4a2hWeZgsjiUDgk8Ko6k54wMnjuozEXzO8lfv59BczjHley9N/TZf15H/2Q=="
)
GOLDEN_CRC32 = 0x46792DC1


def jpeg_bytes(level: int = 128, size: int = 32) -> bytes:
    return cv2.imencode(".jpg", np.full((size, size, 3), level, np.uint8))[1].tobytes()


def noise_jpeg(size: int = 90) -> bytes:
    picture = np.random.default_rng(7).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return cv2.imencode(".jpg", picture)[1].tobytes()


def folder_of(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(jpeg_bytes())
    return folder


def decode(data: bytes) -> np.ndarray:
    out = np.empty((112, 112), np.uint8)
    decode_jpeg_gray(data, out, Path("faces/7.jpg"))
    return out


# --- arrays ---


def test_a_face_array_is_read_in_blocks_without_being_mapped(tmp_path):
    faces = np.random.default_rng(1).integers(0, 256, (7, 5, 4), dtype=np.uint8)
    np.save(tmp_path / "faces.npy", faces)
    opened = open_npy_faces(tmp_path / "faces.npy")
    assert opened.shape == (7, 5, 4)
    block = np.empty((3, 5, 4), np.uint8)
    opened.read_into(2, block)
    np.testing.assert_array_equal(block, faces[2:5])


def test_a_face_array_that_became_shorter_after_it_was_checked_is_an_error(tmp_path):
    path = tmp_path / "faces.npy"
    np.save(path, np.zeros((7, 5, 4), np.uint8))
    opened = open_npy_faces(path)
    path.write_bytes(path.read_bytes()[:-25])
    with pytest.raises(ValidationError, match=r"faces\.npy: it ends within frame 5 of 7"):
        opened.read_into(4, np.empty((3, 5, 4), np.uint8))


WRONG_ARRAYS = {
    "floats in 0..1": (np.zeros((3, 4, 4), np.float32), "FACES_DTYPE", "dtype float32.*multiply by 255"),
    "int16": (np.zeros((3, 4, 4), np.int16), "FACES_DTYPE", "dtype int16"),
    "bool": (np.zeros((3, 4, 4), bool), "FACES_DTYPE", "dtype bool"),
    "colour": (np.zeros((3, 4, 4, 3), np.uint8), "FACES_LAYOUT", r"shape \[3, 4, 4, 3\].*colour"),
    "a channel axis": (np.zeros((3, 1, 4, 4), np.uint8), "FACES_LAYOUT", "axis of length 1"),
    "one frame without its axis": (np.zeros((4, 4), np.uint8), "FACES_LAYOUT", r"\[1, height, width\]"),
    "no frame": (np.zeros((0, 4, 4), np.uint8), "FACES_EMPTY", r"shape \[0, 4, 4\]"),
    "no pixel": (np.zeros((3, 0, 4), np.uint8), "FACES_EMPTY", r"shape \[3, 0, 4\]"),
    "Fortran order": (np.asfortranarray(np.zeros((3, 4, 5), np.uint8)), "FACES_LAYOUT", "Fortran.*ascontiguousarray"),
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_an_array_of_another_kind_is_refused_by_name(tmp_path, name):
    array, code, match = WRONG_ARRAYS[name]
    np.save(tmp_path / "faces.npy", array)
    with pytest.raises(ValidationError, match=match) as caught:
        open_npy_faces(tmp_path / "faces.npy")
    assert caught.value.finding.code is Code[code]


def test_an_object_array_is_never_unpickled_but_named(tmp_path):
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.zeros(3), np.zeros(2)]
    np.save(tmp_path / "faces.npy", ragged, allow_pickle=True)
    with pytest.raises(ValidationError, match=r"object array: frames of unequal shape\?") as caught:
        open_npy_faces(tmp_path / "faces.npy")
    assert caught.value.finding.code is Code.FACES_DTYPE


def test_files_that_are_no_whole_npy_are_refused_by_name(tmp_path):
    good = tmp_path / "good.npy"
    np.save(good, np.zeros((3, 4, 4), np.uint8))
    data = good.read_bytes()
    np.savez(tmp_path / "zip.npz", faces=np.zeros(3))
    files = {
        "empty.npy": (b"", r"an empty file \(0 bytes\)"),
        "html.npy": (b"<html>not found</html>", "begins with b'<html>no'"),
        "zip.npy": ((tmp_path / "zip.npz").read_bytes(), r"a zip archive \(\.npz\?\).*numpy\.save"),
        "cut.npy": (data[:-1], "cut short: 175 bytes, its header promises 176"),
        "long.npy": (data + b"x", "longer than its header says: 177 bytes"),
        "header.npy": (data[:60], "damaged .npy header"),
        "format.npy": (data[:6] + b"\x09\x00" + data[8:], "format"),
        "negative.npy": (data.replace(b"(3, 4, 4), ", b"(-3, 4, 4),"), "damaged .npy header"),
    }
    for name, (content, match) in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValidationError, match=match) as caught:
            open_npy_faces(tmp_path / name)
        assert caught.value.finding.code is Code.FACES_UNREADABLE
        assert str(tmp_path / name) in str(caught.value)


def test_a_missing_array_and_a_folder_in_its_place_are_told_apart(tmp_path):
    with pytest.raises(ValidationError, match="nothing is there") as caught:
        open_npy_faces(tmp_path / "none.npy")
    assert caught.value.finding.code is Code.FACES_MISSING
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(ValidationError, match=r"a folder; .*jpeg_directory"):
        open_npy_faces(tmp_path / "folder.npy")


def test_headers_written_here_are_what_numpy_writes(tmp_path):
    array = np.zeros((11, 3), np.int16)
    np.save(tmp_path / "a.npy", array)
    header = npy_header_bytes(np.int16, (11, 3))
    assert (tmp_path / "a.npy").read_bytes() == header + array.tobytes()
    assert read_npy_header(tmp_path / "a.npy").data_offset == len(header)


# --- folders ---


def test_frames_are_sorted_as_numbers_and_not_as_strings(tmp_path):
    names = ["999.88.jpg", "999.92.jpg", "999.96.jpg", "1000.00.jpg", "1000.04.jpg"]
    assert list_frames(folder_of(tmp_path / "a", *names))[:2] == (tuple(names), ())
    assert list_frames(folder_of(tmp_path / "b", "10.jpg", "9.JPEG", "2.jpeg")).names == ("2.jpeg", "9.JPEG", "10.jpg")


@pytest.mark.parametrize("name", ["dir[1]", "a*b", "a?b", "with space", "é", "vid_0000_0060:1"])
def test_a_folder_may_be_called_anything(tmp_path, name):
    assert list_frames(folder_of(tmp_path / name, "1.jpg", "2.jpg")).names == ("1.jpg", "2.jpg")


def test_everything_wrong_with_a_folder_is_found_at_once(tmp_path):
    folder = folder_of(tmp_path / "a", "1.0.jpg", "1.00.jpg", "2.jpg", "cover.jpg", "3.png", "1e3.jpg", "-4.jpg")
    (folder / "5.jpg").write_bytes(b"")
    (folder / "6.jpg").mkdir()
    (folder / "7.jpg").symlink_to("nowhere.jpg")
    (folder / ".DS_Store").write_bytes(b"ignored")
    errors = {error.code: error.found for error in list_frames(folder).findings}
    assert errors[Code.FRAME_NAME_DUPLICATE] == "'1.0.jpg', '1.00.jpg'"
    assert errors[Code.FRAME_FILE_EMPTY] == "'5.jpg'"
    invalid = errors.pop(Code.FRAME_NAME_INVALID)
    assert invalid == "'-4.jpg', '1e3.jpg', '3.png', '6.jpg', '7.jpg' and 1 more"
    assert len(errors) == 2


def test_what_a_system_puts_into_every_folder_is_passed_over(tmp_path):
    frames = folder_of(tmp_path / "a", "1.jpg", "2.jpg")
    before = list_frames(frames)
    for name in ("Thumbs.db", "thumbs.db", "desktop.ini", "Desktop.ini", ".DS_Store"):
        (frames / name).write_bytes(b"not a picture")
    (frames / "@eaDir").mkdir()
    assert list_frames(frames) == before
    assert before.names == ("1.jpg", "2.jpg") and not before.findings
    (frames / "thumbs.txt").touch()
    assert [error.code for error in list_frames(frames).findings] == [Code.FRAME_NAME_INVALID]


def test_pictures_of_another_format_are_told_to_be_converted_and_nothing_else(tmp_path):
    (error,) = list_frames(folder_of(tmp_path / "a", "00000.png", "00001.PNG")).findings
    assert error.code is Code.FRAME_NAME_INVALID
    assert error.hint == "PNG: only JPEG crops are read; convert them, or stack them into one .npy."
    (error,) = list_frames(folder_of(tmp_path / "b", "1.jpg", "2.webp", "notes.txt")).findings
    assert error.hint.startswith("WEBP: only JPEG crops are read")
    assert "move everything else out" in error.hint


def test_a_path_of_windows_is_told_what_to_write(tmp_path):
    path = tmp_path / "media\\clip"
    (finding,) = list_frames(path).findings
    with pytest.raises(ValidationError) as error:
        open_npy_faces(path)
    for each in (finding, error.value.finding):
        assert each.of_file("media\\clip").hint.endswith("Write / for \\ in paths.")


def test_a_folder_without_frames_a_missing_one_and_a_file_are_told_apart(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    for path, code in (
        (folder_of(tmp_path / "empty"), Code.FACES_EMPTY),
        (tmp_path / "none", Code.FACES_MISSING),
        (tmp_path / "file", Code.FACES_UNREADABLE),
    ):
        listing = list_frames(path)
        assert (listing.names, [error.code for error in listing.findings]) == ((), [code])
        assert str(path) in listing.findings[0].message()


def test_a_hole_in_the_time_stamps_is_named():
    assert stamp_gaps(["1.00.jpg", "1.04.jpg", "1.12.jpg", "1.16.jpg"]) == [("1.04.jpg", "1.12.jpg")]
    assert stamp_gaps(["1.00.jpg", "1.04.jpg", "1.09.jpg", "1.13.jpg"]) == []
    assert stamp_gaps(["1.jpg", "9.jpg"]) == []


# --- pixels ---


def test_the_pixels_are_those_of_imread_grayscale_and_inter_linear(tmp_path):
    path = tmp_path / "1.jpg"
    path.write_bytes(noise_jpeg())
    block = np.zeros((3, 112, 112), np.uint8)
    decode_jpeg_gray(read_jpeg(path), block[1], path)
    expected = cv2.resize(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), (112, 112), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(block[1], expected)
    assert not block[0].any()
    assert not block[2].any()
    colour = cv2.cvtColor(cv2.imread(str(path), cv2.IMREAD_COLOR), cv2.COLOR_BGR2GRAY)
    other = cv2.resize(colour, (112, 112), interpolation=cv2.INTER_LINEAR)
    assert np.abs(other.astype(int) - expected).max() > 1  # the two ways to grey really differ


def test_the_golden_picture_has_the_golden_pixels():
    assert zlib.crc32(decode(GOLDEN_JPEG)) == GOLDEN_CRC32


def test_a_picture_of_the_right_size_is_not_resampled():
    data = noise_jpeg(112)
    np.testing.assert_array_equal(decode(data), cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE))


PROGRESSIVE = [cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_RST_INTERVAL, 2]
BEHIND = {
    "zeros": bytes(500),
    "a tail": b"tail",
    "a marker": b"\xff",
    "a picture": jpeg_bytes(),
    "a cut one": jpeg_bytes()[:-9],
}


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("options", [[], PROGRESSIVE])
def test_bytes_behind_the_end_of_a_whole_picture_change_nothing(name, options):
    noise = np.random.default_rng(7).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    data = cv2.imencode(".jpg", noise, options)[1].tobytes()
    alone = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    expected = cv2.resize(alone, (112, 112), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(decode(data + BEHIND[name]), expected)
    with pytest.raises(ValidationError, match="without end marker, cut short"):
        decode(data[: len(data) // 2] + BEHIND["a cut one"])


def claiming(width: int, height: int) -> bytes:
    data = bytearray(jpeg_bytes())
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = height.to_bytes(2) + width.to_bytes(2)
    return bytes(data)


BAD_PICTURES = {
    "empty": (b"", r"an empty file \(0 bytes\)"),
    "a saved page": (b"<!DOCTYPE html><html>404</html>", "no JPEG, it begins with b'<!DOCTYP'"),
    "a renamed PNG": (
        cv2.imencode(".png", np.zeros((8, 8), np.uint8))[1].tobytes(),
        "no JPEG, it begins with b'.x89PNG",
    ),
    "half": (noise_jpeg()[: len(noise_jpeg()) // 2], "without end marker, cut short at"),
    "one byte short": (noise_jpeg()[:-1], "without end marker"),
    "half, padded": (noise_jpeg()[: len(noise_jpeg()) // 2].rstrip(b"\0") + bytes(4096), "without end marker"),
    "half, then padding and text": (noise_jpeg()[: len(noise_jpeg()) // 2] + bytes(99) + b"tail", "cut short at"),
    "no picture data": (jpeg_bytes()[: jpeg_bytes().index(b"\xff\xda") + 14] + b"\xff\xd9", "cut short at"),
    "cut in its header": (jpeg_bytes()[:100], "cut within its header"),
    "markers only": (b"\xff\xd8\xff\xd9", "cut within its header"),
    "a bomb": (claiming(65000, 65000), "65000x65000 pixels, at most 64000000"),
    "no height": (claiming(32, 0), "0x32 pixels"),
}


@pytest.mark.parametrize("name", BAD_PICTURES)
def test_a_picture_that_is_not_whole_is_an_error_with_its_path(name, capfd):
    data, match = BAD_PICTURES[name]
    with pytest.raises(ValidationError, match=match) as caught:
        decode(data)
    assert str(caught.value).startswith("faces/7.jpg: ")
    assert caught.value.finding.code is Code.FACES_UNREADABLE
    assert capfd.readouterr().err == ""


def test_an_end_marker_of_a_thumbnail_does_not_stand_for_the_picture():
    picture = noise_jpeg()
    thumbnail = jpeg_bytes(size=8)
    segment = b"\xff\xe1" + (len(thumbnail) + 8).to_bytes(2) + b"Exif\0\0" + thumbnail
    whole = picture[:2] + segment + picture[2:]
    np.testing.assert_array_equal(decode(whole), decode(picture))
    with pytest.raises(ValidationError, match="cut within its header"):
        decode(whole[: 2 + len(segment)])


def test_listing_and_checking_faces_import_no_cv2():
    code = "import sys, muvap_assets.media.faces; sys.exit('cv2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("descr", ["(", "|u1 ,,", "(99999999999999999999,)u1", "<U99999999999999999999"])
def test_a_type_that_numpy_stumbles_over_is_a_damaged_header(tmp_path, descr):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (1, 2, 2), }}".encode()
    path = tmp_path / "faces.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(4))
    with pytest.raises(ValidationError, match=r"damaged \.npy header"):
        open_npy_faces(path)
