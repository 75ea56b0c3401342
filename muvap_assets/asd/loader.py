"""From packs to batches: the model timeline, the model's loudness and the model's chunks are applied here, and only here.

    packs ─► Tracks ─► ChunkPlan ─► spans of a batch ─► one block of memory ─► ASDBatch ─► transform
             (native)  (epoch)      (crop or pad)        filled in place

A chunk is a slice of its track and nothing else: faces and labels at the track's own :func:`source_indices`, audio at the
samples those frames cover, targets out of those of the whole track. So it does not matter which chunk a frame falls into.

Audio of model frames [first, first + T) is the samples [s, s + n) of the track, with s = floor(first * 16000 / model_fps)
and n = floor(T * 16000 / model_fps): 640 a frame at 25 Hz, and of one length for all chunks of T frames at every rate. Where
16000 / model_fps is no integer up to one sample between two chunks is in neither.

Source: the audio-visual data contract, "Canonical timeline", "Audio" and "Dataset policy".
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from muvap_assets.asd.batch_sampler import EpochBatch, FrameBudgetBatchSampler
from muvap_assets.asd.batches import ASDBatch, BatchBlock, Fit, Tensors
from muvap_assets.asd.chunks import ChunkOptions, ChunkPlan, Spans, is_whole
from muvap_assets.asd.contract import AUDIO_RATE_HZ
from muvap_assets.asd.levels import LoudnessTarget
from muvap_assets.asd.targets import ProjectionWindow
from muvap_assets.asd.timeline import MODEL_FPS, FrameRate, RateLike
from muvap_assets.asd.tracks import Tracks
from muvap_assets.errors import ConfigError

_LOG = logging.getLogger(__name__)
WELL_USED_SHARE = 0.9
"""Of an epoch's frames, that cropping leaves; large corpora of like tracks keep more than 0.99."""

UNKNOWN_LABEL = 255
"""What ``labels`` holds where a sample's labels are not known."""

PackPaths: TypeAlias = "str | Path | Sequence[str | Path]"
Transform: TypeAlias = Callable[[ASDBatch], ASDBatch]


class Targets(Protocol):
    """What a frame is trained on, made from the labels of its whole track."""

    def __call__(self, labels: npt.NDArray[np.uint8], /) -> npt.NDArray[Any]:
        """Targets [T, ...] of a track whose labels on the model timeline are uint8 [T] of 0 and 1."""
        ...


class PackedASDDataset(Dataset[ASDBatch]):
    """Chunks of the samples of one or more packs; an item, or a list of items, is a batch.

    Give it to torch's DataLoader by :func:`data_loader`, or to a ``PrefetchLoader``. Pickled, it carries its settings alone and
    opens the packs again where it arrives; forked, it shares them.
    """

    def __init__(  # noqa: PLR0913 - one setting each, all by keyword
        self,
        roots: PackPaths,
        *,
        model_fps: RateLike = MODEL_FPS,
        window: int | None = None,
        context: int = 0,
        jitter: bool = False,
        targets: Targets | None = None,
        normalize: bool | LoudnessTarget = True,
        fit: Fit | str = Fit.CROP,
        seed: int = 0,
        transform: Transform | None = None,
        blocks: int = 0,
    ) -> None:
        """Open packs.

        Args:
            roots: a pack's folder, or several; their samples follow each other.
            model_fps: the timeline's rate.
            window: the most frames a chunk is scored on; whole tracks where not given.
            context: frames of history read before a chunk where the track has them; not scored.
            jitter: move each track's chunks by a phase drawn from (seed, epoch).
            targets: makes [T, ...] of a whole track's labels, always of one type; picklable where workers are spawned. A
                :class:`ProjectionWindow` it takes as ``window`` has to be one of ``model_fps``.
            normalize: bring recordings to a loudness, the default one or another; ``False`` keeps their own gain.
            fit: crop a batch to its shortest chunk (training), or pad it to its longest (evaluation). A chunk is cropped of
                history first, then at its end; it is padded at its end: silence, black faces, label and target 0.
            seed: of the jitter.
            transform: runs on each batch where it is made: a worker, a thread. Augmentation goes here.
            blocks: 0 makes each batch in memory of its own. Above, that many blocks a process are used in turn: a batch
                is overwritten when as many more were made.

        Raises:
            ConfigError: an argument is out of range, or the packs' faces differ in shape.
            FormatError: a pack cannot be opened.
            ValidationError: there are targets to make, and samples whose labels are not known.
        """
        paths = [roots] if isinstance(roots, str | Path) else list(roots)
        self._settings: dict[str, Any] = {
            "roots": tuple(Path(path) for path in paths),
            "model_fps": FrameRate.parse(model_fps),
            "chunks": ChunkOptions(window=window, context=context, jitter=jitter, seed=seed),
            "targets": _callable(targets),
            "loudness": LoudnessTarget() if normalize is True else normalize or None,
            "fit": _fit(fit),
            "transform": transform,
            "blocks": blocks,
        }
        if not is_whole(blocks) or blocks < 0:
            raise ConfigError(
                f"blocks {blocks!r}; required: 0 or more, a whole number. Leave it out for batches of their own memory."
            )
        self._epoch = 0
        self._open()

    def _open(self) -> None:
        settings = self._settings
        self.tracks = Tracks(settings["roots"], settings["model_fps"])
        self.fit: Fit = settings["fit"]
        self._audio_rate: Fraction = AUDIO_RATE_HZ / settings["model_fps"].value
        self._factor, self._addend = self.tracks.gains(settings["loudness"])
        self._targets = _TrackTargets(self.tracks, settings["targets"]) if settings["targets"] else None
        self._blocks = [BatchBlock() for _ in range(settings["blocks"])]
        self._made = 0
        self._plan = lru_cache(maxsize=2)(lambda epoch: ChunkPlan(self.tracks.frames, settings["chunks"], epoch))

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self._settings, "epoch": self._epoch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._settings, self._epoch = state["settings"], state["epoch"]
        self._open()

    @property
    def blocks(self) -> int:
        """Blocks of memory that batches share in turn; 0 where each has its own."""
        return len(self._blocks)

    # --- items ------------------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that plain item numbers and ``len`` are meant of; batches of a sampler bring their own."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self.plan(self._epoch))

    def plan(self, epoch: int) -> ChunkPlan:
        """The chunks of an epoch; the same for every epoch without jitter."""
        plan: ChunkPlan = self._plan(epoch if self._settings["chunks"].jitter else 0)
        return plan

    @property
    def jitter(self) -> bool:
        """Whether the chunks of one epoch are others than those of the next."""
        return bool(self._settings["chunks"].jitter)

    def fingerprint(self) -> dict[str, Any]:
        """What the items are made of, as plain JSON: the packs' versions, the timeline, and how tracks are cut."""
        chunks: ChunkOptions = self._settings["chunks"]
        return {
            "versions": self.tracks.versions,
            "model_fps": str(self.tracks.model_fps.value),
            "window": None if chunks.window is None else int(chunks.window),
            "context": int(chunks.context),
            "jitter_seed": int(chunks.seed) if chunks.jitter else None,
        }

    def lengths(self, epoch: int = 0) -> npt.NDArray[np.int64]:
        """Frames of every item of an epoch, history included: int64 [items]."""
        return self.plan(epoch).lengths()

    def __getitem__(self, item: int) -> ASDBatch:
        """One chunk as a batch of one.

        Raises:
            IndexError: there is no such item.
        """
        return self.__getitems__([item if item >= 0 else len(self) + item])

    def __getitems__(self, items: Sequence[int]) -> ASDBatch:
        """The batch of these items, in their order; those of an ``EpochBatch`` are meant of its epoch.

        Raises:
            IndexError: there is no such item.
            ConfigError: no item is given, they were planned from lengths of one epoch and jitter moves the chunks of each, or
                the target function gave something of another shape or type than before.
        """
        block = BatchBlock()
        if self._blocks:
            block = self._blocks[self._made % len(self._blocks)]
            self._made += 1
        return self.read(items, block)

    def read(self, items: Sequence[int], block: BatchBlock) -> ASDBatch:
        """:meth:`__getitems__` into ``block``; safe from several threads, each with a block of its own."""
        epoch = items.epoch if isinstance(items, EpochBatch) else self._epoch
        if epoch is None and self.jitter:
            raise lengths_of_one_epoch()
        plan = self.plan(epoch or 0)
        chunks = np.asarray(items, np.int64)
        if not len(chunks):
            raise ConfigError("batch: no item; required: at least one. Correct the batch sampler.")
        if not 0 <= int(chunks.min()) <= int(chunks.max()) < len(plan):
            raise IndexError(
                f"items {chunks.min()} to {chunks.max()}; required: within {len(plan)}. Use range(len(dataset))."
            )
        batch = self._fill(self._fitted(plan.spans(chunks)), block)
        transform: Transform | None = self._settings["transform"]
        return transform(batch) if transform else batch

    def _fitted(self, spans: Spans) -> Spans:
        """The spans as they enter the batch: cropped to the shortest where this is what is asked for."""
        if self.fit is Fit.PAD:
            return spans
        surplus = spans.lengths - int(spans.lengths.min())
        of_history = np.minimum(surplus, spans.scored_from - spans.first)
        return Spans(spans.tracks, spans.first + of_history, spans.scored_from, spans.stop - (surplus - of_history))

    # --- reading ----------------------------------------------------------------------------------------------------------

    def _samples(self, frames: int) -> int:
        return frames * self._audio_rate.numerator // self._audio_rate.denominator

    def _fill(self, spans: Spans, block: BatchBlock) -> ASDBatch:
        rows, frames = len(spans.tracks), int(spans.lengths.max())
        tensors = [
            Tensors(torch.float32, (rows, self._samples(frames))),
            Tensors(torch.uint8, (rows, frames, *self.tracks.face_shape)),
            Tensors(torch.uint8, (rows, frames)),
            Tensors(torch.bool, (rows, frames)),
            Tensors(torch.bool, (rows, frames)),
            *(Tensors(torch.int64, (rows,)) for _ in range(3)),
        ]
        if self._targets:
            tensors.append(Tensors(self._targets.dtype, (rows, frames, *self._targets.shape)))
        laid_out = block.lay_out(tensors)
        audio, faces, labels, scored, real, lengths, starts, tracks, *targets = (tensor.numpy() for tensor in laid_out)
        lengths[:], starts[:], tracks[:] = spans.lengths, spans.first, spans.tracks
        at = np.arange(frames)
        np.less(at, lengths[:, None], out=real)
        np.greater_equal(at, (spans.scored_from - spans.first)[:, None], out=scored)
        scored &= real
        for row, (track, first, stop) in enumerate(
            zip(spans.tracks.tolist(), spans.first.tolist(), spans.stop.tolist(), strict=True)
        ):
            self._read_audio(track, first, stop, audio[row])
            self._read_frames(track, first, stop, faces[row], labels[row])
            if self._targets:
                _put(targets[0][row], self._targets.of(track)[first:stop])
        return ASDBatch(
            audio=laid_out[0],
            faces=laid_out[1],
            labels=laid_out[2],
            targets=laid_out[8] if self._targets else None,
            scored=laid_out[3],
            real=laid_out[4],
            lengths=laid_out[5],
            starts=laid_out[6],
            tracks=laid_out[7],
            sample_ids=tuple(self.tracks.sample_id(track) for track in spans.tracks.tolist()),
        )

    def _read_audio(self, track: int, first: int, stop: int, out: npt.NDArray[np.float32]) -> None:
        begin = self._samples(first)
        sounding = int(self.tracks.sounding_samples[track]) - begin
        count = max(min(self._samples(stop - first), sounding), 0)
        begin += int(self.tracks.audio_offset[track])
        stored = self.tracks.arrays(int(self.tracks.shard[track])).audio[begin : begin + count]
        sounding_part = out[:count]
        sounding_part[:] = stored
        sounding_part *= self._factor[track]
        sounding_part += self._addend[track]
        out[count:] = 0

    def _read_frames(
        self, track: int, first: int, stop: int, faces: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]
    ) -> None:
        arrays = self.tracks.arrays(int(self.tracks.shard[track]))
        indices, count = self.tracks.indices(track)[first:stop], stop - first
        begin, end = int(indices[0]), int(indices[-1]) + 1
        offset = int(self.tracks.face_offset[track])
        if end - begin == count:
            faces[:count] = arrays.faces[offset + begin : offset + end]
        else:
            # The indices are within the sample; "clip" spares the copy that "raise" would make to undo a failure.
            np.take(arrays.faces, indices + offset, axis=0, out=faces[:count], mode="clip")
        faces[count:] = 0
        if self.tracks.labels_known[track]:
            _put(labels, arrays.labels[int(self.tracks.label_offset[track]) + indices])
        else:
            labels[:] = UNKNOWN_LABEL


class _TrackTargets:
    """The targets of whole tracks, kept once made as long as they fit: an epoch asks for a long track many times."""

    _KEPT_BYTES = 64 << 20

    def __init__(self, tracks: Tracks, make: Targets) -> None:
        tracks.require_known_labels("targets")
        _require_rate(make, tracks.model_fps)
        self._tracks, self._make = tracks, make
        self._kept: dict[int, npt.NDArray[Any]] = {}
        self._kept_bytes = 0
        example = np.asarray(make(np.zeros(1, np.uint8)))
        if example.shape[:1] != (1,) or example.dtype.kind not in "biuf":
            found = f"{example.dtype} {list(example.shape)}"
            raise _targets_error("one frame", found, "numbers [1, ...]")
        self.shape = example.shape[1:]
        self._dtype = example.dtype
        self.dtype = torch.from_numpy(np.empty(0, example.dtype)).dtype

    def of(self, track: int) -> npt.NDArray[Any]:
        """[model_frames, ...]"""
        kept = self._kept.get(track)
        if kept is not None:
            return kept
        tracks = self._tracks
        labels = tracks.arrays(int(tracks.shard[track])).labels
        made = np.asarray(self._make(labels[int(tracks.label_offset[track]) + tracks.indices(track)]))
        where, shape = tracks.sample_id(track), (int(tracks.frames[track]), *self.shape)
        if made.shape != shape or made.dtype != self._dtype:
            raise _targets_error(where, f"{made.dtype} {list(made.shape)}", f"{self._dtype} {list(shape)}")
        if made.dtype.kind == "f" and not np.isfinite(made).all():
            raise _targets_error(where, "NaN or infinity", "finite numbers")
        if self._kept_bytes + made.nbytes <= self._KEPT_BYTES:
            self._kept_bytes += made.nbytes
            self._kept[track] = made
        return made


def data_loader(
    dataset: PackedASDDataset,
    batch_sampler: FrameBudgetBatchSampler,
    *,
    num_workers: int = 0,
    prefetch_factor: int = 2,
    **options: Any,
) -> DataLoader[ASDBatch]:
    """torch's DataLoader of these batches. ``options`` are its own: ``persistent_workers``, ``multiprocessing_context``, ...

    With ``blocks`` on the dataset, they must be ``prefetch_factor + 2`` or more: a worker runs that far ahead.

    Raises:
        ConfigError: the dataset has fewer blocks than its workers need, or its jitter moves chunks and the sampler was given
            lengths.
    """
    blocks = dataset.blocks
    if num_workers and 0 < blocks < prefetch_factor + 2:
        raise ConfigError(
            f"blocks {blocks}; required: at least {prefetch_factor + 2} where workers prepare {prefetch_factor} batches. "
            "Raise it, or leave it out."
        )
    if num_workers:
        options["prefetch_factor"] = prefetch_factor
    check_together(dataset, batch_sampler)
    return DataLoader(dataset, batch_sampler=batch_sampler, collate_fn=as_is, num_workers=num_workers, **options)


def check_together(dataset: PackedASDDataset, batch_sampler: FrameBudgetBatchSampler) -> None:
    """Whether batches and dataset go together. A warning where batches lose much to their shortest chunk.

    In a small corpus one chunk of a frame takes those of all others.

    Raises:
        ConfigError: jitter moves the dataset's chunks in each epoch, and the sampler was given lengths.
    """
    if dataset.jitter and not batch_sampler.knows_epochs:
        raise lengths_of_one_epoch()
    if dataset.fit is Fit.CROP and (use := batch_sampler.utilisation(Fit.CROP)).share < WELL_USED_SHARE:
        _LOG.warning(
            f"fit='crop' leaves {use.share:.1%} of the epoch's {use.frames} frames: each of its {use.batches} batches is cut to "
            "its shortest chunk. Leave short tracks out, or take fit='pad' and compute the loss where batch.scored."
        )


def lengths_of_one_epoch() -> ConfigError:
    """The error for batches planned from given lengths, whose chunks jitter moves."""
    return ConfigError(
        "batch sampler: planned from the lengths of one epoch; required: those of each, since jitter moves the chunks. Give "
        "FrameBudgetBatchSampler(dataset), not dataset.lengths()."
    )


def as_is(batch: Any) -> Any:
    """The collation for a DataLoader of one's own: a batch is made by the dataset already."""
    return batch


def _fit(fit: Fit | str) -> Fit:
    try:
        return Fit(fit)
    except ValueError:
        raise ConfigError(f"fit {fit!r}; required: crop or pad. Crop to train, pad to evaluate.") from None


def _callable(targets: Targets | None) -> Targets | None:
    if targets is None or callable(targets):
        return targets
    raise ConfigError(
        f"targets {targets!r}; required: a function of a track's labels. Give the function itself, such as "
        "muvap_assets.asd.targets.independent."
    )


def _put(out: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
    out[: len(values)] = values
    out[len(values) :] = 0


def _require_rate(make: Targets, model_fps: FrameRate) -> None:
    """Refuse a window of another rate: its bins would be longer or shorter than they say. ``partial`` shows its window too."""
    try:
        taken = inspect.signature(make).parameters.get("window")
    except (TypeError, ValueError):  # some callables of C have none
        return
    window = taken.default if taken is not None else None
    if isinstance(window, ProjectionWindow) and FrameRate.parse(window.frame_hz).value != model_fps.value:
        raise ConfigError(
            f"targets: a window of {window.frame_hz} Hz on a timeline of {model_fps.text} Hz; required: one rate. Give "
            f"functools.partial(..., window=ProjectionWindow(..., frame_hz={model_fps.text!r}))."
        )


def _targets_error(where: str, found: object, required: str) -> ConfigError:
    return ConfigError(f"targets ({where}): {found}; required: {required}. Correct the target function.")
