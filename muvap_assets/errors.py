"""Every error and every finding of the package. Knows nothing but the standard library.

    MuvapError
    ├── ConfigError        datasets.yaml, an option or an environment variable is wrong
    ├── ValidationError    input broke its contract; carries every violation found, not only the first
    ├── MediaError         one media file cannot be read as what it claims to be
    ├── EncodeError        one row cannot be encoded: its media, its tokens or the device's memory
    ├── FormatError        a published artifact is not what its format promises
    ├── StaleInputError    an artifact was built from another version than the one now current
    ├── PublishError       publishing would overwrite, or could not be made durable
    └── PictureError       what was published cannot be shown as a picture; it is published all the same

Messages follow one grammar: *where: what was found; what is required. What to do.*
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much a finding weighs: an error keeps its row out, a warning is reported and the row goes on."""

    ERROR = "error"
    WARNING = "warning"


class ViolationCode(StrEnum):
    """Stable names of everything that can be wrong with an input. They appear in JSONL, tables and the UI."""

    # manifest text
    FILE_UNREADABLE = "file_unreadable"
    ENCODING_INVALID = "encoding_invalid"
    COLUMN_MISSING = "column_missing"
    COLUMN_DUPLICATE = "column_duplicate"
    COLUMN_UNKNOWN = "column_unknown"
    ROW_MALFORMED = "row_malformed"
    MANIFEST_EMPTY = "manifest_empty"
    SAMPLE_ID_INVALID = "sample_id_invalid"
    SAMPLE_ID_DUPLICATE = "sample_id_duplicate"
    SAMPLE_ID_ALIKE = "sample_id_alike"
    PATH_INVALID = "path_invalid"
    SOURCE_FPS_INVALID = "source_fps_invalid"
    START_SEC_INVALID = "start_sec_invalid"
    LABELS_INVALID = "labels_invalid"
    LABELS_FLOAT = "labels_float"
    VISUAL_KIND_INVALID = "visual_kind_invalid"
    AUDIO_RATE_INVALID = "audio_rate_invalid"

    # faces
    FACES_MISSING = "faces_missing"
    FACES_UNREADABLE = "faces_unreadable"
    FACES_DTYPE = "faces_dtype"
    FACES_LAYOUT = "faces_layout"
    FACES_EMPTY = "faces_empty"
    FACE_SHAPE_MISMATCH = "face_shape_mismatch"
    FRAME_NAME_INVALID = "frame_name_invalid"
    FRAME_NAME_DUPLICATE = "frame_name_duplicate"
    FRAME_FILE_EMPTY = "frame_file_empty"
    LABEL_COUNT_MISMATCH = "label_count_mismatch"

    # audio
    AUDIO_MISSING = "audio_missing"
    AUDIO_UNREADABLE = "audio_unreadable"
    AUDIO_UNSUPPORTED = "audio_unsupported"
    AUDIO_EMPTY = "audio_empty"
    AUDIO_NON_FINITE = "audio_non_finite"
    AUDIO_SCALE = "audio_scale"
    AUDIO_STREAM = "audio_stream"
    AUDIO_MD5 = "audio_md5"
    AUDIO_CANCELLED = "audio_cancelled"
    AUDIO_SILENT = "audio_silent"
    AUDIO_CHANGED = "audio_changed"
    AUDIO_SHORT = "audio_short"
    AUDIO_NO_OVERLAP = "audio_no_overlap"
    START_SEC_REQUIRED = "start_sec_required"

    # ref2va manifest and media
    SCHEMA_INVALID = "schema_invalid"
    KEY_UNKNOWN = "key_unknown"
    KEY_DUPLICATE = "key_duplicate"
    KEY_MISSING = "key_missing"
    VALUE_INVALID = "value_invalid"
    LINE_IGNORED = "line_ignored"
    BYTE_ORDER_MARK = "byte_order_mark"
    PATH_OUTSIDE = "path_outside"
    GEOMETRY_INVALID = "geometry_invalid"
    GEOMETRY_REFUSED = "geometry_refused"
    BEYOND_RELEASED_RANGE = "beyond_released_range"
    REFERENCE_COUNT = "reference_count"
    REFERENCE_VISUAL_MISSING = "reference_visual_missing"
    REFERENCE_SHORT = "reference_short"
    MEDIA_MISSING = "media_missing"
    VIDEO_UNREADABLE = "video_unreadable"
    VIDEO_TIMESTAMPS = "video_timestamps"
    VIDEO_STOPPED = "video_stopped"
    VIDEO_ASPECT = "video_aspect"
    VIDEO_PIXEL_ASPECT = "video_pixel_aspect"
    VIDEO_INTERLACED = "video_interlaced"
    COLOUR_UNCONVERTED = "colour_unconverted"
    TARGET_SHORT = "target_short"
    TARGET_AUDIO_MISSING = "target_audio_missing"
    TARGET_AUDIO_SHORT = "target_audio_short"
    AUDIO_OFFSET = "audio_offset"
    AUDIO_CHANNELS = "audio_channels"
    AUDIO_STOPPED = "audio_stopped"
    IMAGE_UNREADABLE = "image_unreadable"
    IMAGE_MULTI_FRAME = "image_multi_frame"
    IMAGE_TOO_LARGE = "image_too_large"
    IMAGE_ASPECT = "image_aspect"
    RATE_MISMATCH = "rate_mismatch"
    TOKENS_EXCEEDED = "tokens_exceeded"
    BUCKET_SINGLE_ROW = "bucket_single_row"

    # videos, face boxes and speaker turns
    VIDEO_WITHOUT_WINDOW = "video_without_window"
    BOX_INVALID = "box_invalid"
    BOX_DUPLICATE = "box_duplicate"
    BOX_EMPTY = "box_empty"
    BOX_OUTSIDE = "box_outside"
    RTTM_MISSING = "rttm_missing"
    RTTM_INVALID = "rttm_invalid"
    FACE_WITHOUT_SPEAKER = "face_without_speaker"
    SPEAKER_WITHOUT_FACE = "speaker_without_face"
    ID_NEGATIVE = "id_negative"

    # corpora as they are shipped
    LOADER_FORMAT = "loader_format"
    ORIGINAL_FORMAT = "original_format"
    ORIGINAL_MISSING = "original_missing"
    LABEL_UNKNOWN = "label_unknown"
    LABELS_DISAGREE = "labels_disagree"
    LABELS_KNOWN_INVALID = "labels_known_invalid"
    LABELS_ALL_SPEAKING = "labels_all_speaking"
    VIDEO_ID_UNKNOWN = "video_id_unknown"
    ENTITY_PATH_AMBIGUOUS = "entity_path_ambiguous"
    ENTITY_PATH_SHARED = "entity_path_shared"
    FRAME_TIMES_MISMATCH = "frame_times_mismatch"
    FRAME_TIMES_INVALID = "frame_times_invalid"
    FRAME_GAP = "frame_gap"
    FRAME_CROWDED = "frame_crowded"
    SOURCE_FPS_DIFFERS = "source_fps_differs"
    SHARED_RECORDING = "shared_recording"
    SHARED_VIDEO = "shared_video"
    SHARED_MEDIA = "shared_media"
    FIGURE_UNUSUAL = "figure_unusual"

    # artifacts
    ARTIFACT_INVALID = "artifact_invalid"
    COUNT_MISMATCH = "count_mismatch"
    OFFSET_MISMATCH = "offset_mismatch"
    LEVEL_INVALID = "level_invalid"
    DIGEST_MISMATCH = "digest_mismatch"
    REJECTED_SHARE = "rejected_share"
    SILENT_SHARE = "silent_share"
    CHECK_NOT_RUN = "check_not_run"
    BUILD_FAILED = "build_failed"

    # ref2va encoding
    PRESENTATION_TOO_LONG = "presentation_too_long"
    CAPTION_HOLDS_VISION_TOKEN = "caption_holds_vision_token"
    ENCODE_FAILED = "encode_failed"
    DEVICE_MEMORY = "device_memory"
    SCHEMA_MISMATCH = "schema_mismatch"
    TENSOR_SHAPE = "tensor_shape"
    TENSOR_NON_FINITE = "tensor_non_finite"
    REFERENCE_ROWS_MISMATCH = "reference_rows_mismatch"
    TAGS_INVALID = "tags_invalid"
    CELL_TOO_LARGE = "cell_too_large"
    DECODE_DIFFERS = "decode_differs"
    DECODE_FAILED = "decode_failed"

    # ref2va publication
    ROW_MISSING = "row_missing"
    ROOT_UNUSABLE = "root_unusable"
    SHARD_UNREADABLE = "shard_unreadable"
    SHARD_MISSING = "shard_missing"
    SHARD_STRAY = "shard_stray"
    SHARD_CHANGED = "shard_changed"
    BUCKET_MISMATCH = "bucket_mismatch"
    SCHEMAS_MIXED = "schemas_mixed"
    LINK_FOUND = "link_found"
    INDEX_MISSING = "index_missing"
    INDEX_INVALID = "index_invalid"
    INDEX_MOVED = "index_moved"
    CAPACITY_EXCEEDED = "capacity_exceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One finding about one place of an input.

    ``row`` is the 1-based line in the source file, or ``None`` where a finding concerns the file as a whole.
    """

    code: ViolationCode
    found: str
    required: str
    hint: str
    row: int | None = None
    sample_id: str | None = None
    field: str | None = None
    source: str | None = None
    severity: Severity = Severity.ERROR

    def message(self) -> str:
        """The finding in the one grammar all messages follow."""
        where = self.source or ""
        if self.row is not None:
            where += f" row {self.row}"
        if self.sample_id:
            where += f" ({self.sample_id})"
        where = where.strip()
        field = f"{self.field}: " if self.field else ""
        return f"{where + ': ' if where else ''}{field}{self.found}; required: {self.required}. {self.hint}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, in a fixed key order."""
        record = asdict(self)
        record["code"], record["severity"] = str(self.code), str(self.severity)
        keys = ("code", "severity", "source", "row", "sample_id", "field", "found", "required", "hint")
        return {key: record[key] for key in keys}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Violation:
        """The inverse of :meth:`to_dict`."""
        values = dict(record)
        values["code"], values["severity"] = ViolationCode(values["code"]), Severity(values["severity"])
        return cls(**values)


BACKSLASH_HINT = "Write / for \\ in paths."
"""For a path that is not there and holds a backslash, as paths of Windows do: nothing was moved."""


def errors_of(violations: Iterable[Violation]) -> list[Violation]:
    """Only those findings that keep a row out."""
    return [violation for violation in violations if violation.severity is Severity.ERROR]


def count_by_code(violations: Iterable[Violation]) -> dict[str, int]:
    """How often each code occurs, most frequent first."""
    return dict(Counter(str(violation.code) for violation in violations).most_common())


class MuvapError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(MuvapError):
    """A setting is wrong; the message names the key."""


class MediaError(MuvapError):
    """A media file cannot be read as what it claims to be.

    ``code`` says which kind of fault it is, so that a caller can turn the error into a :class:`Violation`.
    """

    def __init__(self, code: ViolationCode, where: str, *, found: str, required: str, hint: str) -> None:
        super().__init__(f"{where}: {found}; required: {required}. {hint}")
        self.code, self.where, self.found, self.required, self.hint = code, where, found, required, hint

    def __reduce__(self) -> tuple[Any, ...]:  # keyword-only arguments do not survive the default protocol
        return (_rebuild_media_error, (self.code, self.where, self.found, self.required, self.hint))

    def violation(self, **place: Any) -> Violation:
        """The same finding as a record; ``place`` gives row, sample_id, field and source."""
        return Violation(code=self.code, found=self.found, required=self.required, hint=self.hint, **place)


def _rebuild_media_error(code: ViolationCode, where: str, found: str, required: str, hint: str) -> MediaError:
    return MediaError(code, where, found=found, required=required, hint=hint)


class EncodeError(MuvapError):
    """One row cannot be encoded; the rows beside it can. ``code`` tells what is in the way."""

    def __init__(self, code: ViolationCode, where: str, *, found: str, required: str, hint: str) -> None:
        super().__init__(f"{where}: {found}; required: {required}. {hint}")
        self.code, self.where, self.found, self.required, self.hint = code, where, found, required, hint

    def __reduce__(self) -> tuple[Any, ...]:  # as above
        return (_rebuild_encode_error, (self.code, self.where, self.found, self.required, self.hint))

    def violation(self, **place: Any) -> Violation:
        """The same finding as a record; ``place`` gives row, sample_id, field and source."""
        return Violation(code=self.code, found=self.found, required=self.required, hint=self.hint, **place)


def _rebuild_encode_error(code: ViolationCode, where: str, found: str, required: str, hint: str) -> EncodeError:
    return EncodeError(code, where, found=found, required=required, hint=hint)


class FormatError(MuvapError):
    """A published artifact is not what its format promises."""


class StaleInputError(MuvapError):
    """An artifact was built from another version of its input than the one that is current."""


class PublishError(MuvapError):
    """Publishing would overwrite something, or could not be made durable."""


class PictureError(MuvapError):
    """What was published cannot be shown as a picture."""


class ValidationError(MuvapError):
    """Input broke its contract. Carries every violation; the message shows the first few."""

    SHOWN = 20

    def __init__(self, subject: str, violations: Sequence[Violation]) -> None:
        self.subject, self.violations = subject, tuple(violations)
        lines = [violation.message() for violation in self.violations[: self.SHOWN]]
        hidden = len(self.violations) - len(lines)
        if hidden > 0:
            lines.append(f"... and {hidden} more")
        super().__init__(f"{subject}: {len(self.violations)} violation(s)\n  " + "\n  ".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ValidationError, (self.subject, self.violations))
