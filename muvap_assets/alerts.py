"""Sends one line to whoever looks after the platform: a POST of JSON to the address in ``MUVAP_ALERT_WEBHOOK``.

The body's ``text`` is the line for people, as Slack, Mattermost and those that take the same show it; the other keys are for
machines. What cannot be delivered is reported to the caller and never raised: an alert about a failure must not become one. Nothing
of the address is reported but its host: a webhook's path is a secret, and so are a user and a password.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from muvap_assets.text_lines import line

WEBHOOK_VARIABLE = "MUVAP_ALERT_WEBHOOK"
TIMEOUT_SEC = 10.0
_REASON_CHARACTERS = 300


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
    if not address.lower().startswith(("http://", "https://")):
        return f"{WEBHOOK_VARIABLE}: found no http:// or https:// at its beginning; required: an http or https address. Correct it."
    host = "the address"
    try:
        body = json.dumps({"text": chat_text(alert.text), "kind": alert.kind, **alert.facts}, ensure_ascii=False)
        parts = urlsplit(address)
        user, _, place = parts.netloc.rpartition("@")
        headers = {"Content-Type": "application/json; charset=utf-8"}
        if user:
            both = unquote(user if ":" in user else f"{user}:")
            headers["Authorization"] = f"Basic {base64.b64encode(both.encode()).decode()}"
        request = urllib.request.Request(
            urlunsplit(parts._replace(netloc=place)),
            body.encode("utf-8", errors="replace"),  # a file's name may hold what UTF-8 cannot
            headers,
            method="POST",
        )
        if (
            "@" not in parts.path + parts.query + parts.fragment
        ):  # after a slash in a password, what looks like the host is none
            host = place
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_SEC) as answer:
            answer.read(1)
    except OSError as error:  # an answer of 300 and above is one too
        reason = line(str(error), _REASON_CHARACTERS)
    except (ValueError, TypeError, http.client.HTTPException) as error:
        reason = type(error).__name__  # its text may hold the whole address
    else:
        return None
    return (
        f"{WEBHOOK_VARIABLE}: {host} did not take the alert ({reason}). See whether the address is right, no redirect, and "
        "reachable from the daemon."
    )


def chat_text(text: str) -> str:
    """A line as chat systems take it for text: no tag or mention of Slack's, no mention or named link of Mattermost's."""
    text = line(text.encode("utf-8", errors="replace").decode())
    for sign, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b"), ("](", "]\u200b(")):
        text = text.replace(sign, shown)
    return text


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is followed by a GET without the body, which looks delivered and is not."""

    def redirect_request(self, *arguments: object) -> None:
        """None, so that the redirect itself is the answer, and an error."""
