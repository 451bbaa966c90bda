"""A learned scale in other people's code: adapters to other libraries, imported by name.

Nothing here knows runs.
"""
