"""Sends one line to whoever looks after the platform: a POST of JSON to the address in ``MUVAP_ALERT_WEBHOOK``.

The body's ``text`` is the line itself, which most chat systems show as it is; the other keys are for machines. What cannot
be delivered is told to the caller and never raised: an alert about a failure must not become one.
"""

from __future__ import annotations

import http.client
import json
import os
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
    host = "the address"
    try:
        body = json.dumps({"text": alert.text, "kind": alert.kind, **alert.facts}, ensure_ascii=False)
        request = urllib.request.Request(
            address,
            body.encode("utf-8", errors="replace"),  # a file's name may hold what UTF-8 cannot
            {"Content-Type": "application/json; charset=utf-8"},
            method="POST",
        )
        host = request.host.rpartition("@")[2]
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_SEC) as answer:
            answer.read(1)
    except OSError as error:  # an answer of 300 and above is one too
        reason = str(error)
    except (ValueError, TypeError, http.client.HTTPException) as error:
        reason = type(error).__name__  # its text may hold the whole address
    else:
        return None
    # the address may hold a secret: its host is enough to find it
    return (
        f"{WEBHOOK_VARIABLE}: {host} did not take the alert ({reason}). See whether the address is right, no redirect, and "
        "reachable from the daemon."
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is followed by a GET without the body, which looks delivered and is not."""

    def redirect_request(self, *arguments: object) -> None:
        """None, so that the redirect itself is the answer, and an error."""
