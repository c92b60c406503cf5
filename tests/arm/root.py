"""A Python of arm64 in a folder, which qemu runs on this machine: ``python -m tests.arm.root FOLDER``. Takes 2 GB.

It needs debootstrap, qemu-user-static and g++-aarch64-linux-gnu, and root's rights for debootstrap alone. The wheel of
PyTorch may be one with CUDA, whose libraries are some gigabytes: functions that fail stand in for them.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("debootstrap", "qemu-aarch64-static", "aarch64-linux-gnu-g++", "aarch64-linux-gnu-nm", "dpkg")
SUITE, PYTHON = "bookworm", "3.11"
"""Of Debian, and the Python that it has."""
PACKAGES = (f"python{PYTHON}", f"libpython{PYTHON}-dev", "libgomp1", "libstdc++6")
WHEELS = (
    "torch", "numpy", "apache-tvm", "apache-tvm-ffi", "msgspec", "fsspec", "platformdirs", "rich", "psutil",
    "xgboost-cpu", "scipy", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "filelock",
    "pygments", "markdown-it-py", "mdurl", "ml_dtypes", "setuptools",
)  # fmt: skip
PLATFORMS = tuple(f"manylinux{version}_aarch64" for version in ("2014", "_2_17", "_2_26", "_2_27", "_2_28"))
MACHINE = "aarch64"
CPUINFO = """processor\t: 0
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
"""A Neoverse N1: what kernels are built for where they are built there."""
NO_DEVICE = 100
"""What CUDA's functions give where there is no GPU."""


def make(folder: Path) -> None:
    """All of it; what is there already is left as it is."""
    root, site = folder / "root", folder / "lib" / f"python{PYTHON}" / "site-packages"
    if not (folder / "debian").exists():
        include = f"--include={','.join(PACKAGES)}"
        _run("debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", include, SUITE, root)
        for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
            _run("dpkg", "-x", package, root)
        (folder / "debian").touch()
    if not (folder / "wheels").exists():
        platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
        _run(
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--upgrade", "--target",
            site, "--only-binary=:all:", "--python-version", PYTHON, *platforms, *map(_pinned, WHEELS),
        )  # fmt: skip
        _stand_in_for_cuda(site / "torch" / "lib", root)
        (folder / "wheels").touch()
    cpuinfo = root / "proc" / "cpuinfo"  # older versions of qemu show that of this machine
    cpuinfo.parent.mkdir(exist_ok=True)
    cpuinfo.write_text(CPUINFO)
    headers = folder / "include" / f"{MACHINE}-linux-gnu"  # Debian's Python includes them by that path
    headers.mkdir(parents=True, exist_ok=True)
    (headers / f"python{PYTHON}").unlink(missing_ok=True)
    (headers / f"python{PYTHON}").symlink_to(root / "usr/include" / headers.name / f"python{PYTHON}")
    python = folder / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    (folder / "pyvenv.cfg").write_text(f"home = {root}/usr/bin\ninclude-system-site-packages = false\n")
    there, libraries = shlex.quote(str(folder)), shlex.quote(str(root))
    run = f'qemu-aarch64-static -cpu max -L {libraries} -0 "$0" {libraries}/usr/bin/python{PYTHON} "$@"'
    python.write_text(f"#!/bin/sh\nexport CPATH={there}/include\nexec {run}\n")
    python.chmod(0o755)


def _pinned(name: str) -> str:
    """As in ``constraints.txt``, if it is there."""
    lines = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    found = [line.split(";")[0].strip() for line in lines if line.lower().startswith(f"{name.lower()}==")]
    return found[0] if found else name


def _run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with {done.returncode}")
    return done.stdout


# -- the libraries that a wheel with CUDA needs -----------------------------------------------------------------------


def _stand_in_for_cuda(libraries: Path, root: Path) -> None:
    """One library under the names of all that are missing, with every function that is needed of them."""
    files = [each for each in libraries.glob("*.so*") if each.is_file()]
    here = {each.name for each in (*libraries.glob("*.so*"), *root.rglob("*.so*"))}
    missing = sorted({name for each in files for name in _needed(each)} - here)
    if not missing:
        return
    system = [next(root.rglob(name)) for name in _SYSTEM]
    defined = {name for each in (*files, *system) for name, _ in _symbols(each, "--defined-only")}
    asked = {symbol for each in files for symbol in _symbols(each, "--undefined-only")}
    wanted = {name: version for name, version in sorted(asked) if name not in defined and not name.startswith("_Py")}
    wanted = {name: version for name, version in wanted.items() if not name.startswith("Py")}
    source, script = libraries / "stand_in.c", libraries / "stand_in.map"
    source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in wanted))
    versions: dict[str, list[str]] = {}
    for name, version in wanted.items():
        versions.setdefault(version, []).append(name)
    versions.pop("", None)  # those without one are seen as they are
    nodes = [f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in versions.items()]
    script.write_text("".join(nodes))
    made = libraries / "libstand_in.so"
    _run(
        "aarch64-linux-gnu-g++", "-x", "c", "-w", "-shared", "-fPIC", source, "-o", made,
        *([f"-Wl,--version-script={script}"] if nodes else []),
    )  # fmt: skip
    for name in missing:
        (libraries / name).unlink(missing_ok=True)
        (libraries / name).symlink_to(made.name)


_SYSTEM = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1", "ld-linux-aarch64.so.1")


def _needed(library: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.*)\]", _run("aarch64-linux-gnu-readelf", "-dW", library))


def _symbols(library: Path, which: str) -> set[tuple[str, str]]:
    """Names, with their versions; weak ones that are undefined are left out."""
    rows = (line.split() for line in _run("aarch64-linux-gnu-nm", "-D", which, library).splitlines())
    names = (row[-1] for row in rows if not (which == "--undefined-only" and row[-2] in "vw"))
    return {(name.partition("@")[0], name.rpartition("@")[2] if "@" in name else "") for name in names}


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
