"""Parts that the CPU families share.

Without TVM, for the spaces: ``registers``, ``threads``, ``blocks``, ``code_size``, ``rules``, ``float32``,
``weight_gradient``. With TVM, for the kernels: ``words``, ``vectors``, ``loops``, ``stream``.
"""
