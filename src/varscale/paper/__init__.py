"""The reproduction of the paper: one grid of cells, sizes, results, tables, figures and claims.

Only the command line knows it.
"""
