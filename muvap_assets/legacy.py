"""To be deleted: constructors of before the table of codes."""

from typing import Any

from muvap_assets.codes import Code, Severity
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.findings import Finding

BACKSLASH_HINT = "Write / for \\ in paths."


def old_finding(
    *, code: Code, found: str, required: str, hint: str, severity: Severity = Severity.ERROR, **place: Any
) -> Finding:
    record = {
        "code": str(code),
        "severity": str(severity),
        "source": None,
        "row": None,
        "sample_id": None,
        "field": None,
    }
    return Finding.from_dict({**record, **place, "found": found, "required": required, "hint": hint})


def old_error(code: Code, where: str, *, found: str, required: str, hint: str) -> ValidationError:
    return ValidationError(old_finding(code=code, found=found, required=required, hint=hint, path=where))


def old_dataset_error(code: Code, where: str, *, found: str, required: str, hint: str) -> FormatError:
    return FormatError(old_finding(code=code, found=found, required=required, hint=hint, path=where))


def old_field_error(code: Code, field: str, *, found: str, required: str, hint: str) -> ValidationError:
    return ValidationError(old_finding(code=code, found=found, required=required, hint=hint, field=field))


def old_format_error(text: str) -> FormatError:
    return FormatError(old_finding(code=Code.ARTIFACT_INVALID, found=text, required="-", hint="-"))
