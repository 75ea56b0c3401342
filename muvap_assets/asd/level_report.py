"""Recordings whose level is out of the ordinary: where to listen, not what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from muvap_assets.asd.levels import LoudnessTarget
from muvap_assets.asd.loudness import LoudnessStats

LOUDEST_DBFS = -9.0
"""Speech that fills more of full scale than this was compressed hard or cut off; usual speech lies at -35 to -15 dBFS."""

MOST_CLIPPED = 0.001
"""Share of the samples beyond full scale; single peaks are of no account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusualLevel:
    """One recording, what is unusual about it (silent, quiet, loud or clipped), and the limit it passed."""

    recording_id: str
    audio_path: str
    kind: str
    found: str
    limit: str


def quietest_dbfs(target: LoudnessTarget) -> float:
    """Below it, the largest gain a loader applies does not reach the target level."""
    return target.rms_dbfs - target.max_gain_db


def unusual_levels(stats: Iterable[LoudnessStats], target: LoudnessTarget | None = None) -> list[UnusualLevel]:
    """Every recording that passes a limit, once a limit, in the order given."""
    target = target or LoudnessTarget()
    quietest = quietest_dbfs(target)
    found = []
    for each in stats:
        share = each.clipped_samples / each.samples_16k
        for kind, applies, seen, limit in (
            ("silent", each.silent, "constant to within a 16-bit step", "a signal"),
            (
                "quiet",
                each.dbfs is not None and each.dbfs < quietest,
                f"{each.dbfs or 0:.1f} dBFS",
                f"{quietest:g} dBFS: {target.max_gain_db:g} dB of gain, the most, bring it to {target.rms_dbfs:g}",
            ),
            (
                "loud",
                each.dbfs is not None and each.dbfs > LOUDEST_DBFS,
                f"{each.dbfs or 0:.1f} dBFS",
                f"{LOUDEST_DBFS:g} dBFS",
            ),
            (
                "clipped",
                share > MOST_CLIPPED,
                f"{each.clipped_samples} samples, {share:.2%}, beyond full scale",
                f"{MOST_CLIPPED:.1%} of the samples",
            ),
        ):
            if applies:
                found.append(
                    UnusualLevel(
                        recording_id=each.recording_id,
                        audio_path=each.audio_path,
                        kind=kind,
                        found=seen,
                        limit=limit,
                    )
                )
    return found
