"""The same pack as a Python package: a wheel whose import loads it."""

from __future__ import annotations

import base64
import hashlib
import platform
import re
import zipfile
from pathlib import Path

from dwconv.errors import PackError
from dwconv.packs.manifest import Manifest

_MODULE = '''"""Compiled kernels for dwconv: importing this loads them.

    {needs}
"""

from pathlib import Path

import dwconv

PACK = dwconv.load_pack(Path(__file__).parent, sha256="{sha256}", unmeasured={unmeasured})
'''
_METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Compiled kernels for dwconv on {device}. Needs {needs}
"""
_WHEEL = """Wheel-Version: 1.0
Generator: dwconv
Root-Is-Purelib: false
Tag: {tag}
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def check_wheel_name(name: str) -> None:
    """Raises PackError for what cannot be imported, or would hide dwconv."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or name in ("dwconv", "torch", "tvm"):
        raise PackError(f"wheel={name} is not a package name; use lower-case letters, digits and _, such as my_kernels")


def write_wheel(pack: Path, manifest: Manifest, *, name: str, folder: Path) -> Path:
    """Write the wheel of a package ``name`` into ``folder``, and return its path. Its version is the pack's date, so
    that a later pack replaces an earlier one. Raises PackError.

    It requires no package: what it needs is checked when it is imported, and to require dwconv would bring TVM."""
    check_wheel_name(name)
    version = re.sub(r"\D", ".", manifest.created.partition("+")[0])
    version = ".".join(str(int(part)) for part in version.split("."))
    tag = f"py3-none-linux_{platform.machine()}"
    info = f"{name}-{version}.dist-info"
    is_chosen = not (manifest.made_for.measured or manifest.made_for.every_layer)
    module = _MODULE.format(needs=f"Needs {manifest.needs}.", sha256=manifest.sha256, unmeasured=is_chosen)
    files = (path for path in sorted(pack.rglob("*")) if path.is_file())
    content = {f"{name}/{path.relative_to(pack)}": path.read_bytes() for path in files}
    content[f"{name}/__init__.py"] = module.encode()
    content[f"{info}/METADATA"] = _METADATA.format(
        name=name, version=version, device=manifest.made_for.device, needs=manifest.needs
    ).encode()
    content[f"{info}/WHEEL"] = _WHEEL.format(tag=tag).encode()
    lines = [f"{path},sha256={_urlsafe(data)},{len(data)}" for path, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    wheel = folder / f"{name}-{version}-{tag}.whl"
    try:
        with zipfile.ZipFile(wheel, "x", zipfile.ZIP_DEFLATED) as file:
            for path, data in content.items():
                entry = zipfile.ZipInfo(path, date_time=_EPOCH)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                file.writestr(entry, data)
    except FileExistsError:
        raise PackError(f"out={wheel} exists already; remove it, or name another folder with -o") from None
    except OSError as error:
        raise PackError(f"out={wheel} cannot be written: {error.strerror}; name another folder") from None
    return wheel


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
