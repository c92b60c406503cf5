"""A tracker and the servers of boards, in a process beside the tests.

It prints the tracker's port. A line ``KEY`` on stdin starts a server with that key. As on a board, each session is a
process of its own, and a server ends with a session that crashes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading


def main() -> None:
    from tvm.rpc.server import PopenRPCServerState
    from tvm.rpc.tracker import PopenTrackerServerState

    threading.excepthook = lambda _: None
    tracker = PopenTrackerServerState("127.0.0.1", 29190, 29990, True)
    print(tracker.port, flush=True)
    servers = []
    for line in os.fdopen(os.dup(sys.stdin.fileno())):  # a session is forked, and closes sys.stdin: nobody may hold it
        os.chdir("/")  # a server that ended with its session has left the process in a folder that is gone
        address = ("127.0.0.1", tracker.port)
        with contextlib.suppress(OSError):
            servers.append(
                PopenRPCServerState("127.0.0.1", 30090, 30990, tracker_addr=address, key=line.strip(), silent=True)
            )
        print("serves", flush=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)  # the tests have ended, however that was


if __name__ == "__main__":
    main()
