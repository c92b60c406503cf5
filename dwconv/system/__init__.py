"""This machine: its CPU, its memory, its files, and what its processes must care for."""
