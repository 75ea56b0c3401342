"""Scores on the annotation's own frames, and the whole way from a pack to the official number.

    model frames    |  s0 |  s1 |  s2 |  s3 |        one score each, at model_fps
    native frames   |s0|s0|s1|s1|s2|s2|s3|s3|        one score each, at source_fps (50 here)

A worked example, from the model to average precision:

    truth = read_ground_truth(Path("val_orig.csv"), labels_known=True)
    tracks = []
    for sample in PackReader(pack):
        native = lift(model(sample), len(sample.labels), sample.source_fps)
        tracks.append(TrackScores(entity_id=sample.entry.sample_id, scores=native))
    write_predictions(Path("upload.csv"), truth, tracks)
    print(truth.average_precision(truth.align(tracks)))

``ava_metric.py`` holds the metric, ``prediction_files.py`` ground truth and official files, ``categories.py`` the
report by category.

Source: the audio-visual data contract, "Evaluation on the native timeline".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.timeline import MODEL_FPS, FrameRate, RateLike, model_frame_count, model_indices
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place

_SUBJECT = "scores"


def lift(
    scores: npt.ArrayLike, source_frames: int, source_fps: RateLike, model_fps: RateLike = MODEL_FPS
) -> npt.NDArray[np.floating[Any]]:
    """Give each native frame the score of the model frame that its centre lies in.

    Native frames past the last complete model interval take its score, as ``timeline.model_indices`` says.

    >>> lift([0.1, 0.2, 0.3, 0.4], 8, 50).tolist()
    [0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4]

    Args:
        scores: real [model_frames], one a model frame of the whole track.
        source_frames: native frames of the track.
        source_fps: native frames a second, exactly; ``PackedSample.source_fps`` has it.
        model_fps: model frames a second.

    Returns:
        [source_frames], in the dtype of ``scores`` (integers become float64).

    Raises:
        ConfigError: ``source_frames`` or a rate is not one.
        ValidationError: not one finite score a model frame.
    """
    values = finite_scores(scores)
    required = model_frame_count(source_frames, source_fps, model_fps)
    if len(values) != required:
        fps = FrameRate.parse(source_fps).text
        needed = f"{required}, one a model frame of {source_frames} native frames at {fps} fps"
        place, found = Place(field=_SUBJECT), f"{len(values)}"
        raise ValidationError(Finding(Code.COUNT_MISMATCH, place, found, case="scores", required=needed))
    indices = model_indices(source_frames, source_fps, model_fps)
    lifted: npt.NDArray[np.floating[Any]] = values[indices]
    return lifted


def finite_scores(scores: npt.ArrayLike, sample_id: str | None = None) -> npt.NDArray[np.floating[Any]]:
    """``scores`` as a float array [n]; integers become float64.

    Raises:
        ValidationError: they are not real numbers [n], or one is NaN or infinite; the message says which.
    """
    values: npt.NDArray[Any] = np.asarray(scores)
    if values.dtype.kind in "biu" or values.size == 0:
        values = values.astype(np.float64)
    found = ""
    if values.ndim != 1 or values.dtype.kind != "f":
        found = f"{values.dtype} {list(values.shape)}"
    elif not np.isfinite(values).all():
        place = int(np.argmin(np.isfinite(values)))
        found = f"{values[place]} at {place}"
    if found:
        where = Place(sample_id=sample_id, field=_SUBJECT)
        raise ValidationError(Finding(Code.ROW_MALFORMED, where, found, case="scores"))
    return values
