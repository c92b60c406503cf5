"""A handler for a process with a GPU that breaks. It starts quickly: without PyTorch."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.gpu.worker import Refused


class Sticky:
    """Does what a request says; once it is broken, nothing works any more in its process, as after an illegal access.
    Each request is noted in the file that it is made with."""

    def __init__(self, notes: str) -> None:
        self._notes = Path(notes)
        self._broken = False

    def __call__(self, request: str) -> object:
        seen = self._notes.read_text() if self._notes.exists() else ""
        self._notes.write_text(f"{seen}{request}\n")
        if request == "break" or (request == "break once" and request not in seen):
            self._broken = True
        if self._broken:
            return Refused(reason="an illegal memory access", broken=True)
        if request == "refuse":
            return Refused(reason="no template fits", broken=False)
        if request == "die":
            os._exit(3)
        if request == "hang":
            time.sleep(600)
        return {"pid": os.getpid()}
