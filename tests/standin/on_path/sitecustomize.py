"""Python imports this when it starts, where this folder is on PYTHONPATH."""

from tests.standin.hook import install

install()
