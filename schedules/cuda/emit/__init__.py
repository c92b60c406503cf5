"""Parts of which the kernels of several families are written, with TVM's TIR builder."""
