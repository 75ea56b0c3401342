"""What decoding each media file found, counted once a file's content and remembered.

Counting decodes whole files, so it is done once: results are kept in memory for the run, and, where a folder is given,
as one small JSON file per content digest and kind. That folder is safe to lose, and entries of other decoder versions
are counted anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media import images, soundtrack, video
from muvap_assets.media.images import ImageFacts, count_image
from muvap_assets.media.sound_files import SoundChoice
from muvap_assets.media.soundtrack import SoundFacts, count_sound
from muvap_assets.media.video import VideoFacts, count_video
from muvap_assets.progress import Progress, no_progress
from muvap_assets.readback import STUMBLES, typed
from muvap_assets.ref2va.contract import RawSample
from muvap_assets.storage.digests import Digests
from muvap_assets.storage.files import read_lossy_json, write_lossy_json
from muvap_assets.threads import thread_pool, watched

Facts = VideoFacts | SoundFacts | ImageFacts
T = TypeVar("T", VideoFacts, SoundFacts, ImageFacts)
V = TypeVar("V")
DIGESTS_NAME = "digests.json"
_FRACTIONS = ("first_sec", "duration_sec", "rate", "pixel_aspect", "header_end_sec")


@dataclass(slots=True)
class MediaFacts:
    """Counts media files, at most once each. May be shared by threads.

    Attributes:
        folder: where counts are remembered between runs; ``None`` keeps them in memory only.
        decoded: how many files were decoded to be counted; a run that finds everything remembered decodes none.
        digests: of the files, and how many had to be read for it.
    """

    folder: Path | None = None
    decoded: int = 0
    digests: Digests = field(init=False)
    _known: dict[tuple[str, Path], Facts | ValidationError] = field(default_factory=dict)
    _stuck: dict[Path, ValidationError] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.digests = Digests(None if self.folder is None else self.folder / DIGESTS_NAME)

    def digest(self, path: Path) -> str:
        """SHA-256 of the file's bytes.

        Raises:
            ValidationError: the file is missing, or reading it is stuck.
        """
        try:
            return self._watched(
                path, lambda: self.digests.of(Path(os.path.realpath(path)))
            )  # unlike resolve, never raises
        except OSError as error:
            found = f"it cannot be read ({error.strerror})"
            raise ValidationError(Finding(Code.MEDIA_MISSING, path, found)) from error

    def digests_of(self, sample: RawSample) -> tuple[str, ...]:
        """SHA-256 of each file a resolved sample names, sorted, each once; of those that can be read."""
        found = set()
        for path in sample.paths:
            with suppress(ValidationError):  # the row that names it reports it
                found.add(self.digest(path))
        return tuple(sorted(found))

    def video(self, path: Path) -> VideoFacts:
        """Counts of a video's frames. Raises ``ValidationError`` where they do not decode."""
        return self._counted(path, "video", video.PROBE, count_video, VideoFacts)

    def sound(self, path: Path, stream: str | None = None) -> SoundFacts:
        """Counts of a file's sound, or of one stream of it. Raises ``ValidationError`` where it has none or does not decode."""
        kind = "sound" if stream is None else f"sound-{stream}"
        count = partial(count_sound, choice=SoundChoice(stream))
        return self._counted(path, kind, soundtrack.PROBE, count, SoundFacts)

    def image(self, path: Path) -> ImageFacts:
        """Size of a picture. Raises ``ValidationError`` where it does not decode."""
        return self._counted(path, "image", images.PROBE, count_image, ImageFacts)

    def count_all(self, samples: Iterable[RawSample], workers: int, progress: Progress = no_progress) -> None:
        """Count every file of ``samples`` (resolved) ahead, in threads; what cannot be counted is met again later."""
        wanted: dict[tuple[Any, ...], None] = {}
        for sample in samples:
            target = sample.target_video
            wanted |= {(self.video, target): None, (self.sound, target, sample.audio_stream): None}
            for reference in sample.references:
                for count, path, *choice in (
                    (self.image, reference.image),
                    (self.video, reference.video),
                    (self.sound, reference.audio, reference.audio_stream),
                ):
                    if path is not None:
                        wanted[count, path, *choice] = None
        with thread_pool(max(1, workers)) as pool:
            for done, ((_, path, *_), _) in enumerate(zip(wanted, pool.map(_quietly, wanted), strict=True), 1):
                progress(done, len(wanted), path.name)

    def save(self) -> None:
        """Write the digests down, if there is a folder."""
        self.digests.save()

    def _counted(self, path: Path, kind: str, probe: str, count: Callable[[Path], T], into: type[T]) -> T:
        key = (kind, path)
        if key not in self._known:
            try:
                self._known[key] = self._watched(path, lambda: self._remembered(path, kind, probe, count, into))
            except ValidationError as error:
                self._known[key] = error
        facts = self._known[key]
        if isinstance(facts, ValidationError):
            raise facts
        return facts  # type: ignore[return-value]  # the key's kind names its type

    def _watched(self, path: Path, work: Callable[[], V]) -> V:
        """What ``work`` on a file returns; where that was stuck once, nothing waits for the file again."""
        if path in self._stuck:
            raise self._stuck[path]
        try:
            return watched(work)
        except ValidationError as error:
            if error.finding.code is Code.DECODER_STUCK:
                self._stuck[path] = error
            raise

    def _remembered(self, path: Path, kind: str, probe: str, count: Callable[[Path], T], into: type[T]) -> T:
        digest = self.digest(path)
        entry = None if self.folder is None else self.folder / f"{kind}-{digest}.json"
        remembered = None if entry is None else _read_entry(entry, probe, into)
        if remembered is not None:
            return remembered
        with self._lock:
            self.decoded += 1
        facts = count(path)
        if entry is not None:
            _write_entry(entry, probe, facts)
        return facts


def _quietly(task: tuple[Any, ...]) -> None:
    count, *arguments = task
    try:
        count(*arguments)
    except ValidationError:
        return  # remembered; the row that needs the file reports it


def _write_entry(entry: Path, probe: str, facts: Facts) -> None:
    values = {name: str(value) if isinstance(value, Fraction) else value for name, value in asdict(facts).items()}
    write_lossy_json(entry, {"probe": probe, "facts": values})


def _read_entry(entry: Path, probe: str, into: type[T]) -> T | None:
    """The remembered facts, or ``None`` where there are none that can be trusted: a torn entry only costs a count."""
    try:
        record = read_lossy_json(entry)
        return typed(into, _restored(record["facts"])) if record["probe"] == probe else None
    except STUMBLES:
        return None


def _restored(values: Mapping[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = {
        name: _fraction(value) if name in _FRACTIONS and value is not None else value for name, value in values.items()
    }
    if "gaps" in restored:
        restored["gaps"] = tuple((int(first), int(count)) for first, count in restored["gaps"])
        restored["notes"] = tuple(map(Finding.from_dict, restored["notes"]))
    return restored


def _fraction(value: Any) -> Fraction:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__}")
    return Fraction(value)
