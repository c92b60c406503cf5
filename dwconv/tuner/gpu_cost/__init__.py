"""The computed cost of a CUDA candidate, for a GPU that need not be here."""
