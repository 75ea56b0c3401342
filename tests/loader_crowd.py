"""Writes a loader CSV of very many short tracks, their media hard links to a few hundred valid files."""

import os
import random
from pathlib import Path

import cv2
import numpy as np
import soundfile

FRAMES, FPS, A_VIDEO = 8, 25, 160
MEDIA = 240


def write_crowd(root, tracks, split="train"):
    """A split of ``tracks`` tracks of eight frames below ``root``, its files of varying content."""
    root, rng = Path(root), np.random.default_rng(0)
    store = root / "store"
    store.mkdir(parents=True)
    for i in range(MEDIA):
        grey = rng.integers(0, 256, (16, 16), dtype=np.uint8)
        (store / f"{i}.jpg").write_bytes(cv2.imencode(".jpg", cv2.resize(grey, (112, 112)))[1].tobytes())
        soundfile.write(store / f"{i}.wav", rng.integers(-999, 999, 4480, dtype=np.int16), 16_000, subtype="PCM_16")
    pick = random.Random(0)
    jpegs, wavs = ([str(store / f"{i}.{kind}") for i in range(MEDIA)] for kind in ("jpg", "wav"))
    lines = []
    for number in range(tracks):
        video, start = f"video_{number // A_VIDEO:05d}", 900 + number % A_VIDEO
        entity = f"{video}_{start:04d}_{start + 60:04d}:{number % 7}"
        crops, sounds = root / "clips_videos" / split / video / entity, root / "clips_audios" / split / video
        if number % A_VIDEO == 0:
            sounds.mkdir(parents=True)
            crops.parent.mkdir(parents=True)
        crops.mkdir()
        for frame in range(FRAMES):
            os.link(pick.choice(jpegs), f"{crops}/{start + frame / FPS:.2f}.jpg")
        os.link(pick.choice(wavs), sounds / f"{entity}.wav")
        lines.append(f"{entity}\t{FRAMES}\t{FPS}.0\t[0, 0, 1, 1, 0, 1, 0, 0]\t{number}\n")
    (root / "csv").mkdir()
    (root / "csv" / f"{split}_loader.csv").write_text("".join(lines))
