"""Candidates measured on a board: a machine without Python or PyTorch, where a server of TVM's RPC runs.

    candidates ─► build workers ─► libraries ─► a process with a session ─► tracker ─► server on the board
                                   for the CPU  uploads, runs, judges                  loads, runs, times
                                   of the board

Every session is of one request. TVM's client may wait for ever, and a board may go away at any moment: so the session
is in a process that is ended when its time is up, the server ends it on its side, too, and whatever the board is to
blame for is no candidate's failure.
"""
