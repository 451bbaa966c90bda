"""The paper's experiments: cells, scales, results, tables, figures and claims."""
