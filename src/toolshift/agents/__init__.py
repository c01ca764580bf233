"""The tool loop of NTILC (Algorithm 1): plan, split, encode, search, constraint, dispatch, synthesis."""
