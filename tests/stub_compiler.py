"""A script in place of the C++ compiler: it counts its calls and copies a small extension, not half a minute of C++."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from dwconv import native

_METHODS = "".join(f'{{"{name}", give, METH_VARARGS, ""}}, ' for name in (*native.FUNCTIONS, "let_through"))
_EXTENSION = f"""
#include <Python.h>
static PyObject* give(PyObject* self, PyObject* arguments) {{ return PyLong_FromLong(42); }}
static PyMethodDef methods[] = {{ {_METHODS} {{0}} }};
static struct PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "dwconv_native", "", -1, methods}};
PyMODINIT_FUNC PyInit_dwconv_native(void) {{ return PyModule_Create(&definition); }}
"""
COPY = 'shift_to_o() { while [ "$1" != -o ]; do shift; done; echo "$2"; }; cp "{extension}" "$(shift_to_o "$@")"'


def make_extension(folder: Path, *, compiler: str) -> Path:
    """A small one with the names of ours."""
    (folder / "small.c").write_text(_EXTENSION)
    include = sysconfig.get_path("include")
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-w", f"-I{include}", "small.c", "-o", "small.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "small.so"


class StubCompiler:
    """``does``: what it runs, after noting that it was called."""

    def __init__(self, folder: Path, extension: Path) -> None:
        self.path, self._calls, self._extension = folder / "stub-c++", folder / "calls", extension
        self.go = folder / "go"
        """Its maker lets a blocked compiler go on."""
        self.does(COPY)

    def does(self, script: str) -> None:
        script = script.replace("{extension}", str(self._extension))
        self.path.write_text(f'#!/bin/sh\necho called >> "{self._calls}"\n{script}\n')
        self.path.chmod(0o755)

    def waits_and_does(self, script: str) -> None:
        self.does(f'while [ ! -e "{self.go}" ]; do sleep 0.01; done\n{script}')

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().split()) if self._calls.exists() else 0
