"""The asd half of the failing demo: canonical manifests, one a subject, with one bad row of each kind beside good ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from muvap_assets.codes import Code
from muvap_assets.demo.corpus import draw_face
from muvap_assets.demo.videos import write_video

_COLUMNS = (
    *("sample_id", "audio_path", "visual_path", "source_fps", "labels", "start_sec", "visual_kind"),
    *("audio_sample_rate", "labels_known", "boxes_path", "face_id", "first_frame"),
)
_FRAMES, _FPS, _RATE_HZ = 25, 25, 16_000
_LABELS = [index // 5 % 2 for index in range(_FRAMES)]

CODES: Mapping[str, tuple[Code, ...]] = {
    "failing_text": (
        Code.ROW_MALFORMED,
        Code.ENCODING_INVALID,
        Code.SAMPLE_ID_INVALID,
        Code.SAMPLE_ID_DUPLICATE,
        Code.PATH_INVALID,
        Code.SOURCE_FPS_INVALID,
        Code.START_SEC_INVALID,
        Code.LABELS_INVALID,
        Code.LABELS_KNOWN_INVALID,
        Code.VISUAL_KIND_INVALID,
        Code.AUDIO_RATE_INVALID,
        Code.BOX_INVALID,
    ),
    "failing_faces": (
        Code.FACES_MISSING,
        Code.FACES_UNREADABLE,
        Code.FACES_DTYPE,
        Code.FACES_LAYOUT,
        Code.FACES_EMPTY,
        Code.FACE_SHAPE_MISMATCH,
        Code.FRAME_NAME_INVALID,
        Code.FRAME_NAME_DUPLICATE,
        Code.FRAME_FILE_EMPTY,
        Code.LABEL_COUNT_MISMATCH,
    ),
    "failing_audio": (  # set to quarantine, which refuses a corpus all the same where too many rows are bad
        Code.REJECTED_SHARE,
        Code.AUDIO_MISSING,
        Code.AUDIO_UNREADABLE,
        Code.AUDIO_UNSUPPORTED,
        Code.AUDIO_EMPTY,
        Code.AUDIO_NON_FINITE,
        Code.AUDIO_SCALE,
        Code.AUDIO_SHORT,
        Code.AUDIO_NO_OVERLAP,
        Code.START_SEC_REQUIRED,
    ),
    "failing_boxes": (
        Code.VIDEO_UNREADABLE,
        Code.VIDEO_TIMESTAMPS,
        Code.BOX_INVALID,
        Code.BOX_DUPLICATE,
        Code.BOX_EMPTY,
        Code.BOX_OUTSIDE,
        Code.FACES_EMPTY,
        Code.LABEL_COUNT_MISMATCH,
    ),
    "failing_header": (Code.COLUMN_MISSING, Code.COLUMN_DUPLICATE),
    "failing_empty": (Code.MANIFEST_EMPTY,),
    "failing_missing": (Code.FILE_UNREADABLE,),
    "quarantined": (Code.LABEL_COUNT_MISMATCH,),
}
"""What each corpus is refused for; ``quarantined`` sets its one bad row aside and is published."""

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "failing_audio": {"on_violation": "quarantine"},
    "quarantined": {"on_violation": "quarantine", "max_rejected_share": 0.5},
}


def write_corpora(folder: Path) -> dict[str, dict[str, Any]]:
    """Write every corpus into a folder of its own; returns their entries of ``datasets.yaml``."""
    writers = {
        "failing_text": _text,
        "failing_faces": _faces,
        "failing_audio": _audio,
        "failing_boxes": _boxes,
        "failing_header": _header,
        "failing_empty": lambda corpus: None,
        "quarantined": _quarantined,
    }
    for name, write in writers.items():
        corpus = _Corpus(folder / name)
        write(corpus)
        corpus.write()
    return {
        name: {"kind": "tsv", "manifest": f"asd/{name}/rows.tsv", **_OPTIONS.get(name, {})} for name in CODES
    }  # of "failing_missing" nothing is written


class _Corpus:
    """Collects the lines of one manifest, and writes the media beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines = ["\t".join(_COLUMNS).encode()]
        for name in ("audio", "faces"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def row(self, name: str, **fields: object) -> None:
        """A good row of 25 frames at 25 fps on a second of its own sound, except for ``fields``."""
        if "audio_path" not in fields:
            fields["audio_path"] = self.sound(name, 1)
        if "visual_path" not in fields:
            fields["visual_path"] = self.faces(name, _numbered_faces())
        row = {"sample_id": name, "source_fps": _FPS, "labels": _LABELS, **fields}
        self.lines.append("\t".join(str(row.get(column, "")) for column in _COLUMNS).encode())

    def sound(self, name: str, seconds: float) -> str:
        """Quiet noise, 16-bit mono."""
        noise = np.random.default_rng(len(self.lines)).normal(0, 0.05, round(seconds * _RATE_HZ))
        soundfile.write(self.folder / f"audio/{name}.wav", noise, _RATE_HZ, subtype="PCM_16")
        return f"audio/{name}.wav"

    def faces(self, name: str, values: npt.NDArray[Any]) -> str:
        """An array of any kind."""
        np.save(self.folder / f"faces/{name}.npy", values, allow_pickle=False)
        return f"faces/{name}.npy"

    def file(self, name: str, content: bytes) -> str:
        """A file of any content."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return name

    def write(self) -> None:
        """Write the manifest."""
        (self.folder / "rows.tsv").write_bytes(b"\n".join(self.lines) + b"\n")


def _numbered_faces(size: int = 112) -> npt.NDArray[np.uint8]:
    return np.stack([draw_face(number)[:size, :size] for number in range(_FRAMES)])


def _text(corpus: _Corpus) -> None:
    corpus.row("good")
    corpus.lines += [b"row_malformed\taudio/good.wav", b"encoding_invalid\xff" + b"\t" * (len(_COLUMNS) - 1)]
    shared = {"audio_path": "audio/good.wav", "visual_path": "faces/good.npy"}
    corpus.row("", **shared)
    corpus.row("sample_id_duplicate", **shared)
    corpus.row("sample_id_duplicate", **shared)
    corpus.row("path_invalid", audio_path="", visual_path="faces/good.npy")
    corpus.row("source_fps_invalid", source_fps="about 25", **shared)
    corpus.row("start_sec_invalid", start_sec="-1", **shared)
    corpus.row("labels_invalid", labels=[2] * _FRAMES, **shared)
    corpus.row("labels_known_invalid", labels_known="maybe", **shared)
    corpus.row("visual_kind_invalid", visual_kind="gif", **shared)
    corpus.row("audio_rate_invalid", audio_path="audio/array.npy", visual_path="faces/good.npy")
    boxes = {"boxes_path": "boxes.csv", "face_id": "left", "first_frame": 0}
    corpus.row("box_invalid", **{**shared, "visual_kind": "video_boxes", **boxes})


def _faces(corpus: _Corpus) -> None:
    for name in ("good_1", "good_2"):
        corpus.row(name)
    faces = _numbered_faces()
    corpus.row("faces_missing", visual_path="faces/nowhere.npy")
    whole = (corpus.folder / "faces/good_1.npy").read_bytes()
    corpus.row("faces_unreadable", visual_path=corpus.file("faces/cut.npy", whole[: len(whole) // 2]))
    corpus.row("faces_dtype", visual_path=corpus.faces("float", (faces / 255).astype(np.float32)))
    corpus.row("faces_layout", visual_path=corpus.faces("colour", np.stack([faces] * 3, axis=-1)))
    corpus.row("faces_empty", visual_path=corpus.faces("empty", faces[:0]))
    corpus.row("face_shape_mismatch", visual_path=corpus.faces("small", _numbered_faces(96)))
    for code, names in (
        ("frame_name_invalid", ("0.00.jpg", "cover.jpg")),
        ("frame_name_duplicate", ("0.04.jpg", "0.040.jpg")),
        ("frame_file_empty", ("0.00.jpg", "0.08.jpg")),
    ):
        for name in names:
            empty = code == "frame_file_empty" and name == names[-1]
            corpus.file(f"faces/{code}/{name}", b"" if empty else b"\xff\xd8\xff\xd9")
        corpus.row(code, visual_path=f"faces/{code}", visual_kind="jpeg_directory")
    corpus.row("label_count_mismatch", labels=[*_LABELS, 0])


def _audio(corpus: _Corpus) -> None:
    corpus.row("good")
    corpus.row("audio_missing", audio_path="audio/nowhere.wav")
    damaged = corpus.file("audio/damaged.wav", b"RIFF\x24\x00\x00\x00WAVEjunk, and nothing else")
    corpus.row("audio_unreadable", audio_path=damaged)
    corpus.row("audio_unsupported", audio_path=corpus.file("audio/tagged.mp3", b"ID3" + bytes(64)))
    corpus.row("audio_empty", audio_path=corpus.file("audio/empty.wav", b""))
    broken = np.zeros(_RATE_HZ, np.float32)
    broken[100:110] = np.nan
    soundfile.write(corpus.folder / "audio/broken.wav", broken, _RATE_HZ, subtype="FLOAT")
    corpus.row("audio_non_finite", audio_path="audio/broken.wav")
    soundfile.write(corpus.folder / "audio/cast.wav", np.full(_RATE_HZ, 9000, np.float32), _RATE_HZ, subtype="FLOAT")
    corpus.row("audio_scale", audio_path="audio/cast.wav")
    corpus.row("audio_short", audio_path=corpus.sound("short", 0.5))
    corpus.row("audio_no_overlap", start_sec=100)
    corpus.row("start_sec_required", audio_path=corpus.sound("long", 3))


def _boxes(corpus: _Corpus) -> None:
    fps, frames = Fraction(_FPS), 30
    write_video(corpus.folder / "talk.mp4", fps, frames)
    # Frames 10 and later are shown a fifth of a second late: no constant rate.
    late = [index / fps + (Fraction(1, 5) if index >= 10 else 0) for index in range(frames)]
    write_video(corpus.folder / "uneven.mp4", fps, frames, times=late)
    corpus.file("broken.mp4", b"not a video")

    def boxes(name: str, lines: Sequence[str]) -> str:
        return corpus.file(name, ("\n".join(lines) + "\n").encode())

    plain = [f"{frame},1,0,20,10,60,50,1" for frame in range(frames)]
    usual = boxes("plain.csv", plain)
    files = {
        "box_invalid": boxes("header.csv", ["frame_id,face,face_id,x1,y1,x2,y2,fixed", *plain]),
        "box_duplicate": boxes("twice.csv", [*plain, plain[7]]),
        "box_empty": boxes("thin.csv", [*plain[:5], "5,1,0,20,10,20,50,1", *plain[6:]]),
        "box_outside": boxes("outside.csv", [*plain[:5], "5,1,0,900,10,940,50,1", *plain[6:]]),
    }

    def row(name: str, video: str = "talk.mp4", **fields: object) -> None:
        defaults = {"visual_kind": "video_boxes", "boxes_path": usual, "face_id": 0, "first_frame": 0}
        corpus.row(name, **{"visual_path": video, **defaults, **fields})

    row("good")
    row("video_unreadable", "broken.mp4")
    row("video_timestamps", "uneven.mp4")
    for code, file in files.items():
        row(code, boxes_path=file)
    row("faces_empty", face_id=7)
    row("label_count_mismatch", first_frame=20)


def _header(corpus: _Corpus) -> None:
    corpus.row("good")
    corpus.lines[0] = corpus.lines[0].replace(b"labels\t", b"label\t", 1).replace(b"start_sec", b"source_fps")


def _quarantined(corpus: _Corpus) -> None:
    for name in ("good_1", "good_2", "good_3"):
        corpus.row(name)
    corpus.row("label_count_mismatch", labels=[*_LABELS, 0])
