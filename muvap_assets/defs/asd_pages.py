"""What the pages of the asd assets show of a published version. Belongs here: choosing figures; they are counted elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import dagster as dg

from muvap_assets.asd import line
from muvap_assets.asd.contract import Clip
from muvap_assets.asd.level_report import unusual_levels
from muvap_assets.asd.loudness import read_loudness_index
from muvap_assets.asd.loudness_columns import LOUDNESS_TABLE
from muvap_assets.asd.manifest import ManifestReport
from muvap_assets.asd.manifest_files import MANIFEST_TABLE
from muvap_assets.asd.packs.columns import PACK_TABLE
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.asd.packs.report import report_pack, unusual_figures
from muvap_assets.asd.packs.summary import summarize_pack
from muvap_assets.defs.metadata import TABLE_ROWS, column_schema, findings_table, table
from muvap_assets.defs.pages import Page
from muvap_assets.layout import Artifact
from muvap_assets.pictures.alignment import alignment_picture
from muvap_assets.pictures.clips import clips_picture
from muvap_assets.pictures.faces import faces_picture
from muvap_assets.pictures.levels import levels_picture
from muvap_assets.progress import Work
from muvap_assets.storage.files import read_lossy_json

_UNUSUAL_FILE = "unusual_levels.jsonl"


def manifest_page(artifact: Artifact, folder: Path, report: ManifestReport) -> Page:
    """Counts of what was accepted, and what was not."""
    seconds = sum(float(clip.source_frames / clip.source_fps.value) for clip in report.clips)
    values = {
        "dagster/row_count": len(report.clips),
        "dagster/partition_row_count": len(report.clips),
        "dagster/column_schema": column_schema(MANIFEST_TABLE),
        "rejected": report.rejected,
        "frames": sum(clip.source_frames for clip in report.clips),
        "hours": seconds / 3600,
        "recordings": len({clip.recording_id for clip in report.clips}),
        "frame_rates": dg.MetadataValue.json(_most(line.frame_rate_histogram(report.clips))),
        "clips_under_one_model_frame": line.clips_under_one_model_frame(report.clips),
        **({"corpus": dg.MetadataValue.json(dict(report.notes))} if report.notes else {}),
        **findings_table(report.findings, artifact.findings),
    }
    work = Work(item="row", done=len(report.clips), skipped=report.rejected)
    return Page(values=values, work=work, pictures={"clips": lambda: [clips_picture(report.clips)]})


def loudness_page(artifact: Artifact, folder: Path, clips: Sequence[Clip]) -> Page:
    """Levels over the recordings, and those to listen to."""
    stats = list(read_loudness_index(folder).values())
    levels = sorted(entry.dbfs for entry in stats if entry.dbfs is not None)
    unusual = unusual_levels(stats)
    values = {
        "dagster/row_count": len(stats),
        "dagster/partition_row_count": len(stats),
        "dagster/column_schema": column_schema(LOUDNESS_TABLE),
        "hours": sum(entry.samples_16k for entry in stats) / 16_000 / 3600,
        "silent": sum(entry.silent for entry in stats),
        "clipped_samples": sum(entry.clipped_samples for entry in stats),
        "unusual": len({each.recording_id for each in unusual}),
        **({"dbfs_min": levels[0], "dbfs_median": levels[len(levels) // 2], "dbfs_max": levels[-1]} if levels else {}),
        **table("unusual_levels", [asdict(each) for each in unusual], artifact.reports / _UNUSUAL_FILE),
    }
    work = Work(item="recording", done=len(stats))
    return Page(values=values, work=work, pictures={"levels": lambda: [levels_picture(stats)]})


def pack_page(artifact: Artifact, folder: Path, clips: Sequence[Clip]) -> Page:
    """Counts of a pack, its figures by dataset, and what of them is unusual."""
    summary, reports = summarize_pack(folder), report_pack(folder)
    unusual = [finding for report in reports for finding in unusual_figures(report)]
    values = {
        "dagster/row_count": summary.samples,
        "dagster/partition_row_count": summary.samples,
        "dagster/column_schema": column_schema(PACK_TABLE),
        "rejected": summary.rejected,
        "frames": summary.frames,
        "hours": summary.hours,
        "shards": summary.shards,
        "recordings": summary.recordings,
        "face_height": summary.face_shape[0],
        "face_width": summary.face_shape[1],
        **({} if summary.speaking_share is None else {"speaking_share": summary.speaking_share}),
        "padded_samples": summary.padded_samples,
        "clipped_samples": summary.clipped_samples,
        "figures": dg.MetadataValue.json(
            [{**asdict(report), "frame_rates": _most(report.frame_rates)} for report in reports[:TABLE_ROWS]]
        ),
        **findings_table(unusual),
    }
    work = Work(item="clip", done=summary.samples, skipped=summary.rejected, reused=_copied(artifact))
    pack = PackReader(folder)
    pictures = {"faces": lambda: [faces_picture(pack)], "alignment": lambda: [alignment_picture(pack)]}
    return Page(values=values, work=work, pictures=pictures)


def _copied(artifact: Artifact) -> int:
    """Tracks whose faces were taken over from the earlier pack, as the last run wrote down; none where that is lost."""
    match read_lossy_json(artifact.reports / line.REUSE_FILE):
        case {"faces_copied": int(copied)}:
            return copied
    return 0


def _most(counts: Mapping[str, int]) -> dict[str, int]:
    """The twenty most frequent, and how many the others are together."""
    shown = dict(islice(counts.items(), TABLE_ROWS))
    others = sum(counts.values()) - sum(shown.values())
    return {**shown, **({"others": others} if others else {})}
