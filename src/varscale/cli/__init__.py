"""The `varscale` program."""
