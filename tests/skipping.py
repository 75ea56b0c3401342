"""Skips that CI turns into failures."""

import os

import pytest

FORBID_SKIPS = "MUVAP_FORBID_SKIPS"


def skip_or_fail(reason: str) -> None:
    """Skip where a developer lacks something; fail where CI promised to have it."""
    if os.environ.get(FORBID_SKIPS):
        pytest.fail(f"{reason}, and {FORBID_SKIPS} is set")
    pytest.skip(reason)
