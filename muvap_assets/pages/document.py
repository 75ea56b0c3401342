"""One HTML file, whole in itself: text escaped, and a policy under which nothing runs or loads that was not put in here.

    <meta Content-Security-Policy>   nothing from anywhere; pictures and sound from data URIs; style and script by their digest
    <style>                          page.css
    <body>                           markup made of :func:`element`, which escapes every text
    <script type=application/json>   what the script works on; no `<` stands in it
    <script>                         the page's own, if it has one

What a manifest says is data: it comes in through :func:`element` or the JSON, and neither lets it become markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from muvap_assets.errors import ConfigError
from muvap_assets.storage.files import replacing

MAX_MEDIA_BYTES = 32 << 20
"""Raw pixels and samples a page may hold; a browser opens that at once, and more is shown part by part."""

_VOID_ELEMENTS = frozenset({"input", "img"})


class Markup(str):
    """Text that is markup already. Everything else is escaped by :func:`element`."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | int | bool | None) -> Markup:
    """``<name attributes>content</name>``; content and values are escaped unless they are :class:`Markup`.

    An attribute's trailing underscore is dropped and other underscores become hyphens; ``None`` and ``False`` leave it out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    inside = "".join(text if isinstance(text, Markup) else escape(text) for text in content)
    end = "" if name in _VOID_ELEMENTS else f"</{name}>"
    return Markup(f"<{name}{written}>{inside}{end}")


def _attribute(key: str, value: str | int | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    return f' {name}="{escape(str(value))}"'


def foreign(text: str) -> Markup:
    """A text of somebody else's, whose direction of writing does not reach what stands around it."""
    return element("bdi", text)


def definitions(facts: Iterable[tuple[str, str]]) -> Markup:
    """A list of names and values."""
    rows = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    return element("dl", *rows, class_="facts")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table that scrolls sideways where it has to."""
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in header)))
    body = element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows))
    return element("div", element("table", head, body), class_="scroll")


def document(*, title: str, body: Markup, script: str | None = None, data: Mapping[str, Any] | None = None) -> str:
    """The whole page.

    Args:
        title: of the window; escaped.
        body: the markup.
        script: a file of this package that is run, or none.
        data: JSON values for it, in the element ``data``.
    """
    style = _own_file("page.css")
    scripts = ""
    policy = {"default-src": "'none'", "img-src": "data:", "media-src": "data:", "style-src": _digest(style)}
    if script is not None:
        code = _own_file(script)
        policy["script-src"] = _digest(code)
        scripts = (
            f'<script type="application/json" id="data">{_inert_json(data or {})}</script>\n<script>{code}</script>\n'
        )
    policy |= {"base-uri": "'none'", "form-action": "'none'"}
    rules = "; ".join(f"{name} {value}" for name, value in policy.items())
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(rules)}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n{scripts}</body>\n</html>\n"
    )


def _own_file(name: str) -> str:
    return files("muvap_assets.pages").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inert_json(data: Mapping[str, Any]) -> str:
    """JSON without a character that HTML could take for the beginning of something."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def write_page(path: Path, page: str) -> None:
    """Write a page in one step; one that stands there is replaced.

    Raises:
        ConfigError: it cannot be written there.
    """
    try:
        with replacing(path) as partial:
            partial.write_text(page, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror}); required: a place for a file. Give another one with -o."
        ) from error


def unknown_name(where: Path, what: str, wanted: str, known: Sequence[str]) -> ConfigError:
    """The refusal of a name, with those that are most like it."""
    folded = wanted.casefold()
    near = [name for name in known if folded and folded in name.casefold()][:_NEAR]
    near = near or get_close_matches(wanted, known, n=_NEAR, cutoff=0.5)
    hint = f"Near it: {', '.join(near)}." if near else f"The first are: {', '.join(known[:_NEAR])}."
    return ConfigError(f"{where}: no {what} {wanted!r}; required: one of its {len(known)}. {hint}")


_NEAR = 5
