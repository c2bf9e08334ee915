"""The modules of make_cases.py, one for each operation: reference values, derivatives and bounds, from the
mathematics in the headers and docs/numerics.md; no code is shared with the library."""
