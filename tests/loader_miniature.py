"""Writes a faithful miniature of a corpus in the AVA layout; each crop shows its own frame number, each onset clicks."""

import csv
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import soundfile

from muvap_assets.asd.ava_csv import EXTENDED_COLUMNS as HEADER
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.demo.corpus import draw_face

SPELLINGS = ("NOT_SPEAKING", "SPEAKING_AUDIBLE", "SPEAKING_NOT_AUDIBLE")


@dataclass
class Track:
    """One entity: where it lies on its video, and its three-way labels, one a native frame."""

    entity_id: str
    video_id: str
    fps: str = "25"
    frames: int = 25
    start_sec: str = "902.00"
    label_ids: list = field(default_factory=list)

    def __post_init__(self):
        if not self.label_ids:
            turn = max(2, round(FrameRate.parse(self.fps).value / 4))
            self.label_ids = [i // turn % 2 for i in range(self.frames)]

    @property
    def labels(self):
        """What the loader CSV and the pack hold."""
        return [int(label == 1) for label in self.label_ids]

    @property
    def times(self):
        """Seconds of each frame as the files are named."""
        step = 1 / FrameRate.parse(self.fps).value
        return [f"{float(Fraction(self.start_sec) + i * step):.2f}" for i in range(self.frames)]


class Miniature:
    """A corpus below ``root``; a test overrides the one thing it is about, and breaks files by hand."""

    def __init__(self, root, tracks, split="train", separator=":", recording_sec=None, flat=False):
        self.root, self.tracks, self.split, self.separator = Path(root), tracks, split, separator
        self.recording_sec, self.flat = recording_sec, flat
        self.recordings = {}

    def crops(self, track):
        return self._place("clips_videos", track, "")

    def wav(self, track):
        return self._place("clips_audios", track, ".wav")

    def _place(self, folder, track, suffix):
        video = "" if self.flat else track.video_id
        return self.root / folder / self.split / video / f"{track.entity_id.replace(':', self.separator)}{suffix}"

    @property
    def loader(self):
        return self.root / "csv" / f"{self.split}_loader.csv"

    @property
    def original(self):
        return self.root / "csv" / f"{self.split}_orig.csv"

    def write(self):
        for track in self.tracks:
            self.write_crops(track)
            self.write_wav(track)
        self.write_loader()
        return self

    def write_crops(self, track):
        self.crops(track).mkdir(parents=True)
        for number, time in enumerate(track.times):
            side = 112 + 8 * (number % 5)  # crops vary in size
            face = cv2.resize(draw_face(number), (side, side), interpolation=cv2.INTER_NEAREST)
            encoded = cv2.imencode(".jpg", cv2.cvtColor(face, cv2.COLOR_GRAY2BGR))[1]
            (self.crops(track) / f"{time}.jpg").write_bytes(encoded.tobytes())

    def recording(self, video_id):
        """int16 [samples] of a whole video: quiet noise, a click at the centre of each frame in which speech begins."""
        if video_id not in self.recordings:
            tracks = [track for track in self.tracks if track.video_id == video_id]
            end = self.recording_sec or max(float(track.times[-1]) for track in tracks) + 1
            noise = np.random.default_rng(len(video_id)).integers(-60, 60, round(end * 16_000), dtype=np.int16)
            for track in tracks:
                for j, label in enumerate(track.labels):
                    if label and (j == 0 or not track.labels[j - 1]):
                        centre = float(track.times[0]) + (j + 0.5) / float(FrameRate.parse(track.fps))
                        noise[round(centre * 16_000)] = 20_000
            self.recordings[video_id] = noise
        return self.recordings[video_id]

    def write_wav(self, track):
        """What the published slicer cuts: from the first to the last time, one frame less than the faces."""
        first, last = (int(float(track.times[i]) * 16_000) for i in (0, -1))
        self.wav(track).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(self.wav(track), self.recording(track.video_id)[first:last], 16_000, subtype="PCM_16")

    def write_recordings(self, folder="orig_audios/trainval"):
        (self.root / folder).mkdir(parents=True)
        for video_id in {track.video_id for track in self.tracks}:
            path = self.root / folder / f"{video_id}.wav"
            soundfile.write(path, self.recording(video_id), 16_000, subtype="PCM_16")

    def write_loader(self, columns=5):
        self.loader.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            [t.entity_id, str(t.frames), t.fps, str(t.labels), str(2715 - i)][:columns]
            for i, t in enumerate(self.tracks)
        ]
        self.loader.write_text("".join("\t".join(row) + "\n" for row in rows))

    def original_rows(self, spellings=SPELLINGS):
        return [
            [
                t.video_id,
                time,
                "0.1",
                "0.2",
                "0.4",
                "0.6",
                spellings[label],
                t.entity_id,
                str(label),
                f"{t.entity_id}:0",
            ]
            for t in self.tracks
            for time, label in zip(t.times, t.label_ids, strict=True)
        ]

    def write_original(self, columns=10, header=True, rows=None):
        self.original.parent.mkdir(parents=True, exist_ok=True)
        with self.original.open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            if header:
                writer.writerow(HEADER[:columns])
            writer.writerows(row[:columns] for row in (self.original_rows() if rows is None else rows))
