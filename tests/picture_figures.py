"""Every figure on values that a test knows, and what any of them has to keep to."""

import numpy as np
from matplotlib.text import Text

from muvap_assets.asd.levels import LoudnessTarget
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.pictures import alignment, buckets, clips, faces, latents, levels
from muvap_assets.ref2va.capacities import propose
from muvap_assets.ref2va.encoder_spec import LatentStatistics
from muvap_assets.ref2va.plan_report import BucketPlan

FONT_PX_MIN = 9


def face(seed, size=112):
    """A shaded oval: something with the grey levels of a face."""
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    rng = np.random.default_rng(seed)
    grey = 200 * np.exp(-2 * (x**2 * 1.6 + y**2)) + 20 + rng.normal(0, 8, (size, size))
    return np.clip(grey, 0, 255).astype(np.uint8)


def clips_figure():
    rates = {"25": 400, "29.97": 130, "30000/1001": 20, "23.976": 60, "12.5": 3}
    return clips.clips_figure(rates, np.random.default_rng(0).gamma(4, 0.7, 613))


def many_rates_figure():
    rates = {f"{20 + index / 10:g}": index + 1 for index in range(40)}
    return clips.clips_figure(rates, np.full(820, 2.0))


def levels_figure():
    dbfs = np.random.default_rng(1).normal(-28, 6, 400).clip(-60, -4)
    gain = np.minimum(-25 - dbfs, 20)
    return levels.levels_figure(dbfs, gain, LoudnessTarget())


def faces_figure():
    labels = [True, False, None]
    tiles = [
        faces.FaceTile(sample_id=f"P$AC_WWWW_video_{i}:{i % 3}", frame=370 * i, face=face(i), speaking=labels[i % 3])
        for i in range(21)
    ]
    return faces.faces_figure(tiles)


def strip():
    rng = np.random.default_rng(2)
    fps, count = FrameRate.parse("29.97"), 239
    seconds = float(count / fps.value)
    times = np.arange(round(seconds * 16_000)) / 16_000
    loud = (times // 1.3 % 2).astype(bool)
    audio = (rng.normal(0, 1, len(times)) * np.where(loud, 3000, 150)).astype(np.int16)
    labels = (np.arange(count) / 29.97 // 1.3 % 2).astype(np.uint8)
    return alignment.Strip(
        sample_id="msdwild_00012_3_000400",
        source_fps=fps,
        seconds=seconds,
        audio=audio,
        labels=labels,
        model_labels=(np.arange(199) / 25 // 1.3 % 2).astype(np.uint8),
        faces=np.stack([face(i) for i in range(7)]),
        face_times=(np.array([17, 51, 85, 119, 153, 187, 221]) + 0.5) / 29.97,
    )


def alignment_figure():
    return alignment.alignment_figure(strip())


def latent_arrays():
    rng = np.random.default_rng(3)
    scale = np.linspace(0.6, 1.4, 24)[:, None, None, None]
    return (rng.normal(0.1, 1, (24, 7, 24, 42)) * scale).astype(np.float32), rng.normal(0, 1, (2, 32, 50)).astype(
        np.float32
    )


def statistics_figure():
    figures = latents.Figures()
    figures.add(*latent_arrays())
    own = LatentStatistics(tuple(np.linspace(-0.4, 0.4, 24)), tuple(np.linspace(0.5, 1.5, 24)))
    return latents.statistics_figure(figures, own)


def frame_figure():
    return latents.frame_figure("walk-1", latent_arrays()[0][:, 0])


def tall_frame_figure():
    return latents.frame_figure("walk-1 in portrait", latent_arrays()[0][:, 0].transpose(0, 2, 1))


def buckets_figure():
    lengths = np.random.default_rng(4).integers(9_000, 52_717, 900).tolist()
    plans = [
        BucketPlan(
            name=f"bucket={w}x{h}-{n}f", rows=rows, bytes=rows * 10**7, repeats={1: 0, 8: -rows % 8, 32: -rows % 32}
        )
        for w, h, n, rows in (
            (1344, 768, 124, 420),
            (768, 1344, 124, 260),
            (1024, 1024, 124, 131),
            (1344, 768, 243, 60),
            (768, 1344, 362, 29),
        )
    ]
    return buckets.buckets_figure(plans, 32, lengths, propose(lengths, 4))


FIGURES = {
    function.__name__.removesuffix("_figure"): function
    for function in (
        clips_figure,
        many_rates_figure,
        levels_figure,
        faces_figure,
        alignment_figure,
        statistics_figure,
        frame_figure,
        tall_frame_figure,
        buckets_figure,
    )
}
AXES_UNITS = {
    "clips": {"frame rate (frames/s)", "clip length (s)", "clips"},
    "many_rates": {"frame rate (frames/s)", "clip length (s)", "clips"},
    "levels": {"level of the whole recording (dBFS)", "gain a loader applies (dB)", "recordings"},
    "faces": set(),
    "alignment": {"time from the clip's start (s)", "amplitude (full scale)"},
    "statistics": {
        *("latent channel", "mean (VAE units)", "deviation (VAE units)"),
        *("stored value (standard deviations)", "share of values (%)"),
    },
    "frame": set(),
    "tall_frame": set(),
    "buckets": {
        *("rows drawn an epoch", "width x height (px) - frames", "joint sequence length (rows)", "samples"),
    },
}


def texts(figure):
    """Every text that is shown."""
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def font_px(text, figure):
    return text.get_fontsize() * figure.dpi / 72


def axis_labels(figure):
    return {label for axes in figure.axes for label in (axes.get_xlabel(), axes.get_ylabel()) if label}
