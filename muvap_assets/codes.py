"""The table of all that can be wrong with an input: codes, weights, causes, what is required and what to do.

Nothing of this is written anywhere else: :class:`muvap_assets.findings.Finding` fills the texts in, and the tables of
``docs/troubleshooting.md`` are made from them. Knows nothing but the standard library.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How much a finding weighs: an error keeps its row out, a warning is reported and the row goes on."""

    ERROR = "error"
    WARNING = "warning"


class Case(NamedTuple):
    """A kind of findings of one code that asks for something else; what is empty is as for the code."""

    name: str
    required: str = ""
    hint: str = ""


ERROR, WARNING, EITHER = (Severity.ERROR,), (Severity.WARNING,), (Severity.ERROR, Severity.WARNING)


class Code(StrEnum):
    """The stable name of each thing that can be wrong. It appears in JSONL, tables and the UI, and never changes its meaning.

    A row of the table: the name, what such a finding may weigh, its causes, what is required, what to do, and the cases in
    which one of the latter two differs. Finding texts take facts by name: ``{limit}``.
    """

    severities: tuple[Severity, ...]
    causes: str
    required: str
    hint: str
    cases: tuple[Case, ...]
    _by_name: dict[str, Case]

    def __new__(
        cls, name: str, severities: tuple[Severity, ...], causes: str, required: str, hint: str, *cases: Case
    ) -> Code:
        """A row of the table as a member."""
        member = str.__new__(cls, name)
        member._value_, member.severities, member.causes = name, severities, causes
        member.required, member.hint, member.cases = required, hint, cases
        whole = (Case(each.name, each.required or required, each.hint or hint) for each in (Case(""), *cases))
        member._by_name = {each.name: each for each in whole}
        return member

    def case(self, name: str) -> Case:
        """What is required and what to do in a case, as templates; the empty name is that of no case.

        Raises:
            KeyError: the code has no such case.
        """
        return self._by_name[name]

    # fmt: off
    # Text of a manifest
    FILE_UNREADABLE = ("file_unreadable", ERROR,
        "The file is not there, may not be read, or goes on without a line break.",
        "a readable file",
        "Check the path.",
        Case("large", hint="Check the path; give a large dataset as several manifests."),
        Case("endless", "rows, a line each", "Is this the manifest?"),
        Case("loader", "a loader CSV", "Check `root` and `split`, or give `loader`."),
        Case("division", "headings and the ids below them",
            "Take dataset_division.txt from the release that the ground truth belongs to."))
    ENCODING_INVALID = ("encoding_invalid", ERROR,
        "A line holds bytes that are not UTF-8, or the whole file is UTF-16, such as a spreadsheet's \"Unicode Text\".",
        "UTF-8",
        "Save the file again as UTF-8.",
        Case("wide",
            hint="Save it again as UTF-8; a spreadsheet's \"Unicode Text\" is UTF-16, which a text editor converts."))
    COLUMN_MISSING = ("column_missing", ERROR,
        "The header lacks a required column; often there is no header, or it is separated by commas or semicolons.",
        "the columns {columns}",
        "Add what is missing; a header line of column names is needed, separated by tabs.",
        Case("separator", hint="Save the file again, separated by tabs."),
        Case("misspelt", hint="Did you mean {near}?"))
    COLUMN_DUPLICATE = ("column_duplicate", ERROR,
        "A column name occurs twice.",
        "each column once",
        "Remove one.")
    COLUMN_UNKNOWN = ("column_unknown", EITHER,
        "A column of the TSV that nothing reads, often a typing error: a warning. Predictions given as ground truth: an error.",
        "one of {columns}",
        "Its values go nowhere.",
        Case("misspelt", hint="Did you mean {near}?"),
        Case("predictions", "annotations", "Give the ground truth, not predictions for it."))
    ROW_MALFORMED = ("row_malformed", ERROR,
        "A line has another number of fields than the header, or an unpaired quotation mark (a row is one line, and no field "
        "goes on in the next); a line of JSON Lines is no JSON; scores that are not finite.",
        "{count}, as the header has",
        "Fields are separated by one tab; quote a field that holds one.",
        Case("quote", "fields separated by {separator}, all of them in one line", "Look for an unpaired quotation mark."),
        Case("header", "at most {count}", "The first line names the columns: is this a canonical TSV?"),
        Case("json", "JSON", "Correct the text; every row is one object of the raw schema."),
        Case("loader", "4 or 5 separated by tabs: entity id, frames, fps, labels [, index]", "A loader CSV has no header."),
        Case("ava", "{count}, as the first line has",
            "The authors' download has 8 columns; the training tools (ASC, TalkNet, Light-ASD) add label_id and instance_id in "
            "their *_orig.csv and derive *_loader.csv from it."),
        Case("score", "a finite number", "Write the predictions again."),
        Case("scores", "finite real numbers, [n]",
            "Look for the loss or the activation that overflowed, and hand over one dimension."),
        Case("box", "{box}", "Predictions repeat the boxes of the ground truth, as write_predictions does."),
        Case("timestamp", "each timestamp of its rows once",
            "Name the frames as the ground truth does; timestamps are compared by value."),
        Case("division", "one of {headings}, above the ids of each",
            "Take dataset_division.txt from the release that the ground truth belongs to."))
    MANIFEST_EMPTY = ("manifest_empty", ERROR,
        "There is no row, or none was accepted.",
        "at least one",
        "Was the export cut short? Add rows.",
        Case("left out", hint="See what was left out of the manifest, and why."))
    SAMPLE_ID_INVALID = ("sample_id_invalid", ERROR,
        "An id is empty, too long or holds control characters; a stored row or a score is of another id.",
        "1 to {longest} printable characters",
        "Give each track or row a stable, unique name.",
        Case("ava", hint="Take the row from the release again."),
        Case("stored", "the row itself", "Encode it again."),
        Case("scores", "an entity of the ground truth",
            "Score the split that the ground truth belongs to; ids are compared exactly."))
    SAMPLE_ID_DUPLICATE = ("sample_id_duplicate", ERROR,
        "Two rows have one id, whatever else is wrong with either. All of them are refused, since nobody can say which is meant.",
        "an id that occurs once",
        "Rename or drop the others.",
        Case("stored", "one clip of an id", "Materialize the manifest again."),
        Case("shard", "each row once", "Remove the surplus shard, or publish the dataset again."),
        Case("scores", "one track", "Score each track once."))
    SAMPLE_ID_ALIKE = ("sample_id_alike", WARNING,
        "Two ids differ only by case or Unicode form: one track under two names, or names that a file system takes for one.",
        "ids that differ in more",
        "Accepted as two: rename one if they are, drop one if not.")
    PATH_INVALID = ("path_invalid", ERROR,
        "A path is empty, holds control characters or cannot be looked up; an id that is part of a path holds a slash.",
        "a path, absolute or relative to the manifest",
        "Correct it.",
        Case("id", "ids that are names of one folder each, without slashes", "Make the CSV again; an id is no path."))
    SOURCE_FPS_INVALID = ("source_fps_invalid", ERROR,
        "The frame rate is no decimal or fraction above 0 and up to 1000.",
        "the track's own rate, a decimal such as 29.97 or a fraction such as 30000/1001",
        "A frame rate is never assumed: read it from the video the faces were cut from.",
        Case("video", "a video of a usable rate", "Remux the video, or leave it out."))
    START_SEC_INVALID = ("start_sec_invalid", ERROR,
        "`start_sec` is negative or no number.",
        "seconds from the recording's start, zero or more, a decimal or a fraction",
        "Leave it empty only where the audio is cut to the clip.")
    LABELS_INVALID = ("labels_invalid", ERROR,
        "`labels` is no JSON list of 0 and 1, or filler where annotation is needed. In a pack: labels cannot be read back as such.",
        "a JSON list of {values}, one a face frame",
        "Map other vocabularies before writing the manifest.",
        Case("packed", "0 or 1 for each frame, as uint8, and their share as `speaking_ratio`", "Validate and pack again."),
        Case("unread", "every sample read back", "Pack the corpus again."),
        Case("unknown", "annotated labels for {purpose}",
            "Use a split with annotations, or read this one without targets; AVA keeps those of its test split to itself."),
        Case("activity", "0 or 1 everywhere", "Give activity, not scores; drop tracks whose labels are unknown."),
        Case("metric", "0 or 1, [rows]", "Align scores to the ground truth first."))
    LABELS_FLOAT = ("labels_float", WARNING,
        "Labels are written as 0.0 and 1.0.",
        "0 and 1",
        "Accepted; write integers to silence this.")
    LABELS_KNOWN_INVALID = ("labels_known_invalid", ERROR,
        "`labels_known` is neither true nor false.",
        "true or false",
        "Write false where the labels are filler, as in a test split; leave it empty for true.")
    VISUAL_KIND_INVALID = ("visual_kind_invalid", ERROR,
        "`visual_kind` is none of those there are.",
        "one of {kinds}",
        "Leave it empty for NumPy arrays.")
    AUDIO_RATE_INVALID = ("audio_rate_invalid", ERROR,
        "A NumPy waveform without a usable `audio_sample_rate`, or one array with two rates.",
        "whole samples a second, {least} to {largest}",
        "A .npy waveform does not say its own rate: give it in the column, or for all rows by the option `audio_sample_rate`.",
        Case("range", hint="Correct the file or audio_sample_rate."),
        Case("declared", "the file's own rate", "Leave audio_sample_rate empty: only NumPy waveforms need it."),
        Case("several", "one rate a recording", "Keep the true one."))

    # Faces
    FACES_MISSING = ("faces_missing", ERROR,
        "Nothing is at `visual_path` or `boxes_path`, or the corpus has no folder of faces.",
        "the faces of the row",
        "Check the path in the manifest; relative ones start at the corpus root. Was the data set moved?",
        Case("folder", "a folder", "Was the corpus moved? Correct `root`, or give `faces`."))
    FACES_UNREADABLE = ("faces_unreadable", ERROR,
        "The array is cut short or no `.npy` file, the folder is a file, or a JPEG does not decode.",
        "a whole .npy face array",
        "Extract the track again.",
        Case("a folder", hint="For a folder of JPEG crops set `visual_kind` to `jpeg_directory`."),
        Case("npz", hint="Save the one array with numpy.save."),
        Case("not a folder", "a folder of JPEG crops", "For a .npy array set `visual_kind` to `npy`."),
        Case("folder", "a folder of JPEG crops", "Check the permissions and the disk."),
        Case("jpeg", "one whole JPEG", "Extract this frame again; a file left by a killed run or a saved error page has to go."),
        Case("not jpeg", "JPEG files", "Only JPEG crops are read: convert them, or stack them into one .npy."))
    FACES_DTYPE = ("faces_dtype", ERROR,
        "The array is not uint8.",
        "uint8 grey levels 0..255",
        "Save the grey levels as uint8.",
        Case("objects", hint="Resize all crops to one shape, then save them as uint8."),
        Case("floats",
            hint="If they lie in 0..1, multiply by 255, round, and save as uint8; a plain cast would turn them all to 0."))
    FACES_LAYOUT = ("faces_layout", ERROR,
        "The array is not [frames, height, width] in C order.",
        "[frames, height, width] with at least one frame, in C order",
        "Save the crops of one track as [frames, height, width].",
        Case("axis", hint="Drop the axis of length 1."),
        Case("colour", hint="These are colour: convert each frame to grey first."),
        Case("frame", hint="A single frame is [1, height, width]."),
        Case("order", hint="Save numpy.ascontiguousarray(faces)."))
    FACES_EMPTY = ("faces_empty", ERROR,
        "There is no frame, or no box of the face in its window.",
        "at least one frame",
        "Drop the row, or extract the track again.",
        Case("boxes", "at least one box", "Leave the face or the video out, or extract its boxes again."))
    FACE_SHAPE_MISMATCH = ("face_shape_mismatch", ERROR,
        "This track's faces have another size than most of the corpus; a pack has one.",
        "{required}",
        "Resize them, or make them a corpus of their own.",
        Case("resized", "{required}, which crops and boxes are made to", "Validate the corpus again."))
    FRAME_NAME_INVALID = ("frame_name_invalid", ERROR,
        "A file of the folder is not named by a number, or is no JPEG.",
        "a folder of JPEG crops named by number, such as 12.48.jpg, one a frame",
        "Name each crop by its time or number, and move everything else out of the folder.",
        Case("pictures", hint="{kinds}: only JPEG crops are read; convert them, or stack them into one .npy."))
    FRAME_NAME_DUPLICATE = ("frame_name_duplicate", ERROR,
        "Two names are one number, `1.0.jpg` and `1.00.jpg`.",
        "a folder of JPEG crops named by number, one a frame",
        "These are the same number: keep one crop a frame.")
    FRAME_FILE_EMPTY = ("frame_file_empty", ERROR,
        "A crop has 0 bytes: an extraction was stopped.",
        "a folder of whole JPEG crops",
        "0 bytes: extract these frames again.")
    LABEL_COUNT_MISMATCH = ("label_count_mismatch", ERROR,
        "There are more or fewer labels than faces. Never trimmed: every later label would shift.",
        "as many labels as faces",
        "Never trimmed or padded, since every later label would shift: extract the face track again or drop the row.",
        Case("loader", hint="Never trimmed or padded: make the loader CSV again from the original one, or drop the row."),
        Case("annotation", "one crop at each annotated time"),
        Case("video", "a frame for each label", "Do boxes and video belong together? Download the video again or drop the row."),
        Case("boxes", "a frame for each box of the file",
            "frame_id counts from 0 in decoding order. Boxes and video do not belong together, or the video is not whole: download "
            "both again, or leave the video out. Labels would be shifted, so no part of it is used."),
        Case("stored", hint="Materialize the manifest again."),
        Case("packed", hint="It changed since it was validated: validate the corpus again, or extract the track again."))

    # Audio
    AUDIO_MISSING = ("audio_missing", ERROR,
        "Nothing is at `audio_path`, the file has no audio stream, or the corpus has no folder of audio.",
        "a file with sound",
        "Check the path in the manifest; relative ones start at the corpus root. Was the data set moved?",
        Case("stream", "an audio stream", "Replace the file, or drop its row."),
        Case("folder", "a folder", "Was the corpus moved? Correct `root`, or give `audio`."))
    AUDIO_UNREADABLE = ("audio_unreadable", ERROR,
        "The file cannot be opened, or decoding fails. Or a WAV's header declares fewer bytes than follow, and what follows is "
        "neither chunks nor a tag.",
        "sound that decodes without an error",
        "Copy or export the recording again, or drop its rows.",
        Case("header", "a WAV whose header agrees with its bytes",
            "Copy it again, or write its header anew: `ffmpeg -ignore_length 1 -i INPUT -c:a copy OUTPUT.wav`."))
    AUDIO_UNSUPPORTED = ("audio_unsupported", ERROR,
        "Lossy or unknown: MP3, AAC, Vorbis, or no sound at all.",
        "WAV (8 to 32-bit PCM or floating point), FLAC or a NumPy waveform",
        "Convert it once, for instance with `ffmpeg -i INPUT OUTPUT.wav`.",
        Case("name", hint="Rename it to what it is."),
        Case("dtype", hint="Save it as one of int8, uint8, int16, int32, float16, float32 and float64."),
        Case("shape", hint="Save it as [N], or as [N, C] or [C, N] with C at most {channels} and N above that."))
    AUDIO_EMPTY = ("audio_empty", ERROR,
        "There is not one sample, or none of a kind that ffmpeg decodes.",
        "at least one sample",
        "Copy or export the sound again, or leave it out.")
    AUDIO_NON_FINITE = ("audio_non_finite", ERROR,
        "Samples are NaN or infinite.",
        "finite samples",
        "Export the sound again, or drop its rows.")
    AUDIO_SCALE = ("audio_scale", ERROR,
        "Floating-point samples of integer scale, as `int16.astype(float32)` makes them; cut to 16 bits they would be a square "
        "wave.",
        "floating-point samples of full scale 1, none above {limit}",
        "Integers were cast, not scaled: divide by 32768 if they had 16 bits, or write them as integers.")
    AUDIO_SILENT = ("audio_silent", WARNING,
        "The recording, the target or a reference is silent.",
        "a signal",
        "Listen to it, and drop it if it is not meant to be silent. Channels may cancel each other.")
    AUDIO_CHANGED = ("audio_changed", ERROR,
        "The file is another one than when the manifest was made, or decodes to another length.",
        "{required}",
        "The file or its decoder changed: materialize the manifest and what follows from it again.")
    AUDIO_SHORT = ("audio_short", EITHER,
        "The audio ends before the faces, or a video's sound has holes within the clip: a warning past one frame (1/24 s in "
        "holes), an error past `max_missing_audio_share`.",
        "at most {allowed}, and never more than {share}",
        "Accepted; the rest will be silence.",
        Case("rejected", hint="Raise `max_missing_audio_share` or drop the row."),
        Case("stored", hint="Materialize the manifest again."))
    AUDIO_NO_OVERLAP = ("audio_no_overlap", ERROR,
        "The clip starts after its recording ends.",
        "a clip on its recording",
        "Check `start_sec` and `audio_path`.")
    START_SEC_REQUIRED = ("start_sec_required", ERROR,
        "The audio is longer than the faces, and nothing says where they lie on it.",
        "the clip's start on the recording",
        "It cannot be recovered from the rate and the labels: take it from the corpus, or cut the audio to the clip.",
        Case("loader", "the original CSV, whose first timestamp is the start",
            "It cannot be recovered from the rate and the labels: give `original`, or `audio_kind: clips`."))
    AUDIO_OFFSET = ("audio_offset", WARNING,
        "The sound starts before or after the first frame of its video. It was aligned by timestamps. A target whose sound "
        "starts more than a frame late is refused as `target_audio_short`.",
        "both from the first frame on",
        "Accepted, aligned by timestamps: silence was put before it, or its start was cut off.")
    AUDIO_CHANNELS = ("audio_channels", ERROR,
        "More than two channels, of which some have no stated place; or `audio_channel` names none.",
        "mono, stereo, or channels out of {places}",
        "Mix it down to stereo.",
        Case("chosen", "a channel from 0 to {last}", "Correct audio_channel; it counts from 0."),
        Case("field", "the number of a channel, from 0", "Leave it empty for the mean of all channels."))
    AUDIO_STOPPED = ("audio_stopped", WARNING,
        "The sound stops decoding before its end, or a WAV's header promises more than the file holds. What is there is used.",
        "sound as long as its header says",
        "All that is there is used; copy the file again if it was cut short.")
    AUDIO_STREAM = ("audio_stream", EITHER,
        "Several audio streams and none chosen: the one flagged default was used, else the first. An error where `audio_stream` "
        "names none.",
        "the number of an audio stream, from 0, or a language such as eng",
        "Correct audio_stream, or leave it empty for the stream flagged default, else the first.",
        Case("several", "one, or a choice",
            "Stream {number} was used; choose by audio_stream, a number or a language, to say so."))
    AUDIO_MD5 = ("audio_md5", WARNING,
        "A FLAC decodes, but to other samples than the digest in its header is of.",
        "{digest}, as the header says",
        "Copy it again if it should be whole; an encoder may also have written the wrong digest.")
    AUDIO_CANCELLED = ("audio_cancelled", WARNING,
        "The channels cancel each other: their mean is more than 20 dB below them.",
        "at most {limit} dB below the mean power of the channels",
        "The channels cancel each other; choose one by audio_channel.")

    # AVA, WASD and splits
    LOADER_FORMAT = ("loader_format", ERROR,
        "The loader CSV is no loader CSV.",
        "the loader CSV: entity id, number of frames, fps and labels, separated by tabs, without a header",
        "{tools} write it as `csv/<split>_loader.csv`; give this file as `original`.")
    ORIGINAL_FORMAT = ("original_format", ERROR,
        "Annotations, ground truth or predictions lack columns, or hold no rows.",
        "the 8 columns {columns}, or these and label_id, instance_id, separated by commas{scores}",
        "The authors' download has 8 columns; the training tools (ASC, TalkNet, Light-ASD) add label_id and instance_id in "
        "their *_orig.csv and derive *_loader.csv from it.",
        Case("empty", "annotations", "Was the download cut short?"))
    ORIGINAL_MISSING = ("original_missing", ERROR,
        "The original CSV is not there, or lacks an entity.",
        "annotations of every entity",
        "Give the original CSV of this split, or leave `original` out.",
        Case("file", "the original annotation CSV", "Correct `original`, or leave it out."))
    LABEL_UNKNOWN = ("label_unknown", ERROR,
        "Annotations have a label outside the known vocabulary, or predictions one that is not `SPEAKING_AUDIBLE`.",
        "one of {labels}",
        "Only these are known; inaudible speech counts as not speaking.",
        Case("prediction", hint="A prediction has this label in every row."))
    LABELS_DISAGREE = ("labels_disagree", ERROR,
        "The loader CSV says other labels than the original one, or a `label_id` says another class than its label.",
        "labels that follow from the original CSV, speech that is not heard being 0",
        "Make the loader CSV again from the original one.",
        Case("label_id", "label_id 1 where speech is heard, 0 or 2 elsewhere", "Make the file again from one of 8 columns."))
    LABELS_ALL_SPEAKING = ("labels_all_speaking", WARNING,
        "Every frame is labelled as speech: filler, as in a test split.",
        "labels of both kinds",
        "Labels that were never published are often filled with ones: set `labels_known` to false for such a split.")
    VIDEO_ID_UNKNOWN = ("video_id_unknown", ERROR,
        "The entity id does not say its video, or annotations give it two.",
        "<video_id>_<start>_<end>:<number>, or an original CSV that gives the video",
        "Give `original`; a fixed number of characters is never assumed.",
        Case("two", "one video an entity", "Rename one entity."))
    ENTITY_PATH_AMBIGUOUS = ("entity_path_ambiguous", ERROR,
        "A name with `:` and the same with `_` are both on disk, or a track is in its video's folder and outside it.",
        "one of them",
        "Find out which belongs to this entity, and move the other away.")
    ENTITY_PATH_SHARED = ("entity_path_shared", ERROR,
        "Two ids lead to one path.",
        "a path an entity",
        "'_' stands for ':' on disk, so that these ids become one name: rename one of them everywhere.")
    FRAME_TIMES_MISMATCH = ("frame_times_mismatch", ERROR,
        "As many crops as labels, but not at the annotated times.",
        "one crop at each annotated time",
        "Never trimmed or padded, since every later label would shift: extract the track again or drop the row.")
    FRAME_TIMES_INVALID = ("frame_times_invalid", ERROR,
        "A time in annotations or predictions is no number, or a face has it twice.",
        "seconds from the start of the video, a decimal",
        "Download the annotations again.",
        Case("twice", "one row a face and time", "Drop the row that is not true; timestamps are compared by their values."),
        Case("coarse", "one row a face and time",
            "Two decimals cannot name frames at over {limit} fps (here {rows} in {seconds} s), so that some share a time: write "
            "the times with more decimals, and drop no row."))
    FRAME_GAP = ("frame_gap", ERROR,
        "Neighbouring crops are more than one and a half frames apart, or numbers are left out.",
        "neighbours at most 1.5 steps of 1/{fps} s apart",
        "Frames were lost, or the track is two: extract it again, or split it with a start of its own each.",
        Case("numbers", "crops numbered without a break"))
    FRAME_CROWDED = ("frame_crowded", ERROR,
        "Two crops are less than half a frame apart.",
        "steps of 1/{fps} s",
        "Never trimmed or padded, since every later label would shift: extract the track again or drop the row.")
    SOURCE_FPS_DIFFERS = ("source_fps_differs", WARNING,
        "The crops' times say another rate than the CSV.",
        "the rate of the track itself",
        "Accepted as declared; read the rate from the video the crops were cut from.",
        Case("steps", hint="If these are frames of a video of {fps} fps, the rate of the crops is a {step}th of it."))
    SHARED_RECORDING = ("shared_recording", WARNING,
        "Two splits have the same recording, byte for byte.",
        "no clip of one split in another",
        "Move all clips of it to one split; scores on the other are too good otherwise.")
    SHARED_VIDEO = ("shared_video", WARNING,
        "Two splits have clips of one video.",
        "no clip of one split in another",
        "Move all clips of it to one split; scores on the other are too good otherwise.")
    SHARED_MEDIA = ("shared_media", WARNING,
        "Two splits have the same face files, or two rows of one the same faces, recording and start.",
        "no clip of one split in another",
        "Move all clips of it to one split; scores on the other are too good otherwise.",
        Case("twice", "each face track once", "Accepted: it counts twice. Drop one of the rows if that is not meant."))

    # Videos, boxes and turns
    VIDEO_WITHOUT_WINDOW = ("video_without_window", WARNING,
        "A video is shorter than `min_window_sec`.",
        "at least {seconds} s",
        "Left out; a smaller `min_window_sec` keeps it.")
    BOX_INVALID = ("box_invalid", ERROR,
        "A box cannot be read, or a row of kind `video_boxes` lacks a column.",
        "lines of frame_id, face, face_id, x1, y1, x2, y2, fixed, one a face a frame",
        "The file has no header line. Extract it again, or leave the video out.",
        Case("columns", "boxes_path, face_id and first_frame", "Rows of kind `video_boxes` need all three columns."),
        Case("number", "a whole number, zero or more", "Rows of kind `video_boxes` need boxes_path, face_id and first_frame."),
        Case("file", "a readable file", "Check the path and the permissions."),
        Case("ava", "four numbers", "Take the row from the release again."),
        Case("windows", "frames of one video", "Correct the frame ids."))
    BOX_DUPLICATE = ("box_duplicate", ERROR,
        "A face has two boxes on one frame.",
        "one box of a face on a frame",
        "Nobody can say which is meant: keep one.")
    BOX_EMPTY = ("box_empty", ERROR,
        "A box is thinner than a pixel.",
        "boxes that show at least a pixel of the picture",
        "Remove those lines, so that the face counts as missing there, or drop the row.",
        Case("ava", "0 <= x1 < x2 <= 1, and y alike", "No crop can be made of it: drop the track, or correct the box."))
    BOX_OUTSIDE = ("box_outside", EITHER,
        "A box lies beside the picture: an error. An annotated box reaches over its edge: a warning.",
        "boxes that show at least a pixel of the picture",
        "Remove those lines, so that the face counts as missing there, or drop the row.",
        Case("ava", "0 <= x1 < x2 <= 1, and y alike", "Accepted: crops are made from the part inside."))
    RTTM_MISSING = ("rttm_missing", ERROR,
        "The file of turns, or a video's turns in it, are not there.",
        "an RTTM file with the turns of the corpus",
        "Labels come from it alone: put it there, or correct `rttm`. Nothing was decoded.",
        Case("video", "its turns in {file}",
            "Labels come from the turns alone: add them, or choose the split that the video is part of."))
    RTTM_INVALID = ("rttm_invalid", ERROR,
        "A line of the turns cannot be read: the labels of that video are not known.",
        "SPEAKER, file, channel, start, duration, two fields, speaker; times as decimals of seconds, zero or more",
        "The recording's labels are not known: correct the line.",
        Case("id", "letters, digits, '.', '_' and '-'", "Correct the RTTM."))
    FACE_WITHOUT_SPEAKER = ("face_without_speaker", EITHER,
        "No speaker has the face's id. An error with `unmatched_faces: reject`.",
        "a speaker of that very name",
        "Never given another's labels: correct the ids, or set `unmatched_faces` to negative if it never speaks.",
        Case("negative", hint="Accepted as never speaking, as `unmatched_faces` says."),
        Case("no track", hint="It has no track."))
    SPEAKER_WITHOUT_FACE = ("speaker_without_face", WARNING,
        "Somebody who is not seen speaks.",
        "a box with that face id",
        "Accepted: somebody who is not seen speaks.")
    ID_NEGATIVE = ("id_negative", WARNING,
        "Files and faces of negative id are not part of the corpus.",
        "ids of zero or more",
        "Skipped: such files and faces are not part of the corpus.")
    VIDEO_UNREADABLE = ("video_unreadable", ERROR,
        "The video does not decode, or its frames are larger than are read.",
        "a video that ffmpeg decodes, of at most {pixels} pixels a frame",
        "Replace the file, or drop its row.")
    VIDEO_TIMESTAMPS = ("video_timestamps", ERROR,
        "The video has no rate, or its frames leave the grid of a constant one.",
        "timestamps that do not run backwards, or a rate",
        "Remux the file with correct timestamps, or leave it out.",
        Case("variable", "frames within half a frame of a constant rate",
            "A video of variable rate has no `source_fps`: make it constant before the boxes are annotated, or drop it."))
    VIDEO_STOPPED = ("video_stopped", EITHER,
        "The video stops decoding before its end, or its picture ends over half a second before its sound: a warning; what "
        "decodes is used. It decodes without an error, but over 5 % and over half a second short of its own header: "
        "an error.",
        "a video that decodes without an error",
        "Only the frames that decode are used.",
        Case("missing", "at most {limit} s missing",
            "No error says which are missing. Copy or export the video again, or drop the row."),
        Case("sound", "within {limit} s", "Frames may have been lost. Nothing to do if it is meant to end there."))

    # Rows and media of ref2va
    SCHEMA_INVALID = ("schema_invalid", ERROR,
        "`schema_version` is not that of raw rows.",
        "{schema!r}",
        "Correct the name.",
        Case("encoded", hint="Encoded rows cannot be encoded again; give the raw manifest."))
    KEY_UNKNOWN = ("key_unknown", ERROR,
        "An object has a key that nothing reads, often a typing error.",
        "keys {keys}",
        "Remove or rename it.")
    KEY_DUPLICATE = ("key_duplicate", ERROR,
        "An object has a key twice.",
        "keys {keys}, each once",
        "Keep one of them.")
    KEY_MISSING = ("key_missing", ERROR,
        "An object lacks a key, or it is null, which counts as not given.",
        "keys {keys}",
        "Add it, with a value.")
    VALUE_INVALID = ("value_invalid", ERROR,
        "A value is of another type or range.",
        "{required}",
        "Correct the value.")
    LINE_IGNORED = ("line_ignored", WARNING,
        "A blank line among rows.",
        "one object a line",
        "It was passed over.")
    BYTE_ORDER_MARK = ("byte_order_mark", WARNING,
        "The file begins with a mark that JSON does not have.",
        "plain UTF-8",
        "It was passed over; save the file without it.")
    PATH_OUTSIDE = ("path_outside", ERROR,
        "A path leads out of the manifest's folder.",
        "a path inside the manifest's folder",
        "Move the file, or set `allow_outside`.")
    MEDIA_MISSING = ("media_missing", ERROR,
        "No file is at the path, or it may not be read.",
        "an existing file, relative to the manifest",
        "Correct the path. Was the folder moved?")
    DECODER_STUCK = ("decoder_stuck", ERROR,
        "A decoder delivered no frame or sample for `item_timeout_sec`: a damaged file, or a disk that does not answer.",
        "a frame or sample now and then",
        "Copy or encode the file again; raise `item_timeout_sec` where it only takes long.")
    GEOMETRY_INVALID = ("geometry_invalid", ERROR,
        "Canvas or frames lie outside of what the model encodes.",
        "{required}",
        "Choose one that does; none is snapped.")
    GEOMETRY_REFUSED = ("geometry_refused", ERROR,
        "A row of the sft format asks for a geometry.",
        "none: the sft format keeps each clip's own geometry",
        "Remove it, or use the packed format.")
    BEYOND_RELEASED_RANGE = ("beyond_released_range", WARNING,
        "More or fewer frames than the released model generates.",
        "the released model generates {least} to {largest}",
        "Nothing to do if that is meant.")
    REFERENCE_COUNT = ("reference_count", ERROR,
        "More references, or more of a kind, than the model takes.",
        "at most {limit} ({source_of_limit})",
        "Remove some.")
    REFERENCE_VISUAL_MISSING = ("reference_visual_missing", ERROR,
        "A row without an image or video among its references.",
        "at least one image or video reference",
        "Add one, or drop the row.")
    REFERENCE_SHORT = ("reference_short", ERROR,
        "A reference has too few frames, or over 1/24 s without sound in the part that is used.",
        "at least {least} frames at 24 fps",
        "Use a longer reference, or a longer target.",
        Case("holes", "sound throughout, with at most {limit} s missing",
            "Export the sound again without the gap, or drop the row; nothing is filled with silence."))
    TARGET_SHORT = ("target_short", ERROR,
        "The clip has fewer frames than its geometry, or a row fewer than a dataset is cut to.",
        "at least {frames} frames at 24 fps",
        "Ask for fewer frames, use a longer clip, or drop the row; nothing is extended.",
        Case("cropped", "the {frames} of `num_frames` or `num_latent_t`; nothing is extended", "Lower both or leave them unset."))
    TARGET_AUDIO_MISSING = ("target_audio_missing", ERROR,
        "The target has no sound of its own.",
        "a target video with synchronized audio",
        "Mux its sound in, or drop the row.")
    TARGET_AUDIO_SHORT = ("target_audio_short", ERROR,
        "The target's sound ends before its frames, or over 1/24 s of it is missing, also at its start.",
        "at least the {samples} of {frames} frames at 24 fps",
        "The sound covers {covered} frames; nothing is extended.",
        Case("holes", "sound throughout, with at most {limit} s missing",
            "Export the sound again without the gap, or drop the row; nothing is filled with silence."))
    VIDEO_ASPECT = ("video_aspect", EITHER,
        "A video is wider or taller than 4:1: an error. A target's shape differs by over 10 % from its canvas: a warning.",
        "an aspect ratio within 1:4 and 4:1",
        "Crop it.",
        Case("squeezed", "shapes within 10 %", "Resizing changes its shape: {nearest}."))
    VIDEO_PIXEL_ASPECT = ("video_pixel_aspect", WARNING,
        "The pixels of a video are not square.",
        "square pixels",
        "The stored size was used, as at inference; resample the file to square pixels if it looks squeezed.")
    VIDEO_INTERLACED = ("video_interlaced", WARNING,
        "Frames of a video are of two fields each.",
        "progressive frames",
        "Both fields were used as one picture, as at inference; deinterlace the file.")
    COLOUR_UNCONVERTED = ("colour_unconverted", WARNING,
        "A picture has an ICC profile other than sRGB, or a video is of PQ, HLG or BT.2020.",
        "sRGB pictures, and video of standard dynamic range",
        "The stored values were used, since the inference path converts none; convert the file if its colours matter.")
    IMAGE_UNREADABLE = ("image_unreadable", ERROR,
        "The picture does not decode.",
        "one whole picture that Pillow reads",
        "Replace the file, or drop its row.")
    IMAGE_MULTI_FRAME = ("image_multi_frame", ERROR,
        "The picture is an animation.",
        "a single picture",
        "Save the one that is meant as PNG, or use it as a video reference.")
    IMAGE_TOO_LARGE = ("image_too_large", ERROR,
        "More pixels than are opened (89 million).",
        "at most {pixels} pixels, {side} a side",
        "Scale it down; a reference is brought to a short edge of 2048 anyway.")
    IMAGE_ASPECT = ("image_aspect", ERROR,
        "The picture is wider or taller than 4:1.",
        "an aspect ratio within 1:4 and 4:1",
        "Crop it.")
    RATE_MISMATCH = ("rate_mismatch", WARNING,
        "`fps` or `sample_rate` of the row differs from the file's by more than 1 %. The row's is used.",
        "the two within 1 %",
        "The manifest's was used; remove it if the decoder is right.")
    TOKENS_EXCEEDED = ("tokens_exceeded", ERROR,
        "Caption and references are more tokens than `max_presentation_tokens`.",
        "at most {limit}",
        "Shorten the caption or remove references; nothing is truncated.")
    BUCKET_SINGLE_ROW = ("bucket_single_row", WARNING,
        "One row alone has its shape, and is drawn again and again to fill a batch.",
        "several rows of a shape",
        "Give its target the geometry of other rows.")

    # Encoding
    PRESENTATION_TOO_LONG = ("presentation_too_long", ERROR,
        "Caption and references are more tokens than `max_presentation_tokens`.",
        "at most {limit}; none is ever cut off",
        "Shorten the caption, use fewer or smaller references, leave the row out, or raise `max_presentation_tokens`.")
    CAPTION_HOLDS_VISION_TOKEN = ("caption_holds_vision_token", ERROR,
        "A caption holds a token that stands for pixels.",
        "text: these tokens stand for the pixels of references",
        "Remove them from the caption.")
    ENCODE_FAILED = ("encode_failed", ERROR,
        "The row's media are not what the plan promised, or a component is still loaded.",
        "a row that encodes without error",
        "See the run's log; the other rows are not affected.",
        Case("media", "{required}", "The media changed, or were prepared by other rules; validate the manifest again."),
        Case("component", "one large component at a time", "Leave its block and drop every reference to it first."),
        Case("short", "at least 13, so that the conditioner reads two",
            "Use a longer reference, or a longer target, whose length cuts it."))
    DEVICE_MEMORY = ("device_memory", ERROR,
        "The device ran out of memory at this row.",
        "memory for the loaded component and this row",
        "Give the row fewer frames, or use a device with more memory.",
        Case("vae", hint="Give the row a smaller canvas or fewer frames, or use a device with more memory."),
        Case("text_encoder", hint="Lower `max_presentation_tokens`, give the row fewer or shorter references, or use a device with "
            "more memory."))
    SCHEMA_MISMATCH = ("schema_mismatch", ERROR,
        "A row's file is no Parquet file of one of the two schemas.",
        "a whole shard of one of the two schemas",
        "Encode the row again, or read it with the reader of its own format.",
        Case("null", "a value in every cell"),
        Case("dtype", "float32, float16 or bfloat16"),
        Case("seed", "a seed in packed rows, none in sft"),
        Case("summary", "the summary of its columns"))
    TENSOR_SHAPE = ("tensor_shape", ERROR,
        "A tensor has another shape than its geometry asks for.",
        "{required}",
        "Encode the row again.")
    TENSOR_NON_FINITE = ("tensor_non_finite", ERROR,
        "A tensor holds NaN or infinity.",
        "finite values throughout",
        "Encode the row again; if it recurs, look at its media, and at the checkpoint if it happens to other rows.")
    REFERENCE_ROWS_MISMATCH = ("reference_rows_mismatch", ERROR,
        "Reference rows are not as many, or not of the geometry, that the row declares.",
        "{required}",
        "Encode the row again.",
        Case("kind", "a geometry that fits its media type"))
    TAGS_INVALID = ("tags_invalid", ERROR,
        "Text tags are not one a token, or neither 0 nor 1.",
        "one tag a token, 0 (vision) or 1 (text)",
        "Encode the row again.")
    CELL_TOO_LARGE = ("cell_too_large", ERROR,
        "A tensor is larger than an Arrow cell holds (2 GiB); validation counts those of pictures.",
        "at most {limit:,} bytes in one Arrow cell",
        "Ask for fewer frames or a smaller canvas, give the row fewer references, or lower `max_presentation_tokens`.")
    DECODE_DIFFERS = ("decode_differs", WARNING,
        "What the VAEs decode is far from the media. Random weights always are.",
        "at least {limit} dB",
        "Decode the row and look at it; if it is right, lower the threshold of `decode_check` in datasets.yaml.")
    DECODE_FAILED = ("decode_failed", WARNING,
        "The VAEs could not decode the row.",
        "a row that decodes to what was encoded",
        "Encode the row again.",
        Case("shape", "{required}"))

    # Published artifacts
    ARTIFACT_INVALID = ("artifact_invalid", ERROR,
        "A file of an artifact is missing, cut short or of another format.",
        "{required}",
        "Materialize or pack it again.",
        Case("published", "what was published, whole and unchanged",
            "Materialize or pack it again, or choose another version; a damaged one may be removed."),
        Case("link", "plain files and folders, as they were published",
            "Put there what it leads to, or publish it again. Links above a version's folder are followed."),
        Case("part", "a part as this version writes it", "Remove it; the next run makes it again."),
        Case("columns", "the columns that this version writes, in its order"),
        Case("tokens", "the presentation's tokens, from the checkpoint's own"),
        Case("refused", "every row, and at least one", "Mend or remove the refused rows in the source manifest."),
        Case("no_index", "map_style_cache/index.arrow and dataset.json",
            "Run `muvap index rebuild {root}`, or publish the dataset again."),
        Case("recordings", "one row a recording"),
        Case("shard", hint="Run `muvap verify` on the dataset; publish it again."),
        Case("no_pack", "the folder of a pack", "Check the path; where it holds versions, open its `current`."),
        Case("gone", "the pack as it was opened", "Open its `current` anew."),
        Case("dataset.json", "a JSON object with face_shape, counts and provenance"),
        Case("index.arrow", "an Arrow IPC file of one whole record batch, its columns those of version 4, without nulls"),
        Case("index.json", "a JSON list of objects"),
        Case("array", "a whole .npy array"),
        Case("violations.jsonl", "a regular file of one finding a line"),
        Case("stray", "nothing else in the folder of a pack", "Move it out, or pack the corpus again."),
        Case("ids", "one sample of an id, and none of a track that was set aside"))
    COUNT_MISMATCH = ("count_mismatch", ERROR,
        "Two counts that have to agree do not: samples, rows, scores a track.",
        "{required}",
        "Materialize or pack it again.",
        Case("recordings", "one row for each recording of the manifest, and no other"),
        Case("groups", "one row group a row, at least one"),
        Case("unread", "every sample read back"),
        Case("scores", hint="Score the whole track, lifted to its native frames; drop context and padding frames first."),
        Case("unscored", hint="Score every track; where some were set aside, see restricted_to and missing_score."),
        Case("split", "at least one", "Ids are compared exactly: is this the split of the pack?"),
        Case("restricted", "all rows of the file", "Give missing_score for the tracks that were set aside."))
    OFFSET_MISMATCH = ("offset_mismatch", ERROR,
        "Samples of a pack leave a gap or overlap.",
        "{required}",
        "Pack the corpus again.",
        Case("shards", "shards of the pack, in their order"))
    LEVEL_INVALID = ("level_invalid", ERROR,
        "A level is not finite, or two clips of a recording disagree.",
        "finite levels of the recording that agree with each other, 0 <= RMS <= peak",
        "Materialize the loudness index again, then the pack.",
        Case("clips", "{levels}, as other clips of recording {recording} have"))
    DIGEST_MISMATCH = ("digest_mismatch", ERROR,
        "The bytes are not those that were written: the disk failed, or the file was changed.",
        "{required}",
        "Materialize or pack it again, or restore it from a copy; if this recurs, check the disk.",
        Case("index.json", "what index.arrow says"),
        Case("media", "the {counted} that were counted when it was validated", "The file changed since. Validate again."),
        Case("part", "the part as it was stored", "Run again: it is made anew. If this recurs, check the disk."),
        Case("none", "one set of digests a row"),
        Case("unread", "every sample read back"))
    REJECTED_SHARE = ("rejected_share", ERROR,
        "More rows were rejected than `max_rejected_share`, or all of them.",
        "at most {limit} and one accepted row",
        "Mend the source, or raise `max_rejected_share`.")
    SILENT_SHARE = ("silent_share", ERROR,
        "More recordings are silent than `max_silent_share`, which is how a wrong path looks.",
        "at most {limit}",
        "Correct `audio_path`, or raise `max_silent_share`.")
    FIGURE_UNUSUAL = ("figure_unusual", WARNING,
        "A figure of the pack is unlike those known of the corpus.",
        "usually {usual}",
        "Look at it; it may be right.",
        Case("speaking_share", hint="Look at the labels: filler, or another vocabulary, looks like this."),
        Case("length_frames", hint="Is it the whole corpus, and cut into tracks as usual? It may be right."),
        Case("length_sec", hint="Are these tracks, at their own rate? It may be right."),
        Case("source_fps", hint="Read the rate from the videos; a wrong one shifts labels against sound."),
        Case("gain_db", hint="They are faint, or peaks stand far above speech: listen to some."),
        Case("source_dbfs", hint="Listen to some: a wrong path looks like this."),
        Case("padded_ms", hint="Is the audio that of these faces? Check `audio_path` and `start_sec`."))
    CHECK_NOT_RUN = ("check_not_run", ERROR,
        "A check did not run, since the build failed before it.",
        "every declared check runs before anything is published",
        "See the error of the run, or the finding of another check.")
    BUILD_FAILED = ("build_failed", ERROR,
        "The build ended with one of the errors below.",
        "a build that ends",
        "Do what the message says; nothing was published.")
    ROW_MISSING = ("row_missing", ERROR,
        "A row of the manifest is not encoded. A dataset is published whole or not at all.",
        "every row of the manifest; a dataset is published whole or not at all",
        "Encode it, or take it out of the manifest.")
    ROOT_UNUSABLE = ("root_unusable", ERROR,
        "The path contains `,` or `:`, or a folder `bucket=...` above the dataset: the trainer would misread it. Or it does not "
        "exist, is the folder of a dataset's versions, or its index cannot be written.",
        "the folder of a published dataset",
        "Check the path.",
        Case("versions", hint="Open {current}."),
        Case("characters", "a path without ',' and ':', at which the trainer splits its list of datasets", "Move the dataset."),
        Case("bucket", "exactly one bucket= part in a shard's absolute path", "Move the dataset out of that folder."),
        Case("read only", "a place that may be written once",
            "Run `muvap index rebuild` where it may be written, by the path the trainer will use."))
    SHARD_UNREADABLE = ("shard_unreadable", ERROR,
        "A shard is cut short, or none that this package wrote.",
        "a whole shard of one row, as this package writes it",
        "Restore it from its source, publish the dataset again, or move it out.")
    SHARD_MISSING = ("shard_missing", ERROR,
        "The index lists a shard that is not there.",
        "every shard the index lists",
        "Restore it; if the dataset was changed on purpose, run `muvap index rebuild {root}`.",
        Case("none", "at least one bucket=<W>x<H>-<N>f/data_<8 digits>.parquet",
            "Is this the dataset's root? Publish the dataset first."),
        Case("gap", "{count} shards numbered from zero", "Was the dataset copied whole? Copy it again, or publish it again."))
    SHARD_STRAY = ("shard_stray", ERROR,
        "A Parquet file lies there that the index does not list.",
        "exactly the indexed shards",
        "Remove it; if it was added on purpose, run `muvap index rebuild {root}`.",
        Case("foreign", "only bucket=<W>x<H>-<N>f/data_<8 digits>.parquet, for every *.parquet is swept in",
            "Move it out of the dataset."))
    SHARD_CHANGED = ("shard_changed", ERROR,
        "A shard has other bytes than were indexed.",
        "{required} by the index",
        "Restore the shard, or publish the dataset again.")
    BUCKET_MISMATCH = ("bucket_mismatch", ERROR,
        "A shard's latents have another shape than its folder says.",
        "the shape its folder names, for the trainer schedules by it",
        "Publish the dataset again; do not move shards between buckets.")
    SCHEMAS_MIXED = ("schemas_mixed", ERROR,
        "Rows of both formats in one dataset, or a dataset opened as the other format.",
        "rows of {schema} only; mixed, already noised references would be noised again",
        "Publish the two formats as two datasets.",
        Case("reader", "{schema}", "Open it with {reader}."))
    LINK_FOUND = ("link_found", ERROR,
        "A symbolic link, a pipe, a socket or a device in the dataset, or a link in its place.",
        "plain files: the trainer follows links, and drops an index that leads outside its root",
        "Replace it by the file itself, or remove it.",
        Case("special", "plain files and folders", "Remove it."))
    INDEX_MISSING = ("index_missing", ERROR,
        "A file of the index is not there.",
        "an existing index",
        "Run `muvap index rebuild {root}`, or open the dataset without `require_existing`.")
    INDEX_INVALID = ("index_invalid", ERROR,
        "A file of the index is damaged, or somebody planted a pickle that wants to run code.",
        "the index of this dataset, as this version writes it",
        "Find out what wrote there, then run `muvap index rebuild {root}`.",
        Case("pickle", "a tuple of paths and a tuple of row counts, and nothing else"),
        Case("planted", "a tuple of paths and a tuple of row counts, and nothing else",
            "Somebody planted it: find out who wrote there, delete it, and run `muvap index rebuild {root}`."))
    INDEX_MOVED = ("index_moved", ERROR,
        "The dataset was moved or copied, or its `training.yaml` is not the one that was published.",
        "{place}, where the dataset lies now",
        "It was moved or copied: run `muvap index rebuild {root}`.",
        Case("training", "the section a trainer pastes, with training.data.data_path", "Delete the file, and publish again."))
    CAPACITY_EXCEEDED = ("capacity_exceeded", ERROR,
        "A row is longer than the largest sequence capacity.",
        "at most {limit}, the largest capacity",
        "Add the capacity {capacity}, or leave the row out of the dataset; it is never cropped.")

    # fmt: on
