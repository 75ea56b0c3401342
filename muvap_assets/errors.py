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
from muvap_assets.text_lines import line, lines


class MuvapError(Exception):
    """Base of every error this package raises on purpose. Its text can be printed, whatever the values hold that it names."""

    def __init__(self, message: str = "") -> None:
        super().__init__(lines(message))


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
        told = [finding.message() for finding in self.findings[: self.SHOWN]]
        hidden = len(self.findings) - len(told)
        if hidden > 0:
            told.append(f"... and {hidden} more")
        if subject:
            told = [f"{line(subject)}: {len(self.findings)} finding(s)", *(f"  {each}" for each in told)]
        super().__init__("\n".join(told))

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
