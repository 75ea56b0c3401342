"""Options of an active-speaker corpus, each with its default and its range. Imports nothing but the standard library."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from muvap_assets.media.sound_files import MAX_RATE_HZ
from muvap_assets.options import ItemTimeout, Option, check_options
from muvap_assets.threads import ITEM_TIMEOUT_SEC

SHARD_BYTES = 1_000_000_000

ShardBytes = Annotated[int, Option(least=1_000_000, help="About how large a shard is.")]
AudioSampleRate = Annotated[
    int | None,
    Option(
        least=1,
        most=MAX_RATE_HZ,
        help="Rate in Hz of NumPy waveforms whose row has none in its column audio_sample_rate.",
    ),
]


class OnViolation(StrEnum):
    """What becomes of a manifest with bad rows."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How strictly a corpus is held to the contract; each option says what it is for. Shares are fractions of one.

    Raises:
        ConfigError: a value is outside what it may be; the message names it.
    """

    on_violation: Annotated[
        OnViolation, Option(flag="quarantine", help="Let good rows go on where others are bad, and list the bad.")
    ] = OnViolation.FAIL
    max_missing_audio_share: Annotated[
        float,
        Option(
            least=0,
            most=1,
            help="A clip's audio may end this share of the clip early; the rest is silence and reported.",
        ),
    ] = 0.1
    max_rejected_share: Annotated[
        float, Option(least=0, most=1, help="With quarantine, a larger share of rejected rows fails all the same.")
    ] = 0.05
    max_silent_share: Annotated[
        float, Option(least=0, most=1, help="A larger share of silent recordings fails the loudness index.")
    ] = 0.1
    item_timeout_sec: ItemTimeout = ITEM_TIMEOUT_SEC

    def __post_init__(self) -> None:
        check_options(self)
