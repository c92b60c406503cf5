"""Arm without an Arm: kernels for NEON, calls and training, run by qemu. Times mean nothing here.

root      ``python -m tests.arm.root FOLDER``: Debian's Python for arm64, wheels for it, and ``FOLDER/bin/python``
kernels   built here for NEON, and linked by a cross compiler; verified there
train     there: a pack for every layer, ``convert``, three steps, the C++ of calls
"""
