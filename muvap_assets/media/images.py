"""One still picture, upright, opaque, RGB.

EXIF orientation is always applied, before anything looks at the size. Transparent pixels are composited on **white**
(:data:`BACKGROUND`): dropping the alpha channel would show the colours hidden under it. A file of several pictures is
refused, since nothing says which is meant; but of an MPO, a JPEG with a depth map or a second view behind it, the first
picture is what every JPEG reader shows. Colours are taken for sRGB, as inference takes them; a profile is only reported.
"""

from __future__ import annotations

import io
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.threads import delivered

PROBE = f"image 2, pillow {PIL.__version__}"
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF")
"""What Pillow decodes by itself. It knows more, of which some start another program: a PostScript file runs Ghostscript."""

_MAX_PROFILE_BYTES = 1 << 22
_SRGB_LEVELS = 3  # of 255: what a profile may change before it counts as another than sRGB; its variants stay within
_PNG_STEPS = {"L;2": 85, "L;4": 17}  # levels Pillow makes of one step of a grey PNG with fewer than 8 bits
_BAND_PIXELS = 1 << 22
MAX_SIDE = 65_535  # JPEG has no longer one
BACKGROUND = (255, 255, 255, 255)
MAX_PIXELS = 89_478_485  # Pillow's own bomb limit: a quarter of a gigabyte of RGB; refused here instead of warned about


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """A picture as displayed. ``colour`` names an ICC profile that is not sRGB, empty where there is none."""

    width: int
    height: int
    colour: str


def read_image(path: Path) -> Image.Image:
    """The picture as displayed, mode RGB.

    Raises:
        ValidationError: it is no picture, is damaged or cut short, holds several frames, or is over :data:`MAX_PIXELS`.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[Image.Image, bytes]:
    """:func:`read_image`, with the ICC profile of the file, empty where it has none."""
    delivered(path)
    try:
        with _OwnLength(path) as stream, _opened(stream) as opened:
            _require_plain(opened, path)
            _fit_transparency(opened)
            opened.load()
            ImageOps.exif_transpose(opened, in_place=True)  # a copy would be held twice
            return _opaque(opened), opened.info.get("icc_profile") or b""
    except (ValidationError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise _too_large(path, str(error)) from error
    except UnidentifiedImageError as error:  # its own text names the open file as Python prints it
        found = f"it is no {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise ValidationError(Finding(Code.IMAGE_UNREADABLE, path, found)) from error
    except Exception as error:  # Pillow's parsers raise whatever a damaged file makes them stumble over
        found = f"it does not decode ({type(error).__name__}: {str(error).replace(str(path), path.name)})"
        raise ValidationError(Finding(Code.IMAGE_UNREADABLE, path, found)) from error


def _opened(stream: io.FileIO) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(stream, formats=FORMATS)


class _OwnLength(io.FileIO):
    """A file of which never more is asked for than there is: a chunk may claim gigabytes, and they would be allocated."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """At most ``size`` bytes."""
        left = max(0, self._size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left)) or b""


def count_image(path: Path) -> ImageFacts:
    """Decode a picture for its size, and look at its ICC profile.

    Raises:
        ValidationError: as :func:`read_image`.
    """
    image, profile = _read(path)
    return ImageFacts(width=image.width, height=image.height, colour=_foreign_profile(profile) if profile else "")


def _foreign_profile(data: bytes) -> str:
    """What an ICC profile is if converting its colours to sRGB would change them, else empty."""
    if len(data) > _MAX_PROFILE_BYTES:
        return f"an ICC profile of {len(data)} bytes"
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
        name = f"{ImageCms.getProfileDescription(profile).strip()[:60]!r}"
        space = profile.profile.xcolor_space.strip()
        if space not in ("RGB", "GRAY"):
            return f"an ICC profile of {space!r} colours, {name}"
        levels = np.arange(0, 256, 15, dtype=np.uint8)
        colours = (
            levels[None, :] if space == "GRAY" else np.stack(np.meshgrid(levels, levels, levels), -1).reshape(1, -1, 3)
        )
        before = Image.fromarray(colours)
        intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
        srgb = ImageCms.createProfile("sRGB")
        after = ImageCms.profileToProfile(before, profile, srgb, renderingIntent=intent, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, TypeError, ValueError) as error:
        return f"an ICC profile that does not read ({error})"
    change = int(np.abs(np.asarray(after, np.int16) - np.asarray(before.convert("RGB"), np.int16)).max())
    return f"the ICC profile {name}, up to {change} of 255 levels from sRGB" if change > _SRGB_LEVELS else ""


def _require_plain(image: Image.Image, path: Path) -> None:
    if image.width * image.height > MAX_PIXELS or max(image.size) > MAX_SIDE:
        raise _too_large(path, f"{image.width}x{image.height} pixels")
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":
        found = f"it holds {frames} frames ({image.format})"
        raise ValidationError(Finding(Code.IMAGE_MULTI_FRAME, path, found))


def _fit_transparency(image: Image.Image) -> None:
    """Bring the transparent colour of a PNG to the levels Pillow makes: the file states it in its own samples."""
    tiles = getattr(image, "tile", None)
    samples = tiles[0].args if tiles and image.format == "PNG" and "transparency" in image.info else None
    if samples == "RGB;16B":
        raise ValueError("a transparent colour of 16 bits a channel, of which Pillow reads 8")
    if samples in _PNG_STEPS:
        image.info["transparency"] *= _PNG_STEPS[samples]


def _opaque(image: Image.Image) -> Image.Image:
    # Pillow reads every PGM of more than 8 bits as 0 to 65535, whatever its own maximum.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        levels = np.asarray(image)
        grey = np.empty(levels.shape, np.uint8)
        np.floor_divide(levels, 257, out=grey, casting="unsafe")
        if "transparency" in image.info:
            grey[levels == image.info["transparency"]] = BACKGROUND[0]
        return Image.fromarray(grey).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(f"mode {image.mode!r} has no stated range")
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        return _composited(image.convert("RGBA"))
    return image.convert("RGB")


def _composited(layer: Image.Image) -> Image.Image:
    """On the background, some rows at a time: whole, it would take four pictures of memory."""
    opaque = Image.new("RGB", layer.size)
    rows = max(1, _BAND_PIXELS // layer.width)
    for top in range(0, layer.height, rows):
        band = layer.crop((0, top, layer.width, min(top + rows, layer.height)))
        opaque.paste(Image.alpha_composite(Image.new("RGBA", band.size, BACKGROUND), band), (0, top))
    return opaque


def _too_large(path: Path, found: str) -> ValidationError:
    return ValidationError(Finding(Code.IMAGE_TOO_LARGE, path, found, pixels=MAX_PIXELS, side=MAX_SIDE))
