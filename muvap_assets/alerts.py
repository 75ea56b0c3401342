"""Sends one line to whoever looks after the platform: a POST of JSON to the address in ``MUVAP_ALERT_WEBHOOK``.

The body's ``text`` is the line itself, which most chat systems show as it is; the other keys are for machines. What cannot
be delivered is told to the caller and never raised: an alert about a failure must not become one.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

WEBHOOK_VARIABLE = "MUVAP_ALERT_WEBHOOK"
TIMEOUT_SEC = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One line about one thing that failed. ``facts`` are plain JSON values."""

    kind: str
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)


def send(alert: Alert, address: str | None = None) -> str | None:
    """Post an alert to ``address``, or to the one of the environment where there is one.

    Returns:
        What kept it from being delivered, in one line; ``None`` where it was, or where no address is set.
    """
    address = address or os.environ.get(WEBHOOK_VARIABLE)
    if not address:
        return None
    if not address.startswith(("http://", "https://")):
        return f"{WEBHOOK_VARIABLE}: found {address.split(':')[0]!r}; required: an http or https address. Correct it."
    body = json.dumps({"text": alert.text, "kind": alert.kind, **alert.facts}, ensure_ascii=False).encode("utf-8")
    request = urllib.request.Request(address, body, {"Content-Type": "application/json; charset=utf-8"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SEC) as answer:
            answer.read(1)
    except (OSError, ValueError) as error:  # an answer of 400 and above is an OSError too
        # the address may hold a secret: its host is enough to find it
        return f"{WEBHOOK_VARIABLE}: {request.host} did not take the alert ({error}). See whether it is reachable from the daemon."
    return None
