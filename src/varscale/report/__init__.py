"""Reports: HTML pages and plots of runs.

What presents results belongs here; nothing here trains a model or judges a claim of the paper.
"""
