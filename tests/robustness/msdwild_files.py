"""A split of MSDWild as small as one can be: a video of twenty frames, two faces, two speakers."""

from __future__ import annotations

from pathlib import Path

from media_makers import write_video


def write_msdwild(root: Path) -> tuple[Path, dict[Path, str]]:
    """Write it below ``root``; returns the root and its text files with what they hold."""
    media = root / "msdwild_boundingbox_labels"
    media.mkdir(parents=True)
    (root / "rttms").mkdir()
    write_video(media / "00001.mp4", frames=20, fps=25, size=(32, 32))
    boxes = "".join(
        f"{frame},face,{face},{4 * face},2,{4 * face + 12},14,0\n" for frame in range(20) for face in (0, 1)
    )
    turns = "".join(
        f"SPEAKER 00001 1 {start} 0.2 <NA> <NA> {speaker} <NA> <NA>\n" for start, speaker in ((0, 0), (0.4, 1))
    )
    files = {media / "00001.csv": boxes, root / "rttms" / "all.rttm": turns}
    for path, text in files.items():
        path.write_text(text)
    return root, files
