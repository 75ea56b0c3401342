"""Every error of the package, and no other.

MuvapError
├── ConfigError          datasets.yaml, an option or an environment variable is wrong
├── ValidationError      an input cannot be used: a manifest, a media file, a row; carries every finding, not only the first
│   └── FormatError      a published artifact is not what its format promises
├── StaleInputError      an artifact was built from another version than the one now current
├── PublishError         publishing would overwrite, or could not be made durable
└── PictureError         what was published cannot be shown as a picture; it is published all the same
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muvap_assets.findings import Finding


class MuvapError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(MuvapError):
    """A setting is wrong; the message names the key."""


class ValidationError(MuvapError):
    """An input cannot be used. Carries all that was found; the message shows the first few.

    Args:
        findings: one finding or several.
        subject: what they are about, where that is more than one of them.
    """

    SHOWN = 20

    def __init__(self, findings: Finding | Sequence[Finding], subject: str = "") -> None:
        self.findings = (findings,) if isinstance(findings, Finding) else tuple(findings)
        self.subject = subject
        lines = [finding.message() for finding in self.findings[: self.SHOWN]]
        hidden = len(self.findings) - len(lines)
        if hidden > 0:
            lines.append(f"... and {hidden} more")
        if subject:
            lines = [f"{subject}: {len(self.findings)} finding(s)", *(f"  {line}" for line in lines)]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.findings, self.subject))

    @property
    def finding(self) -> Finding:
        """The first finding, often the only one."""
        return self.findings[0]


class FormatError(ValidationError):
    """A published artifact is not what its format promises."""


class StaleInputError(MuvapError):
    """An artifact was built from another version of its input than the one that is current."""


class PublishError(MuvapError):
    """Publishing would overwrite something, or could not be made durable."""


class PictureError(MuvapError):
    """What was published cannot be shown as a picture."""
