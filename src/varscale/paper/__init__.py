"""The reproduction: one grid of cells, sizes, results, tables, figures and claims."""
