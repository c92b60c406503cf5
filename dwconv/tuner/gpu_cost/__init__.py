"""The computed cost of a CUDA candidate, read off its machine code, for a GPU that need not be here."""
