"""What a GPU is like, in plain integers: no TVM here."""
