"""What a pack is like, dataset by dataset, from its index alone; and where that is unlike what is known of a corpus.

Levels are those of whole recordings, as a loader finds them and as it leaves them; a recording counts once however many
clips lie on it. Everything else is of clips. What is unusual is a warning: figures say where to look, not what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import AUDIO_RATE_HZ
from muvap_assets.asd.levels import LoudnessTarget
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.codes import Code
from muvap_assets.findings import Finding, Place

QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)
QUANTILE_NAMES = ("min", "p5", "p50", "p95", "max")
_DB_TOLERANCE = 0.05
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Five quantiles of a figure."""

    min: float
    p5: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetReport:
    """The figures of one dataset of a pack. A figure that nothing has is ``None``.

    ``normalized_dbfs`` and ``gain_db`` are what a loader makes of the recordings, as :class:`LoudnessTarget` says;
    ``off_target`` is the share of them that stay short of the target, because gain or peak is limited. ``speaking_share``
    is of the frames whose labels are known; ``speaking`` the same clip by clip.
    """

    dataset: str
    samples: int
    recordings: int
    silent_recordings: int
    off_target: float
    speaking_share: float | None
    frame_rates: Mapping[str, int]
    source_dbfs: Distribution | None
    normalized_dbfs: Distribution | None
    gain_db: Distribution | None
    speaking: Distribution | None
    length_frames: Distribution | None
    length_sec: Distribution | None
    source_fps: Distribution | None
    padded_ms: Distribution | None


FIGURES = (
    *(
        "source_dbfs",
        "normalized_dbfs",
        "gain_db",
        "speaking",
        "length_frames",
        "length_sec",
        "source_fps",
        "padded_ms",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFigures:
    """Ranges that the figures of a corpus lie in, as its authors and users report them, generously."""

    median_frames: tuple[float, float] = (0, np.inf)
    longest_sec: float = np.inf
    source_fps: tuple[float, float] = (0, np.inf)
    speaking_share: tuple[float, float] = (0.02, 0.9)


KNOWN = {
    "ava": KnownFigures(median_frames=(32, 128), longest_sec=12, source_fps=(10, 61), speaking_share=(0.1, 0.5)),
    "wasd": KnownFigures(median_frames=(300, 900), longest_sec=31, source_fps=(23.9, 30.1), speaking_share=(0.1, 0.9)),
}
"""By how the dataset's name begins. AVA: median track 64 frames of 1 to 10 s; WASD: 746 frames of up to 30 s, 24-30 fps."""

MOST_OFF_TARGET, MOST_SILENT, MOST_PADDED_MS = 0.25, 0.1, 100.0


def report_pack(folder: Path) -> tuple[DatasetReport, ...]:
    """The figures of each dataset in a pack, by name.

    Raises:
        FormatError: it is not a pack that can be opened.
    """
    reader = PackReader(folder)
    names = np.array(reader.text_column("dataset").to_pylist(), dtype=object)
    recordings = np.array(reader.text_column("recording_id").to_pylist(), dtype=object)
    rates = np.array(reader.text_column("source_fps_exact").to_pylist(), dtype=object)
    return tuple(
        _report(reader, str(name), np.flatnonzero(names == name), recordings, rates) for name in sorted(set(names))
    )


def _report(
    reader: PackReader,
    name: str,
    rows: npt.NDArray[np.int64],
    recordings: npt.NDArray[np.object_],
    rates: npt.NDArray[np.object_],
) -> DatasetReport:
    def column(key: str) -> Floats:
        return reader.column(key)[rows].astype(np.float64)

    first_of_recording = np.unique(recordings[rows].astype(str), return_index=True)[1]
    rms, peak = column("audio_rms")[first_of_recording], column("audio_peak")[first_of_recording]
    audible = (rms > 0) & (peak * 32768 >= 1)
    target = LoudnessTarget()
    source, gain = 20 * np.log10(rms[audible]), 20 * np.log10(target.gains(rms[audible], peak[audible]))
    frames, fps, known = column("source_frames"), column("source_fps"), column("labels_known").astype(bool)
    speaking = column("speaking_ratio")[known]
    known_frames = frames[known].sum()
    counts = dict(zip(*np.unique(rates[rows].astype(str), return_counts=True), strict=True))
    return DatasetReport(
        dataset=name,
        samples=len(rows),
        recordings=len(rms),
        silent_recordings=int(np.count_nonzero(~audible)),
        off_target=float(np.mean(source + gain < target.rms_dbfs - _DB_TOLERANCE)) if audible.any() else 0.0,
        speaking_share=float((speaking * frames[known]).sum() / known_frames) if known_frames else None,
        frame_rates={str(rate): int(counts[rate]) for rate in sorted(counts, key=lambda rate: (-counts[rate], rate))},
        source_dbfs=_distribution(source),
        normalized_dbfs=_distribution(source + gain),
        gain_db=_distribution(gain),
        speaking=_distribution(speaking),
        length_frames=_distribution(frames),
        length_sec=_distribution(frames / fps),
        source_fps=_distribution(fps),
        padded_ms=_distribution(column("padded_samples") * 1000 / AUDIO_RATE_HZ),
    )


def _distribution(values: Floats) -> Distribution | None:
    if not len(values):
        return None
    return Distribution(**dict(zip(QUANTILE_NAMES, map(float, np.quantile(values, QUANTILES)), strict=True)))


def unusual_figures(report: DatasetReport) -> list[Finding]:
    """Warnings about figures unlike those known of the corpus, or unlike any corpus."""
    known = next((KNOWN[name] for name in KNOWN if report.dataset.lower().startswith(name)), KnownFigures())
    return [
        Finding(Code.FIGURE_UNUSUAL, Place(report.dataset, field=figure), found, case=figure, usual=usual)
        for figure, found, usual in (*_unlike_corpus(report, known), *_unlike_any(report))
    ]


_Unusual = tuple[str, str, str]


def _unlike_corpus(report: DatasetReport, known: KnownFigures) -> Iterator[_Unusual]:
    low, high = known.speaking_share
    share = report.speaking_share
    if share is not None and not low <= share <= high:
        yield "speaking_share", f"{share:.1%} of the frames", f"{low:.0%} to {high:.0%}"
    frames, seconds, fps = report.length_frames, report.length_sec, report.source_fps
    low, high = known.median_frames
    if frames and not low <= frames.p50 <= high:
        yield "length_frames", f"a median of {frames.p50:.0f} frames", f"{low:.0f} to {high:.0f}"
    if seconds and seconds.max > known.longest_sec:
        yield "length_sec", f"a clip of {seconds.max:.1f} s", f"at most {known.longest_sec:.0f} s"
    low, high = known.source_fps
    if fps and not low <= fps.min <= fps.max <= high:
        yield "source_fps", f"rates from {fps.min:g} to {fps.max:g}", f"{low:g} to {high:g}"


def _unlike_any(report: DatasetReport) -> Iterator[_Unusual]:
    if report.off_target > MOST_OFF_TARGET:
        found = f"{report.off_target:.1%} of the recordings stay under the target level"
        yield "gain_db", found, f"at most {MOST_OFF_TARGET:.0%}"
    if report.recordings and report.silent_recordings / report.recordings > MOST_SILENT:
        found = f"{report.silent_recordings} of {report.recordings} recordings are silent"
        yield "source_dbfs", found, f"at most {MOST_SILENT:.0%}"
    if report.padded_ms and report.padded_ms.p95 > MOST_PADDED_MS:
        found = f"one clip in twenty is padded by {report.padded_ms.p95:.0f} ms and more"
        yield "padded_ms", found, f"one frame, under {MOST_PADDED_MS:.0f} ms"
