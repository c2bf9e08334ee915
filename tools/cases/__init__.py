"""What make_cases.py is made of.  An operation a module: reference values, derivatives and bounds, from the
mathematics in the headers and docs/numerics.md; no code is shared with the library."""
