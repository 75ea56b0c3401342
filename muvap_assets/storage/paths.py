"""Paths as users write them: in options, in environment variables and in ``datasets.yaml``. Paths in manifests are not these.

``$NAME`` and ``${NAME}`` stand for variables of the environment, and ``~`` or ``~user`` at the beginning for a home folder,
also where a variable put it there; ``$$`` stands for ``$``. A variable that is not set or is empty is refused: what is left
would be another path.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from muvap_assets.errors import ConfigError

DATA_ROOT_VARIABLE = "MUVAP_DATA_ROOT"
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")


def expanded(text: str) -> Path:
    """The path that ``text`` stands for; one that is relative stays so.

    Raises:
        ValueError: a variable is not set or is empty, or there is no such user.
    """
    names = [match[2] or match[3] for match in _VARIABLE.finditer(text) if not match[1]]
    if missing := sorted({f"${name}" for name in names if not os.environ.get(name)}):
        raise ValueError(
            f"{', '.join(missing)} of the environment is not set or is empty; required: a value. Set it, or write the path."
        )
    filled = _VARIABLE.sub(lambda match: match[1] or os.environ[match[2] or match[3]], text)
    if not filled.startswith("~"):
        return Path(filled)
    home = os.path.expanduser(filled)  # noqa: PTH111 - pathlib's takes away the ./ that tells a folder named ~ from a home
    if home.startswith("~"):
        user = filled.partition("/")[0]
        raise ValueError(
            f"no home folder of {user} is known; required: ~ or ~user of this machine. Write ./{user} for a folder of that name."
        )
    return Path(home)


def written(path: Path) -> str:
    """The text that stands for an absolute path; the mirror of :func:`expanded`."""
    return str(path).replace("$", "$$")


def path_of(text: str, where: str) -> Path:
    """The path that ``text`` stands for; ``where`` names what holds it in a message.

    Raises:
        ConfigError: see :func:`expanded`.
    """
    try:
        return expanded(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {text!r}: {error}") from error


def path_of_variable(name: str) -> Path | None:
    """The path that a variable of the environment holds; ``None`` where it is not set or is empty.

    Raises:
        ConfigError: see :func:`expanded`.
    """
    text = os.environ.get(name)
    return path_of(text, name) if text else None


def data_root_of(text: str, where: str = DATA_ROOT_VARIABLE) -> Path:
    """The data root that ``text`` stands for.

    Raises:
        ConfigError: see :func:`expanded`; or it is relative.
    """
    root = path_of(text, where)
    if not root.is_absolute():
        raise ConfigError(
            f"{where}: {text!r} is relative; required: an absolute path, since each process would have another data root in "
            f"another folder. Write {Path.cwd() / root}."
        )
    return root
