"""SkillGraph: choose the tools with a transition graph, then order them (skillgraph.md)."""
