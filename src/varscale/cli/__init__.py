"""The `varscale` program: one file per command, which parses, calls other rooms and prints."""
