"""Parts of which the kernels of several CPU families are written, with TVM's TIR builder."""
