"""What can be wrong with a row of a loader CSV, beyond its single fields: each said once, as a finding without its place."""

from __future__ import annotations

from muvap_assets.asd.corpora.fields import FieldError, short
from muvap_assets.errors import ViolationCode

_SHOWN = 3


def wrong_count(frames: str, labels: int) -> FieldError:
    """Column 2 and the labels are not of one length."""
    return FieldError(
        ViolationCode.LABEL_COUNT_MISMATCH,
        "frames",
        found=f"{short(frames)} frames, labels has {labels} entries",
        required="as many labels as frames",
        hint="Never trimmed or padded: make the loader CSV again, or drop the row.",
    )


def unknown_video(entity_id: str) -> FieldError:
    """The id does not say which video it is of."""
    return FieldError(
        ViolationCode.VIDEO_ID_UNKNOWN,
        "entity_id",
        found=f"{short(entity_id)} does not say its video, and not exactly one folder holds it",
        required="<video_id>_<start>_<end>:<number>, or an original CSV that gives the video",
        hint="Give `original`; a fixed number of characters is never assumed.",
    )


def no_folder_name(video_id: str, entity_id: str) -> FieldError:
    """The ids cannot be names on disk."""
    return FieldError(
        ViolationCode.PATH_INVALID,
        "entity_id",
        found=f"video {short(video_id)}, entity {short(entity_id)}",
        required="ids that are names of one folder each, without slashes",
        hint="Make the CSV again; an id is no path.",
    )


def ambiguous(field: str, path: str) -> FieldError:
    """An exact name and its alias are both on disk."""
    return FieldError(
        ViolationCode.ENTITY_PATH_AMBIGUOUS,
        field,
        found=f"both {path} and the same name with '_' for ':' are there",
        required="one of them",
        hint="Find out which belongs to this entity, and move the other away.",
    )


def shared_path(path: str, others: list[str]) -> FieldError:
    """Several entities lead to one path."""
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return FieldError(
        ViolationCode.ENTITY_PATH_SHARED,
        "entity_id",
        found=f"{path} is also that of {', '.join(map(repr, others[:_SHOWN]))}{more}",
        required="a path an entity",
        hint="'_' stands for ':' on disk, so that these ids become one name: rename one of them everywhere.",
    )


def not_annotated(name: str) -> FieldError:
    """The original CSV has no row of the entity."""
    return FieldError(
        ViolationCode.ORIGINAL_MISSING,
        "entity_id",
        found=f"not in {name}",
        required="annotations of every entity",
        hint="Give the original CSV of this split, or leave `original` out.",
    )


def other_count(labels: int, rows: int) -> FieldError:
    """The original CSV has another number of rows."""
    return FieldError(
        ViolationCode.LABEL_COUNT_MISMATCH,
        "labels",
        found=f"labels has {labels} entries, the original CSV has {rows} rows of this entity",
        required="as many labels as annotated frames",
        hint="Make the loader CSV again from the original one.",
    )


def other_labels(at: int, label: int, original: int, count: int) -> FieldError:
    """The original CSV says other labels."""
    return FieldError(
        ViolationCode.LABELS_DISAGREE,
        "labels",
        found=f"entry {at} is {label}, the original CSV says {original} ({count} frames differ)",
        required="labels that follow from the original CSV, speech that is not heard being 0",
        hint="Make the loader CSV again from the original one.",
    )


def start_unknown() -> FieldError:
    """Nothing says where on its recording a track starts."""
    return FieldError(
        ViolationCode.START_SEC_REQUIRED,
        "start_sec",
        found="audio is a whole recording, and nothing says where on it the track starts",
        required="the original CSV, whose first timestamp is the start",
        hint="It cannot be recovered from the rate and the labels: give `original`, or `audio_kind: clips`.",
    )
