"""Box files, and crops against a rule written out pixel by pixel."""

from fractions import Fraction

import av
import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.codes import Code
from muvap_assets.media.face_boxes import read_face_boxes
from muvap_assets.media.video import Orientation, VideoFrame
from muvap_assets.media.video_faces import BORDER_GREY, crop_face, crop_square, grey_picture, wrong_box


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return read_face_boxes(path)


def codes(listing):
    return [error.code for error in listing.findings]


def test_boxes_come_sorted_by_face_and_frame_whatever_the_order_of_lines(tmp_path):
    listing = write(
        tmp_path / "a.csv",
        "3,face,1,1,2,3,4,0",
        "0,face,1,-5,2,30.5,40,1",
        "",
        "1, face, 0, 1, 2, 3, 4, 0",
        "2,face,1,1,2,3,4,0",
    )
    assert not listing.findings
    assert listing.boxes.face_ids.tolist() == [0, 1, 1, 1]
    assert listing.boxes.frames_of(1).tolist() == [0, 2, 3]
    window = listing.boxes.window(1, 0, 3)
    np.testing.assert_array_equal(window, [[-5, 2, 30.5, 40], [np.nan] * 4, [1, 2, 3, 4]])
    assert np.isnan(listing.boxes.window(7, 0, 2)).all()


@pytest.mark.parametrize(
    "line",
    [
        "frame_id,face,face_id,x1,y1,x2,y2,fixed",
        "0,face,0,1,2,3,4",
        "0,face,0,1,2,3,4,0,SPEAKING",
        "0,face,0,1,2,nan,4,0",
        "0.5,face,0,1,2,3,4,0",
        "-1,face,0,1,2,3,4,0",
        "0,face,zero,1,2,3,4,0",
        "0,face,0,1,2,1e9,4,0",
        "0;face;0;1;2;3;4;0",
    ],
)
def test_a20_a_line_of_anything_but_eight_columns_of_numbers_is_refused_with_its_number(tmp_path, line):
    listing = write(tmp_path / "a.csv", "0,face,1,1,2,3,4,0", line)
    assert codes(listing) == [Code.BOX_INVALID]
    assert "line 2 is" in listing.findings[0].found
    assert "frame_id, face, face_id, x1, y1, x2, y2, fixed" in listing.findings[0].required


def test_two_boxes_of_one_face_on_one_frame_are_refused(tmp_path):
    listing = write(tmp_path / "a.csv", "4,face,1,1,2,3,4,0", "4,face,1,1,2,3,5,0", "4,face,2,1,2,3,5,0")
    assert codes(listing) == [Code.BOX_DUPLICATE]
    assert listing.findings[0].found == "face 1 twice on frame 4"


def test_a_missing_and_an_empty_box_file_are_told_apart(tmp_path):
    assert codes(read_face_boxes(tmp_path / "none.csv")) == [Code.FACES_MISSING]
    assert codes(write(tmp_path / "a.csv", "")) == [Code.FACES_EMPTY]


def test_a21_faces_of_negative_ids_are_left_out_and_listed(tmp_path):
    listing = write(tmp_path / "a.csv", "4,face,-1,1,2,3,4,0", "4,face,-7,1,2,3,5,0", "4,face,2,1,2,3,5,0")
    assert not listing.findings
    assert listing.boxes.face_ids.tolist() == [2]
    assert listing.boxes.negative_ids == (-7, -1)


# --- crops ---


def by_pixel(grey, box):
    """The crop before resizing, a pixel at a time."""
    left, top, side = crop_square(np.asarray(box, float))
    height, width = grey.shape
    square = np.empty((side, side), np.uint8)
    for y in range(side):
        for x in range(side):
            inside = 0 <= top + y < height and 0 <= left + x < width
            square[y, x] = grey[top + y, left + x] if inside else BORDER_GREY
    return square


@settings(max_examples=60, deadline=None)
@given(x=st.integers(-30, 59), y=st.integers(-30, 39), width=st.integers(1, 60), height=st.integers(1, 60))
def test_a18_a_crop_is_the_square_about_the_box_with_grey_outside_the_picture(x, y, width, height):
    grey = np.random.default_rng(0).integers(0, 256, (40, 60), dtype=np.uint8)
    box = np.array([x, y, x + width, y + height], float)
    if wrong_box(box, 60, 40):
        assert x + width <= 0 or y + height <= 0
        return
    out = np.empty((112, 112), np.uint8)
    crop_face(grey, box, out)
    np.testing.assert_array_equal(out, cv2.resize(by_pixel(grey, box), (112, 112), interpolation=cv2.INTER_LINEAR))


@pytest.mark.parametrize(
    ("box", "square"),
    [
        ((10, 20, 30, 40), (10, 20, 20)),
        ((10, 20, 30, 25), (10, 12, 20)),  # the centre is 22.5: half a pixel goes up
        ((-8, -3, 8, 9), (-8, -5, 16)),
        ((0.5, 0.5, 3, 3), (0, 0, 2)),
        ((0.25, 0, 3.75, 2), (0, -1, 4)),
    ],
)
def test_the_square_of_a_box_has_its_centre_and_its_longer_side(box, square):
    assert crop_square(np.array(box, float)) == square


@pytest.mark.parametrize(
    ("box", "code"),
    [
        ((10, 10, 10, 30), Code.BOX_EMPTY),
        ((10, 30, 40, 10), Code.BOX_EMPTY),
        ((10, 10, 10.5, 30), Code.BOX_EMPTY),
        ((-20, 10, 0, 30), Code.BOX_OUTSIDE),
        ((60, 10, 70, 30), Code.BOX_OUTSIDE),
        ((10, 40, 20, 50), Code.BOX_OUTSIDE),
        ((-500, 0, 500, 10), Code.BOX_OUTSIDE),
        ((-1, -1, 1, 1), None),
        ((59, 39, 90, 90), None),
    ],
)
def test_a18_boxes_that_show_no_pixel_are_faults(box, code):
    fault = wrong_box(np.array(box, float), 60, 40)
    assert (fault and fault[0]) == code


@pytest.mark.parametrize(
    ("pixels", "full"), [("yuv420p", False), ("yuvj420p", True), ("yuv444p", False), ("rgb24", True)]
)
def test_grey_is_the_luma_at_full_range(tmp_path, pixels, full):
    levels = np.repeat(np.arange(16, 236, 4, dtype=np.uint8), 8)
    picture = np.ascontiguousarray(np.broadcast_to(levels, (64, len(levels))))
    raw = av.VideoFrame(len(levels), 64, pixels)
    if pixels == "rgb24":
        raw = av.VideoFrame.from_ndarray(np.repeat(picture[:, :, None], 3, axis=2), format=pixels)
    else:
        for plane, values in zip(raw.planes, [picture, 128, 128], strict=True):
            rows = np.full((plane.height, plane.line_size), 128, np.uint8)
            rows[:, : plane.width] = values
            plane.update(rows.tobytes())
    grey = grey_picture(VideoFrame(0, Fraction(0), Fraction(1), Orientation(), raw))
    expected = picture if full else np.rint((picture.astype(float) - 16) * 255 / 219)
    assert grey.shape == picture.shape
    assert np.abs(grey - expected).max() <= (1 if pixels == "rgb24" else 0)


def test_a_turned_video_is_cut_upright():
    raw = av.VideoFrame.from_ndarray(np.arange(64 * 32, dtype=np.int64).astype(np.uint8).reshape(32, 64), format="gray")
    grey = grey_picture(VideoFrame(0, Fraction(0), Fraction(1), Orientation(turns=1), raw))
    np.testing.assert_array_equal(grey, np.rot90(raw.to_ndarray()))
