"""Parts that both NCHW families share: planes read and written in vectors of neighbouring columns.

Without TVM, for the spaces: ``fit``. With TVM, for the kernels: ``lanes`` (some lanes of a vector, shuffles), ``rows``
(rows read in place), ``staging`` (rows copied to scratch memory).

With a strided gradient the results of a row have ``down`` column phases. ``down`` neighbouring columns, one of each
phase, are a cell, and vectors begin where cells do: then the lanes of a vector read neighbouring columns of the source
in both passes. Without a strided gradient a cell is a column.
"""
