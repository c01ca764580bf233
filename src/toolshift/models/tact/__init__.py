"""TACT: semantic proposal, functional validation, contextual validation, validated ranking (tact.md).

One module per stage of the paper; the paper's equations are not in its public text, so every formula here is a
reconstruction unless its docstring says [G].
"""
