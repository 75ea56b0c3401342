"""The loudness a recording is brought to, from the statistics of all of it.

    y = (x - mean) * gain,    gain = min(target / rms, largest gain, largest peak / peak)

``rms`` and ``peak`` are of the whole recording after its mean was removed, so every chunk and every track of a recording gets
one gain. A recording whose peak is under one 16-bit step is silent and keeps gain 1; past its end there is silence, 0.

Source: the audio-visual data contract, "Audio": -25 dBFS RMS, statistics over the whole recording.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import ConfigError

FULL_SCALE = 32768
_SILENT_PEAK = 1 / FULL_SCALE


@dataclass(frozen=True, slots=True, kw_only=True)
class LoudnessTarget:
    """The level to reach and the limits of what is done to reach it; full scale is 1.

    Raises:
        ConfigError: ``max_peak`` is not positive, or a level is not finite.
    """

    rms_dbfs: float = -25.0
    max_gain_db: float = 20.0
    max_peak: float = 0.99

    def __post_init__(self) -> None:
        if not (np.isfinite(self.rms_dbfs) and np.isfinite(self.max_gain_db) and 0 < self.max_peak < np.inf):
            raise ConfigError(f"loudness target {self}; required: finite levels and a positive peak. Correct it.")

    def gains(self, rms: npt.NDArray[np.float64], peak: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Linear gain for recordings of these levels, float64 [recordings]; 1 where silent."""
        audible = (peak >= _SILENT_PEAK) & (rms > 0)
        rms, peak = np.where(audible, rms, 1.0), np.where(audible, peak, 1.0)
        largest = 10 ** (self.max_gain_db / 20)
        gain = np.minimum(np.minimum(10 ** (self.rms_dbfs / 20) / rms, largest), self.max_peak / peak)
        return np.where(audible, gain, 1.0)
