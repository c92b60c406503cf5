"""This machine: its CPU, its memory, its files, and what a process of it must take care of."""
